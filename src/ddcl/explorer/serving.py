"""A server on this machine, for this machine."""

from __future__ import annotations

import os
import platform
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
import uvicorn
from starlette.types import ASGIApp

from ddcl.fitting import BadInputError

ADDRESS = "127.0.0.1"
USUAL_PORT, TRIED_PORTS = 8321, 50


def listen(port: int | None = None) -> socket.socket:
    """A socket that only this machine reaches: at the port given, or else at the first free one from the usual on."""
    if port is not None:
        try:
            return _bound(port)
        except OSError as error:
            raise BadInputError(f"--port: {port} cannot be had ({error.strerror or error}); try another") from error
    for usual in range(USUAL_PORT, USUAL_PORT + TRIED_PORTS):
        try:
            return _bound(usual)
        except OSError:
            continue
    raise BadInputError(f"all ports from {USUAL_PORT} to {USUAL_PORT + TRIED_PORTS - 1} are taken; give one by --port")


def address_of(listening: socket.socket) -> str:
    """What to type into a browser."""
    return f"http://{ADDRESS}:{listening.getsockname()[1]}/"


class LocalServer:
    """Serves an application at a socket of :func:`listen`.

    Args:
        app: what is served.
        listening: where.
        close: called when it is to stop, so that work under way comes to an end.
    """

    def __init__(self, app: ASGIApp, listening: socket.socket, close: Callable[[], None]) -> None:
        self.listening = listening
        config = uvicorn.Config(app, ws="none", log_level="error", access_log=False, server_header=False)
        self._server = _Server(config, close)

    def run(self) -> None:
        """Serve until Ctrl-C or :meth:`stop`; the whole process meanwhile computes as is best for one sentence."""
        with _computing_for_one_sentence():
            try:
                self._server.run(sockets=[self.listening])
            except KeyboardInterrupt:  # handed on when all connections are closed
                return

    @contextmanager
    def beside(self) -> Iterator[str]:
        """Serve on a thread while the block lasts; gives the address."""
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield address_of(self.listening)
        finally:
            self.stop()
            thread.join()

    def stop(self) -> None:
        """Let :meth:`run`, on another thread, come to its end."""
        self._server.close()
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """One that tells when it is to stop, before it waits for what it serves."""

    def __init__(self, config: uvicorn.Config, close: Callable[[], None]) -> None:
        super().__init__(config)
        self.close = close

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.close()
        super().handle_exit(sig, frame)


@contextmanager
def _computing_for_one_sentence() -> Iterator[None]:
    """On Linux for Arm, oneDNN arranges an encoder's weights anew at each call, for longer than a sentence takes."""
    if platform.machine() != "aarch64":
        yield
        return
    before = _set_onednn(False)
    try:
        yield
    finally:
        _set_onednn(*before)


def _set_onednn(*flags: Any) -> tuple[Any, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it speaks of a precision that stays as it is
        found: tuple[Any, ...] = torch.backends.mkldnn.set_flags(*flags)
        return found


def _bound(port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # there it means "though an old connection lingers", elsewhere "though someone listens"
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((ADDRESS, port))
        found.listen()
    except OSError:
        found.close()
        raise
    return found
