"""ASGI middleware around every request: who may ask, and what is counted and logged. Never prompts, texts or keys.

No label of what Prometheus reads at /metrics holds anything that a client can choose freely.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import logging
import time
import traceback
import uuid
from collections import deque
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from locore.server.api_errors import ApiError, from_worker
from locore.server.settings import is_loopback

SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.9, 1.0)
log = logging.getLogger("locore.server")
OPEN = ("/health", "/ready")  # for whoever watches the server
QUICKLY = 0.01  # seconds, in which nothing was compiled that took long
NEVER_SENT = 499  # the client had left


class Metrics:
    """Of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.requests = Counter("locore_requests", "Answers, by route and HTTP status.", ("route", "status"), registry=registry)
        self.seconds = Histogram(
            "locore_request_seconds", "From request to answer.", ("route",), buckets=SECONDS, registry=registry
        )
        self.waiting = Gauge("locore_queue_depth", "Requests that wait for a worker.", registry=registry)
        self.ready = Gauge("locore_workers_ready", "Workers with a loaded model.", registry=registry)
        self.running = Gauge("locore_runs", "Runs that workers are busy with.", registry=registry)
        self.rows = Gauge("locore_rows", "Rows of forward passes that these may fill.", registry=registry)
        self.stopped = Counter("locore_stopped", "Work that was stopped, by reason.", ("reason",), registry=registry)
        self.restarts = Counter("locore_worker_restarts", "Workers that ended and were started again.", registry=registry)
        self.reloads = Counter("locore_reloads", "Models that were loaded anew on SIGHUP.", ("result",), registry=registry)
        for result in ("success", "failure"):
            self.reloads.labels(result)
        self.compiling = Histogram("locore_compile_seconds", "Of compiling a constraint.", buckets=SECONDS, registry=registry)
        self.sampling = Histogram("locore_sample_seconds", "Of compiling and sampling.", buckets=SECONDS, registry=registry)
        self.ess = Histogram("locore_ess_ratio", "Effective sample size over particles.", buckets=SHARES, registry=registry)
        self.tokens = Counter("locore_lm_tokens", "Next-token distributions asked of the model.", registry=registry)
        self.refused = Counter(
            "locore_refused", "Requests that were refused for lack of room, by reason.", ("reason",), registry=registry
        )
        self.cached = Counter("locore_compile_hits", "Constraints whose circuit was there already.", registry=registry)
        self.verdicts = Counter("locore_verdicts", "Answers, by verdict on their weights.", ("verdict",), registry=registry)

    def record(self, diagnostics: dict[str, Any]) -> None:
        """The `locore` object of one answer."""
        self.compiling.observe(diagnostics["compile_seconds"])
        self.cached.inc(diagnostics["compile_seconds"] < QUICKLY)
        self.sampling.observe(diagnostics["seconds"])
        if diagnostics["ess"] is not None:
            self.ess.observe(diagnostics["ess"] / diagnostics["num_particles"])
        self.verdicts.labels(diagnostics["verdict"]).inc()

    def text(self) -> bytes:
        """In the format of Prometheus."""
        return generate_latest(self.registry)


class Authorised:
    """Answers 401 to whoever does not know the key, except at paths that tell nothing."""

    def __init__(self, app: ASGIApp, keys: tuple[str, ...], public: frozenset[str] = frozenset()) -> None:
        self.app = app
        self._open = public.union(OPEN)
        self._keys = {name_of_key(key): key.encode() for key in keys}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and scope["path"] not in self._open:
            scheme, _, given = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
            # All are compared, so that the time says nothing.
            owners = [name for name, key in self._keys.items() if hmac.compare_digest(given.strip(), key)]
            if scheme.lower() != b"bearer" or not owners:
                error = ApiError(
                    401,
                    "no API key, or not the right one; send it as Authorization: Bearer KEY.",
                    "invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )
                return await error.response()(scope, receive, send)
            scope.setdefault("state", {})["owner"] = owners[0]
        return await self.app(scope, receive, send)


def name_of_key(key: str) -> str:
    """By which logs and metrics tell keys apart without telling them."""
    return hashlib.sha256(key.encode()).hexdigest()[:8]


def address_of(scope: Scope) -> str:
    """The network address that a request comes from, where it has one; of IPv6 the first half, as one client has the rest."""
    host = (scope.get("client") or ("",))[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ""
    return host if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))


def key_of(scope: Scope) -> str:
    """The name of the key that a request came with; "" where there are no keys."""
    return str(scope.get("state", {}).get("owner", ""))


def owner_of(scope: Scope) -> str:
    """Whose request it is: the name of its key, or its address where there are no keys."""
    return key_of(scope) or address_of(scope)


class InTurn:
    """Reads one request of each owner after the other, so that nobody waits until all requests of another are read."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._busy = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and scope["method"] == "POST":
            loop = asyncio.get_running_loop()
            turn = loop.create_future()
            self._waiting.setdefault(owner_of(scope), deque()).append(turn)
            if not self._busy:
                self._busy = True
                loop.call_soon(self._next)
            await turn
        return await self.app(scope, receive, send)

    def _next(self) -> None:
        """Whose turn it is goes on at once, until it waits for a worker; then the next one does."""
        self._busy = bool(self._waiting)
        if not self._waiting:
            return
        owner = next(iter(self._waiting))
        waiting = self._waiting.pop(owner)
        turn = waiting.popleft()
        if waiting:
            self._waiting[owner] = waiting  # behind the others
        if not turn.done():
            turn.set_result(None)
        turn.get_loop().call_soon(self._next)


class SameSite:
    """Answers 403 to pages of other sites, and to names that are not this server's.

    A page of another site can ask in the name of a visitor, and its name can be made to lead to this machine (DNS rebinding);
    without a key nothing else would keep it out. Clients that are no browser send no Origin.
    """

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...], any_host: bool) -> None:
        self.app = app
        self._hosts = {host.lower() for host in hosts}
        self._any_host = any_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host, origin = headers.get("host", ""), headers.get("origin")
            if not (self._any_host or self._is_ours(host)):
                error = ApiError(403, "this server is not asked by this name; --allow-host adds it.", "forbidden_host")
                return await error.response()(scope, receive, send)
            site = None if origin is None else site_of(origin)
            if site is not None and (not site or site.lower() != host.lower()) and name_of(site) not in self._hosts:
                error = ApiError(403, "pages of other sites may not ask this server.", "forbidden_origin")
                return await error.response()(scope, receive, send)
        return await self.app(scope, receive, send)

    def _is_ours(self, host: str) -> bool:
        name = name_of(host)
        return name in self._hosts or is_loopback(name)


def site_of(origin: str) -> str:
    """Host and port of an origin; nothing, which is no host, if it is none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def name_of(host: str) -> str:
    """A host without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


class JsonLines(logging.Formatter):
    """A line of JSON for each record: of a request what was seen of it, of anything else its message."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        seen = getattr(record, "seen", None) or {"message": record.getMessage()}
        return json.dumps({"time": round(record.created, 3), "level": record.levelname.lower(), **seen})


class Observed:
    """Counts and logs each request, and gives it an id."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        start, status, number = time.monotonic(), NEVER_SENT, uuid.uuid4().hex

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = number
            await send(message)

        try:
            await self.app(scope, receive, observed)
        except Exception as error:
            # Nothing further out sees it: what an exception says may hold what the client wrote.
            frames = "".join(traceback.format_tb(error.__traceback__))
            log.error("%s internal error, %s:\n%s", number, type(error).__name__, frames)
            if status == NEVER_SENT:
                await from_worker("Internal", "").response()(scope, receive, observed)
        finally:
            # The path of the route, not what was asked for: that may hold anything.
            route = getattr(scope.get("route"), "path", "other")
            seconds = time.monotonic() - start
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.seconds.labels(route).observe(seconds)
            size = Headers(scope=scope).get("content-length", "-")
            level = logging.DEBUG if route in OPEN else logging.INFO  # nobody wants a line for every look at /health
            seen = {"id": number, "key": key_of(scope) or None, "route": route, "status": status}
            seen |= {"seconds": round(seconds, 3), "bytes": int(size) if size.isdigit() else None}
            log.log(level, "%s", " ".join(f"{name}={value}" for name, value in seen.items()), extra={"seen": seen})
