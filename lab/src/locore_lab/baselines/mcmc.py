"""Markov chains from properly weighted starts (resample–move: Gilks and Berzuini 2001).

Another sampler gives weighted sequences; each then makes a fixed number of moves that leave
p(· | α) invariant, and keeps its weight. The evidence does not change and the weights stay proper
(below); a single draw comes closer to p(· | α), because every move can only bring it closer:
TV(q_S K, π) ≤ TV(q_S, π) for the law q_S of one particle drawn by weight.

A move (Metropolis et al. 1953, Hastings 1970) proposes y' ~ q(· | y), takes it with probability
min(1, p(y') q(y | y') / (p(y) q(y' | y))) and else stays. That is detailed balance,
p(y | α) K(y, y') = p(y' | α) K(y', y), for every q, and for a mixture of q's chosen without looking
at y (here: a window, or a cut). Summed over y,

    Σ_y p(y) 1[y ⊨ α] K(y, y') = p(y') 1[y' ⊨ α],

so properly weighted (w, y) stay properly weighted, E[w f(y')] = Σ p(y') 1[y' ⊨ α] f(y'), with
the weight that they had, after any number of moves that was fixed beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.evidence import Draws, Guarantee
from locore.kernel.errors import InvalidArgument
from locore.kernel.numerics import NEG_INF, effective_sample_size
from locore.kernel.samplers.sampler import Promises, Sampler, affordable, left_to_right
from locore.kernel.samplers.smc import systematic
from locore.local import Kernel, TopK, kernel_by_name
from locore.models import LanguageModel
from locore.samplers.lcr import conditional, is_exact
from locore.samplers.masking import Masked, Masking, read, regrown

SWEEPS = 5  # where no budget says how many


@dataclass(frozen=True, eq=False)
class Step:
    """What a move did."""

    states: Masked  # where the chains are now
    proposed: Tensor  # Bool[chains], was something else than the state proposed?
    accepted: Tensor  # Bool[chains], and was it taken?


class Move(Protocol):
    """A Markov kernel that leaves p(· | α) invariant, on many chains side by side."""

    @property
    def name(self) -> str:
        """What the report calls it."""

    def price(self, length: int, vocab_size: int) -> int:
        """LM tokens for one chain, at most."""

    def __call__(self, model: LanguageModel, circuit: Circuit, states: Masked, generator: torch.Generator) -> Step:
        """Move each chain once; every state satisfies α and has positive probability."""


@dataclass(frozen=True)
class WindowMove:
    """Draw r adjacent tokens anew from p̃_y(· | α, the other tokens), by Metropolis–Hastings.

    The circuit conditions on the tokens outside the window, which are fixed: evidence is a log
    probability of −inf on all other tokens. With r = 1 and the exact kernel without a floor this is
    Gibbs sampling, and nothing is ever refused. Only the window's neighbourhoods are evaluated. A
    window alone need not reach everything; `Regrow` does.

    Accepted shares of the changes proposed at r = 1, 2, 4 (stories260k, n = 8, a ban): top-k 32
    .86, .58, .43, for 128, 247, 558 LM tokens; forward .19, .11, .03, for 13, 16, 19, so that it
    changes more for the same tokens. Regrowth: .91 for 7 (.15 where " dog" must occur).
    """

    width: int = 2  # r, at most the length. Above 4 little is accepted
    kernel: Kernel = field(default_factory=TopK)  # what p̃_y is; it needs a floor, unless it is exact
    name: str = "window"

    def __post_init__(self) -> None:
        if self.width < 1:
            raise InvalidArgument(f"a window has at least 1 token, got {self.width}.")
        if self.kernel.excludes and not is_exact(self.kernel):
            raise InvalidArgument("a window move needs a kernel with a floor; give it floor=0.05.")

    def price(self, length: int, vocab_size: int) -> int:
        """LM tokens for one chain, at most: two neighbourhoods of the window and a score."""
        return 2 * self.kernel.price(length, vocab_size, self.width) + length

    def __call__(self, model: LanguageModel, circuit: Circuit, states: Masked, generator: torch.Generator) -> Step:
        """Move each chain once, each in a window of its own; see `Move`."""
        tokens = states.tokens
        num, length = tokens.shape
        width = min(self.width, length)
        start = torch.randint(length - width + 1, (num, 1), generator=generator)
        column = torch.arange(length)
        window = (column >= start) & (column < start + width)
        around = window_law(self.kernel, model, tokens, window)
        proposals, log_forward = circuit.sample(around, generator)
        uniforms = torch.rand(num, generator=generator, dtype=torch.float64)
        proposed = (proposals != tokens).any(-1)
        rows = proposed.nonzero()[:, 0]
        if not len(rows):
            return Step(states, proposed, proposed)
        new = read(model, circuit, proposals[rows])
        back = window_law(self.kernel, model, new.tokens, window[rows])
        log_reverse = conditional(circuit, back, tokens[rows])
        log_ratio = log_acceptance(new.log_prob, states.log_prob[rows], log_forward[rows], log_reverse)
        taken = uniforms[rows].log() < log_ratio
        accepted = torch.zeros_like(proposed)
        accepted[rows[taken]] = True
        return Step(_replaced(states, rows[taken], new.at(taken)), proposed, accepted)


@dataclass(frozen=True)
class Regrow:
    """Cut at a random position and write the rest anew by masked decoding.

    Masked decoding has q(y' | y) = Π_{t≥c} p(y'_t | y'_<t) / Z_t(y'), so that of the ratio only the
    masks are left, Π_{t≥c} Z_t(y') / Z_t(y). A cut at 0 proposes every y that satisfies α, so
    chains with this move forget where they started.
    """

    name: str = "regrow"

    def price(self, length: int, vocab_size: int) -> int:
        """LM tokens for one chain, at most: n."""
        return length

    def __call__(self, model: LanguageModel, circuit: Circuit, states: Masked, generator: torch.Generator) -> Step:
        """Move each chain once, each from a cut of its own; see `Move`."""
        num, length = states.tokens.shape
        cuts = torch.randint(length, (num,), generator=generator)
        new = regrown(model, left_to_right(circuit), states.tokens, cuts, generator)
        uniforms = torch.rand(num, generator=generator, dtype=torch.float64)
        proposed = (new.tokens != states.tokens).any(-1)
        accepted = proposed & (uniforms.log() < log_acceptance_of_regrowth(new, states, cuts))
        return Step(_replaced(states, accepted, new.at(accepted)), proposed, accepted)


def window_law(kernel: Kernel, model: LanguageModel, tokens: Tensor, window: Tensor) -> Tensor:
    """f64[batch, time, vocab]: log p̃_y in the window Bool[batch, time], certain of y outside."""
    # Chains on the same sequence with the same window share one neighbourhood.
    both = torch.stack([tokens, window.long()], 1)
    distinct, index = torch.unique(both, dim=0, return_inverse=True)
    local = kernel.distributions(model, distinct[:, 0], distinct[:, 1].bool())[index]
    fixed = torch.full_like(local, NEG_INF).scatter_(-1, tokens[..., None], 0.0)
    return torch.where(window[..., None], local, fixed)


def log_acceptance(log_new: Tensor, log_old: Tensor, log_forward: Tensor, log_reverse: Tensor) -> Tensor:
    """log p(y') q(y | y') / (p(y) q(y' | y)); each f64[batch], p(y) and q(y' | y) positive."""
    return log_new + log_reverse - log_old - log_forward


def log_acceptance_of_regrowth(new: Masked, old: Masked, cuts: Tensor) -> Tensor:
    """f64[batch]: log Π_{t≥c} Z_t(y') / Z_t(y); at the cut itself both are the same."""
    after = torch.arange(new.tokens.shape[1]) > cuts[:, None]
    return torch.where(after, new.log_masses - old.log_masses, 0.0).sum(-1)


@dataclass(frozen=True)
class MarkovChain(Promises):
    """Moves from properly weighted particles."""

    guarantee: ClassVar[Guarantee] = "asymptotic"

    # "window", "regrow", or objects of `locore_lab.baselines.mcmc`; a sweep makes each once
    moves: tuple[str | Move, ...] = ("window", "regrow")
    window: int = 2  # r, how many tokens "window" draws anew, 1 to 4
    sweeps: int | None = None  # how often; None for as many as half of the budget pays for, 5 without a budget
    kernel: str | Kernel = "forward"  # the local distribution of "window", by name or as an object of `locore.local`
    start: Sampler = field(default_factory=Masking)  # where the weighted particles come from
    # draw the chains by weight first, so that all weigh the same: proper too, and moves then part the copies
    resample: bool = False
    name: str = "mcmc"

    def __post_init__(self) -> None:
        if not self.moves or (self.sweeps is not None and self.sweeps < 0):
            raise InvalidArgument("MarkovChain needs at least one move and sweeps of at least 0.")
        self._moves()

    def __call__(
        self, model: LanguageModel, circuit: Circuit, num_particles: int, budget: int | None, generator: torch.Generator
    ) -> Draws:
        """Up to `num_particles` chains; see `Sampler`."""
        moves = self._moves()
        price = sum(move.price(circuit.length, circuit.vocab_size) for move in moves)
        chains, sweeps = self._affordable(num_particles, price, circuit.length, budget)
        rest = None if budget is None else budget - chains * (sweeps * price + circuit.length)
        draws = self.start(model, circuit, chains, rest, generator)
        tokens, weights, record = draws.tokens, draws.log_weights, draws.record
        if self.resample or len(tokens) > chains:
            uniform = float(torch.rand((), generator=generator, dtype=torch.float64))
            tokens = tokens[systematic(weights, chains, uniform)]
            ess = effective_sample_size(weights) if record.ess is None else record.ess
            record = replace(record, independent=False, ess=ess)
            weights = (torch.logsumexp(weights, 0) - math.log(len(weights))).repeat(chains)
        states, acceptance = moved(model, circuit, tokens, moves, sweeps, generator)
        record = replace(
            record,
            drawn=draws.drawn - len(draws) + len(tokens),
            # What they say of the evidence stays; the sequences are no longer theirs.
            blocks=None if record.blocks is None else replace(record.blocks, tokens=None),
            details={**record.details, "start": self.start.name, "sweeps": sweeps, "acceptance": acceptance},
        )
        if record.guarantee == "biased":
            note = "the start is biased: the chains forget it in the end, but the evidence is the start's"
            record = replace(record, guarantee="asymptotic", notes=(*record.notes, note))
        return Draws(states.tokens, weights, states.token_scores, record)

    def _moves(self) -> tuple[Move, ...]:
        return tuple(self._move(move) for move in self.moves)

    def _move(self, move: str | Move) -> Move:
        if not isinstance(move, str):
            return move
        if move == "window":
            if not 1 <= self.window <= 4:
                raise InvalidArgument(f"window must be 1 to 4 tokens, got {self.window}: wider ones are hardly ever accepted.")
            return WindowMove(self.window, kernel_by_name(self.kernel))
        if move == "regrow":
            return Regrow()
        raise InvalidArgument(f"unknown move {move!r}; known are 'window' and 'regrow'.")

    def _affordable(self, num_particles: int, price: int, length: int, budget: int | None) -> tuple[int, int]:
        """Chains and sweeps, fixed before anything is drawn: else weights would not stay proper."""
        if budget is None:
            affordable(num_particles, 0, None, self.name)
            return num_particles, SWEEPS if self.sweeps is None else self.sweeps
        once = self.sweeps if self.sweeps is not None else 1
        # Each chain pays for its start, for one reading, and for its moves.
        chains = affordable(num_particles, once * price + 2 * length, budget, self.name)
        if self.sweeps is not None:
            return chains, self.sweeps
        return chains, max(1, budget // 2 // (chains * price))


def moved(
    model: LanguageModel, circuit: Circuit, tokens: Tensor, moves: Sequence[Move], sweeps: int, generator: torch.Generator
) -> tuple[Masked, dict[str, float]]:
    """Make every move `sweeps` times on each of Long[chains, time]."""
    states = read(model, circuit, tokens)
    proposed, accepted = [0] * len(moves), [0] * len(moves)
    for _ in range(sweeps):
        for index, move in enumerate(moves):
            step = move(model, circuit, states, generator)
            states = step.states
            proposed[index] += int(step.proposed.sum())
            accepted[index] += int(step.accepted.sum())
    shares = [a / max(1, p) for a, p in zip(accepted, proposed, strict=True)]
    return states, dict(zip([move.name for move in moves], shares, strict=True))


def _replaced(states: Masked, rows: Tensor, new: Masked) -> Masked:
    """With other sequences in these rows."""
    result = states.at(torch.arange(len(states.tokens)))
    result.tokens[rows] = new.tokens
    result.token_scores[rows] = new.token_scores
    result.log_masses[rows] = new.log_masses
    return result
