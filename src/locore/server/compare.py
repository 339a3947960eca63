"""What the page shows: masking and Locore on the same problem, token by token, and a small circuit as a trellis.

How far conditioning moves a token is log p(y_t | y_<t, α) − log p(y_t | y_<t), in nats. By Bayes' rule it is
log p(α | y_≤t) − log p(α | y_<t): what the token does for the chances of the constraint. Over the tokens of a text that
satisfies the constraint the shifts add up to −log p(α), whatever the text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.circuits.draw import Speller, Trellis, trellis_of
from locore.evidence import Particles
from locore.kernel.errors import BudgetExceeded, LocoreError
from locore.kernel.evidence.verdict import FAIR_ERROR
from locore.kernel.lists import largest_first
from locore.kernel.numerics import live_lengths
from locore.kernel.tokenizer import Tokenizer
from locore.models import LanguageModel
from locore.samplers.masking import read
from locore.server.compute import Run
from locore.server.scoring import finite, spelling
from locore.stopping import is_finished

Message = dict[str, Any]

MOST_ARCS, MOST_STATES, MOST_POSITIONS = 160, 14, 16  # of a drawing that can still be read
SHOWN = 16  # sequences of each side, and texts of each


def log_shares(tokens: Tensor, log_weights: Tensor, log_prob: Tensor) -> tuple[Tensor, Tensor]:
    """What weighted sequences say of log p(y_t | y_<t, α): the share of the weight of those that begin like y_<t.

    Exact if these are all sequences that satisfy α, with their probabilities; right in the limit of many particles otherwise.

    The error is that of Horvitz and Thompson (1952) for the weight of all that begin like y_≤t. A particle adds p(y)/π to the
    estimate of p(α), where π is the chance of its being there (taken as 1 where several of it were expected), and
    (p(y)/π)² (1 − π) to its variance. What certainly is there, as the likely sequences of a set without replacement, adds no
    error; a sequence that came by luck, and is alone with its beginning, has an error of 1.

    Args:
        tokens: Long[num, time].
        log_weights: f64[num]; their mean estimates p(α).
        log_prob: f64[num], log p(y).

    Returns:
        f64[num, time]: the log share; f64[num, time]: the relative error of the weight that begins like y_≤t.
    """
    num, length = tokens.shape
    shares, errors = torch.zeros(num, length, dtype=torch.float64), torch.zeros(num, length, dtype=torch.float64)
    inclusion = (log_prob - log_weights + math.log(num)).clamp(max=0.0)
    variance = 2 * log_weights + torch.log(-torch.expm1(inclusion))  # up to num², as the weights up to num
    prefix = torch.zeros(num, dtype=torch.long)  # a number for each distinct beginning
    before = torch.logsumexp(log_weights, 0).expand(num)
    for position in range(length):
        prefix = torch.unique(torch.stack([prefix, tokens[:, position]], 1), dim=0, return_inverse=True)[1]
        after = _log_sums(log_weights, prefix)[prefix]
        shares[:, position] = after - before
        errors[:, position] = (_log_sums(variance, prefix)[prefix] / 2 - after).exp()
        before = after
    return shares, errors


def is_forced(circuit: Circuit, tokens: Tensor) -> Tensor:
    """Bool[num, time]: is there only one token with which Long[num, time] can go on? Then its p(y_t | y_<t, α) is 1."""
    reader = circuit.reader
    forced = torch.zeros(tokens.shape, dtype=torch.bool)
    if reader is None:
        return forced
    states = reader.initial(len(tokens))
    for position in range(circuit.length):
        forced[:, position] = reader.allowed_tokens(position, states).sum(-1) == 1
        states = reader.step(position, states, tokens[:, position])
    return forced


def _log_sums(log_values: Tensor, groups: Tensor) -> Tensor:
    """f64[groups]: log of the sum of each group's values, −inf for a sum of zeros."""
    count = int(groups.max()) + 1
    top = torch.full((count,), -torch.inf, dtype=torch.float64).scatter_reduce_(0, groups, log_values, "amax")
    top = top.clamp(min=torch.finfo(torch.float64).min)
    sums = torch.zeros(count, dtype=torch.float64).index_add_(0, groups, (log_values - top[groups]).exp())
    return sums.log() + top


def described(circuit: Circuit, tokenizer: Tokenizer, ours: Particles, masked: Particles | None) -> Message:
    """The size of the circuit, and the circuit itself if it is small."""
    try:
        size: Message = {"nodes": circuit.num_nodes, "edges": circuit.num_edges}
    except BudgetExceeded:  # read state by state
        size = {"nodes": None, "edges": None}
    size["classes"] = circuit.num_classes
    summary = {**size, "vocab_size": circuit.vocab_size, "positions": circuit.length, "relaxed": circuit.relaxed}
    try:
        small = circuit.reader is not None and circuit.length <= MOST_POSITIONS
        trellis = trellis_of(circuit, MOST_ARCS) if small else None
    except BudgetExceeded:
        trellis = None
    if trellis is None or max(map(len, trellis.columns)) > MOST_STATES:
        return {**summary, "trellis": None}
    return {**summary, "trellis": _drawn(circuit, trellis, Speller(circuit.token_class, tokenizer), ours, masked)}


def _drawn(circuit: Circuit, trellis: Trellis, speller: Speller, ours: Particles, masked: Particles | None) -> Message:
    """Columns of states, and arcs with the share of each side that passes along them."""
    flows = {"locore": flow(circuit, ours), "masking": {} if masked is None else flow(circuit, masked.unweighted())}
    place = [{state: index for index, state in enumerate(column)} for column in trellis.columns]
    arcs = [
        {
            "position": position,
            "source": place[position][arc.source],
            "target": place[position + 1][arc.target],
            "tokens": speller.tokens(arc.classes),
            **{name: side.get((position, arc.source, arc.target), 0.0) for name, side in flows.items()},
        }
        for position, arcs in enumerate(trellis.arcs)
        for arc in arcs
    ]
    return {"columns": [len(column) for column in trellis.columns], "arcs": arcs}


def flow(circuit: Circuit, particles: Particles) -> dict[tuple[int, int, int], float]:
    """The share of the weight that passes from a state to another: by position, source and target."""
    reader = circuit.reader
    assert reader is not None
    shares: dict[tuple[int, int, int], float] = {}
    states, weights = reader.initial(len(particles)), particles.weights.tolist()
    for position in range(circuit.length):
        after = reader.step(position, states, particles.tokens[:, position])
        for source, target, weight in zip(states.tolist(), after.tolist(), weights, strict=True):
            key = (position, source, target)
            shares[key] = shares.get(key, 0.0) + weight
        states = after
    return shares


class Comparison:
    """A request for a comparison."""

    def __init__(self, run: Run, enter: Callable[[str], None] = lambda phase: None) -> None:
        """Of a run; `enter` is told what is done next."""
        self._run = run
        self._enter = enter

    def result(self) -> Message:
        """The result.

        Raises:
            LocoreError: as `locore.generate`. That masking alone found nothing is no error, but stands in the result.
        """
        run = self._run
        self._enter("sampling")
        ours = run.particles()
        self._enter("masking")
        masked: Particles | None = None
        problem = None
        try:
            masked = run.particles("masked")
        except LocoreError as error:
            problem = str(error)
        circuit, model = run.circuit, run.target
        sides = {
            "masking": {"error": problem, **({} if masked is None else _masking(masked, circuit, model))},
            "locore": {"error": None, **_locore(ours, circuit, model)},
        }
        return {
            "prompt_tokens": len(run.prompt),
            "locore": run.diagnostics(ours),
            "judged_by_blocks": ours.blocks is not None,
            **sides_apart(ours, masked),
            "sides": sides,
            **texts(ours, masked, circuit),
            "circuit": described(circuit, model.tokenizer, ours, masked),
        }


def sides_apart(ours: Particles, masked: Particles | None) -> Message:
    """KL(q ‖ p(· | α)) of the law q of masked decoding, in nats, and its standard error; None where it is not known.

    A masked sequence has the weight w = p/q, so the divergence is log p(α) − E_q[log w]: estimated without bias but for the
    estimate of log p(α), however many sequences there are. It is infinite if q breaks the constraint.
    """
    if masked is None or len(masked) < 2 or len(masked) < masked.info["drawn"] or math.isnan(ours.log_evidence):
        return {"divergence": None, "divergence_error": None}
    weights = masked.log_weights
    error = math.hypot(float(weights.std()) / math.sqrt(len(weights)), ours.log_evidence_error)
    return {"divergence": ours.log_evidence - float(weights.mean()), "divergence_error": None if math.isnan(error) else error}


def texts(ours: Particles, masked: Particles | None, circuit: Circuit) -> Message:
    """How probable each side makes the texts that are likely on one of them, and how much is left.

    The share of the weight of a particle is no probability of its text where texts are many: each particle stands for those
    that were not found too. p(text | constraint) is p(text) divided by the estimate of p(constraint).
    """
    first, second = ({} if masked is None else masked.unweighted().posterior()), ours.posterior()
    shown = dict.fromkeys([*list(second)[:SHOWN], *list(first)[:SHOWN]])
    by_text = probabilities(ours, masked)
    whole = {text for side in (ours, masked) if side is not None for text in finished_texts(side, circuit)}
    rows = [
        {
            "text": text,
            "cut": text not in whole,
            "masking": first.get(text, 0.0),
            "locore": second.get(text, 0.0),
            "probability": by_text.get(text),
        }
        for text in shown
    ]
    rest = [sum(p for text, p in side.items() if text not in shown) for side in (first, second)]
    number = len({*first, *second}) - len(shown)
    return {"texts": rows, "other_texts": {"number": number, "masking": rest[0], "locore": rest[1]}}


def finished_texts(side: Particles, circuit: Circuit) -> set[str]:
    """Those of which some sequence has ended, or is complete: the limit of tokens has not cut them off."""
    finished = is_finished(circuit, side.tokens, side.tokenizer.eos_ids).tolist()
    return {text for text, done in zip(side.texts, finished, strict=True) if done}


def probabilities(ours: Particles, masked: Particles | None) -> dict[str, float]:
    """p(text)/p(α) of every text of both sides: the sum over its spellings that were found; empty where p(α) is not known."""
    sides = [side for side in (ours, masked) if side is not None and side.token_scores is not None]
    if math.isnan(ours.log_evidence):
        return {}
    spellings: dict[tuple[int, ...], tuple[str, float]] = {}
    for side in sides:
        assert side.token_scores is not None
        for y, text, log_p in zip(side.tokens.tolist(), side.texts, side.token_scores.sum(-1).tolist(), strict=True):
            spellings[tuple(y)] = text, log_p
    total: dict[str, float] = {}
    for text, log_p in spellings.values():
        total[text] = total.get(text, 0.0) + math.exp(log_p - ours.log_evidence)
    return total


def _masking(particles: Particles, circuit: Circuit, model: LanguageModel) -> Message:
    """Each sequence counts as one. A token's shift is −log of the model's mass of the allowed tokens, which all rise by it."""
    plain = particles.unweighted()
    chosen, shares, draws = _likeliest(plain)
    weighted = torch.stack([particles.weights[(particles.tokens == row).all(-1)].sum() for row in plain.tokens[chosen]])
    reading = read(model, circuit, plain.tokens[chosen])
    rows = _rows(circuit, particles.tokenizer, plain.tokens[chosen], reading.token_scores, -reading.log_masses, shares, draws)
    for row, share in zip(rows, weighted.tolist(), strict=True):
        row["weighted_share"] = share
    return _side(particles, rows)


def _locore(particles: Particles, circuit: Circuit, model: LanguageModel) -> Message:
    """A token's shift is log p̂(token | before, α) − log p(token | before), p̂ the share of the weight of these particles.

    It is left out where these particles know it no better than by FAIR_ERROR.
    """
    chosen, shares, draws = _likeliest(particles)
    scores = model.token_scores(particles.tokens) if particles.token_scores is None else particles.token_scores
    log_share, error = log_shares(particles.tokens, particles.log_weights, scores.sum(-1))
    tokens, exact = particles.tokens[chosen], particles.is_whole
    forced = is_forced(circuit, tokens)
    shifts = torch.where(forced, 0.0, log_share[chosen]) - scores[chosen]
    precise = forced | (error[chosen] <= FAIR_ERROR) | exact
    shown = shifts.masked_fill(~precise, math.nan)
    rows = _rows(circuit, particles.tokenizer, tokens, scores[chosen], shown, shares, draws)
    return {**_side(particles, rows), "exact": exact}


def _side(particles: Particles, rows: list[Message]) -> Message:
    info = particles.info
    sequences = len(torch.unique(particles.tokens, dim=0))
    names = {"num_particles": len(particles), "lm_tokens": info["lm_tokens"], "seconds": info["seconds"]}
    return {**names, "other_sequences": sequences - len(rows), "sequences": rows}


def _likeliest(particles: Particles) -> tuple[Tensor, Tensor, list[int]]:
    """The first of the particles of each of the likeliest sequences, the shares of these sequences, and how often each is."""
    distinct, which, counts = torch.unique(particles.tokens, dim=0, return_inverse=True, return_counts=True)
    shares = torch.zeros(len(distinct), dtype=torch.float64).index_add_(0, which, particles.weights)
    best = torch.tensor(largest_first(range(len(shares)), shares.tolist().__getitem__)[:SHOWN])
    first = torch.stack([(which == number).nonzero()[0, 0] for number in best])
    return first, shares[best], counts[best].tolist()


def _rows(
    circuit: Circuit, tokenizer: Tokenizer, tokens: Tensor, scores: Tensor, shifts: Tensor, shares: Tensor, draws: list[int]
) -> list[Message]:
    """Sequences with their tokens, to the first end; None for numbers that are not known or not finite."""
    rows = []
    cut = (~is_finished(circuit, tokens, tokenizer.eos_ids)).tolist()
    lengths = live_lengths(tokens, tokenizer.eos_ids).tolist() if tokenizer.eos_ids else [tokens.shape[1]] * len(tokens)
    for row, length in enumerate(lengths):
        ids = tokens[row, :length].tolist()
        numbers = zip(ids, scores[row].tolist(), shifts[row].tolist(), strict=False)
        spelled = [
            {"text": spelling(tokenizer, i), "end": i in tokenizer.eos_ids, "log_prob": finite(p), "shift": finite(s)}
            for i, p, s in numbers
        ]
        text, share = tokenizer.decode(ids), float(shares[row])
        rows.append({"text": text, "cut": cut[row], "tokens": spelled, "share": share, "draws": draws[row]})
    return rows
