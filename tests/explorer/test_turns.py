"""Work that nobody waits for is dropped: before it begins, and half done."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.request
from contextlib import contextmanager

from starlette.applications import Starlette
from starlette.routing import Route

from ddcl.explorer import LocalServer, listen
from ddcl.explorer.turns import GivenUpError, Turns

PATIENCE = 20


class Slow:
    """An application whose answers to /slow never come, and which tells what became of them."""

    def __init__(self):
        self.begun, self.dropped = threading.Semaphore(0), threading.Semaphore(0)
        self.beginnings = 0
        self.turns = turns = Turns("slow")

        async def slow(request):
            return await turns.answer(request, self.until_dropped)

        async def quick(request):
            return await turns.answer(request, lambda wanted: {"wanted": wanted()})

        self.app = Starlette(routes=[Route("/slow", slow), Route("/quick", quick)])

    def until_dropped(self, wanted):
        self.beginnings += 1
        self.begun.release()
        while wanted():
            time.sleep(0.005)
        self.dropped.release()
        raise GivenUpError


@contextmanager
def served(slow):
    with listen() as listening, LocalServer(slow.app, listening, slow.turns.close).beside() as address:
        yield address


def asked(address, path):
    """A request that is on its way; closing it takes it back."""
    port = int(address.rsplit(":", 1)[1].rstrip("/"))
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    return connection


def test_a_request_that_is_taken_back_stops_the_work_for_it():
    slow = Slow()
    with served(slow) as address:
        first = asked(address, "/slow")
        assert slow.begun.acquire(timeout=PATIENCE)
        first.close()
        assert slow.dropped.acquire(timeout=PATIENCE)
        with urllib.request.urlopen(f"{address}quick", timeout=PATIENCE) as response:
            answer = json.load(response)
    assert answer["wanted"] is True
    assert answer["milliseconds"] >= 0


def test_one_that_is_taken_back_before_its_turn_is_never_begun():
    slow = Slow()
    with served(slow) as address:
        first = asked(address, "/slow")
        assert slow.begun.acquire(timeout=PATIENCE)
        waiting = asked(address, "/slow")
        time.sleep(0.1)  # until it stands in the queue; too short a time would only make the test easier
        waiting.close()
        time.sleep(0.1)
        first.close()
        with urllib.request.urlopen(f"{address}quick", timeout=PATIENCE) as response:
            assert json.load(response)["wanted"] is True
    assert slow.beginnings == 1


def test_a_server_that_stops_waits_for_no_work():
    slow = Slow()
    with served(slow) as address:
        someone = asked(address, "/slow")
        assert slow.begun.acquire(timeout=PATIENCE)
    someone.close()
    assert slow.dropped.acquire(timeout=PATIENCE)
