"""The laws as functions: exact answers to test a model, a circuit or a sampler against, your own included."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.circuits.chain import chain_of
from locore.circuits.levels import FALSE, FIRST_LEAF, Block, LinkedBlocks
from locore.circuits.upward import satisfiable
from locore.kernel.errors import BrokenPotential, InvalidArgument, LocoreError, Unsatisfiable, ZeroWeights
from locore.kernel.evidence.weighing import weighed
from locore.kernel.lists import items_of
from locore.kernel.numerics import NEG_INF
from locore.kernel.samplers.sampler import Sampler, left_to_right
from locore.kernel.tokenizer import Tokenizer
from locore.models import LanguageModel
from locore.potentials import Potential, Scorer
from locore.potentials.asking import Tally, log_factors, shown
from locore.samplers.enumeration import Walk
from locore.samplers.steering import steered

RARE = 0.01  # share of the evidence below which sequences are tested together
ENOUGH = 20  # appearances expected of a group in all runs together: fewer have no normal tails to speak of


@dataclass(frozen=True, eq=False)
class Posterior:
    """p(y, α) for every y that satisfies α.

    Attributes:
        tokens: Long[models, length].
        log_joint: f64[models], log p(y), natural logs.
        pruned: probability of the prefixes that were not followed; an upper bound of the evidence that is missing.
        contexts: LM tokens that were asked for.
    """

    tokens: Tensor
    log_joint: Tensor
    pruned: float
    contexts: int

    @property
    def log_evidence(self) -> float:
        """log p(α), up to what was pruned."""
        return float(torch.logsumexp(self.log_joint, 0))

    @property
    def probabilities(self) -> Tensor:
        """f64[models]: p(y | α)."""
        return torch.softmax(self.log_joint, 0)

    def texts(self, tokenizer: Tokenizer) -> dict[str, float]:
        """Probability of each text given α, summed over tokenisations, most probable first."""
        total: dict[str, float] = {}
        for y, weight in zip(self.tokens.tolist(), self.probabilities.tolist(), strict=True):
            text = tokenizer.decode(y)
            total[text] = total.get(text, 0.0) + weight
        return dict(sorted(total.items(), key=lambda item: -item[1]))


def enumerate_posterior(
    model: LanguageModel, circuit: Circuit, max_contexts: int = 2_000_000, min_prob: float = 0.0
) -> Posterior:
    """Walk every prefix that can still be completed, and give each complete sequence its probability.

    Args:
        model: a prompted model.
        circuit: a constraint compiled from left to right.
        max_contexts: BudgetExceeded beyond so many next-token distributions.
        min_prob: prefixes less probable than this are not followed; what they hold is in `pruned`.
    """
    walk = Walk(model, left_to_right(circuit), max_contexts, min_prob)
    leaves = [(tokens, scores.sum(-1)) for tokens, scores in walk.leaves()]
    if not walk.sequences:
        raise Unsatisfiable("the model gives no probability to any sequence that satisfies the constraint.")
    tokens, log_joint = (torch.cat(column) for column in zip(*leaves, strict=True))
    return Posterior(tokens, log_joint, walk.pruned, walk.contexts)


def total_variation(first: dict[str, float], second: dict[str, float]) -> float:
    """½ Σ |p − q| over the union of the keys."""
    return 0.5 * sum(abs(first.get(key, 0.0) - second.get(key, 0.0)) for key in first.keys() | second.keys())


@dataclass(frozen=True, eq=False)
class ProperWeighting:
    """How far a sampler's runs are from E[mean_i w_i 1[y_i = y]] = p(y) 1[y ⊨ α].

    Attributes:
        z: f64[groups + 1], standard scores for each y that satisfies α (rare ones together) and, last, for the evidence.
        estimates: f64[groups + 1], the means over runs.
        truth: f64[groups + 1].
    """

    z: Tensor
    estimates: Tensor
    truth: Tensor

    def holds(self, false_alarm: float = 1e-6) -> bool:
        """No score beyond what chance explains, all scores together (Bonferroni, normal tails)."""
        limit = NormalDist().inv_cdf(1 - false_alarm / (2 * len(self.z)))
        return bool((self.z.abs() < limit).all())


def _together(probabilities: Tensor, draws: int) -> Tensor:
    """Long[num]: the group in which each sequence is tested: 0 for the rare ones, which are so many that they count too."""
    expected = probabilities * draws
    common = (probabilities >= RARE) & (expected >= ENOUGH)
    while common.any() and not common.all() and expected[~common].sum() < ENOUGH:
        common[torch.where(common, probabilities, math.inf).argmin()] = False
    return torch.where(common, common.long().cumsum(0), 0)


def proper_weighting(
    sampler: Sampler,
    model: LanguageModel,
    circuit: Circuit,
    num_particles: int,
    runs: int,
    budget: int | None = None,
    seed: int = 0,
    scorer: Scorer | None = None,
) -> ProperWeighting:
    """Run a sampler many times on a model small enough to enumerate, and compare with the law of proper weighting.

    A run without a particle of positive weight (ZeroWeights) counts as zero. Sequences too rare for a standard score are one
    group (`_together`).

    With a `scorer` of potentials the law is that of the product, E[mean_i w_i 1[y_i = y]] = p(y) 1[y ⊨ α] φ(y).
    """
    truth = enumerate_posterior(model, circuit)
    if scorer is not None:
        truth = replace(truth, log_joint=truth.log_joint + scorer.of(truth.tokens))
        sampler, model = steered(sampler, model, circuit, scorer)
    group = _together(truth.probabilities, runs * num_particles)
    index = {tuple(y): k for y, k in zip(truth.tokens.tolist(), group.tolist(), strict=True)}
    groups = int(group.max()) + 1
    totals = torch.zeros(runs, groups + 1, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    for run in range(runs):
        try:
            draws = sampler(model, circuit, num_particles, budget, generator)
            if scorer is not None:
                draws = weighed(draws, scorer.of, partial(scorer.use, steered=True))
        except ZeroWeights:
            continue
        weights = draws.log_weights.exp() / len(draws.tokens)
        for y, weight in zip(draws.tokens.tolist(), weights.tolist(), strict=True):
            totals[run, index[tuple(y)]] += weight
    totals[:, -1] = totals[:, :-1].sum(-1)
    exact = torch.zeros(groups, dtype=torch.float64).index_add_(0, group, truth.log_joint.exp())
    exact = torch.cat([exact, exact.sum(0, keepdim=True)])
    error = totals.std(0) / math.sqrt(runs)
    difference = totals.mean(0) - exact
    # A group that never came up has no spread; it is as far off as its expected number of appearances allows. Otherwise a
    # weight that is the same in every run differs from the truth by rounding only, or it is wrong.
    seen = (totals > 0).any(0)
    z = difference / torch.maximum(error, 1e-9 * exact).clamp_min(1e-300)
    z = torch.where(seen, z, -(exact * runs * num_particles).sqrt())
    return ProperWeighting(z, totals.mean(0), exact)


def check_potential(one: Potential, texts: Sequence[str], tolerance: float = 1e-4) -> None:
    """Ask a potential about texts all together, one by one, and in reverse: an answer may depend on its text alone.

    In a run each text is asked about once, so a potential that changes its mind is not found out there; its law is then that of
    whatever it said first. Scores of models that are padded to a common length, or sampled, are the usual cause.

    Args:
        one: made by `locore.potential` or `locore.predicate`.
        texts: at least two different ones, of different lengths.
        tolerance: by which log-factors may differ.

    Raises:
        BrokenPotential: it gave another answer, or none that is a log-factor.
    """
    listed = items_of(texts, "check_potential", "a list of texts", error=InvalidArgument)
    distinct = list(dict.fromkeys(listed))
    if len(distinct) < 2:
        raise InvalidArgument("check_potential needs at least two texts that differ.")

    def ask(some: list[str]) -> list[float]:
        return log_factors(one, one.ask, some, Tally())

    together, reverse = ask(distinct), ask(distinct[::-1])[::-1]
    alone = [ask([text])[0] for text in distinct]
    for text, first, *others in zip(distinct, together, reverse, alone, strict=True):
        for other in others:
            if first != other and not abs(first - other) <= tolerance:
                raise BrokenPotential(
                    f"{one!r} gave another answer for the text {shown(text)} the second time: {first:g}, then {other:g}. It "
                    "may depend on the text alone: not on chance, on the other texts of a batch, or on earlier calls."
                )


def check(circuit: Circuit, num_models: int = 256, seed: int = 0) -> None:
    """Raise LocoreError unless the circuit is smooth, decomposable and deterministic.

    Smoothness and decomposability are read off the scopes of all nodes. Determinism is tested on `num_models` models drawn
    from the circuit: at a single model a deterministic circuit evaluates to exactly 1, and models that are counted twice are
    drawn twice as often, so an overlap that holds a share f of all models is found with probability above 1 − (1 −
    f)^num_models.
    """
    _check_scopes(chain_of(circuit))
    if circuit.num_nodes:
        _check_determinism(circuit, num_models, seed)


def _check_scopes(chain: LinkedBlocks) -> None:
    """Every And joins disjoint scopes, every Or equal ones, and the root speaks about all positions. Scopes are bit masks."""
    live_slots = satisfiable(chain)
    handed: list[int] = [0] * len(chain.final)
    for (block, positions), live in zip(chain.upwards(), reversed(live_slots), strict=True):
        scopes = _block_scopes(block, positions, live.tolist(), handed)
        handed = [scopes[slot] for slot in block.outputs.tolist()]
    if bool(live_slots[0][chain.blocks[0].outputs[0]]) and handed[0] != (1 << chain.length) - 1:
        raise LocoreError(f"the root speaks about positions {handed[0]:b}, not about all {chain.length}")


def _block_scopes(block: Block, positions: tuple[int, ...], live: list[bool], handed: list[int]) -> list[int]:
    scopes: list[int] = [0] * block.num_slots
    for number, (position, _) in enumerate(block.leaves.tolist()):
        scopes[FIRST_LEAF + number] = 1 << positions[position]
    scopes[block.first_input : block.first_node] = handed
    for here, level in block.slots_and_levels:
        for node, (a, b, c, d) in enumerate(level.T.tolist(), here.start):
            branches = []
            for prime, sub in ((a, b), (c, d)):
                if not (live[prime] and live[sub]) or FALSE in (prime, sub):
                    continue
                if scopes[prime] & scopes[sub]:
                    raise LocoreError(f"slots {prime} and {sub} are joined but share positions: not decomposable")
                branches.append(scopes[prime] | scopes[sub])
            if len(branches) == 2 and branches[0] != branches[1]:
                raise LocoreError(f"slot {node} joins branches over different positions: not smooth")
            scopes[node] = branches[0] if branches else 0
    return scopes


def _check_determinism(circuit: Circuit, num_models: int, seed: int) -> None:
    uniform = torch.zeros(num_models, circuit.length, circuit.vocab_size, dtype=torch.float64, device=circuit.device)
    models, _ = circuit.sample(uniform, seed=seed)
    single = torch.full_like(uniform, NEG_INF).scatter_(-1, models[..., None], 0.0)
    values = circuit.log_mass(single)
    if bool((values != 0.0).any()):
        worst = float(values.max().exp())
        raise LocoreError(f"a model is counted {worst:g} times: the circuit is not deterministic")
