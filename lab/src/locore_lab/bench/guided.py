"""How far log Ẑ is off with few LM tokens: SMC, "twisted" that learns in the call, and "lcr" from left to right."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Annotated

import locore
from locore import Constraint, contains, ends_with
from locore.models import LanguageModel
from locore.samplers import LocallyConstrainedResampling, Sampler, SequentialMonteCarlo, Twisted
from locore_lab.harness import Case, Row, measurement
from locore_lab.places import SHARED

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


def rmse(model: LanguageModel, constraint: Constraint, length: int, budget: int, seeds: int, exact: int) -> Row:
    """Of log Ẑ by each sampler, nats."""
    truth = log_z(model, constraint, length, Twisted("model"), exact, 99)

    def error(sampler: Sampler) -> float:
        found = (log_z(model, constraint, length, sampler, budget, seed) - truth for seed in range(seeds))
        return math.sqrt(sum(each * each for each in found) / seeds)

    return {way: error(sampler) for way, sampler in SAMPLERS.items()}


@measurement(
    "problem | n | LM tokens | smc, RMSE of log Ẑ | twisted | lcr",
    "{problem} | {length} | {budget} | {smc:.3f} | {twisted:.3f} | {lcr:.3f}",
    quick={"model": "tiny", "seeds": 1, "budget": [60], "exact": 2_000},
)
def run(
    model: str = str(SHARED / "models" / "stories260k"),
    seeds: int = 20,
    budget: list[int] = (60, 200, 800),
    exact: Annotated[int, "LM tokens of the truth"] = TRUTH_TOKENS,
) -> Iterator[Case]:
    opened = locore.load(model)
    for name, constraint in PROBLEMS.items():
        for length in (4, 8):
            for tokens in budget:
                key = {"problem": name, "length": length, "budget": tokens}
                yield key, partial(rmse, opened, constraint, length, tokens, seeds, exact)
