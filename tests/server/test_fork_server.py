"""Workers' processes are forked from one: their ends are told, and nobody outlives whom it belongs to."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from locore.server import fork_server
from locore.server.fork_server import Forked, ForkServer, StartFailed
from locore.server.process import OF_WORKERS
from locore.server.settings import CAN_FORK, Settings
from tests.server.apart_alone import children

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="workers are started one by one here")
OPTIONS = {**{name: getattr(Settings(), name) for name in OF_WORKERS}, "table": False}


async def loaded(process: Forked) -> Forked:
    process.stdin.write(json.dumps(OPTIONS).encode() + b"\n")
    assert "ready" in json.loads(await process.stdout.readline())
    return process


async def until(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def _lives() -> None:
    before, server = set(children(os.getpid())), ForkServer()
    first, second = await asyncio.gather(server.started(), server.started())
    (parent,) = set(children(os.getpid())) - before
    assert sorted(children(parent)) == sorted([first.pid, second.pid])

    await asyncio.gather(loaded(first), loaded(second))
    first.kill()
    assert await first.stdout.readline() == b""  # nobody else holds its lines
    await first.wait()
    assert first.returncode == -signal.SIGKILL and second.returncode is None

    third = await server.started()
    third.stdin.write(b"no options\n")
    await third.wait()
    assert third.returncode == 1
    assert children(parent) == [second.pid]

    os.kill(parent, signal.SIGKILL)  # its worker goes too: nobody could tell what becomes of it
    await second.wait()
    assert second.returncode == -signal.SIGKILL
    await until(lambda: not Path(f"/proc/{second.pid}").exists())
    fourth = await loaded(await server.started())
    fourth.stdin.close()  # its server is gone without a word
    server._line.close()
    await until(lambda: not Path(f"/proc/{fourth.pid}").exists())
    await server.stop()
    assert set(children(os.getpid())) == before


def test_ends_are_told_and_nobody_outlives_whom_it_belongs_to():
    asyncio.run(_lives())


def test_a_process_that_cannot_fork_is_told(monkeypatch):
    monkeypatch.setattr(fork_server, "FORK_SERVER", "raise SystemExit(3)")

    async def main() -> None:
        server = ForkServer()
        for _ in range(2):
            with pytest.raises(StartFailed, match="has ended"):
                await server.started()
        await server.stop()

    asyncio.run(main())


@pytest.mark.slow  # imports everything once more
def test_where_nothing_forks_workers_are_started_one_by_one(monkeypatch):
    monkeypatch.setattr(fork_server, "CAN_FORK", False)

    async def main() -> None:
        process = await ForkServer().started()
        await loaded(process)
        process.kill()
        await process.wait()
        assert process.returncode == -signal.SIGKILL

    asyncio.run(main())
