"""What every route that samples does: check, wait in the queue, and stop if the client leaves."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request

from locore.server.answers import ErrorAnswer
from locore.server.errors import ApiError
from locore.server.jobs import Job
from locore.server.metrics import Metrics
from locore.server.queue import Queue
from locore.server.schema import Sampling, refusal
from locore.server.settings import Settings

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


def require_facts(queue: Queue) -> dict[str, Any]:
    """What a worker says of its model; 503 if none is ready."""
    if queue.facts is None:
        raise ApiError(503, "the model is being loaded.", "loading", headers={"Retry-After": "2"})
    return queue.facts


def require_model(name: str, settings: Settings) -> None:
    """404 for any model but that of this server."""
    if name != settings.model_id:
        raise ApiError(404, f"this server has no such model; it has {settings.model_id!r}.", "model_not_found", "model")


async def submit(body: Sampling, queue: Queue, settings: Settings, metrics: Metrics) -> Job:
    """The request in the queue, checked against what this server has and allows.

    Raises:
        ApiError: it is refused.
    """
    require_facts(queue)
    require_model(body.model, settings)
    wanted = body.settings()
    refused = refusal(wanted, settings)
    if refused is not None:
        raise ApiError(400, refused[1], "invalid_value", refused[0])
    job = await queue.submit(wanted)
    job.answer.add_done_callback(lambda answer: _record(answer, metrics))
    return job


async def answer_or_leave(request: Request, job: Job, seconds: float | None) -> None:
    """Until there is an answer, the client has left, or so many seconds have passed."""

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    leaving = asyncio.ensure_future(left())
    try:
        waited: set[asyncio.Future[Any]] = {job.answer, leaving}
        await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if leaving.done() and not job.done:
            job.leave()
    except asyncio.CancelledError:
        job.leave()
        raise
    finally:
        leaving.cancel()


def _record(answer: asyncio.Future[dict[str, Any]], metrics: Metrics) -> None:
    if not answer.cancelled() and answer.exception() is None:
        metrics.record(answer.result()["locore"])
