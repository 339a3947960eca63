"""Whatever becomes of the folder of compiled circuits, answers are right: damaged files, a full disk, nowhere to write."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from locore.cache import read_tensors
from locore.kernel.limits import resident_memory
from tests.effort import THOROUGH, some
from tests.server.conftest import Server, until
from tests.server.test_reload import reloads

LETTERS = "abcdefghijklmnopqrst"
MOST_BYTES = 3_000_000
MANY = 1000
SPOILT = {
    "a byte is another": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "garbage": lambda content: b"garbage",
}


@pytest.fixture(scope="module")
def caching(tmp_path_factory):
    """A server with a cache of its own, of few bytes, and the folder of its circuits."""
    folder = tmp_path_factory.mktemp("caching")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCORE_CACHE", str(folder))
        patch.setenv("LOCORE_COMPILE_CACHE_BYTES", str(MOST_BYTES))
        server = Server(folder, key=None).wait()
    yield server, folder / "circuits"
    server.stop()


def words(seed: int, number: int = 60) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(LETTERS, k=6)) for _ in range(number)]


def text(server: Server, seed: int) -> str:
    """What a constraint that takes long to compile has for an answer; it is one of its texts for certain."""
    ends = words(seed)
    one_of = {"type": "or", "of": [{"type": "ends_with", "text": end} for end in ends]}
    body = {"model": "tiny", "prompt": "I", "max_tokens": 8, "num_particles": 4, "seed": seed, "constraint": one_of}
    status, _, answer = server.post(body)
    assert status == 200, answer
    found = answer["choices"][0]["text"]
    assert found.endswith(tuple(ends))
    return found


def forget(server: Server) -> None:
    """What the worker has in memory: another one takes its place."""
    before = reloads(server)[0]
    server.process.send_signal(signal.SIGHUP)
    until(lambda: reloads(server)[0] == before + 1)


def test_damaged_files_are_made_again(caching):
    server, folder = caching
    files, ways = {}, list(SPOILT.values())[: None if THOROUGH else 2]
    for seed in range(len(ways)):
        before, answer = set(folder.glob("*")), text(server, seed)
        (made,) = set(folder.glob("*")) - before
        files[made] = seed, answer
    for path, spoil in zip(files, ways, strict=True):
        spoilt = spoil(path.read_bytes())
        path.write_bytes(spoilt)
        assert read_tensors(path) is None and not path.exists()  # who reads it removes it
        path.write_bytes(spoilt)
    forget(server)
    for path, (seed, answer) in files.items():
        assert text(server, seed) == answer
        assert read_tensors(path) is not None


@contextmanager
def instead(folder: Path, kind: str):
    """A folder is for some time what nothing can be written into."""
    shutil.rmtree(folder, ignore_errors=True)
    if kind == "file":
        folder.write_text("no folder")
        yield
        folder.unlink()
        return
    folder.mkdir()
    options = "size=16k" if kind == "full" else "ro"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        folder.rmdir()
        pytest.skip("this process may not mount anything")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("kind", some(["full", "file", "read-only"]))
def test_a_folder_that_takes_nothing_costs_no_answer(caching, kind):
    server, folder = caching
    seed = 100 + len(kind)
    with instead(folder, kind):
        answer = text(server, seed)
        kept = [] if kind == "file" else list(folder.iterdir())
        assert not kept  # half a file neither
    assert text(server, seed) == answer
    assert "internal error" not in server.log.read_text()


@pytest.mark.slow
def test_the_cache_is_bounded(caching):
    """On the disk by its setting, in memory by what is kept there."""
    server, folder = caching
    (worker,) = server.workers()
    for seed in range(50):
        text(server, 1000 + seed)
    before = resident_memory(worker)
    for seed in range(50, MANY):
        text(server, 1000 + seed)
    kept = list(folder.iterdir())
    size = sum(path.stat().st_size for path in kept)
    print(json.dumps({"files": len(kept), "bytes": size, "grown": resident_memory(worker) - before}))
    assert server.workers() == [worker]
    assert 1 < len(kept) < MANY and size <= MOST_BYTES
    assert resident_memory(worker) - before < 500_000_000
