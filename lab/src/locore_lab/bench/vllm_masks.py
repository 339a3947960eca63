"""Masks and weights in vLLM, beside its own structured outputs: CPU seconds for the same number of texts under one pattern.

Three roads in one engine in one process, which take turns: the model alone, the pattern by vLLM's structured outputs (no
weights), and Locore's `masked`, each sequence with its weight. All texts are of the full length. Then the columns that
`bench gguf-engines` has of other engines. It runs in the environment of `make test-vllm`.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any

import locore
from locore_lab.bench.gguf_engines import MANY, columns
from locore_lab.bench.vllm_steps import opened
from locore_lab.harness import Case, Row, measurement
from locore_lab.shared import least_seconds, process_bytes, timed

PROMPT = "The weather in the north of the country has been unusual this year:"
PATTERN = "[ a-z,]*"


def roads(model: Any, tokens: int, rows: int) -> dict[str, Callable[[], object]]:
    """A call for each."""
    import vllm
    from vllm.sampling_params import StructuredOutputsParams

    ids = model.tokenizer.encode_prompt(PROMPT)
    pattern = locore.regex(PATTERN)

    def drawn(**more: Any) -> None:
        params = vllm.SamplingParams(n=rows, max_tokens=tokens, seed=1, ignore_eos=True, detokenize=False, **more)
        model.engine.live.release()
        (answer,) = model.engine.llm.generate([{"prompt_token_ids": ids}], params, use_tqdm=False)
        assert all(len(text.token_ids) == tokens for text in answer.outputs)

    def masked() -> None:
        particles = locore.generate(model, PROMPT, pattern, tokens, num_particles=rows, sampler="masked", seed=1)
        assert particles.ess > 1

    structured = StructuredOutputsParams(regex=PATTERN + "#")  # which it does not get to
    return {"alone": drawn, "structured": partial(drawn, structured_outputs=structured), "masked": masked}


@measurement(
    "rows | the model alone | structured outputs | masked, with weights",
    "{rows} | {alone:.2f} | {structured:.2f} | {masked:.2f}",
    quick={"tokens": 4, "runs": 1},
    others=(
        "load, s | loaded, MB, with its cache | one text, s | 32 texts, s | masks, s | weights, s",
        "{load:.1f} | {loaded:.0f} | {one:.2f} | {many:.1f} | {masks:.1f} | {weights:.1f}",
    ),
)
def run(
    model: Annotated[str, "a folder"], tokens: Annotated[int, "of a text"] = 20, runs: Annotated[int, "the cheapest counts"] = 5
) -> Iterator[Case]:
    before = process_bytes("VmRSS")
    engine, load = timed(lambda: opened(model))
    loaded = (process_bytes("VmRSS") - before) / 1e6

    def as_others() -> Row:
        return {"load": load, "loaded": loaded, **columns(engine, tokens, runs)}

    for rows in (8, MANY):
        yield {"rows": rows}, partial(least_seconds, roads(engine, tokens, rows), runs)
    yield {"part": "others"}, as_others
