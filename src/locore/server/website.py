"""The page at /: its files, which anybody may read, and the one request that it needs beside OpenAI's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import APIRouter, Request, Response

from locore.server.access import NEVER_SENT
from locore.server.asking import ERRORS, answer_or_leave, submit
from locore.server.body import strict_route
from locore.server.comparisons import ComparisonAnswer
from locore.server.errors import AsciiJSON
from locore.server.metrics import Metrics
from locore.server.queue import Queue
from locore.server.schema import CompareRequest
from locore.server.settings import Settings

TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
# Nothing from elsewhere, nothing inline, and no other site may show the page within itself.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
FOLDER = files("locore.server") / "page"
NAMES = tuple(sorted(file.name for file in FOLDER.iterdir() if file.name.rpartition(".")[2] in TYPES))
PUBLIC_PATHS = frozenset({"/", *(f"/page/{name}" for name in NAMES)})


def website(settings: Settings, queue: Queue, metrics: Metrics) -> APIRouter:
    """Routes of the page."""
    router = APIRouter(route_class=strict_route(settings.json_depth))
    for name in NAMES:
        path = "/" if name == "index.html" else f"/page/{name}"
        router.add_api_route(path, _reader(name), methods=["GET"], include_in_schema=False)

    @router.post("/page/compare", response_model=ComparisonAnswer, responses=ERRORS)
    async def compare(request: Request, body: CompareRequest) -> Response:
        """Masking and Locore on the same problem, for the page."""
        job = await submit(body, queue, settings, metrics)
        await answer_or_leave(request, job, None)
        if job.answer.cancelled():
            return Response(status_code=NEVER_SENT)
        return AsciiJSON(job.answer.result())

    return router


def _reader(name: str) -> Callable[[], Awaitable[Response]]:
    """The route of one file, which is read once."""
    content, kind = (FOLDER / name).read_bytes(), TYPES[name.rpartition(".")[2]]

    async def read() -> Response:
        return Response(content, media_type=kind, headers=HEADERS)

    return read
