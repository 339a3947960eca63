"""Connections are bounded in number, in what they may be silent about, and answers in how long they may lie unread."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import OrderedDict

import pytest
import uvicorn

from locore.server import Settings, connections, create_app
from locore.server.api_errors import LimitedBody
from locore.server.connections import MOST, OWN_FILES, Connection, bound_by_files
from locore.server.run import Server
from locore.server.task import Task

resource = pytest.importorskip("resource")
LARGE = 8_000_000  # bytes, more than the sockets of both sides hold
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(autouse=True)
def nobody(monkeypatch):
    """Connections of loops that are gone do not count."""
    monkeypatch.setattr(Connection, "_without_request", OrderedDict())
    monkeypatch.setattr(Connection, "_open", 0)


@contextlib.asynccontextmanager
async def serving(app, kind=uvicorn.Server, *more):
    """A server at a free port in this loop, and how to open a connection to it."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, http=Connection, lifespan="off", log_config=None, access_log=False)
    server = kind(config, *more)
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield server, lambda **options: asyncio.open_connection("127.0.0.1", port, **options)
    finally:
        server.should_exit = server.force_exit = True
        await running


def sending(size):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        await send({"type": "http.response.body", "body": b"x" * size})

    return app


async def silent(scope, receive, send):
    await receive()
    await asyncio.sleep(60)


async def until(condition):
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come true")


def test_an_answer_that_is_not_read_does_not_keep_its_connection(monkeypatch):
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 0.3)

    async def play():
        async with serving(sending(LARGE)) as (_, connect):
            before = Connection._open
            _, never = await connect(limit=1)  # a stream that is not read holds up its socket
            never.write(GET)
            await until(lambda: Connection._open == before + 1)
            await until(lambda: Connection._open == before)
            never.close()

    asyncio.run(play())


def test_a_slow_reader_gets_all(monkeypatch):
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 0.4)

    async def play():
        async with serving(sending(LARGE)) as (_, connect):
            reader, writer = await connect(limit=1 << 16)
            writer.write(GET)
            size = 0
            while size < LARGE:
                got = await reader.read(1 << 19)
                assert got, f"cut off after {size} bytes"
                size += len(got)
                await asyncio.sleep(0.02)
            writer.close()

    asyncio.run(play())


def test_beyond_the_bound_who_asks_nothing_has_to_go_and_else_the_newcomer(monkeypatch):
    async def play():
        async with serving(silent) as (_, connect):
            monkeypatch.setattr(Connection, "most", Connection._open + 4)
            idle, kept = await connect()  # a writer that nobody keeps is closed
            asking = [await connect() for _ in range(3)]
            for _asked, writer in asking:
                writer.write(GET)
            await until(lambda: len(Connection._without_request) == 1)
            _, fourth = await connect()
            assert await idle.read() == b""  # it has waited longest
            fourth.write(GET)
            await until(lambda: not Connection._without_request)
            reader, newcomer = await connect()
            assert (await reader.read()).startswith(b"HTTP/1.1 503")
            for writer in (kept, newcomer):
                writer.close()

    asyncio.run(play())


@pytest.mark.parametrize("limits", [(1024, 1024), (1024, 1100), (200, 1 << 20), (1 << 20, 1 << 20), (90, 90)])
def test_there_are_no_more_connections_than_files(monkeypatch, limits):
    kept = []
    monkeypatch.setattr(Connection, "most", MOST)
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda which, both: kept.append(both))
    most = bound_by_files(20)
    soft = kept[-1][0] if kept else limits[0]
    assert limits[0] <= soft <= limits[1]
    assert 1 <= most <= MOST and (most == 1 or most + 20 + OWN_FILES <= soft)
    assert most == MOST or soft == limits[1]


def test_a_body_of_two_lengths_is_refused_and_nothing_after_it_is_read():
    async def play():
        app = LimitedBody(sending(2), 1000, 5.0)
        async with serving(app) as (_, connect):
            for method in (b"POST", b"GET"):
                reader, writer = await connect()
                both = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
                writer.write(method + b" / HTTP/1.1\r\nHost: localhost\r\n" + both + GET)
                answer = await reader.read()
                assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1 and b"two_lengths" in answer

    asyncio.run(play())


def test_while_others_wait_for_their_answers_a_server_that_stops_says_that_it_is_not_ready():
    async def play():
        app = create_app(Settings())
        queue = app.state.queue
        async with serving(app, Server, queue) as (server, connect):
            bundle = queue.submit([Task("a", 2)])  # there is no worker
            server.should_exit = True
            await until(lambda: queue.refuses)
            reader, writer = await connect()
            writer.write(b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503") and json.loads(body)["error"]["code"] == "shutting_down"
            bundle.leave()

    asyncio.run(play())
