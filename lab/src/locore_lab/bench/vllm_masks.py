"""Masks and weights in vLLM, beside its own structured outputs: seconds for the same number of texts under one pattern.

Three roads in one engine in one process: the model alone, the pattern by vLLM's structured outputs (no weights), and Locore's
`masked`, each sequence with its weight. All texts are of the full length. Before that, the columns that `bench gguf-engines`
has of other engines. It runs in the environment of `make test-vllm`.
"""

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any

import locore
from locore_lab.bench.gguf_engines import MANY, calls
from locore_lab.harness import Case, Row, measurement
from locore_lab.shared import process_bytes

PROMPT = "The weather in the north of the country has been unusual this year:"
PATTERN = "[ a-z,]*"
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"}
BLOCK = 32  # tokens; the smallest that vLLM has on a CPU
ALONE, STRUCTURED, WEIGHTED = "the model alone", "structured outputs", "masked, with weights"


def seconds(call: Callable[[int], object], runs: int) -> Row:
    """The fewest of some runs, by the clock, and those of the CPU in it; the first one is for whatever is compiled."""
    call(0)
    found = []
    for seed in range(1, 1 + runs):
        start, spent = time.perf_counter(), time.process_time()
        call(seed)
        found.append((time.perf_counter() - start, time.process_time() - spent))
    return dict(zip(("seconds", "cpu"), min(found), strict=True))


def roads(model: Any, tokens: int, rows: int) -> dict[str, Callable[[int], object]]:
    """A call for each."""
    import vllm
    from vllm.sampling_params import StructuredOutputsParams

    ids = model.tokenizer.encode_prompt(PROMPT)
    pattern = locore.regex(PATTERN)

    def drawn(seed: int, **more: Any) -> None:
        params = vllm.SamplingParams(n=rows, max_tokens=tokens, seed=seed, ignore_eos=True, detokenize=False, **more)
        model.engine.live.release()
        (answer,) = model.engine.llm.generate([{"prompt_token_ids": ids}], params, use_tqdm=False)
        assert all(len(text.token_ids) == tokens for text in answer.outputs)

    def weighted(seed: int) -> None:
        particles = locore.generate(model, PROMPT, pattern, tokens, num_particles=rows, sampler="masked", seed=seed)
        assert particles.ess > 1

    structured = StructuredOutputsParams(regex=PATTERN + "#")  # which it does not get to
    return {ALONE: drawn, STRUCTURED: partial(drawn, structured_outputs=structured), WEIGHTED: weighted}


@measurement(
    "rows | road | seconds | CPU seconds",
    "{rows} | {road} | {seconds:.2f} | {cpu:.2f}",
    quick={"tokens": 4, "runs": 1},
)
def run(
    model: Annotated[str, "a folder"],
    tokens: Annotated[int, "of a text"] = 20,
    runs: Annotated[int, "the quickest counts"] = 5,
) -> Iterator[Case]:
    os.environ |= ENVIRONMENT
    before, start = process_bytes("VmRSS"), time.process_time()
    engine = locore.load(f"vllm:{model}", dtype="float32", enforce_eager=True, max_model_len=4096, block_size=BLOCK)
    loaded = {"seconds": time.process_time() - start, "cpu": time.process_time() - start}
    yield {"rows": 0, "road": f"load, {(process_bytes('VmRSS') - before) / 1e6:.0f} MB with its cache"}, lambda: loaded
    for name, call in calls(engine, tokens).items():
        yield {"rows": 1 if name == "one" else MANY, "road": name}, partial(seconds, call, runs)
    for rows in (8, MANY):
        for road, call in roads(engine, tokens, rows).items():
            yield {"rows": rows, "road": road}, partial(seconds, call, runs)
