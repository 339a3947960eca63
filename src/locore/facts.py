"""The lines of a report below its verdict: what is known of p(α), what was found, what was lost, and what it cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from locore.ending import is_end

if TYPE_CHECKING:
    from locore.particles import Particles

EOS_NATS = 5.0  # a price of ending above this is worth saying
CERTAIN, LIKELY = "for certain", "(95 %, whatever was missed)"
NEAR, TRIVIAL = 3.0, 0.1  # nats: bounds so near to the estimate are worth saying, and none where p(α) is so near to 1
TIGHTER = 0.5  # nats
SMALLEST_LOG = -700.0
UNUSUAL = 0.05  # share of the weight on tokenisations that are not canonical
ROUNDING = 1e-6


def facts(particles: Particles) -> list[str]:
    """What there is to know, a line for each matter."""
    info = particles.info
    lines = [*_nats(particles), _findings(particles)]
    if "chosen" in info:
        lines.append(f"auto chose {info['chosen']}: {info['why']}")
    lines += [*_zeros(particles), *_spelling(info.get("not_canonical")), *_cost(particles)]
    lines += [f"Note: {note}." for note in info.get("notes", [])]
    price = eos_price(particles)
    if price > EOS_NATS:
        remedy = (
            "With stop='complete' the end is free where no longer text can satisfy the constraint."
            if info.get("stop") == "eos"
            else "A constraint that says where the text is complete makes the end free there."
        )
        lines.append(f"Note: ending the text costs {price:.1f} nats on average: this model rarely ends here. {remedy}")
    return lines


def evidence(particles: Particles) -> str:
    """p(α) in a line."""
    estimate = particles.log_evidence
    if math.isnan(estimate):
        return "p(α): not known without weights."
    if particles.info.get("evidence") == "exact":
        return f"p(α): {_probability(estimate)}, exactly."
    low, high = particles.log_evidence_interval
    if particles.info.get("guarantee") == "biased":
        return f"p(α): {_probability(estimate)}, biased."
    if math.isnan(low):
        return f"p(α): {_probability(estimate)}, give or take what is not known."
    likely = min(max(estimate, low), high)  # what is certain may exclude what the weights say
    if particles.log_evidence_bounds[1] - particles.log_evidence_bounds[0] < ROUNDING:
        return f"p(α): {_probability(likely)}, exactly."
    return f"p(α): {_probability(likely)}, between {_probability(low)} and {_probability(high)} (95 %)."


def _probability(log: float) -> str:
    """Two digits, or a power of e where floats end."""
    return f"{math.exp(log):.2g}" if log > SMALLEST_LOG else f"e^{log:.0f}"


def _nats(particles: Particles) -> list[str]:
    """log p(α) with its interval, and the bounds that say more than that."""
    if math.isnan(particles.log_evidence):
        return []
    estimate, (low, high) = particles.log_evidence, particles.log_evidence_interval
    if particles.info.get("evidence") == "exact":
        return [f"log p(α) = {estimate:.3f} nats exactly, p(α) = {math.exp(estimate):.3g}"]
    interval = "" if math.isnan(low) else f" (95 %: {low:.2f} to {high:.2f})"
    if particles.info.get("guarantee") == "biased":
        interval = " (biased)"
    lines = [f"log p(α) = {estimate:.3f}{interval} nats, p(α) ≈ {math.exp(estimate):.3g}"]
    bounds = _bounds(particles)
    return [*lines, f"bounds: log p(α) {bounds}"] if bounds else lines


def _bounds(particles: Particles) -> str:
    """Bounds on both sides, where they say something."""
    estimate = particles.log_evidence
    if estimate > -TRIVIAL or particles.info.get("log_evidence_interval"):  # which holds whatever was missed
        return ""
    sure, likely = particles.log_evidence_bounds, particles.log_evidence_bounds_95
    (low, how_low), (high, how_high) = (_telling(*pair) for pair in zip(sure, likely, strict=True))
    said = {}
    if low > estimate - NEAR:
        said[f"≥ {low:.2f}"] = how_low
    if high < max(estimate / 2, math.log(1 / 2)):
        said[f"≤ {high:.2f}"] = how_high
    if len(said) == 2 and how_low == how_high:
        return f"{' and '.join(said)} {how_low}"
    return ", ".join(f"{bound} {how}" for bound, how in said.items())


def _telling(sure: float, likely: float) -> tuple[float, str]:
    """The certain bound, unless the likely one is much tighter."""
    return (sure, CERTAIN) if abs(sure - likely) < TIGHTER else (likely, LIKELY)


def _findings(particles: Particles) -> str:
    texts = particles.distinct_texts
    parts = [
        f"{texts} distinct text{'s' * (texts > 1)} in {len(particles)} particle{'s' * (len(particles) > 1)}",
        f"largest weight {float(particles.weights.max()):.0%}",
    ]
    if not math.isnan(particles.pareto_k):
        parts.append(f"Pareto k̂ {particles.pareto_k:.2f}")
    sampler, guarantee = particles.info.get("sampler", "unknown"), particles.info.get("guarantee", "unknown")
    return f"{', '.join(parts)}; sampler {sampler}, guarantee {guarantee}"


def _zeros(particles: Particles) -> list[str]:
    """The share of zero weights, and why."""
    shares = {reason: share for reason, share in particles.info.get("zero_weights", {}).items() if share > 0}
    if not shares:
        return []
    if len(shares) == 1:
        ((reason, share),) = shares.items()
        return [f"{share:.1%} of the weights were zero: {reason}"]
    reasons = ", ".join(f"{share:.1%} {reason}" for reason, share in shares.items())
    return [f"{sum(shares.values()):.1%} of the weights were zero: {reasons}"]


def _spelling(share: float | None) -> list[str]:
    """How much weight is on unusual tokenisations, where that is worth saying."""
    if share is None or share < UNUSUAL:
        return []
    return [f"{share:.1%} of the weight is on tokenisations that are not the tokenizer's own; canonical='only' leaves them out"]


def _cost(particles: Particles) -> list[str]:
    info = particles.info
    lines = []
    if "lm_tokens" in info:
        inside = info.get("model_seconds", 0.0)
        lines.append(
            f"{info['lm_tokens']:,} LM tokens, {info.get('lm_contexts', 0):,} distinct contexts; {inside:.2f} s in the model, "
            f"{max(0.0, info['seconds'] - inside):.2f} s outside"
        )
    if info.get("table_lm_tokens"):
        table = f"a table of {info['table_lm_tokens']:,} LM tokens, {info['table_seconds']:.1f} s"
        lines.append(f"once for this model: {table}; kept on disk")
    return lines


def eos_price(particles: Particles) -> float:
    """Mean −log p(end | text) over particles that end before the horizon, by weight, in nats; 0 if none does."""
    if particles.token_scores is None or not particles.tokenizer.eos_ids:
        return 0.0
    ends = is_end(particles.tokens, particles.tokenizer.eos_ids)
    ended = ends.any(-1)
    if not bool(ended.any()):
        return 0.0
    first = ends.long().argmax(-1)
    price = -particles.token_scores.gather(1, first[:, None])[:, 0][ended]
    weights = particles.weights[ended]
    return float((price * weights).sum() / weights.sum()) if float(weights.sum()) else float(torch.max(price))
