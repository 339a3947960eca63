"""How far log Ẑ is off with few LM tokens: SMC, "twisted" that learns in the call, and "lcr" from left to right.

python -m locore_lab.micro.guided FOLDER_OF_STORIES260K
"""

from __future__ import annotations

import argparse
import math

import torch

import locore
from locore import Constraint, contains, ends_with
from locore.models import LanguageModel
from locore.samplers import LocallyConstrainedResampling, Sampler, SequentialMonteCarlo, Twisted

PROMPT = "Once upon a time, there was a little girl named Lily."
PROBLEMS = {"dog": contains(" dog"), "happy": ends_with(" happy.")}
SAMPLERS: dict[str, Sampler] = {
    "smc": SequentialMonteCarlo(),
    "twisted": Twisted(table=None),
    "lcr": LocallyConstrainedResampling(),
}
# LM tokens of the run that stands for the truth; "twisted" with the model's table is off by .03 nats then.
TRUTH_TOKENS = 60_000


def log_z(model: LanguageModel, constraint: Constraint, length: int, sampler: Sampler, budget: int, seed: int) -> float:
    """Of one run."""
    found = locore.generate(model, PROMPT, constraint, length, num_particles=budget, sampler=sampler, budget=budget, seed=seed)
    return found.log_evidence


def main() -> None:
    """A line for each problem, budget and sampler."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budgets", type=int, nargs="+", default=[60, 200, 800])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    model = locore.load(asked.model)
    for name, constraint in PROBLEMS.items():
        for length in (4, 8):
            truth = log_z(model, constraint, length, Twisted("model"), TRUTH_TOKENS, 99)
            for budget in asked.budgets:
                errors = {
                    way: [log_z(model, constraint, length, sampler, budget, seed) - truth for seed in range(asked.seeds)]
                    for way, sampler in SAMPLERS.items()
                }
                rmse = {way: math.sqrt(sum(e * e for e in found) / len(found)) for way, found in errors.items()}
                told = ", ".join(f"{way} {value:.3f}" for way, value in rmse.items())
                print(f"{name}, n = {length}, {budget} LM tokens, RMSE of log Ẑ: {told}", flush=True)


if __name__ == "__main__":
    main()
