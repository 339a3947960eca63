"""What a round asks of a twist, whatever it was made of."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Twist(Protocol):
    """An estimate β of how probable the constraint still is after a prefix. It steers; weights stay exact whatever it is."""

    @property
    def device(self) -> torch.device:
        """Where β is."""

    def by_state(self, position: int, states: Tensor, log_floor: Tensor | None = None) -> Tensor:
        """log β after each possible next token, as if nothing were known of the tokens before it.

        Args:
            position: of the next token.
            states: Long[states], before it.
            log_floor: f32[states after it], log κ, by which β of each is raised.

        Returns:
            f32[states, vocab] on the device; tokens that cannot be completed have no meaning here.
        """

    def of(self, position: int, states: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """f32[batch], log β of prefixes in Long[batch] states whose last tokens are these; −1 where there is none."""

    def known_pairs(
        self, position: int, states: Tensor, last: Tensor, log_floor: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What is known better than by state, for some next tokens.

        Args:
            position: of the next token.
            states: Long[batch], before it.
            last: Long[batch], the token before it, −1 where there is none.
            log_floor: as in `by_state`.

        Returns:
            Long[pairs] rows of the batch, Long[pairs] next tokens, and f32[pairs] log β on the device, which replaces
            `by_state`.
        """


def raised(log_beta: Tensor, log_floor: Tensor | None, target: Tensor) -> Tensor:
    """log (β + κ), Long[…] target being the states that f32[…] log β are of."""
    return log_beta if log_floor is None else torch.logaddexp(log_beta, log_floor[target])
