"""Request bodies from anybody: bounded in bytes, in time and in depth, and strict JSON."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from locore import jsontext
from locore.server.errors import ApiError

DRAINED = 32  # bodies of so many times the limit are read to their end and thrown away, so that the client sees the answer


class LimitedBody:
    """ASGI middleware: reads the whole body, or answers 413 or 408."""

    def __init__(self, app: ASGIApp, max_bytes: int, seconds: float) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self.seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
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
        return jsontext.parse(body.decode("utf-8"), max_depth)
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is no UTF-8: {error.reason} at byte {error.start}.", "invalid_json") from None
    except jsontext.NotJson as error:
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
