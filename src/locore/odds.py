"""`log_odds`: how much more probable one constraint is than another, with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from locore.constraints import Constraint, disjunction, has_text, negation
from locore.evidence import Particles
from locore.kernel.chat import Prompt
from locore.kernel.compilers.problem import is_cut
from locore.kernel.errors import InvalidArgument, InvalidConstraint
from locore.kernel.request import OF_WHOLE_TEXTS, Request, drawn_seed
from locore.kernel.tokenizer import Tokenizer
from locore.models import LanguageModel, load
from locore.potentials import Target, target_of
from locore.potentials.target import Term
from locore.samplers import sampler_by_name
from locore.samplers.steering import SeeksMode
from locore.shaping import asked_for


@dataclass(frozen=True)
class LogOdds:
    """log p(A | prompt) − log p(B | prompt), in nats.

    Attributes:
        value: the estimate.
        interval: of 95 %, as those of p(A) and p(B) it is made of; the same number twice where both are exact.
        first, second: the texts that satisfy A and those that satisfy B, with all that is known of their weights.
    """

    value: float
    interval: tuple[float, float]
    first: Particles = field(repr=False)
    second: Particles = field(repr=False)

    @property
    def is_exact(self) -> bool:
        """Were both probabilities enumerated?"""
        return self.first.record.enumerated and self.second.record.enumerated


def log_odds(
    model: LanguageModel | str | Path,
    prompt: Prompt,
    first: Constraint | Term,
    second: Constraint | Term,
    max_new_tokens: int = 20,
    **options: Any,
) -> LogOdds:
    """How much more probable texts are that satisfy one constraint than those that satisfy another.

    Both probabilities are of texts of the same law: with ending="complete" a text ends for free where neither constraint, nor
    the two of them together, leaves anything to add. The constraints may overlap; `~a` for the second gives the odds of `a`;
    each probability then bounds the other.

    Args:
        model: a language model, or what `locore.load` accepts.
        prompt: see `locore.generate`.
        first: A; with potentials their normalisers are compared.
        second: B, as well.
        max_new_tokens: the horizon.
        options: the others of `locore.generate`, the same for both: `num_particles`, `sampler`, `budget`, `seed`, ….

    Returns:
        The difference of the two log-evidences. They are estimated independently, and their intervals are joined by the method
        of variance estimates recovery: each end of the difference is as far away as the root of the sum of the squares of what
        the two intervals leave on that side (Zou and Donner, Statistics in Medicine 2008). A constraint and its
        negation have at most probability 1 together, so no end is further away than one of the two has it.

    Raises:
        InvalidConstraint: an argument is neither constraint nor potential.
        Unsatisfiable, ZeroWeights, BudgetExceeded: of either; see `locore.generate`.
    """
    aims = [_aim(what) for what in (first, second)]
    request = Request(max_new_tokens=max_new_tokens, **options)
    sampler = sampler_by_name(request.sampler)
    if request.most_probable or isinstance(sampler, SeeksMode):
        raise InvalidArgument("log_odds compares probabilities, which a search for the most probable texts does not give.")
    base = model if isinstance(model, LanguageModel) else load(model)
    seed = drawn_seed(request.seed)
    either = disjunction([aim.constraint for aim in aims])
    a, b = (
        asked_for(replace(request, seed=seed + number), base, prompt, aim, sampler, complete=either)
        for number, aim in enumerate(aims)
    )
    value, interval = _within(a) - _within(b), difference_of(a, b)
    first, second = (aim.constraint for aim in aims)
    if first == negation(second) and not any(aim.factors for aim in aims):
        all_texts = not any(getattr(request, name) for name in OF_WHOLE_TEXTS)
        value, interval = _of_opposites(a, b, value, interval, all_texts and _one_holds(first, base.tokenizer))
    return LogOdds(value, interval, a, b)


def _of_opposites(
    a: Particles, b: Particles, value: float, interval: tuple[float, float], one_holds: bool
) -> tuple[float, tuple[float, float]]:
    """Value and interval where p(A) + p(B) is at most 1, or 1.

    If it is 1, the rarer of the two says all, and the log of the likelier, which is nearly nothing, need not be estimated.
    """
    low, high = interval
    (a_low, a_high), (b_low, b_high) = a.log_evidence_interval, b.log_evidence_interval
    low, high = max(low, _logit(a_low)), min(high, -_logit(b_low))
    if one_holds:
        low, high = max(low, -_logit(b_high)), min(high, _logit(a_high))
        value = _logit(_within(a)) if _within(a) <= _within(b) else -_logit(_within(b))
    if low > high:  # one of two intervals of 95 % is wrong, and nobody knows which
        low, high = interval
    return min(max(value, low), high), (low, high)


def _logit(log_p: float) -> float:
    """log p − log(1 − p)."""
    return math.inf if log_p >= 0 else log_p - math.log(-math.expm1(log_p))


def _one_holds(constraint: Constraint, tokenizer: Tokenizer) -> bool:
    """Does of each sequence either the constraint or its negation hold? Of text neither does that is cut within a character."""
    ends, contents = tokenizer.eos_ids, tokenizer.token_bytes
    texts = [content for token, content in enumerate(contents) if token not in ends]
    return not has_text(constraint) or all(content is not None and not is_cut(content) for content in texts)


def _aim(what: object) -> Target:
    aim = target_of(what)
    if aim is None:
        raise InvalidConstraint(f"log_odds compares two constraints, got {type(what).__name__}; use ban, contains, choice.")
    return aim


def difference_of(a: Particles, b: Particles) -> tuple[float, float]:
    """95 % interval of the difference of two independent log-evidences; nan where one of them has none."""
    (a_low, a_high), (b_low, b_high) = a.log_evidence_interval, b.log_evidence_interval
    value = _within(a) - _within(b)
    low = math.hypot(_within(a) - a_low, b_high - _within(b))
    high = math.hypot(a_high - _within(a), _within(b) - b_low)
    return value - low, value + high


def _within(particles: Particles) -> float:
    """Log-evidence, as far as it is not certain that it is more, or less: bounds may be closer than the estimate."""
    low, high = particles.log_evidence_interval
    return min(max(particles.log_evidence, low), high) if low <= high else particles.log_evidence
