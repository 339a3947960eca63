"""Foresight by the states of a constraint and the last tokens, whatever it was made of."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from locore.kernel.samplers.ahead import Children, last_tokens, log_floor
from locore.kernel.samplers.base import Prefixes
from locore.kernel.samplers.merit import rarity


class Twist(ABC):
    """An estimate β of how probable the constraint still is after a prefix: an `AheadByToken` where all states are known."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where β is."""

    @abstractmethod
    def by_state(self, position: int, states: Tensor, log_floor: Tensor | None = None) -> Tensor:
        """log β after each possible next token, as if nothing were known of the tokens before it.

        Args:
            position: of the next token.
            states: Long[states], before it.
            log_floor: f32[states after it], log κ, by which β of each is raised.

        Returns:
            f32[states, vocab] on the device; tokens that cannot be completed have no meaning here.
        """

    @abstractmethod
    def of_states(self, position: int, states: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """f32[batch], log β of prefixes in Long[batch] states whose last tokens are these; −1 where there is none."""

    def known_pairs(
        self, position: int, states: Tensor, last: Tensor, log_floor: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """What is known better than by state, for some next tokens; None where nothing is.

        Args:
            position: of the next token.
            states: Long[batch], before it.
            last: Long[batch], the token before it, −1 where there is none.
            log_floor: as in `by_state`.

        Returns:
            Long[pairs] rows of the batch, Long[pairs] next tokens, and f32[pairs] log β on the device, which replaces
            `by_state`.
        """
        return None

    def of(self, prefixes: Prefixes) -> Tensor:
        """f64[num], as `Ahead.of`."""
        states = prefixes.reader.outlined(prefixes.states)
        return self.of_states(prefixes.position, states, *last_tokens(prefixes.tokens)).double()

    def after(self, prefixes: Prefixes, weights: Tensor, share: float) -> Children | None:
        """As `AheadByToken.after`; of whole sequences there is nothing to foresee.

        κ is a share of the mean β of the prefixes, half of it more where a state is rare. β is as wrong as two tokens of
        context say too little, however often the table has seen them.
        """
        position, reader = prefixes.position, prefixes.reader
        outline = reader.outline
        if outline is None or position + 1 == reader.length:
            return None
        floor, rare = log_floor(self.of(prefixes), weights, share).float(), rarity(prefixes, weights)
        floor = floor.expand(len(outline.live[position + 1])) if rare is None else floor + torch.log1p(rare) - math.log(2)
        floor, last = floor.to(self.device), last_tokens(prefixes.tokens)[1]
        distinct, which = torch.unique(reader.outlined(torch.unique(prefixes.states)), return_inverse=True)
        by_state = self.by_state(position, distinct, floor)
        by_state = by_state if len(distinct) == len(which) else by_state[which.to(self.device)]
        pairs = self.known_pairs(position, reader.outlined(prefixes.states), last, floor)
        return Children(by_state=by_state, pairs=pairs)


def raised(log_beta: Tensor, log_floor: Tensor | None, target: Tensor) -> Tensor:
    """log (β + κ), Long[…] target being the states that f32[…] log β are of."""
    return log_beta if log_floor is None else torch.logaddexp(log_beta, log_floor[target])
