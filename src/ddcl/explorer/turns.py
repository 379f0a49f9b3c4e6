"""Work that takes a while, one piece at a time, dropped as soon as nobody waits for it any more."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

GIVEN_UP = 499
"""The status, which nobody reads, of a request that was taken back."""
LOOKED_AFTER = 0.05
"""Seconds between two looks whether someone still waits."""

StillWanted = Callable[[], bool]
Work = Callable[[StillWanted], dict[str, Any]]
"""Computes an answer; asks now and then whether it is still wanted, and raises :class:`GivenUpError` if not."""


class GivenUpError(Exception):
    """Nobody waits for the answer."""


class Turns:
    """A thread of its own for one kind of work: torch keeps threads for each thread that computes, so one is fastest.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self.thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._turn = asyncio.Lock()
        self._closed = threading.Event()

    def close(self) -> None:
        """Nothing is wanted any more, as the server stops."""
        self._closed.set()

    async def answer(self, request: Request, work: Work) -> Response:
        """What the work gives, with how many ``milliseconds`` it took.

        Someone who types asks again before the last answer is there: a request taken back before its turn is not
        begun, and one under way is told.
        """
        async with self._turn:
            if self._closed.is_set() or await request.is_disconnected():
                return Response(status_code=GIVEN_UP)
            given_up = threading.Event()

            def still_wanted() -> bool:
                return not (given_up.is_set() or self._closed.is_set())

            began = time.perf_counter()
            running = asyncio.get_running_loop().run_in_executor(self.thread, work, still_wanted)
            try:
                while not (await asyncio.wait([running], timeout=LOOKED_AFTER))[0]:
                    if await request.is_disconnected():
                        given_up.set()
                found = await running
            except GivenUpError:
                return Response(status_code=GIVEN_UP)
        return JSONResponse(found | {"milliseconds": round(1e3 * (time.perf_counter() - began), 2)})
