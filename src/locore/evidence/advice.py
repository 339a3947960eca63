"""What a verdict lets one do, in a sentence, and what would make it better.

Probabilities of texts are p(y) / p(α). p(y) is known; so where only p(α) may be larger than the estimate, by e^reach at most,
every probability may be too large by that factor, and by no more.
"""

from __future__ import annotations

import math

from locore.kernel.evidence.bounds import SMALL_REACH, Estimate, reach
from locore.kernel.evidence.record import Run

LARGEST = 6.0  # nats, beyond which a factor says no more than that it is large
MOST_MORE = 32.0  # times a run: more than that is no advice
LEAST_SECONDS = 1.0
SLOW = 2.0  # seconds from which a call's price is worth a line
DEAR = 3  # times what one masked text takes
SATISFIED = "every text satisfies the constraint"


def use_of(level: str, draws: Estimate) -> str:
    """What may be done with particles of this verdict."""
    if draws.record.mode is not None:
        return SATISFIED if len(draws) > 1 else "the text satisfies the constraint"
    return f"{SATISFIED}; {_use(level, draws)}"


def _use(level: str, draws: Estimate) -> str:
    if level == "biased":
        return "use them as examples only: they are not distributed as the model would write them"
    if draws.record.enumerated and level == "trust":
        exact = "use them and their probabilities, which are exact"
        return exact if draws.is_whole else "use them: a sample of what was enumerated"
    if draws.record.exact_draws:
        return "use them: each is an exact draw"
    nats = reach(draws)
    if level == "trust":
        return "use them, and averages over them"
    if level == "not judged" or math.isnan(nats):
        return "use them; how far their probabilities are off is not known"
    factor = f"by a factor of {math.exp(nats):.2g}" if nats <= LARGEST else "by any factor"
    if level == "rough":
        return f"use them; their probabilities may be too high {factor}"
    return f"use them as examples only: likelier texts may be missing, and probabilities too high {factor}"


def more_time(draws: Estimate, run: Run) -> str | None:
    """How much longer such a run would have to be for "trust"; None where that does not help, or is not known.

    Errors of blocks fall with the root of what is spent, and so does what they say of it.
    """
    blocks, nats = draws.record.blocks, reach(draws)
    if blocks is None or len(blocks) < 2 or math.isnan(nats) or not run.seconds or not run.lm_tokens:
        return None
    more = (nats / SMALL_REACH) ** 2
    if not 1 < more <= MOST_MORE:
        return None
    seconds = (run.seconds - (run.compile_seconds or 0.0)) * (more - 1)
    return f"about {_spoken(max(seconds, LEAST_SECONDS))} more would settle it: budget={_round(run.lm_tokens * more):,}"


def price_of(draws: Estimate, run: Run) -> str | None:
    """What a call that took long has cost, beside a masked text, which asks for a distribution at each place but the first."""
    masked = max(1, draws.tokens.shape[1] - 1)
    if not run.lm_tokens or not run.seconds or run.seconds < SLOW or run.lm_tokens <= DEAR * masked:
        return None
    once = f"one masked text, without a weight, takes at most {masked:,}"
    return (
        f"{run.lm_tokens:,} LM tokens in {_spoken(run.seconds)}; {once}, and a smaller budget=… or num_particles=… takes less"
    )


def _spoken(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} second{'s' * (round(seconds) != 1)}"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.0f} hours"


def _round(number: float) -> int:
    """To two digits."""
    digits = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return int(math.ceil(number / digits) * digits)
