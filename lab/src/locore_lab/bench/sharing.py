"""What two ways to read less in neighbourhoods could bring: contexts shared by drafts, candidates pruned by a bound."""

from collections.abc import Iterator
from functools import partial

import torch

import locore
from locore.local import TopK
from locore.models import LanguageModel
from locore.samplers import LocallyConstrainedResampling
from locore_lab.harness import Case, Row, measurement

SIZES = ((4, 32), (10, 16), (20, 8))  # tokens, particles
PROMPTS = ("The weather is", "She")
NATS = (10, 20, 30)


def shared(model: LanguageModel, prompt: str, n: int, particles: int) -> Row:
    """Distinct contexts of a whole run, of all that it asks for: what is left if none is read twice."""
    sampler = LocallyConstrainedResampling(kernel=TopK(k=16))
    found = locore.generate(model, prompt, locore.ban([" the"]), n, num_particles=particles, sampler=sampler, seed=1)
    return {"lm_tokens": found.info["lm_tokens"], "distinct": found.info["lm_contexts"] / found.info["lm_tokens"]}


def pruned(model: LanguageModel, k: int) -> list[Row]:
    """log p(y_<i, v) bounds the neighbour (i, v) before its tail is read: how many does it exclude?"""
    after = model.prompted(PROMPTS[0])
    drafts = after.sample(16, 20, 1).tokens
    log_probs = after.log_probs(drafts)
    own = log_probs.gather(-1, drafts[..., None])[..., 0].double()
    before = own.cumsum(1) - own
    likely, candidates = log_probs.topk(k)
    joint = torch.stack([after.neighbours(y, c) for y, c in zip(drafts, candidates, strict=True)])
    best, bound = joint.amax(-1, keepdim=True), before[..., None] + likely.double()
    return [{"nats": nats, "below": _share(joint < best - nats), "known": _share(bound < best - nats)} for nats in NATS]


def _share(which: torch.Tensor) -> float:
    return float(which.double().mean())


@measurement(
    "prompt | n | particles | LM tokens | of them distinct",
    "{prompt} | {n} | {particles} | {lm_tokens:,} | {distinct:.0%}",
    pruned=(
        "candidates | nats below the best | that far below | of which the bound knows",
        "{k} | {nats} | {below:.1%} | {known:.1%}",
    ),
)
def run() -> Iterator[Case]:
    model = locore.load("tiny")
    for prompt in PROMPTS:
        for n, particles in SIZES:
            yield {"prompt": prompt, "n": n, "particles": particles}, partial(shared, model, prompt, n, particles)
    for k in (16, 64):
        yield {"part": "pruned", "k": k}, partial(pruned, model, k)
