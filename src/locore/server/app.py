"""The HTTP application: routes of OpenAI's API, their checks, the wait for an answer, the published description, the page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException

from locore.potentials import json_forms
from locore.server.access import NEVER_SENT, Authorised, InTurn, Metrics, Observed, SameSite, key_of, owner_of
from locore.server.answers import ChatCompletion, Completion, ErrorAnswer, Shape, server_sent_events
from locore.server.api_errors import ApiError, AsciiJSON, LimitedBody, loading, on_http_error, shutting_down, strict_route
from locore.server.chats import ChatRequest
from locore.server.comparison_schema import CompareRequest, ComparisonAnswer, ModelFacts
from locore.server.jobs import Bundle
from locore.server.mistakes import on_invalid_body
from locore.server.queue import Queue
from locore.server.quota import Quotas
from locore.server.schema import Common, CompletionRequest, Sampling, refusal, version
from locore.server.settings import Settings, is_loopback

ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorAnswer, "description": "The request is wrong; `param` says where."},
    401: {"model": ErrorAnswer, "description": "No API key, or not the right one."},
    404: {"model": ErrorAnswer, "description": "No such model."},
    408: {"model": ErrorAnswer, "description": "The body came too slowly."},
    413: {"model": ErrorAnswer, "description": "The body is too large."},
    422: {"model": ErrorAnswer, "description": "Nothing satisfies the constraint, or nothing was found that does."},
    429: {"model": ErrorAnswer, "description": "Too many requests wait; see Retry-After."},
    500: {"model": ErrorAnswer, "description": "A bug, or the request needed too much memory."},
    503: {"model": ErrorAnswer, "description": "The model is loading, its process died, or the server stops."},
    504: {"model": ErrorAnswer, "description": "No answer in time."},
}
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
LOOK_SECONDS = 0.5  # between looks at how far a comparison is
STREAM = {"text/event-stream": {"schema": {"type": "string"}}}


def require_facts(queue: Queue) -> dict[str, Any]:
    """What a worker says of its model; 503 before the first is ready. Where one is started again, requests wait for it."""
    if queue.facts is None:
        raise loading()
    return queue.facts


def require_model(name: str, settings: Settings) -> None:
    """404 for any model but that of this server."""
    if name != settings.model_id:
        raise ApiError(404, f"this server has no such model; it has {settings.model_id!r}.", "model_not_found", "model")


def submit(request: Request, body: Sampling, queue: Queue, settings: Settings, metrics: Metrics, quotas: Quotas) -> Bundle:
    """The runs of a request in the queue, checked against what this server has and allows.

    Raises:
        ApiError: it is refused.
    """
    if queue.refuses:
        raise shutting_down()
    require_facts(queue)
    require_model(body.model, settings)
    tasks = body.tasks(settings.default_tokens)
    refused = refusal(tasks, settings)
    if refused is not None:
        raise ApiError(400, refused[1], "invalid_value", body.place(refused[0]))
    key, owner = key_of(request.scope), owner_of(request.scope)
    try:
        quotas.admit(owner, len(tasks))
        more = {"key": key, "constrained_by": body.place("constraint"), "charge": partial(quotas.spend, owner)}
        bundle = queue.submit(tasks, owner, **more)
    except ApiError as error:
        metrics.refused.labels(error.code).inc()
        raise

    def record(answer: asyncio.Future[dict[str, Any]]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            result = answer.result()
            metrics.record(result["diagnostics"] if "diagnostics" in result else result["locore"])

    for job in bundle.jobs:
        job.answer.add_done_callback(record)
    return bundle


async def answer_or_leave(request: Request, bundle: Bundle, seconds: float | None) -> None:
    """Until there is an answer, the client has left, or so many seconds have passed, or there is a first piece of a stream."""

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    leaving = asyncio.ensure_future(left())
    try:
        await bundle.wait(seconds, leaving, *([] if seconds is None else [bundle.news()]))
        if leaving.done() and not bundle.done:
            bundle.leave()
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        bundle.leave()
        raise
    finally:
        leaving.cancel()


async def reply(
    request: Request, bundle: Bundle, settings: Settings, whole: Callable[[], Any], events: AsyncIterator[bytes] | None
) -> Response:
    """The answer at once, or events where they are wanted.

    A quick error still has its status; what takes longer begins as a stream.
    """
    await answer_or_leave(request, bundle, None if events is None else settings.first_byte)
    if bundle.cancelled:
        return Response(status_code=NEVER_SENT)
    if events is None:
        return AsciiJSON(whole())
    if bundle.done:
        bundle.plain()
    return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})


def describe(app: FastAPI) -> None:
    """Make the application answer /openapi.json and /v1/constraint_schema."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, routes=app.routes, summary="Constrained sampling")
            forms = json_forms("#/components/schemas/")
            document["components"]["schemas"] |= forms
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]

    @app.get("/v1/constraint_schema")
    async def constraint_schema() -> dict[str, Any]:
        """The JSON Schema of the field `constraint`."""
        return published_schema()


def published_schema() -> dict[str, Any]:
    """The JSON Schema of a constraint as a document of its own."""
    forms = json_forms("#/$defs/")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": "#/$defs/Target", "$defs": forms}


NAMES = tuple(sorted(file.name for file in FOLDER.iterdir() if file.name.rpartition(".")[2] in TYPES))
PUBLIC_PATHS = frozenset({"/", *(f"/page/{name}" for name in NAMES)})


def website(settings: Settings, queue: Queue, metrics: Metrics, quotas: Quotas) -> APIRouter:
    """Routes of the page."""
    router = APIRouter(route_class=strict_route(settings.json_depth))
    for name in NAMES:
        path = "/" if name == "index.html" else f"/page/{name}"
        router.add_api_route(path, _reader(name), methods=["GET"], include_in_schema=False)

    most = {"max_tokens": settings.max_tokens, "num_particles": settings.max_particles}

    @router.get("/page/model", response_model=ModelFacts, responses={code: ERRORS[code] for code in (401, 503)})
    async def model() -> dict[str, Any]:
        """What the form of the page must know of the model and the limits."""
        return {"id": settings.model_id, "chat": require_facts(queue)["chat"], "most": most}

    @router.post("/page/compare", response_model=ComparisonAnswer, responses={200: {"content": STREAM}, **ERRORS})
    async def compare(request: Request, body: CompareRequest) -> Response:
        """Masking and Locore on the same problem, for the page; with `stream` as events that say how far it is."""
        bundle = submit(request, body, queue, settings, metrics, quotas)
        (job,) = bundle.jobs

        def done() -> list[dict[str, Any]]:
            return [{"state": "done", "answer": bundle.plain()[0]}]

        pause = min(settings.keep_alive, LOOK_SECONDS)
        events = server_sent_events(bundle, done, pause, lambda: queue.state(job)) if body.stream else None
        return await reply(request, bundle, settings, lambda: bundle.plain()[0], events)

    return router


def _reader(name: str) -> Callable[[], Awaitable[Response]]:
    """The route of one file, which is read once."""
    content, kind = (FOLDER / name).read_bytes(), TYPES[name.rpartition(".")[2]]

    async def read() -> Response:
        return Response(content, media_type=kind, headers=HEADERS)

    return read


def create_app(settings: Settings, on_failure: Callable[[], None] = lambda: None) -> FastAPI:
    """The application.

    Args:
        settings: what the server is told.
        on_failure: called if the model cannot be loaded; `app.state.queue.failure` says why.
    """
    metrics = Metrics()
    queue = Queue(settings, metrics)
    quotas = Quotas(settings.requests_per_minute, settings.lm_tokens_per_minute)
    metrics.waiting.set_function(lambda: queue.depth)
    metrics.running.set_function(lambda: queue.running)
    metrics.rows.set_function(lambda: queue.rows)
    metrics.ready.set_function(lambda: sum(worker.facts is not None for worker in queue.workers))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        queue.open(on_failure)
        yield
        await queue.close()

    app = FastAPI(title="Locore", version=version(), lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.queue = queue
    app.include_router(_watching(queue, metrics))
    app.include_router(_sampling(settings, queue, metrics, quotas))
    app.include_router(website(settings, queue, metrics, quotas))
    for kind, handler in ((HTTPException, on_http_error), (RequestValidationError, on_invalid_body)):
        app.add_exception_handler(kind, handler)
    app.add_middleware(InTurn)
    app.add_middleware(LimitedBody, max_bytes=settings.body_bytes, seconds=settings.body_seconds)
    if settings.api_key is not None:
        app.add_middleware(Authorised, keys=settings.keys, public=PUBLIC_PATHS)
    app.add_middleware(SameSite, hosts=settings.hosts, any_host=settings.api_key is not None or not is_loopback(settings.host))
    app.add_middleware(Observed, metrics=metrics)
    describe(app)
    return app


def _watching(queue: Queue, metrics: Metrics) -> APIRouter:
    """Is it alive, is it ready, what does it do."""
    router = APIRouter()

    @router.head("/health", include_in_schema=False)
    @router.get("/health")
    async def health() -> dict[str, str]:
        """The server answers."""
        return {"status": "ok"}

    @router.head("/ready", include_in_schema=False)
    @router.get("/ready", responses={503: ERRORS[503]})
    async def ready() -> dict[str, str]:
        """A worker has loaded its model, and the server takes requests."""
        if queue.refuses:
            raise shutting_down()
        if not queue.is_ready:
            raise loading()
        return {"status": "ready"}

    @router.get("/metrics", responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, 401: ERRORS[401]})
    async def read_metrics() -> Response:
        """For Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    return router


def _shape_of(body: Common, settings: Settings) -> Shape:
    """What the answer looks like."""
    has_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    calls = body.calls() if isinstance(body, ChatRequest) else None
    return Shape(settings.model_id, isinstance(body, ChatRequest), has_usage, calls)


def _sampling(settings: Settings, queue: Queue, metrics: Metrics, quotas: Quotas) -> APIRouter:
    """Models and texts."""
    router = APIRouter(prefix="/v1", route_class=strict_route(settings.json_depth))
    card = {"id": settings.model_id, "object": "model", "created": 0, "owned_by": "locore"}

    @router.get("/models", responses={401: ERRORS[401]})
    async def models() -> dict[str, Any]:
        """The one model of this server."""
        return {"object": "list", "data": [card]}

    @router.get("/models/{name:path}", responses={code: ERRORS[code] for code in (401, 404)})
    async def one_model(name: str) -> dict[str, Any]:
        """The model of this name."""
        require_model(name, settings)
        return card

    async def respond(request: Request, body: Common) -> Response:
        bundle, shape = submit(request, body, queue, settings, metrics, quotas), _shape_of(body, settings)

        def chunks() -> Iterator[dict[str, Any]]:
            return shape.chunks(bundle.results())

        def pieces() -> Iterator[dict[str, Any]]:
            return shape.pieces(bundle.jobs)

        events = server_sent_events(bundle, chunks, settings.keep_alive, pieces=pieces) if body.stream else None
        return await reply(request, bundle, settings, lambda: shape.whole(bundle.results()), events)

    @router.post("/completions", response_model=Completion, responses={200: {"content": STREAM}, **ERRORS})
    async def completions(request: Request, body: CompletionRequest) -> Response:
        """Texts that go on from a prompt and satisfy a constraint, distributed as the model's own that do."""
        return await respond(request, body)

    @router.post("/chat/completions", response_model=ChatCompletion, responses={200: {"content": STREAM}, **ERRORS})
    async def chat_completions(request: Request, body: ChatRequest) -> Response:
        """Answers to messages, by the chat template of the model."""
        return await respond(request, body)

    return router
