"""What a local server owes its user: only pages of its own may talk to it.

Any web page can send requests to 127.0.0.1, and one whose name is made to point there (DNS rebinding) may even read the
answers. So foreign host names and origins are refused, what changes something must be JSON, which no foreign form can
send, and the page itself may load nothing from elsewhere.
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = ("127.0.0.1", "localhost")
LARGEST_BODY = 2**20
"""Bytes of a request: a text of 100,000 characters, however it is escaped, fits."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # names and texts change under the same address
    "cache-control": "no-store",
}


class RefusedError(Exception):
    """A request that is not served.

    Args:
        status: of HTTP.
        sentence: why, for the one who asked.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence

    def response(self) -> JSONResponse:
        """What is answered instead."""
        return JSONResponse({"error": self.sentence}, self.status)


class Guard:
    """Around an application: refuses what is not from its own page, and forbids the page everything foreign.

    Args:
        app: what is guarded.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or refuse."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            check(str(scope["method"]), str(scope["path"]), Headers(scope=scope))
        except RefusedError as refused:
            await refused.response()(scope, receive, with_headers)
        else:
            await self.app(scope, receive, with_headers)


def check(method: str, path: str, headers: Headers) -> None:
    """Raise :class:`RefusedError` unless a request comes from the application's own page, or from no page at all."""
    host = headers.get("host", "")
    if host.rsplit(":", 1)[0] not in HOSTS:
        raise RefusedError(400, "this server answers to 127.0.0.1 and localhost only")
    origin = headers.get("origin")
    if origin is not None and origin != f"http://{host}":
        raise RefusedError(403, "requests from other pages are refused")
    if path.startswith("/api/") and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise RefusedError(403, "requests from other pages are refused")
    if method not in ("GET", "HEAD") and headers.get("content-type", "").split(";")[0].strip() != "application/json":
        raise RefusedError(415, "the content type must be application/json")


async def body_of(request: Request) -> bytes:
    """The body of a request, refused as soon as it is too long."""
    whole = bytearray()
    async for piece in request.stream():
        whole += piece
        if len(whole) > LARGEST_BODY:
            raise RefusedError(413, f"the request is longer than {LARGEST_BODY} bytes")
    return bytes(whole)
