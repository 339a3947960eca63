"""Does a policy learn what it is rewarded for, under a constraint? Plain gradient steps, by weighted draws and by masked ones.

The bundled model writes a record of two digits, and the reward is what stands in the record. One policy is p_θ(y | α), trained
by `locore.rollouts`; the other is trained as engines with masks make people train: equal draws of the masked model, the mean of
the group as baseline, and the model's own token log-probabilities. Both are judged by all records, enumerated: the reward that
the model's own law given α expects, that of masked draws, and how far the two laws lie apart (total variation). Nothing is
asked of p_θ(α), which is shown too: log Z can be raised beside the reward (`log_evidence`).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated

import torch
from torch import Tensor

import locore
from locore.hf import reading
from locore.kernel.numerics import segment_logsumexp
from locore.models import HuggingFaceModel
from locore.rollouts import Rollouts, rollouts
from locore_lab.harness import Case, Row, measurement

PROMPT, LENGTH, GROUP = "Tom has a red ball. JSON: ", 13, 16
DIGITS = [1, 2, 3]
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": DIGITS}, "b": {"enum": DIGITS}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
ALPHA = locore.json_schema(SCHEMA, whitespace="compact")
WAYS = ("weighted", "masked")


def reward(text: str) -> float:
    """Of a record: 1 where the second digit is one more than the first."""
    record = json.loads(text)
    return float(record["b"] == record["a"] + 1)


def rewards(drawn: Rollouts) -> Tensor:
    """f64[num]."""
    return torch.tensor([reward(text) for text in drawn.texts], dtype=torch.float64)


def scores(module: torch.nn.Module, model: HuggingFaceModel, drawn: Rollouts) -> Tensor:
    """Float[num]: log p(y) of each text, differentiable; all are as long as the longest, and the rest counts nothing."""
    prompt, texts = list(model.prompted(PROMPT).prompt_ids), drawn.token_ids
    longest = max(map(len, texts))
    rows = torch.tensor([[*prompt, *ids, *[0] * (longest - len(ids))] for ids in texts])
    logs = module(rows).logits[:, len(prompt) - 1 : -1].log_softmax(-1)
    chosen = logs.gather(2, rows[:, len(prompt) :, None])[..., 0]
    counted = torch.arange(longest) < torch.tensor([len(ids) for ids in texts])[:, None]
    return (chosen * counted).sum(1)


def masked_law(drawn: Rollouts) -> Tensor:
    """f64[num]: the probability with which masking draws each text, of all that there are."""
    tokens, logs = drawn.particles.tokens, drawn.particles.token_scores
    assert logs is not None  # of a language model
    before, left = torch.zeros(len(tokens), dtype=torch.long), torch.zeros(len(tokens), dtype=torch.float64)
    for place in range(tokens.shape[1]):
        kinds, after = torch.unique(torch.stack([before, tokens[:, place]]), dim=1, return_inverse=True)
        each = torch.zeros(kinds.shape[1], dtype=torch.float64).index_copy_(0, after, logs[:, place])
        left += segment_logsumexp(each, kinds[0], int(before.max()) + 1)[before]
        before = after
    return (logs.sum(1) - left).exp()


def weighted(drawn: Rollouts, found: Tensor) -> Tensor:
    """What is made large."""
    return drawn.expectation(rewards(drawn), found)


def masked(drawn: Rollouts, found: Tensor) -> Tensor:
    """What is made large: the log-probabilities of texts better than their group's mean."""
    worth = rewards(drawn)
    return ((worth - worth.mean()) * found).mean()


def steps(way: str, number: int, rate: float, every: int, seed: int) -> list[Row]:
    """Train a copy, and judge it now and then."""
    tiny = locore.load("tiny")
    module = copy.deepcopy(tiny.causal.module)
    module.requires_grad_(True)
    optimizer = torch.optim.Adam(module.parameters(), rate)
    learn: Callable[[Rollouts, Tensor], Tensor] = weighted if way == "weighted" else masked
    rows = []
    for step in range(number + 1):
        with reading(module, tiny.tokenizer) as model:
            if step % every == 0:
                rows.append({"step": step, **judged(model)})
            options = {"num_particles": GROUP, "seed": seed * 10_000 + step}
            drawn = rollouts(model, PROMPT, ALPHA, LENGTH, sampler="swor" if way == "weighted" else "masked", **options)
        optimizer.zero_grad()
        (-learn(drawn, scores(module, model, drawn))).backward()
        optimizer.step()
    return rows


def judged(model: HuggingFaceModel) -> Row:
    """By all records."""
    every = rollouts(model, PROMPT, ALPHA, LENGTH, sampler="exact", num_particles=100_000, budget=100_000)
    worth, law, other = rewards(every), every.weights, masked_law(every)
    texts = torch.unique(
        torch.tensor([json.loads(text)["a"] * 10 + json.loads(text)["b"] for text in every.texts]), return_inverse=True
    )[1]
    by_text = [torch.zeros(int(texts.max()) + 1, dtype=torch.float64).index_add_(0, texts, each) for each in (law, other)]
    return {
        "given": float(law @ worth),
        "under_masks": float(other @ worth),
        "apart": float((by_text[0] - by_text[1]).abs().sum() / 2),
        "log_evidence": every.found.log_evidence,
    }


@measurement(
    "way | seed | step | reward given α | of masked draws | laws apart | log p(α)",
    "{way} | {seed} | {step} | {given:.3f} | {under_masks:.3f} | {apart:.3f} | {log_evidence:.1f}",
    quick={"number": 2, "every": 1, "seeds": 1},
)
def run(
    number: Annotated[int, "of gradient steps"] = 100,
    rate: Annotated[float, "of Adam"] = 1e-5,
    every: Annotated[int, "steps between two looks"] = 5,
    seeds: int = 3,
) -> Iterator[Case]:
    for seed in range(seeds):
        for way in WAYS:
            yield {"way": way, "seed": seed}, partial(steps, way, number, rate, every, seed)
