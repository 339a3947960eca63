"""Errors in OpenAI's shape with their HTTP status; and bodies from anybody: bounded in bytes, time and depth, strict JSON."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from locore import io

# By the class that the library raised in the worker.
FROM_LIBRARY = {
    "InvalidConstraint": (400, "invalid_constraint"),
    "UnsupportedKeyword": (400, "invalid_constraint"),
    "InvalidArgument": (400, "invalid_value"),
    "CannotScore": (400, "cannot_score"),
    "BudgetExceeded": (400, "budget_exceeded"),
    "MissingTemplate": (400, "no_chat_template"),
    "Unsatisfiable": (422, "unsatisfiable_constraint"),
    "ZeroWeights": (422, "no_valid_sample"),
}
TYPES = {401: "authentication_error", 429: "rate_limit_error"}
OUT_OF_MEMORY = "the request needs more memory than a worker may use; ask for fewer tokens or particles, or for less."
NO_RETRY = {"x-should-retry": "false"}  # OpenAI's clients try again after 5xx unless told not to
DRAINED = 32  # bodies of so many times the limit are read to their end and thrown away, so that the client sees the answer


class ApiError(HTTPException):
    """An answer that is an error."""

    def __init__(
        self, status: int, message: str, code: str, param: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(status, message, headers)
        self.code = code
        self.param = param

    def body(self) -> dict[str, Any]:
        """In OpenAI's shape."""
        kind = TYPES.get(self.status_code, "server_error" if self.status_code >= 500 else "invalid_request_error")
        return {"error": {"message": self.detail, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        """As an HTTP answer."""
        return AsciiJSON(self.body(), self.status_code, self.headers)


class AsciiJSON(JSONResponse):
    """JSON in ASCII: text from outside may hold lone surrogates, which have no UTF-8."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def from_worker(kind: str, message: str, constrained_by: str = "constraint") -> ApiError:
    """The answer to a request, constrained by this field, whose computation failed with an exception of this class.

    What is not an error on purpose is a bug of ours, and its text may hold what the user wrote: it is not passed on.
    """
    if kind in FROM_LIBRARY:
        status, code = FROM_LIBRARY[kind]
        param = {name: constrained_by for name in ("invalid_constraint", "unsatisfiable_constraint")}
        return ApiError(status, message, code, {**param, "no_chat_template": "messages"}.get(code))
    if kind == "MissingExtra":
        return ApiError(501, message, "missing_extra", headers=NO_RETRY)
    if kind == "BrokenModel":
        return ApiError(500, message, "broken_model", headers=NO_RETRY)
    if kind == "MemoryError":
        return ApiError(500, OUT_OF_MEMORY, "out_of_memory", headers=NO_RETRY)
    return ApiError(500, "internal error; the log of the server has its traceback.", "internal_error", headers=NO_RETRY)


def timed_out(seconds: float, waited: float | None, lm_tokens: int) -> ApiError:
    """504: so much of these seconds it waited for others, None for all, and then it spent so many LM tokens."""
    message = f"not begun within {seconds:g} seconds, others came first; ask again later."
    if waited is not None:
        spent = f"it waited for {waited:.2g}, and then spent {lm_tokens:,} LM tokens"
        message = f"no answer within {seconds:g} seconds: {spent}; ask for fewer tokens or particles, or set a smaller budget."
    return ApiError(504, message, "timeout", headers=NO_RETRY)


def worker_died() -> ApiError:
    """503: the process that was computing this ended."""
    return ApiError(
        503,
        "the worker process that computed this request ended unexpectedly and is being started again; nothing was sampled.",
        "worker_died",
        headers={"Retry-After": "5"},
    )


def loading() -> ApiError:
    """503."""
    return ApiError(503, "the model is being loaded.", "loading", headers={"Retry-After": "2"})


def shutting_down() -> ApiError:
    """503."""
    return ApiError(503, "the server is shutting down.", "shutting_down", headers={"Retry-After": "30"})


async def on_http_error(request: Request, error: Exception) -> JSONResponse:
    """Our own errors, and those of the framework (404, 405, …)."""
    if isinstance(error, ApiError):
        return error.response()
    assert isinstance(error, StarletteHTTPException)
    reasons = {
        404: ("there is nothing at this path; /openapi.json lists all.", "not_found"),
        405: ("this path does not take this method; /openapi.json says which.", "method_not_allowed"),
    }
    shown = ApiError(error.status_code, *reasons.get(error.status_code, (str(error.detail), "invalid_request")))
    shown.headers = error.headers
    return shown.response()


class LimitedBody:
    """ASGI middleware: reads the whole body, or answers 413 or 408."""

    def __init__(self, app: ASGIApp, max_bytes: int, seconds: float) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self.seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        names = {name for name, _ in scope["headers"]}
        if {b"content-length", b"transfer-encoding"} <= names:  # a proxy may go by the one, and this server by the other
            error = ApiError(
                400, "the body has two lengths, by Content-Length and by Transfer-Encoding; send one.", "two_lengths"
            )
            return await _refuse(error, scope, receive, send)
        if scope["method"] in ("GET", "HEAD"):
            return await self.app(scope, receive, send)
        try:
            async with asyncio.timeout(self.seconds):
                body = await self._read(receive)
        except TimeoutError:
            late = ApiError(408, f"the body did not arrive within {self.seconds:g} seconds.", "body_timeout")
            return await _refuse(late, scope, receive, send)
        except ApiError as error:
            return await _refuse(error, scope, receive, send)
        if body is None:  # the client has left
            return None
        first: Message | None = {"type": "http.request", "body": body, "more_body": False}

        async def replay() -> Message:
            nonlocal first
            message, first = first, None
            return await receive() if message is None else message

        return await self.app(scope, replay, send)

    async def _read(self, receive: Receive) -> bytes | None:
        parts: list[bytes] = []
        size, more = 0, True
        while more and size <= DRAINED * self.max_bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part = message.get("body", b"")
            size += len(part)
            if size <= self.max_bytes:
                parts.append(part)
            else:
                parts.clear()
            more = message.get("more_body", False)
        if size > self.max_bytes:
            raise ApiError(413, f"the body is larger than {self.max_bytes:,} bytes; send less.", "body_too_large")
        return b"".join(parts)


async def _refuse(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    response = error.response()
    response.headers["connection"] = "close"  # what is left of the body must not be read as the next request
    await response(scope, receive, send)


def strict_json(body: bytes, max_depth: int) -> Any:
    """The value of a JSON text.

    Raises:
        ApiError: no UTF-8, no JSON, nested too deeply, a name twice in one object, or a number that JSON does not have.
    """
    try:
        return io.parse(body.decode("utf-8"), max_depth)
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is no UTF-8: {error.reason} at byte {error.start}.", "invalid_json") from None
    except io.NotJson as error:
        raise ApiError(400, f"the body {error}.", "invalid_json") from None


def strict_route(max_depth: int) -> type[APIRoute]:
    """The class of routes whose bodies are read by `strict_json`."""

    class StrictRequest(Request):
        async def json(self) -> Any:
            return strict_json(await self.body(), max_depth)

    class StrictRoute(APIRoute):
        def get_route_handler(self) -> Any:
            handle = super().get_route_handler()

            async def strict(request: Request) -> Response:
                return await handle(StrictRequest(request.scope, request.receive))

            return strict

    return StrictRoute
