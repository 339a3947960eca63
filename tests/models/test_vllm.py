"""The laws of a model for a real vLLM, in this process and over HTTP. `make test-vllm` installs one and runs this."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from scipy import stats

import locore
from locore import ends_with
from locore.kernel.errors import CannotScore, EngineError
from locore.models import LanguageModel
from locore.models.bundled import _bundled_folder
from locore.models.engines.model import EngineModel
from locore.models.engines.opening import TEXT

from .engine_laws import *  # noqa: F403
from .test_laws import FALSE_ALARM, same, test_seed_reproduces_and_differs  # noqa: F401

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed: make test-vllm"),
]

FOLDER = str(_bundled_folder("tiny"))  # its heads are large enough for vLLM's kernels
PROMPT = 4 * TEXT  # longer than a block of the prefix cache
PATIENCE = 600  # seconds; only a server that hangs needs them
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
# On a CPU, a seeded request whose prompt is read in two parts stops vLLM 0.32; so all that is asked at once fits into one.
TOGETHER = 65536
BASE = ["--dtype", "float32", "--enforce-eager", "--block-size", "32", "--max-num-batched-tokens", str(TOGETHER)]
ROWS = [*BASE, "--max-logprobs", "-1", "--skip-tokenizer-init"]
FORCING = [*ROWS, "--logits-processors", "locore.models.engines.forcing:ForcedTokens"]


@contextmanager
def serving(log: Path, *options: str) -> Iterator[str]:
    """The address of a vLLM server of the bundled model."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", FOLDER, "--port", str(port), *options]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **ENVIRONMENT})
    try:
        end = time.monotonic() + PATIENCE
        while not _healthy(port):
            assert process.poll() is None and time.monotonic() < end, log.read_text()[-5000:]
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _healthy(port: int) -> bool:
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=PATIENCE).status == 200
    except urllib.error.URLError:
        return False


@contextmanager
def _local() -> Iterator[EngineModel]:
    os.environ.update(ENVIRONMENT)
    yield locore.load("vllm:tiny", dtype="float32", enforce_eager=True, block_size=32, max_num_batched_tokens=TOGETHER)


@pytest.fixture(scope="module", params=["server that forces", "server that does not", "local"])
def engine(request, tmp_path_factory) -> Iterator[EngineModel]:
    if request.param == "local":
        with _local() as model:
            yield model
        return
    options = FORCING if request.param == "server that forces" else ROWS
    with serving(tmp_path_factory.mktemp("vllm") / "log", *options) as address:
        model = locore.load(address)
        assert model.engine.reuses_prefix == (options is FORCING)
        yield model


@pytest.fixture(scope="module")
def model(engine) -> LanguageModel:
    return engine.prompted(PROMPT)


@pytest.fixture(scope="module")
def here() -> LanguageModel:
    """The same model in transformers."""
    return locore.load("tiny").prompted(PROMPT)


def test_agrees_with_transformers(model, here):
    drafts = here.sample(8, 12, seed=0)
    assert same(model.token_scores(drafts.tokens), drafts.token_scores)
    assert same(model.log_probs(drafts.tokens), here.log_probs(drafts.tokens))
    candidates = here.log_probs(drafts.tokens[:1])[0].topk(6).indices
    assert same(model.neighbours(drafts.tokens[0], candidates), here.neighbours(drafts.tokens[0], candidates))


@pytest.mark.parametrize("sampler", ["masked", "swor", "smc"])
def test_samplers_draw_the_same(engine, sampler):
    """What asks for distributions only is driven by our own random numbers."""
    task = ("The weather is", ends_with(" happy."), 3)
    there, here = (locore.generate(m, *task, num_particles=32, sampler=sampler, seed=3) for m in (engine, locore.load("tiny")))
    assert torch.equal(there.tokens, here.tokens)
    assert same(there.log_weights, here.log_weights)
    assert there.log_evidence == pytest.approx(here.log_evidence, abs=1e-4)


def test_first_tokens_have_the_law_of_the_model(model, here):
    num = 4000
    expected = here.log_probs(torch.zeros(1, 1, dtype=torch.int64))[0, 0].double().exp() * num
    counts = torch.bincount(model.sample(num, 1, seed=5).tokens[:, 0], minlength=model.vocab_size).double()
    rare = expected < 10
    observed = torch.cat([counts[~rare], counts[rare].sum()[None]])
    expected = torch.cat([expected[~rare], expected[rare].sum()[None]])
    assert stats.chisquare(observed.numpy(), (expected * num / expected.sum()).numpy()).pvalue > FALSE_ALARM


def test_the_longest_text_that_fits(engine):
    longest = engine.engine.context
    model = engine.prompted([5] * (longest - 2))
    tokens = torch.tensor([[7, 9]])
    assert same(model.token_scores(tokens), model.log_probs(tokens).gather(2, tokens[..., None])[..., 0])
    assert model.sample(2, 2, seed=0).tokens.shape == (2, 2)
    with pytest.raises(CannotScore, match="context"):
        model.score(torch.tensor([[7, 9, 9]]))


def test_a_server_as_it_is_usually_started(tmp_path):
    """20 log-probabilities at most, and a tokenizer, which is checked."""
    with serving(tmp_path / "log", *BASE) as address:
        model = locore.load(address)
        assert not model.engine.reuses_prefix and set(model.differences) == {"sampled tokens", "scores"}
        particles = locore.generate(model, "The weather is", ~ends_with("x"), 3, num_particles=4, sampler="rejection", seed=0)
        assert particles.ess > 0
        with pytest.raises(CannotScore, match="--max-logprobs -1"):
            locore.generate(model, "The weather is", ends_with(" happy."), 3, num_particles=4, sampler="masked", seed=0)
        with pytest.raises(EngineError, match="tokenizer"):
            locore.load(address, tokenizer=locore.Tokenizer.from_tokens([chr(i) for i in range(2048)]))


def test_forced_ids_that_do_not_exist_leave_the_server_alive(tmp_path):
    with serving(tmp_path / "log", *FORCING) as address:
        model = locore.load(address)
        with pytest.raises(EngineError, match="was to generate"):
            model.engine.tail_scores([[0, 5]], [[999_999, 3]])
        assert same(
            model.prompted([0, 5]).score(torch.tensor([[7]])), model.prompted([0, 5]).log_probs(torch.tensor([[7]]))[:, 0, 7]
        )


def test_live_rows_are_those_that_are_written():
    with _local() as model:
        engine = model.engine
        assert engine.live is not None
        prompt = model.tokenizer.encode_prompt(PROMPT)
        prefixes = [prompt[:40], prompt[:7], [*prompt[:40], 5]]
        kept = engine.next_log_probs(prefixes)
        longer = engine.next_log_probs([[*prefix, 9] for prefix in prefixes])  # the same requests
        engine.live.release()
        assert same(longer, engine.next_log_probs([[*prefix, 9] for prefix in prefixes]))
        engine.live.release()
        engine.live = None
        assert same(kept, engine.next_log_probs(prefixes))
        assert same(kept[:, :5], engine.chosen_log_probs(prefixes, [list(range(5))] * 3))


def test_the_second_runner_takes_the_processors():
    """vLLM's own loader, and its own classes for what is handed over; a GPU is what it needs to run."""
    import numpy as np
    from vllm import SamplingParams
    from vllm.v1.worker.gpu.sample import logits_processor as second
    from vllm.v1.worker.gpu.sample.logits_processor.loader import _load_v2_logitsprocs_by_fqcns

    from locore.models.engines.model import FORCED
    from locore.models.engines.vllm_local import LIVE_ROWS, PROCESSOR

    kinds = _load_v2_logitsprocs_by_fqcns([PROCESSOR, LIVE_ROWS])
    lengths, ids = SimpleNamespace(np=np.array([3, 2])), SimpleNamespace(gpu=torch.tensor([[5, 6, 7, 0], [8, 9, 0, 0]]))
    state = second.LogitsProcRequestState(torch.device("cpu"), 2, 10, ids, lengths, lengths, SimpleNamespace())
    forcing = kinds[0](SimpleNamespace(speculative_config=None), state)
    assert forcing.add_request(1, SamplingParams(max_tokens=2, extra_args={FORCED: [4, 6]}))
    assert not forcing.add_request(0, SamplingParams())
    for position, last, expected in [(0, 8, None), (1, 9, 4), (2, 4, 6)]:
        at = torch.tensor([1, 0])
        context = second.LogitsContext(
            expanded_idx_mapping=at,
            idx_mapping=at,
            idx_mapping_np=at.numpy(),
            expanded_local_pos=torch.zeros(2),
            input_ids=torch.tensor([last, 7]),
            pos=torch.tensor([position, 2]),
            seq_lens_upper_bound_np=np.array([position + 1, 3]),
        )
        logits = forcing.apply(torch.zeros(2, 10), context)
        assert not logits[1].any()  # of a request that asks for nothing
        assert (int(logits[0].argmax()), bool(logits[0].isinf().any())) == (expected or 0, expected is not None)
