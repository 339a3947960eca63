"""What two ways to read less in neighbourhoods could bring: contexts shared between drafts, and candidates pruned by a bound.

python -m locore_lab.micro.sharing
"""

from __future__ import annotations

import torch

import locore
from locore.local import TopK
from locore.models import LanguageModel
from locore.samplers import LocallyConstrainedResampling

SIZES = ((4, 32), (10, 16), (20, 8))  # tokens, particles
PROMPTS = ("The weather is", "She")
NATS = (10, 20, 30)


def shared(model: LanguageModel) -> None:
    """Distinct contexts of a whole run, of all that it asks for: what is left if none is read twice."""
    for prompt in PROMPTS:
        for n, particles in SIZES:
            sampler = LocallyConstrainedResampling(kernel=TopK(k=16))
            found = locore.generate(model, prompt, locore.ban([" the"]), n, num_particles=particles, sampler=sampler, seed=1)
            info = found.info
            share = info["lm_contexts"] / info["lm_tokens"]
            print(f"{prompt!r}, n = {n}, {particles} particles: {info['lm_tokens']:,} LM tokens, {share:.0%} distinct")


def pruned(model: LanguageModel) -> None:
    """log p(y_<i, v) bounds the neighbour (i, v) before its tail is read: how many does it exclude?"""
    after = model.prompted(PROMPTS[0])
    drafts = after.sample(16, 20, 1).tokens
    log_probs = after.log_probs(drafts)
    own = log_probs.gather(-1, drafts[..., None])[..., 0].double()
    before = own.cumsum(1) - own
    for k in (16, 64):
        likely, candidates = log_probs.topk(k)
        joint = torch.stack([after.neighbours(y, c) for y, c in zip(drafts, candidates, strict=True)])
        best = joint.amax(-1, keepdim=True)
        for nats in NATS:
            bounded = float((before[..., None] + likely.double() < best - nats).double().mean())
            below = float((joint < best - nats).double().mean())
            print(f"k = {k}, {nats} nats below the best: {below:.1%} of candidates, of which the bound knows {bounded:.1%}")


def main() -> None:
    torch.set_num_threads(1)
    model = locore.load("tiny")
    shared(model)
    pruned(model)


if __name__ == "__main__":
    main()
