"""The HTTP application: routes of OpenAI's API, their checks, and the wait for an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException

from locore.server.access import NEVER_SENT, Authorised, Observed
from locore.server.answers import ChatCompletion, Completion, Shape, server_sent_events
from locore.server.asking import ERRORS, answer_or_leave, require_facts, require_model, submit
from locore.server.body import LimitedBody, strict_route
from locore.server.errors import AsciiJSON, on_http_error, on_invalid_body
from locore.server.metrics import Metrics
from locore.server.openapi import describe
from locore.server.queue import Queue
from locore.server.schema import ChatRequest, Common, CompletionRequest, version
from locore.server.settings import Settings
from locore.server.website import PUBLIC_PATHS, website

STREAM = {"text/event-stream": {"schema": {"type": "string"}}}


def create_app(settings: Settings, on_failure: Callable[[], None] = lambda: None) -> FastAPI:
    """The application.

    Args:
        settings: what the server is told.
        on_failure: called if the model cannot be loaded; `app.state.queue.failure` says why.
    """
    metrics = Metrics()
    queue = Queue(settings, metrics)
    metrics.waiting.set_function(lambda: queue.depth)
    metrics.ready.set_function(lambda: sum(worker.facts is not None for worker in queue.workers))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        queue.open(on_failure)
        yield
        await queue.close()

    app = FastAPI(title="Locore", version=version(), lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.queue = queue
    app.include_router(_watching(queue, metrics))
    app.include_router(_sampling(settings, queue, metrics))
    app.include_router(website(settings, queue, metrics))
    for kind, handler in ((HTTPException, on_http_error), (RequestValidationError, on_invalid_body)):
        app.add_exception_handler(kind, handler)
    app.add_middleware(LimitedBody, max_bytes=settings.body_bytes, seconds=settings.body_seconds)
    if settings.api_key is not None:
        app.add_middleware(Authorised, api_key=settings.api_key, public=PUBLIC_PATHS)
    app.add_middleware(Observed, metrics=metrics)
    describe(app)
    return app


def _watching(queue: Queue, metrics: Metrics) -> APIRouter:
    """Is it alive, is it ready, what does it do."""
    router = APIRouter()

    @router.get("/health")
    async def health() -> dict[str, str]:
        """The server answers."""
        return {"status": "ok"}

    @router.get("/ready", responses={503: ERRORS[503]})
    async def ready() -> dict[str, str]:
        """A worker has loaded its model."""
        require_facts(queue)
        return {"status": "ready"}

    @router.get("/metrics", responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, 401: ERRORS[401]})
    async def read_metrics() -> Response:
        """For Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    return router


def _sampling(settings: Settings, queue: Queue, metrics: Metrics) -> APIRouter:
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
        job = await submit(body, queue, settings, metrics)
        shape = Shape(
            settings.model_id,
            f"locore-{version()}-{require_facts(queue)['fingerprint']}",
            isinstance(body, ChatRequest),
            body.stream_options is not None and body.stream_options.include_usage,
        )
        # A quick answer or error still has its status; what takes longer begins as a stream of comments.
        await answer_or_leave(request, job, settings.keep_alive if body.stream else None)
        if job.answer.cancelled():
            return Response(status_code=NEVER_SENT)
        result = job.answer.result() if job.done else None
        if body.stream:
            events = server_sent_events(job, shape, settings.keep_alive)
            return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        assert result is not None
        return AsciiJSON(shape.whole(result))

    @router.post("/completions", response_model=Completion, responses={200: {"content": STREAM}, **ERRORS})
    async def completions(request: Request, body: CompletionRequest) -> Response:
        """Texts that go on from a prompt and satisfy a constraint, distributed as the model's own that do."""
        return await respond(request, body)

    @router.post("/chat/completions", response_model=ChatCompletion, responses={200: {"content": STREAM}, **ERRORS})
    async def chat_completions(request: Request, body: ChatRequest) -> Response:
        """Answers to messages, by the chat template of the model."""
        return await respond(request, body)

    return router
