"""The web application: one page, its files, and what they ask for as JSON."""

from __future__ import annotations

import asyncio
import json
import mimetypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
from ddcl.explorer.turns import Turns
from ddcl.fitting import BadInputError

PAGE = Path(__file__).parent / "page"


def application(run: ExploredRun) -> Starlette:
    """What a server serves of a run; its ``state.close()`` drops all work under way."""
    # machines may say otherwise, as some Windows registries do, and then no browser runs the page's modules
    mimetypes.add_type("text/javascript", ".js")
    answers = _Answers(run)
    app = Starlette(
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
        lifespan=answers.warmed,
        exception_handlers={
            RefusedError: _refused,
            BadInputError: _bad_input,
            OSError: _disk_error,
            HTTPException: _http_error,
        },
    )
    app.state.close = answers.close
    return app


class _Answers:
    """One method for each question; none keeps the others waiting."""

    def __init__(self, run: ExploredRun) -> None:
        self.run = run
        self._reading, self._weighing = Turns("reading"), Turns("weighing")

    def close(self) -> None:
        self._reading.close()
        self._weighing.close()

    @asynccontextmanager
    async def warmed(self, _: Starlette) -> AsyncIterator[None]:
        """Before the server begins: the first time is slow, in each thread."""
        await asyncio.get_running_loop().run_in_executor(self._reading.thread, self.run.warm)
        yield

    async def overview(self, _: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self.run.overview))

    async def map(self, _: Request) -> Response:
        return JSONResponse(await run_in_threadpool(lambda: self.run.map))

    async def phases(self, _: Request) -> Response:
        return JSONResponse(await run_in_threadpool(lambda: self.run.phases))

    async def rows(self, request: Request) -> Response:
        asked, page = question(request.query_params), paging(request.query_params)
        return JSONResponse(await run_in_threadpool(self.run.rows.page, asked, *page))

    async def row(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self.run.row, request.path_params["number"]))

    async def explain(self, request: Request) -> Response:
        asked = await _json(request)
        if "row" in asked:
            row = integer("row", asked["row"])
            return await self._reading.answer(request, lambda _: self.run.explain_row(row))
        text = _text(asked, "text")
        return await self._reading.answer(request, lambda _: self.run.explain_text(text))

    async def words(self, request: Request) -> Response:
        asked = await _json(request)
        text, prototype = _text(asked, "text"), integer("prototype", asked.get("prototype"))
        return await self._weighing.answer(request, lambda wanted: self.run.words(text, prototype, wanted))

    async def rename(self, request: Request) -> Response:
        name = _text(await _json(request), "name")
        names = await run_in_threadpool(self.run.rename, request.path_params["number"], name)
        return JSONResponse({"names": names})


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


async def _disk_error(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"the run folder cannot be read or written ({error})"}, 500)


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for nothing else"
    return JSONResponse({"error": error.detail}, error.status_code)
