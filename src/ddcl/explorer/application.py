"""The web application: one page, its files, and what they ask for as JSON."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ddcl.explorer.explored import ExploredRun
from ddcl.explorer.guards import Guard, RefusedError, body_of
from ddcl.explorer.questions import integer, paging, question
from ddcl.fitting import BadInputError

PAGE = Path(__file__).parent / "page"
GIVEN_UP = 499
"""The status, which nobody reads, of a request that was taken back before its turn."""


def application(run: ExploredRun) -> Starlette:
    """What a server serves of a run."""
    answers = _Answers(run)
    return Starlette(
        routes=[
            Mount(
                "/api",
                routes=[
                    Route("/run", answers.overview),
                    Route("/map", answers.map),
                    Route("/phases", answers.phases),
                    Route("/rows", answers.rows),
                    Route("/rows/{number:int}", answers.row),
                    Route("/explain", answers.explain, methods=["POST"]),
                    Route("/words", answers.words, methods=["POST"]),
                    Route("/prototypes/{number:int}/name", answers.rename, methods=["PUT"]),
                ],
            ),
            Mount("/", StaticFiles(directory=PAGE, html=True)),
        ],
        middleware=[Middleware(Guard)],
        exception_handlers={
            RefusedError: _refused,
            BadInputError: _bad_input,
            HTTPException: _http_error,
        },
    )


class _Answers:
    """One method for each question; what computes does so on a thread, one at a time."""

    def __init__(self, run: ExploredRun) -> None:
        self.run = run
        self._reading, self._weighing = asyncio.Lock(), asyncio.Lock()

    async def overview(self, _: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self.run.overview))

    async def map(self, _: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self.run.map))

    async def phases(self, _: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self.run.phases))

    async def rows(self, request: Request) -> Response:
        asked, page = question(request.query_params), paging(request.query_params)
        return JSONResponse(await run_in_threadpool(self.run.rows.page, asked, *page))

    async def row(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self.run.row, request.path_params["number"]))

    async def explain(self, request: Request) -> Response:
        asked = await _json(request)
        if "row" in asked:
            work = partial(self.run.explain_row, integer("row", asked["row"]))
        else:
            work = partial(self.run.explain_text, _text(asked, "text"))
        return await _in_turn(self._reading, request, work)

    async def words(self, request: Request) -> Response:
        asked = await _json(request)
        work = partial(self.run.words, _text(asked, "text"), integer("prototype", asked.get("prototype")))
        return await _in_turn(self._weighing, request, work)

    async def rename(self, request: Request) -> Response:
        name = _text(await _json(request), "name")
        names = await run_in_threadpool(self.run.rename, request.path_params["number"], name)
        return JSONResponse({"names": names})


async def _in_turn(turn: asyncio.Lock, request: Request, work: Callable[[], dict[str, Any]]) -> Response:
    """Someone who types asks again before the last answer is there: what was taken back meanwhile is left undone."""
    async with turn:
        if await request.is_disconnected():
            return Response(status_code=GIVEN_UP)
        began = time.perf_counter()
        found = await run_in_threadpool(work)
        return JSONResponse(found | {"milliseconds": round(1e3 * (time.perf_counter() - began), 2)})


async def _json(request: Request) -> dict[str, Any]:
    try:
        found = json.loads(await body_of(request))
    except (ValueError, RecursionError):
        raise RefusedError(400, "the request is no JSON") from None
    if not isinstance(found, dict):
        raise RefusedError(400, "the request must be a JSON object")
    return found


def _text(asked: dict[str, Any], name: str) -> str:
    found = asked.get(name)
    if not isinstance(found, str):
        raise RefusedError(400, f"{name}: expected a string")
    return found.encode("utf-8", "replace").decode("utf-8")  # JSON can spell half a surrogate pair, UTF-8 cannot


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError), "registered for nothing else"
    return error.response()


async def _bad_input(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 400)


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for nothing else"
    return JSONResponse({"error": error.detail}, error.status_code)
