"""What to trust: one verdict from the weights, with its reasons and a remedy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from locore.ending import is_end

if TYPE_CHECKING:
    from locore.particles import Particles

Level = Literal["trust", "rough", "not judged", "do not trust", "biased"]
ENOUGH, SOME = 30.0, 10.0  # effective sample sizes
LARGE_SHARE = 0.2  # of one particle: above it, the answer hangs on that particle
EOS_NATS = 5.0  # a price of ending above this is worth saying
K_HAT_PARTICLES = 25
ENOUGH_BLOCKS, MORE_PARTICLES = 4, 128
EXPECTED_DRAWS = 10.0  # that would satisfy the constraint, had the particles been unconstrained draws
OUT_OF_SIGHT = (
    "the constraint is rare and nothing steers these particles to it, so they may all have missed where it is likely; use "
    "sampler='twisted', or many more particles."
)
SMALL_ERROR, FAIR_ERROR = 0.1, 0.35  # relative standard errors of the evidence


@dataclass(frozen=True)
class Verdict:
    """The judgement on a set of particles.

    Attributes:
        level: "trust", "rough", "do not trust"; "not judged" where too few particles show no error of their own; "biased" where
            no weight helps.
        text: the whole report, its first line the verdict.
    """

    level: Level
    text: str


def diagnose(particles: Particles) -> Verdict:
    """Judge particles by their effective sample size, their largest weight, and what made them."""
    level = _level(particles)
    lines = [_headline(particles, level), *_facts(particles), *_caveats(particles, level)]
    return Verdict(level, "\n".join(lines))


def _level(particles: Particles) -> Level:
    if particles.info.get("guarantee") == "biased":
        return "biased"
    if particles.info.get("evidence") == "exact":
        return "trust"
    levels = [_level_of_blocks(particles)] if is_blocked(particles) else []
    # The states of chains are judged by their own effective sample size too, however well the evidence is known.
    if not levels or particles.info.get("guarantee") == "asymptotic":
        levels.append(_level_of_weights(particles))
    if is_out_of_sight(particles):
        levels.append("rough")
    return max(levels, key=("trust", "rough", "not judged", "do not trust").index)


def is_out_of_sight(particles: Particles) -> bool:
    """Could texts that nobody drew hold more than those that were found?

    Particles that nothing steers towards the constraint go where prefixes are likely, so N of them see nothing of a set of
    prefixes with less mass than about 1/N. If p(α) is not well above that, what they agree on may be the wrong mode.
    """
    if particles.info.get("guided") or particles.info.get("unweighted"):
        return False
    return particles.log_evidence + math.log(particles.info.get("drawn", len(particles))) < math.log(EXPECTED_DRAWS)


def _level_of_weights(particles: Particles) -> Level:
    ess, largest = particles.ess, float(particles.weights.max())
    if ess >= ENOUGH and largest <= LARGE_SHARE:
        return "trust"
    return "rough" if ess >= SOME else "do not trust"


def is_blocked(particles: Particles) -> bool:
    """Were the particles made in independent blocks, within which they depend on each other?"""
    return "block_log_evidence" in particles.info


def _level_of_blocks(particles: Particles) -> Level:
    """By the relative error e of the evidence: one draw from the particles is within total variation e/2 of p(y | α)."""
    if len(particles.info["block_log_evidence"]) < ENOUGH_BLOCKS:
        return "not judged"
    error = particles.log_evidence_error
    if error <= SMALL_ERROR and not particles.info.get("refused"):  # the blocks were compared before particles were refused
        return "trust"
    return "rough" if error <= FAIR_ERROR else "do not trust"


def _headline(particles: Particles, level: Level) -> str:
    if level == "biased":
        return "Biased: these sequences satisfy the constraint, but are not distributed as p(y | α)."
    if particles.info.get("evidence") == "exact":
        kept = f"{len(particles):,} of {particles.info['sequences']:,} sequences are kept"
        return f"Trust: every sequence that satisfies the constraint was enumerated, so the evidence is exact; {kept}."
    if level == "rough" and is_out_of_sight(particles):
        return f"Rough: {OUT_OF_SIGHT}"
    if is_blocked(particles):
        return _headline_of_blocks(particles, level)
    effective = f"ESS {particles.ess:.1f} of {particles.info.get('drawn', len(particles))}"
    if level == "trust":
        return f"Trust: {effective}; the weights are even enough for averages over these particles."
    if level == "rough":
        return f"Rough: {effective}; use the result for orientation, or draw more particles."
    return f"Do not trust: {effective}; a few particles carry all the weight. {_remedy(particles)}"


def _headline_of_blocks(particles: Particles, level: Level) -> str:
    blocks = len(particles.info["block_log_evidence"])
    if blocks < ENOUGH_BLOCKS:
        return (
            f"Not judged: so few particles are best used as one whole, which cannot show its own error; use num_particles="
            f"{MORE_PARTICLES} for a verdict."
        )
    spread = f"{blocks} independent blocks agree on p(α) to ±{max(particles.log_evidence_error, 0.01):.0%}"
    if level == "trust":
        return f"Trust: {spread}."
    if level == "rough":
        return f"Rough: {spread}; use the result for orientation, or raise num_particles or budget."
    return f"Do not trust: {spread}. {_remedy(particles)}"


def _remedy(particles: Particles) -> str:
    drawn = int(particles.info.get("drawn", len(particles)))
    if particles.info.get("sampler") in ("lcr", "greedy", "smc"):
        return "Try sampler='twisted', or 'rejection' if the constraint is likely."
    more = max(4 * drawn, 128)
    if particles.info.get("table") == "learned in the call":
        return f"Try num_particles={more}, or `locore prepare MODEL`, once: its table makes this sampler far more exact."
    if drawn < 4 * ENOUGH:
        return f"Try num_particles={more}."
    return "Try more particles, or a constraint that leaves the model more freedom."


def _facts(particles: Particles) -> list[str]:
    info = particles.info
    lines = []
    if not math.isnan(particles.log_evidence):
        error = particles.log_evidence_error
        half = (particles.log_evidence_interval[1] - particles.log_evidence_interval[0]) / 2
        margin = "" if math.isnan(error) else f" ± {half:.2f} (95 %)"
        lines.append(f"log p(α) = {particles.log_evidence:.3f}{margin} nats, p(α) ≈ {math.exp(particles.log_evidence):.3g}")
    lines.append(
        f"{len(set(particles.bytes))} distinct texts in {len(particles)} particles, largest weight "
        f"{float(particles.weights.max()):.0%}; sampler {info.get('sampler', 'unknown')}, "
        f"guarantee {info.get('guarantee', 'unknown')}"
    )
    if "chosen" in info:
        lines.append(f"auto chose {info['chosen']}: {info['why']}")
    drawn = int(info.get("drawn", len(particles)))
    if drawn > len(particles) and not info.get("resampled_from") and not is_blocked(particles):
        lines.append(f"{drawn - len(particles)} of {drawn} weights were zero")
    for reason, share in info.get("refused", {}).items():
        lines.append(f"{share:.1%} of the particles refused: {reason}")
    if "lm_tokens" in info:
        seconds = f", {info['seconds']:.2f} s ({info.get('model_seconds', 0.0):.2f} s in the model)"
        lines.append(f"{info['lm_tokens']:,} LM tokens, {info.get('lm_contexts', 0):,} distinct contexts{seconds}")
    if info.get("table_lm_tokens"):
        lines.append(
            f"once for this model: a table of {info['table_lm_tokens']:,} LM tokens, {info['table_seconds']:.1f} s; "
            "kept on disk"
        )
    return lines


def _caveats(particles: Particles, level: Level) -> list[str]:
    lines = [f"Note: {note}." for note in particles.info.get("notes", [])]
    price = eos_price(particles)
    if price > EOS_NATS:
        lines.append(
            f"Note: ending the text costs {price:.1f} nats on average: this model rarely ends here. With stop='complete' "
            "the end is free where the constraint allows nothing else."
        )
    if level in ("trust", "rough"):
        if len(particles) < K_HAT_PARTICLES and not is_blocked(particles):
            lines.append(f"Note: with fewer than {K_HAT_PARTICLES} particles tail diagnostics such as Pareto k̂ mean nothing.")
        what = "agreement of blocks" if is_blocked(particles) else "ESS"
        lines.append(
            f"Note: {what} cannot see likely sequences that were never drawn; another sampler's answer is better evidence."
        )
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
