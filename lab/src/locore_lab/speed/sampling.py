"""`generate` under a constraint, against the sampling of `transformers` itself without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor

import locore
from locore.constraints import Constraint, from_json
from locore.local import Forward
from locore.models import HuggingFaceModel
from locore.samplers import LocallyConstrainedResampling, Rejection, Sampler, SequentialMonteCarlo
from locore_lab.harness import Fields
from locore_lab.measuring import TokenMeter, least_seconds
from locore_lab.speed.llamas import millions, parameters
from locore_lab.speed.models import Models
from locore_lab.speed.plan import Case, Row, SpeedPlan

SAMPLERS: dict[str, Sampler] = {
    "lcr, forward": LocallyConstrainedResampling(kernel=Forward()),
    "rejection": Rejection(),
    "masked IS": SequentialMonteCarlo(ess_threshold=0),
    "smc": SequentialMonteCarlo(),
}
COLUMNS = (
    "model | parameters | prompt | sampler | ratio | prompt read once | a token | LM tokens | transformers",
    "{model} | {millions} | {prompt} | {sampler} | {ratio} | {ratio, shared prompt} | {ratio a token} | {tokens} "
    "| {transformers tokens}",
)
FIELDS: Fields = {"millions": lambda row: millions(row["parameters"])}
ABOUT = """\
## `generate` against transformers

`locore.generate` of {rows} particles under a constraint that forbids 1 % of the tokens, compiling and checking included,
against `generate(do_sample=True)` of transformers without a constraint, for as many rows and tokens, by the same module.

- ratio: CPU seconds of Locore / of transformers, which reads the prompt for each row.
- prompt read once: the same against transformers with a cache in which the prompt was read once, as Locore does.
- a token: that ratio for each token that the module reads; LCR reads each of its sequences a second time, to score it.
- LM tokens: read by the module; "transformers": read by it without that cache."""
BANNED = 0.01  # share of the vocabulary


@dataclass(frozen=True)
class SamplingCase:
    """Some rows of the table, one for each sampler.

    Attributes:
        name: of the model.
        prompt: tokens before the continuations.
        rows: continuations.
        n: tokens of each.
        repeats: the fastest counts.
    """

    name: str
    prompt: int
    rows: int
    n: int
    repeats: int


def cases(plan: SpeedPlan, name: str, models: Models) -> Iterator[Case]:
    """All samplers behind every prompt."""
    for prompt in plan.sampling_prompts:
        case = SamplingCase(name, prompt, plan.rows, plan.n, plan.repeats)
        yield ("sampling", name, prompt), partial(_rows, case, models)


def _rows(case: SamplingCase, models: Models) -> list[Row]:
    return [{"part": "sampling", **row} for row in measure_sampling(case, models[case.name])]


def measure_sampling(case: SamplingCase, model: HuggingFaceModel) -> list[dict[str, Any]]:
    """A row for each sampler: CPU seconds of `generate` and of `transformers`, and the tokens that the model read."""
    plain = HuggingFaceModel(model.causal, locore.Tokenizer.integers(model.vocab_size))
    generator = torch.Generator().manual_seed(case.prompt)
    prompt = torch.randint(model.vocab_size, (case.prompt,), generator=generator)
    constraint = never(torch.randperm(model.vocab_size, generator=generator)[: int(BANNED * model.vocab_size)].tolist(), case.n)

    def ours(sampler: Sampler) -> locore.Particles:
        budget = case.rows * (case.n - 1) if isinstance(sampler, Rejection) else None
        return locore.generate(
            plain, prompt.tolist(), constraint, case.n, num_particles=case.rows, sampler=sampler, budget=budget, seed=0
        )

    works: dict[str, Any] = {name: lambda sampler=sampler: ours(sampler) for name, sampler in SAMPLERS.items()}
    works["each"] = lambda: transformers_generate(model, prompt, case.rows, case.n)
    works["shared"] = lambda: transformers_generate(model, prompt, case.rows, case.n, share_prompt=True)
    read = {name: _tokens_read(model, work) for name, work in works.items()}
    seconds = least_seconds(works, case.repeats)
    common = {"model": case.name, "parameters": parameters(model), "prompt": case.prompt, "rows": case.rows, "n": case.n}
    return [
        {
            **common,
            "sampler": name,
            "tokens": read[name],
            "transformers tokens": read["each"],
            "shared prompt tokens": read["shared"],
            "seconds": seconds[name],
            "transformers seconds": seconds["each"],
            "shared prompt seconds": seconds["shared"],
            "ratio": seconds[name] / seconds["each"],
            "ratio, shared prompt": seconds[name] / seconds["shared"],
            "ratio a token": seconds[name] / seconds["shared"] * read["shared"] / read[name],
        }
        for name in SAMPLERS
    ]


def _tokens_read(model: HuggingFaceModel, work: Callable[[], Any]) -> int:
    """By the module; the run also warms up."""
    meter = TokenMeter(model.causal.module)
    work()
    return meter.close()


def never(ids: list[int], length: int) -> Constraint:
    """These tokens at no position."""
    taken = [{"type": "token", "position": i, "in": ids} for i in range(length)]
    return from_json({"type": "not", "of": {"type": "or", "of": taken}})


def transformers_generate(model: HuggingFaceModel, prompt: Tensor, rows: int, n: int, share_prompt: bool = False) -> Tensor:
    """Long[rows, n]: drawn by `transformers` from the model itself.

    Args:
        prompt: Long[time].
        share_prompt: hand it a cache in which the prompt was read once; else it reads the prompt for each row.
    """
    config = transformers.GenerationConfig(  # type: ignore[no-untyped-call]
        do_sample=True, top_k=0, top_p=1.0, temperature=1.0, max_new_tokens=n, pad_token_id=0
    )
    options: dict[str, Any] = {}
    if share_prompt:
        past = model.causal.read_on(prompt[None, :-1])[1]
        options[model.causal.cache_name] = past.repeated(rows).to_cache()
    module = model.causal.module
    ids = prompt.expand(rows, -1).to(module.device)
    own = module.generation_config
    # Its own settings would end texts where the model's files say so.
    module.generation_config = transformers.GenerationConfig()  # type: ignore[no-untyped-call]
    try:
        drawn: Tensor = module.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config, **options)
    finally:
        module.generation_config = own
    return drawn[:, len(prompt) :]
