"""Algorithm 1 of the paper: all sequences at Hamming distance 1 from a draft, against n·k full sequences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from locore.models import HuggingFaceModel
from locore_lab.harness import Fields
from locore_lab.measuring import TokenMeter, least_seconds, peak_bytes
from locore_lab.speed.llamas import millions, parameters
from locore_lab.speed.models import Models
from locore_lab.speed.plan import Case, Row, SpeedPlan

COLUMNS = (
    "model | parameters | prompt | k | speed-up | measured | LM tokens | bound | of full | difference | peak MiB | budget MiB",
    "{model} | {millions} | {prompt} | {k} | {speed-up} | {measured:.0%} | {tokens} | {bound} | {full tokens} "
    "| {largest difference:.0e} | {peak MiB:.0f} | {budget MiB}",
)
FIELDS: Fields = {
    "millions": lambda row: millions(row["parameters"]),
    "peak MiB": lambda row: row["peak"] / 2**20,
    "budget MiB": lambda row: row["budget"] // 2**20,
}
ABOUT = """\
## All sequences at Hamming distance 1

`neighbours` against Algorithm 1 of the paper as printed: n·k full sequences, in the faster of two batch sizes, with logits of
the last n positions only.

- speed-up: seconds of the full sequences / seconds of `neighbours`.
- measured: share of the full sequences that was read; their seconds are scaled to all of them, which are equally long.
- LM tokens: read by the module; bound: k·n(n−1)/2 + n; "of full": what the full sequences are.
- difference: the largest one of the joint log-probabilities, in nats, where both were computed.
- peak: memory beyond what the process held before, weights and prompt included there; budget: what was asked for."""
BATCH_TOKENS = (512, 2048)  # how large a batch of full sequences may be; the fastest counts


@dataclass(frozen=True)
class NeighbourCase:
    """One row of the table.

    Attributes:
        name: of the model.
        prompt: tokens before the draft.
        n: tokens of the draft.
        k: candidates at each position.
        full_tokens: tokens of full sequences that are read in one measurement; what is more is scaled.
        repeats: the fastest counts.
    """

    name: str
    prompt: int
    n: int
    k: int
    full_tokens: int
    repeats: int


def cases(plan: SpeedPlan, name: str, models: Models) -> Iterator[Case]:
    """Every k behind every prompt."""
    for k in plan.ks:
        for prompt in plan.neighbour_prompts:
            case = NeighbourCase(name, prompt, plan.n, k, plan.full_tokens, plan.repeats)
            yield ("neighbours", name, prompt, k), partial(_rows, case, models)


def _rows(case: NeighbourCase, models: Models) -> list[Row]:
    return [{"part": "neighbours", **measure_neighbours(case, models[case.name])}]


def measure_neighbours(case: NeighbourCase, model: HuggingFaceModel) -> dict[str, Any]:
    """CPU seconds, tokens and memory of `neighbours`, and of the paper's Algorithm 1 as printed."""
    generator = torch.Generator().manual_seed(case.prompt + case.k)
    prompted = model.prompted(torch.randint(model.vocab_size, (case.prompt,), generator=generator).tolist())
    tokens = prompted.sample(1, case.n, generator).tokens[0]
    candidates = prompted.log_probs(tokens[None])[0].topk(case.k).indices
    count = _measured(case)
    batch = _best_batch(case, prompted, tokens, candidates)
    found: dict[str, Tensor] = {}

    def ours() -> None:
        found["ours"] = prompted.neighbours(tokens, candidates)

    def full() -> None:
        found["full"] = full_sequences(prompted, tokens, candidates, batch, count)

    meter = TokenMeter(model.causal.module)
    peak = peak_bytes(ours)
    read = meter.close()
    seconds = least_seconds({"ours": ours, "full": full}, case.repeats)
    full_seconds = seconds["full"] * case.n * case.k / count
    difference = found["ours"].flatten()[chosen(case.n * case.k, count)] - found["full"]
    return {
        "model": case.name,
        "parameters": parameters(model),
        "prompt": case.prompt,
        "n": case.n,
        "k": case.k,
        "tokens": read,
        "bound": case.k * case.n * (case.n - 1) // 2 + case.n,
        "full tokens": case.n * case.k * (case.prompt + case.n - 1),
        "full batch": batch,
        "measured": count / (case.n * case.k),
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


def _measured(case: NeighbourCase) -> int:
    """How many of the n·k sequences are read."""
    return min(case.n * case.k, max(1, case.full_tokens // (case.prompt + case.n - 1)))


def _best_batch(case: NeighbourCase, model: HuggingFaceModel, tokens: Tensor, candidates: Tensor) -> int:
    """The batch whose sequences are read fastest."""
    length = case.prompt + case.n - 1
    count = _measured(case)
    sizes = sorted({min(count, max(1, room // length)) for room in BATCH_TOKENS})
    works = {str(size): partial(full_sequences, model, tokens, candidates, size, size) for size in sizes}
    seconds = least_seconds(works, case.repeats) if len(sizes) > 1 else {str(sizes[0]): 0.0}
    return min(sizes, key=lambda size: seconds[str(size)] / size)
