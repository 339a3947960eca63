"""What to trust: one verdict on the texts with its reason and a remedy, a line on p(α), and all that is known below.

The verdict is on one draw from the particles, which is what most users take; p(α) has an interval, which says the same of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from locore.evidence.advice import more_time, price_of, use_of
from locore.kernel.evidence.bounds import ENCLOSED, SMALL_REACH, Estimate, is_out_of_sight, log_reach_of_others, reach_in_sight
from locore.kernel.evidence.pareto import LARGE_K, LEAST_PARTICLES
from locore.kernel.evidence.particles import Particles
from locore.kernel.evidence.record import Draws, Mode, Record, Run
from locore.kernel.evidence.verdict import FAIR_ERROR, FAIR_REACH, LEVELS, Level, Verdict

Judgement = tuple[Level, str]
ENOUGH, SOME = 30.0, 10.0  # effective sample sizes; with 30, no weight has more than 1/√30 = 18 % of the whole
MORE_PARTICLES = 128
SMALL_ERROR = 0.1  # relative, of the evidence
MOST = math.log(2)  # nats: what was not drawn may hold more than what was
SURPRISED = 0.5  # nats that are worth saying
HARDLY_EVER = -50.0  # nats: below, the model as it is would not write such a text in all its use
EOS_NATS = 5.0  # a price of ending above this is worth saying
CERTAIN, LIKELY = "for certain", "(95 %, whatever was missed)"
NEAR, TRIVIAL = 3.0, 0.1  # nats: bounds so near to the estimate are worth saying, and none where p(α) is so near to 1
TIGHTER = 0.5  # nats
SMALLEST_LOG = -700.0
WORTH_SAYING = 0.005  # share of the weight on texts that are cut off
UNUSUAL = 0.05  # share of the weight on tokenisations that are not canonical
ROUNDING = 1e-6


def judged(particles: Particles) -> Verdict:
    """How far weights can be trusted, and why."""
    run = particles.run
    level, reason = diagnose(particles, run.remedy)
    details = [*facts(particles, run, particles.distinct_texts, particles.price_of_end), *caveats(particles, level)]
    lines = [f"Texts: {level}; {use_of(level, particles)}.", evidence(particles), f"Why: {reason}"]
    settled = more_time(particles, run) if level in ("rough", "do not trust") and not is_out_of_sight(particles) else None
    price = price_of(particles, run)
    lines += [f"{what}: {said}." for what, said in (("Then", settled), ("Cost", price)) if said is not None]
    lines += [f"Note: {hint}" for hint in particles.record.hints]
    lines += [] if run.slow_because is None else [f"Note: {run.slow_because}."]
    return Verdict(level, "\n".join(lines), "\n".join(details))


Particles.judge = judged


def diagnose(draws: Draws, remedy: str = "") -> Judgement:
    """Judge draws by each thing that can go wrong; the worst counts, the first of equals is the reason given.

    The remedy is what the sampler's makers advise; "" for more particles.
    """
    return max(_judgements(draws, remedy), key=lambda judgement: LEVELS.index(judgement[0]))


def _judgements(draws: Draws, advised: str) -> Iterator[Judgement]:
    record = draws.record
    if record.guarantee == "biased":
        yield "biased", "these sequences satisfy the constraint, but are not distributed as p(y | α)."
        return
    if record.mode is not None:
        yield _by_search(record.mode)
        return
    if record.enumerated:
        shown = f"{len(draws):,} of {record.sequences:,} sequences are kept"
        yield "trust", f"every sequence that satisfies the constraint was enumerated, so the evidence is exact; {shown}."
        return
    if record.joined is not None:
        level: Level = next(level for level in LEVELS if level == record.joined.level)
        yield level, record.joined.reason
        return
    if math.isnan(draws.log_evidence_error) and record.refused and record.blocks is None:
        yield "not judged", _refused(draws)
        return
    remedy = _remedy(draws, advised)
    yield from _by_certain_bounds(draws, remedy)
    if is_out_of_sight(draws):
        yield "rough", _out_of_sight(record)
    yield from _by_what_was_not_asked(draws)
    yield from _by_tail(draws, remedy)
    if record.blocks is not None:
        yield _by_blocks(draws, remedy)
    # The states of chains are judged by their own effective sample size too, however well the evidence is known.
    if record.blocks is None or record.guarantee == "asymptotic":
        yield _by_weights(draws, remedy)


def _by_search(mode: Mode) -> Judgement:
    """Of the most probable texts; all of them where so many are proven."""
    if mode.is_proven:
        first = "" if mode.proven == 1 else f" than the first {mode.proven}"
        return (
            "trust",
            f"no other text that satisfies the constraint has a more probable sequence of tokens{first}, for certain.",
        )
    finding = f"the most probable of {mode.compared:,} that were compared"
    beyond = mode.log_unread - mode.log_found
    if beyond == math.inf:
        return "rough", f"{finding}; nothing bounds those that were not. A larger budget looks further."
    times = f"{math.exp(beyond):.2g}" if beyond < -SMALLEST_LOG else f"e^{beyond:.0f}"
    return "rough", f"{finding}; one that was not is at most {times} times as probable. A larger budget looks further."


def _out_of_sight(record: Record) -> str:
    """Why particles that agree may all be wrong, and what helps."""
    if record.table is not None and record.table.origin == "learned in the call":
        steers, table = "what steers these particles to it was learned from them", "`locore prepare MODEL`, once"
    else:
        steers = "nothing steers these particles to it"
        table = "the default sampler with the table that `locore prepare MODEL` makes once"
    remedy = "use many more particles" if record.tables_mislead else f"use many more particles, or {table}"
    return f"the constraint is rare and {steers}, so they may all have missed where it is likely; {remedy}."


def _refused(draws: Draws) -> str:
    """Why what is left shows no error."""
    reason = "particles were refused whose part in the error is not known"
    if draws.record.evidence == "thinned":
        return f"{reason}; num_particles={draws.record.sequences} keeps every sequence, which makes the answer exact."
    return f"{reason}; filter before resampling, or put the condition into the constraint."


def _by_certain_bounds(draws: Draws, remedy: str) -> Iterator[Judgement]:
    """An estimate outside of what is certain is wrong by at least the difference."""
    estimate, (low, high) = draws.log_mean_weight, draws.log_evidence_bounds
    error = 1 - math.exp(-max(low - estimate, estimate - high, 0.0))
    if error <= SMALL_ERROR:
        return
    level: Level = "rough" if error <= FAIR_ERROR else "do not trust"
    if estimate < low:
        certain = f"sequences that are known have a probability of {math.exp(low):.2g} together"
        yield level, f"{certain}, but the weights say {math.exp(estimate):.2g} for all there are. {remedy}"
    else:
        certain = f"p(α) is at most {math.exp(high):.2g}"
        yield level, f"{certain}, but the weights say {math.exp(estimate):.2g}. {remedy}"


def _by_what_was_not_asked(draws: Draws) -> Iterator[Judgement]:
    """By what texts may be worth that no potential was asked about."""
    factors, others = draws.record.factors, log_reach_of_others(draws)
    if factors is None or others == -math.inf or math.log1p(math.exp(min(others, -SMALLEST_LOG))) <= SMALL_REACH:
        return
    remedy = "What a phrase is worth is better said by locore.bonus than by a function; more particles ask about more texts."
    if factors.log_most == math.inf:
        remedy = f"Give the potential bound=..., the largest number that it ever returns. {remedy}"
    if others == math.inf:
        finding = f"all {factors.texts:,} texts that were asked about are worth the same, which says nothing of the others"
        yield "rough", f"{finding}. {remedy}"
        return
    bound = ", by its bound," if factors.log_most < math.inf else ""
    finding = f"what was not asked about may be worth{bound} {math.exp(min(others, -SMALLEST_LOG)):.2g} times what was found"
    yield "rough" if others <= FAIR_REACH else "do not trust", f"{finding}. {remedy}"


def _by_tail(draws: Draws, remedy: str) -> Iterator[Judgement]:
    """By the largest of independent weights."""
    k = draws.pareto_k
    if k > LARGE_K:
        yield "rough", f"Pareto k̂ is {k:.2f}: weights to come may outweigh all of these. {remedy}"


def is_enclosed(draws: Draws) -> bool:
    """Was next to all that satisfies the constraint read, for certain?"""
    low, high = draws.log_evidence_bounds
    return draws.record.evidence == "enclosed" and high - low <= ENCLOSED


def _by_blocks(draws: Draws, remedy: str) -> Judgement:
    """By how far p(α) may lie above the estimate: what may have been missed is what a draw from the particles misses."""
    assert draws.blocks is not None
    if is_enclosed(draws):
        low, high = draws.log_evidence_bounds
        return "trust", f"next to all that satisfies the constraint was read: at most {math.expm1(high - low):.2%} was not."
    above = reach_in_sight(draws)
    if math.isnan(above):
        return "not judged", f"one block cannot show its own error; num_particles={MORE_PARTICLES} makes several."
    number = len(draws.blocks)
    error = f"±{max(draws.log_evidence_error, 0.01):.0%}"
    finding = (
        f"{_z(draws)} is known to {error} by a single block"
        if number == 1
        else f"{number} independent blocks agree on {_z(draws)} to {error}"
    )
    if above <= SMALL_REACH:
        return "trust", f"{finding}."
    if draws.blocks.surprise > SURPRISED:
        finding += f", but forecasts of it were off by {draws.blocks.surprise:.1f} nats"
    if above <= FAIR_REACH:
        if above > MOST:
            finding += "; what was not drawn may hold most of the weight"
        return "rough", f"{finding}; use the result for orientation, or raise num_particles or budget."
    return "do not trust", f"{finding}. {remedy}"


def _by_weights(draws: Draws, remedy: str) -> Judgement:
    """By the effective sample size of independent particles, or of the states of chains."""
    ess = draws.ess
    if draws.record.exact_draws:
        return _by_exact_draws(round(ess), remedy)
    finding = f"ESS {ess:.1f} of {draws.drawn}"
    if ess >= ENOUGH:
        return "trust", f"{finding}; the weights are even enough for averages over these particles."
    if ess >= SOME:
        return "rough", f"{finding}; use the result for orientation, or draw more particles."
    few = "the chains hardly moved" if draws.record.iterations is not None else "a few particles carry all the weight"
    return "do not trust", f"{finding}; {few}. {remedy}"


def _by_exact_draws(number: int, remedy: str) -> Judgement:
    """Each one is as good as a draw can be; of averages over them the reader is told if they are few."""
    finding = f"{number} exact draw{'' if number == 1 else 's'} of p(y | α)"
    if number >= ENOUGH:
        return "trust", f"{finding}; enough for averages over these particles."
    return "trust", f"{finding}; too few for averages. {remedy}"


def _remedy(draws: Draws, advised: str) -> str:
    if draws.log_evidence < HARDLY_EVER and draws.record.factors is None:
        return (
            f"This model would hardly ever write such a text (p(α) ≈ e^{draws.log_evidence:.0f}): a prompt that leads "
            "there, or a model that knows such texts, helps more than draws."
        )
    if advised:
        return advised
    more = max(4 * draws.drawn, 128)
    table = draws.record.table
    if table is not None and table.origin == "learned in the call" and not draws.record.tables_mislead:
        return f"Try num_particles={more}, or `locore prepare MODEL`, once: its table makes this sampler far more exact."
    if draws.drawn < 4 * ENOUGH:
        return f"Try num_particles={more}."
    return "Try more particles, or a constraint that leaves the model more freedom."


def caveats(draws: Draws, level: Level) -> list[str]:
    """What a judgement cannot see."""
    record = draws.record
    is_known = record.mode is not None or record.exact_draws or record.enumerated or is_enclosed(draws)
    if level not in ("trust", "rough") or is_known:
        return []
    what = "agreement of blocks" if record.blocks is not None or record.joined is not None else "ESS"
    unseen = f"Note: {what} cannot see likely sequences that were never drawn; another sampler's answer is better evidence."
    if record.blocks is not None or record.joined is not None or draws.drawn >= LEAST_PARTICLES:
        return [unseen]
    return [f"Note: with fewer than {LEAST_PARTICLES} particles tail diagnostics such as Pareto k̂ mean nothing.", unseen]


def facts(draws: Estimate, run: Run, texts: int, price_of_end: float) -> list[str]:
    """What there is to know, a line for each matter.

    Args:
        draws: the draws.
        run: what made them.
        texts: how many of them are different.
        price_of_end: mean −log p(end | text) in nats.
    """
    record = draws.record
    lines = [*_nats(draws), _findings(draws, run.sampler, texts)]
    if record.chosen is not None:
        lines.append(f"auto chose {record.chosen}: {record.why}")
    lines += [*_zeros(record), *_asked(record), *_spelling(record.not_canonical), *_cost(record, run)]
    lines += [f"Note: {note}." for note in (*_cut_off(draws), *record.notes)]
    if price_of_end > EOS_NATS:
        remedy = (
            "With ending='complete' the end is free where no longer text can satisfy the constraint."
            if run.ending == "eos"
            else "A constraint that says where the text is complete makes the end free there."
        )
        lines.append(f"Note: ending the text costs {price_of_end:.1f} nats on average: this model rarely ends here. {remedy}")
    return lines


def evidence(draws: Estimate) -> str:
    """p(α), or the normaliser, in a line."""
    estimate, z = draws.log_evidence, _z(draws)
    if draws.record.mode is not None:
        return _of_mode(draws)
    if math.isnan(estimate) and draws.record.interval is not None:
        low, high = draws.record.interval
        return f"{z}: between {_probability(low)} and {_probability(high)} (95 %); so few draws say no more."
    if math.isnan(estimate):
        return f"{z}: not known without weights."
    if draws.record.enumerated:
        return f"{z}: {_probability(estimate)}, exactly."
    low, high = draws.log_evidence_interval
    if draws.record.guarantee == "biased":
        return f"{z}: {_probability(estimate)}, biased."
    if math.isnan(low):
        return f"{z}: {_probability(estimate)}, give or take what is not known."
    likely = min(max(estimate, low), high)  # what is certain may exclude what the weights say
    if draws.log_evidence_bounds[1] - draws.log_evidence_bounds[0] < ROUNDING:
        return f"{z}: {_probability(likely)}, exactly."
    if draws.record.exact_draws and max(high - estimate, estimate - low) > SMALL_REACH:
        interval = f"known only roughly, between {_probability(low)} and {_probability(high)} (95 %)"
        return f"{z}: {_probability(likely)}, {interval}; that the draws are exact says nothing of it."
    if high == math.inf:
        return f"{z}: {_probability(likely)}, at least {_probability(low)} (95 %); nothing says how large it may be."
    return f"{z}: {_probability(likely)}, between {_probability(low)} and {_probability(high)} (95 %)."


def _of_mode(draws: Estimate) -> str:
    """What the most probable texts have of p(α)."""
    texts = "p(text)" if len(draws) == 1 else "p of the first text"
    text = float(draws.log_weights[0] if draws.token_scores is None else draws.token_scores[0].sum())
    return f"{texts}: {_probability(text)}; {_z(draws)}: at least {_probability(draws.log_evidence_bounds[0])}, for certain."


def _z(draws: Draws) -> str:
    """What the evidence is called: with factors it is no probability."""
    return "p(α)" if draws.record.factors is None else "Z"


def _probability(log: float) -> str:
    """Two digits, or a power of e where floats end."""
    return f"{math.exp(log):.2g}" if abs(log) < -SMALLEST_LOG else f"e^{log:.0f}"


def _nats(draws: Estimate) -> list[str]:
    """log p(α) with its interval, and the bounds that say more than that."""
    if math.isnan(draws.log_evidence):
        return []
    estimate, (low, high), z = draws.log_evidence, draws.log_evidence_interval, _z(draws)
    if draws.record.enumerated:
        return [f"log {z} = {estimate:.3f} nats exactly, {z} = {math.exp(min(estimate, -SMALLEST_LOG)):.3g}"]
    likely = "" if math.isnan(low) else f" (95 %: {low:.2f} to {high:.2f})"
    if draws.record.guarantee == "biased":
        likely = " (biased)"
    lines = [f"log {z} = {estimate:.3f}{likely} nats, {z} ≈ {math.exp(min(estimate, -SMALLEST_LOG)):.3g}"]
    bounds = _bounds(draws)
    return [*lines, f"bounds: log {z} {bounds}"] if bounds else lines


def _bounds(draws: Estimate) -> str:
    """Bounds on both sides, where they say something."""
    estimate = draws.log_evidence
    if estimate > -TRIVIAL or draws.record.interval is not None:  # which holds whatever was missed
        return ""
    sure, likely = draws.log_evidence_bounds, draws.log_evidence_bounds_95
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


def _findings(draws: Draws, sampler: str, texts: int) -> str:
    if (mode := draws.record.mode) is not None:
        return f"{mode.compared:,} sequences were compared; {mode.proven} of {texts} texts proved; sampler {sampler}"
    parts = [
        f"{texts} distinct text{'s' * (texts > 1)} in {len(draws)} particle{'s' * (len(draws) > 1)}",
        f"largest weight {float(draws.weights.max()):.0%}",
    ]
    if not math.isnan(draws.pareto_k):
        parts.append(f"Pareto k̂ {draws.pareto_k:.2f}")
    return f"{', '.join(parts)}; sampler {sampler}, guarantee {draws.record.guarantee}"


def _zeros(record: Record) -> list[str]:
    """The share of zero weights, and why."""
    shares = {reason: share for reason, share in record.zeros.items() if share > 0}
    if not shares:
        return []
    if len(shares) == 1:
        ((reason, share),) = shares.items()
        return [f"{share:.1%} of the weights were zero: {reason}"]
    reasons = ", ".join(f"{share:.1%} {reason}" for reason, share in shares.items())
    return [f"{sum(shares.values()):.1%} of the weights were zero: {reasons}"]


def _asked(record: Record) -> list[str]:
    """What potentials were asked, and what went wrong."""
    asked = record.factors
    if asked is None or not asked.texts + asked.beginnings:
        return []
    beginnings = f" and {asked.beginnings:,} beginnings" if asked.beginnings else ""
    lines = [f"potentials were asked about {asked.texts:,} texts{beginnings}"]
    if asked.errors:
        lines.append(f"Note: on {asked.errors:,} a predicate raised an error, which means no; the first: {asked.first_error}.")
    if asked.timeouts:
        lines.append(f"Note: on {asked.timeouts:,} a predicate took too long, which means no.")
    return lines


def _cut_off(draws: Draws) -> list[str]:
    """How much weight is on texts that end where the horizon happens to be, where that is worth saying."""
    share = draws.record.cut_off
    if share is None or share < WORTH_SAYING:
        return []
    where = f"the horizon of {draws.tokens.shape[1]} tokens cut off"
    return [f"{share:.0%} of the weight is on texts that {where}; & finished() asks for an end, a longer horizon gives room"]


def _spelling(share: float | None) -> list[str]:
    """How much weight is on unusual tokenisations, where that is worth saying."""
    if share is None or share < UNUSUAL:
        return []
    return [f"{share:.1%} of the weight is on tokenisations that are not the tokenizer's own; canonical='only' leaves them out"]


def _cost(record: Record, run: Run) -> list[str]:
    lines = []
    if run.lm_tokens is not None:
        inside = run.model_seconds or 0.0
        lines.append(
            f"{run.lm_tokens:,} LM tokens in {run.passes or 0:,} passes; {inside:.2f} s in the model, "
            f"{max(0.0, (run.seconds or 0.0) - inside):.2f} s outside"
        )
    if record.table is not None and record.table.lm_tokens:
        table = f"a table of {record.table.lm_tokens:,} LM tokens, {record.table.seconds:.1f} s"
        lines.append(f"once for this model: {table}; kept on disk")
    return lines
