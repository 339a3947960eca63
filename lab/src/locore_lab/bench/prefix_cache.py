"""What the prefix cache of vLLM is worth to neighbours.

Starts two vLLM servers of the bundled model, one with prefix caching and one without, and asks both for the same 12 × 16
neighbours behind prompts of 256 and 448 tokens (the context is 512), in turns. No prompt is asked twice of one road. Tokens are
those of the server's own metrics, seconds are CPU seconds of the server with all its processes. Run it with the Python that has
vLLM (`.venv-vllm/bin/python` after `make test-vllm`).
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import torch

import locore
from locore.models.bundled import _bundled_folder
from locore.models.engines.model import EngineModel
from locore_lab.harness import Case, Row, measurement

LENGTH, CHOSEN, TURNS, BLOCK = 12, 16, 5, 32  # tokens of a block: vLLM has no smaller ones on a CPU
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}
OPTIONS = [
    *("--dtype", "float32", "--enforce-eager", "--block-size", str(BLOCK), "--max-num-batched-tokens", "65536"),
    *("--max-logprobs", "-1", "--skip-tokenizer-init", "--logits-processors", "locore.models.engines.forcing:ForcedTokens"),
]
COUNTERS = {
    "asked": "vllm:prompt_tokens_total",
    "cached": "vllm:prefix_cache_hits_total",
    "forced": "vllm:generation_tokens_total",
}


class Server:
    """One vLLM server, and what it has spent."""

    def __init__(self, folder: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"http://127.0.0.1:{free.getsockname()[1]}"
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(_bundled_folder("tiny"))]
        command += ["--port", self.address.rsplit(":", 1)[1], *OPTIONS, *options]
        self.log = folder / "log"
        with self.log.open("w") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **ENVIRONMENT})

    def model(self) -> EngineModel:
        """Once it answers."""
        while True:
            try:
                urllib.request.urlopen(f"{self.address}/health").close()
                return locore.load(f"{self.address}/v1")
            except urllib.error.URLError:
                if self.process.poll() is not None:
                    sys.exit(self.log.read_text()[-5000:])
                time.sleep(0.5)

    def spent(self) -> dict[str, float]:
        """Tokens and CPU seconds since it was started."""
        with urllib.request.urlopen(f"{self.address}/metrics") as answer:
            lines = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#")]
        tokens = {name: sum(float(n) for key, n in lines if key.split("{")[0] == full) for name, full in COUNTERS.items()}
        root = psutil.Process(self.process.pid)
        times = [process.cpu_times() for process in (root, *root.children(recursive=True))]
        return {**tokens, "seconds": sum(t.user + t.system for t in times)}


@contextmanager
def serving(*options: str) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), *options)
        try:
            yield server
        finally:
            server.process.terminate()
            server.process.wait()


def measured(server: Server, model: EngineModel, tokens: torch.Tensor, candidates: torch.Tensor, whole: bool) -> Row:
    """What one set of neighbours takes of a server, after it has drawn a text behind the same prompt."""
    model.sample(1, LENGTH, seed=1)
    before = server.spent()
    model.engine.reuses_prefix = not whole
    found = model.neighbours(tokens, candidates)
    after = server.spent()
    return {"found": found, **{name: after[name] - before[name] for name in before}}


def compared(roads: dict[str, tuple[Server, EngineModel, bool]], size: int) -> list[Row]:
    """A row for each road behind a prompt of so many tokens."""
    generator, vocab_size = torch.Generator().manual_seed(size), next(iter(roads.values()))[1].vocab_size
    rows: dict[str, list[Row]] = {name: [] for name in roads}
    for _ in range(TURNS):
        # Any ids but the ends of a text: after an end nothing is left to read.
        prompt, tokens, candidates = (
            torch.randint(3, vocab_size, shape, generator=generator) for shape in ((size,), (LENGTH,), (LENGTH, CHOSEN))
        )
        for name, (server, model, whole) in roads.items():
            rows[name].append(measured(server, model.prompted(prompt.tolist()), tokens, candidates, whole))
        truth = rows["whole sequences"][-1]["found"]
        assert all((row[-1]["found"] - truth).abs().max() < 1e-3 for row in rows.values())
    found = []
    for name, row in rows.items():
        asked, cached, forced = (statistics.mean(one[key] for one in row) for key in ("asked", "cached", "forced"))
        seconds = sorted(one["seconds"] for one in row)
        one = {"road": name, "asked": asked, "computed": asked - cached, "share": (asked - cached) / asked, "forced": forced}
        found.append({**one, "median": statistics.median(seconds), "least": seconds[0], "most": seconds[-1]})
    return found


@measurement(
    "prompt | road | prompt tokens asked | of these computed | tokens forced | CPU s, median (range)",
    "{prompt} | {road} | {asked:,.0f} | {computed:,.0f} ({share:.1%}) | {forced:,.0f} | {median:.2f} ({least:.2f}–{most:.2f})",
)
def run() -> Iterator[Case]:
    with serving() as first, serving("--no-enable-prefix-caching") as second:
        caching, plain = first.model(), second.model()
        roads = {
            "forced, cache on": (first, caching, False),
            "forced, cache off": (second, plain, False),
            "whole sequences": (second, plain, True),
        }
        for size in (256, 448):
            yield {"prompt": size}, partial(compared, roads, size)
