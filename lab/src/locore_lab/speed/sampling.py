"""`generate` against the sampling of `transformers` itself, and neighbours against n·k full sequences (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from locore_lab.shared import TokenMeter, least_seconds, peak_bytes
from locore_lab.speed.plan import Case, Models, Row, SpeedPlan, Table, millions, parameters

SAMPLERS: dict[str, Sampler] = {
    "lcr, forward": LocallyConstrainedResampling(kernel=Forward()),
    "rejection": Rejection(),
    "masked IS": SequentialMonteCarlo(ess_threshold=0),
    "smc": SequentialMonteCarlo(),
}
SAMPLING = Table(
    """\
## `generate` against transformers

`locore.generate` of {rows} particles under a constraint that forbids 1 % of the tokens, compiling and checking included,
against `generate(do_sample=True)` of transformers without a constraint, for as many rows and tokens, by the same module.

- ratio: CPU seconds of Locore / of transformers, which reads the prompt for each row.
- prompt read once: the same against transformers with a cache in which the prompt was read once, as Locore does.
- a token: that ratio for each token that the module reads; LCR reads each of its sequences a second time, to score it.
- LM tokens: read by the module; "transformers": read by it without that cache.""",
    (
        "model | parameters | prompt | sampler | ratio | prompt read once | a token | LM tokens | transformers",
        "{model} | {millions} | {prompt} | {sampler} | {ratio} | {ratio, shared prompt} | {ratio a token} | {tokens} "
        "| {transformers tokens}",
    ),
    {"millions": lambda row: millions(row["parameters"])},
)
BANNED = 0.01  # share of the vocabulary


def sampling_cases(plan: SpeedPlan, name: str, models: Models) -> Iterator[Case]:
    """All samplers behind every prompt."""
    for prompt in plan.sampling_prompts:
        yield ("sampling", name, prompt), partial(lambda prompt: measure_sampling(plan, name, models[name], prompt), prompt)


def measure_sampling(plan: SpeedPlan, name: str, model: HuggingFaceModel, size: int) -> list[Row]:
    """A row for each sampler: CPU seconds of `generate` and of `transformers`, and the tokens that the model read."""
    n, rows = plan.n, plan.rows
    plain = HuggingFaceModel(model.causal, locore.Tokenizer.integers(model.vocab_size))
    generator = torch.Generator().manual_seed(size)
    prompt = torch.randint(model.vocab_size, (size,), generator=generator)
    constraint = never(torch.randperm(model.vocab_size, generator=generator)[: int(BANNED * model.vocab_size)].tolist(), n)

    def ours(sampler: Sampler) -> locore.Particles:
        budget = rows * (n - 1) if isinstance(sampler, Rejection) else None
        return locore.generate(
            plain, prompt.tolist(), constraint, n, num_particles=rows, sampler=sampler, budget=budget, seed=0
        )

    works: dict[str, Any] = {name: lambda sampler=sampler: ours(sampler) for name, sampler in SAMPLERS.items()}
    works["each"] = lambda: transformers_generate(model, prompt, rows, n)
    works["shared"] = lambda: transformers_generate(model, prompt, rows, n, share_prompt=True)
    read = {name: _tokens_read(model, work) for name, work in works.items()}
    seconds = least_seconds(works, plan.repeats)
    common = {"part": "sampling", "model": name, "parameters": parameters(model), "prompt": size, "rows": rows, "n": n}
    return [
        {
            **common,
            "sampler": sampler,
            "tokens": read[sampler],
            "transformers tokens": read["each"],
            "shared prompt tokens": read["shared"],
            "seconds": seconds[sampler],
            "transformers seconds": seconds["each"],
            "shared prompt seconds": seconds["shared"],
            "ratio": seconds[sampler] / seconds["each"],
            "ratio, shared prompt": seconds[sampler] / seconds["shared"],
            "ratio a token": seconds[sampler] / seconds["shared"] * read["shared"] / read[sampler],
        }
        for sampler in SAMPLERS
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


NEIGHBOURS = Table(
    """\
## All sequences at Hamming distance 1

`neighbours` against Algorithm 1 of the paper as printed: n·k full sequences, in the faster of two batch sizes, with logits of
the last n positions only.

- speed-up: seconds of the full sequences / seconds of `neighbours`.
- measured: share of the full sequences that was read; their seconds are scaled to all of them, which are equally long.
- LM tokens: read by the module; bound: k·n(n−1)/2 + n; "of full": what the full sequences are.
- difference: the largest one of the joint log-probabilities, in nats, where both were computed.
- peak: memory beyond what the process held before, weights and prompt included there; budget: what was asked for.""",
    (
        "model | parameters | prompt | k | speed-up | measured | LM tokens | bound | of full | difference | peak MiB "
        "| budget MiB",
        "{model} | {millions} | {prompt} | {k} | {speed-up} | {measured:.0%} | {tokens} | {bound} | {full tokens} "
        "| {largest difference:.0e} | {peak MiB:.0f} | {budget MiB}",
    ),
    {
        "millions": lambda row: millions(row["parameters"]),
        "peak MiB": lambda row: row["peak"] / 2**20,
        "budget MiB": lambda row: row["budget"] // 2**20,
    },
)
BATCH_TOKENS = (512, 2048)  # how large a batch of full sequences may be; the fastest counts


def neighbours_cases(plan: SpeedPlan, name: str, models: Models) -> Iterator[Case]:
    """Every k behind every prompt."""
    for k in plan.ks:
        for prompt in plan.neighbour_prompts:
            work = partial(lambda prompt, k: [measure_neighbours(plan, name, models[name], prompt, k)], prompt, k)
            yield ("neighbours", name, prompt, k), work


def measure_neighbours(plan: SpeedPlan, name: str, model: HuggingFaceModel, size: int, k: int) -> Row:
    """CPU seconds, tokens and memory of `neighbours`, and of the paper's Algorithm 1 as printed."""
    n, length = plan.n, size + plan.n - 1  # of a full sequence
    generator = torch.Generator().manual_seed(size + k)
    prompted = model.prompted(torch.randint(model.vocab_size, (size,), generator=generator).tolist())
    tokens = prompted.sample(1, n, generator).tokens[0]
    candidates = prompted.log_probs(tokens[None])[0].topk(k).indices
    count = min(n * k, max(1, plan.full_tokens // length))
    batch = _best_batch(plan, prompted, tokens, candidates, count, length)
    found: dict[str, Tensor] = {}

    def ours() -> None:
        found["ours"] = prompted.neighbours(tokens, candidates)

    def full() -> None:
        found["full"] = full_sequences(prompted, tokens, candidates, batch, count)

    meter = TokenMeter(model.causal.module)
    peak = peak_bytes(ours)
    read = meter.close()
    seconds = least_seconds({"ours": ours, "full": full}, plan.repeats)
    full_seconds = seconds["full"] * n * k / count
    difference = found["ours"].flatten()[chosen(n * k, count)] - found["full"]
    return {
        "part": "neighbours",
        "model": name,
        "parameters": parameters(model),
        "prompt": size,
        "n": n,
        "k": k,
        "tokens": read,
        "bound": k * n * (n - 1) // 2 + n,
        "full tokens": n * k * (length),
        "full batch": batch,
        "measured": count / (n * k),
        "seconds": seconds["ours"],
        "full seconds": full_seconds,
        "speed-up": full_seconds / seconds["ours"],
        "largest difference": float(difference.abs().max()),
        "budget": prompted.causal.memory_bytes,
        "peak": peak,
    }


def chosen(total: int, count: int) -> Tensor:
    """Long[count]: which of so many sequences are read, spread evenly."""
    return torch.arange(count) * total // count


@torch.no_grad()
def full_sequences(model: HuggingFaceModel, tokens: Tensor, candidates: Tensor, batch: int, count: int) -> Tensor:
    """f64[count]: log p of some of the n·k sequences, each read whole with its prompt, in batches."""
    n, k = candidates.shape
    sequences = tokens.repeat(n, k, 1)
    at = torch.arange(n)
    sequences[at, :, at] = candidates
    prompt = torch.tensor(model.prompt_ids)
    scores = []
    for part in torch.split(sequences.flatten(0, 1)[chosen(n * k, count)], batch):
        read = torch.cat([prompt.expand(len(part), -1), part[:, :-1]], 1)
        logits = model.causal.module(read, use_cache=False, logits_to_keep=n).logits
        scores.append(logits.log_softmax(2).gather(2, part[..., None])[..., 0].double().sum(1))
    return torch.cat(scores)


def _best_batch(plan: SpeedPlan, model: HuggingFaceModel, tokens: Tensor, candidates: Tensor, count: int, length: int) -> int:
    """The batch whose sequences are read fastest."""
    sizes = sorted({min(count, max(1, room // length)) for room in BATCH_TOKENS})
    works = {str(size): partial(full_sequences, model, tokens, candidates, size, size) for size in sizes}
    seconds = least_seconds(works, plan.repeats) if len(sizes) > 1 else {str(sizes[0]): 0.0}
    return min(sizes, key=lambda size: seconds[str(size)] / size)
