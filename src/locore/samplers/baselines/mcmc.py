"""Markov chains from properly weighted starts (resample–move: Gilks and Berzuini 2001).

Another sampler gives weighted sequences; each then makes a fixed number of moves that leave
p(· | α) invariant, and keeps its weight. The evidence does not change and the weights stay proper
(`moves`); a single draw comes closer to p(· | α), because every move can only bring it closer:
TV(q_S K, π) ≤ TV(q_S, π) for the law q_S of one particle drawn by weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.errors import InvalidArgument
from locore.evidence import Draws
from locore.local import Kernel, kernel_by_name
from locore.models import LanguageModel
from locore.numerics import effective_sample_size
from locore.samplers.base import Sampler, affordable
from locore.samplers.baselines.moves import Move, Regrow, WindowMove
from locore.samplers.masking import Masked, Masking, read
from locore.samplers.smc import systematic

SWEEPS = 5  # where no budget says how many


@dataclass(frozen=True)
class MarkovChain:
    """Moves from properly weighted particles.

    Attributes:
        moves: "window", "regrow", or objects of `locore.samplers.baselines.moves`; a sweep makes each once.
        window: r, how many tokens "window" draws anew, 1 to 4.
        sweeps: how often; None for as many as half of the budget pays for, 5 without a budget.
        kernel: the local distribution of "window", by name or as an object of `locore.local`.
        start: where the weighted particles come from.
        resample: draw the chains by weight first, so that all weigh the same: proper too, and moves
            then part the copies.
    """

    moves: tuple[str | Move, ...] = ("window", "regrow")
    window: int = 2
    sweeps: int | None = None
    kernel: str | Kernel = "forward"
    start: Sampler = field(default_factory=Masking)
    resample: bool = False
    name: str = "mcmc"

    def __post_init__(self) -> None:
        if not self.moves or (self.sweeps is not None and self.sweeps < 0):
            raise InvalidArgument("MarkovChain needs at least one move and sweeps of at least 0.")
        self._moves()

    def __call__(
        self,
        model: LanguageModel,
        circuit: Circuit,
        num_particles: int,
        budget: int | None,
        generator: torch.Generator,
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
    model: LanguageModel,
    circuit: Circuit,
    tokens: Tensor,
    moves: Sequence[Move],
    sweeps: int,
    generator: torch.Generator,
) -> tuple[Masked, dict[str, float]]:
    """Make every move `sweeps` times on each of Long[chains, time].

    Returns:
        Where the chains end, and for each move the share of its changes that were accepted.
    """
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
