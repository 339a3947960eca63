"""SMC without replacement as a sampler: blocks that share a budget, and what they foresee."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch

from locore.circuits import Circuit
from locore.evidence import Draws
from locore.models import LanguageModel
from locore.samplers.base import Ahead, Promises, Worth, left_to_right
from locore.samplers.rounds import Rounds
from locore.samplers.swor import LESSONS, WORTH_LESSONS, Round, blocks_for, pooled, width_of


class Foresight(Protocol):
    """Where the foresight of a call comes from, and what it costs: `NGrams` and `Contexts` in `locore.samplers.twist`."""

    def rounds(self, run: Rounds, blocks: int, asked: int | None, budget: int) -> tuple[list[Round], dict[str, Any]]:
        """Rounds within so many LM tokens, and what the record should say.

        Args:
            run: the call.
            blocks: how many rounds, as far as the particles go.
            asked: how many the caller has asked for.
            budget: LM tokens, for rounds and foresight.
        """


@dataclass(frozen=True)
class WithoutReplacement(Promises):
    """SMC without replacement with exact look-ahead to the length, selected by p(prefix) · β(prefix).

    Attributes:
        blocks: independent repetitions that share the particles. Their spread is the error of the evidence; one block is more
            accurate, but nothing then tells how accurate. None: four if each gets 24 prefixes or more, otherwise one; where a
            table is learned in the call each learns from those before it, and there are two at least.
        ahead: what selection goes by beside that.
        worth: of texts beyond α. Selection goes by what is known of beginnings, and by what is learned from the texts of
            earlier blocks.
        foresight: β; None for none: by p alone, and evenly over the states of the constraint.
    """

    reads_prefixes: ClassVar[bool] = True

    blocks: int | None = None
    name: str = "swor"
    ahead: Ahead | None = field(default=None, compare=False, repr=False)
    worth: Worth | None = field(default=None, compare=False, repr=False)
    foresight: Foresight | None = None

    def most_prefixes(self, num_particles: int) -> float | None:
        """One for each particle, of which each block has one at least."""
        return max(num_particles, self.blocks or LESSONS)

    def __call__(
        self,
        model: LanguageModel,
        circuit: Circuit,
        num_particles: int,
        budget: int | None,
        generator: torch.Generator,
    ) -> Draws:
        """Up to `num_particles` distinct prefixes at every position of all rounds together; see `Sampler`."""
        reader, price = left_to_right(circuit), max(1, circuit.length - 1)
        blocks = blocks_for(self.blocks, num_particles, circuit.length, budget)
        prefixes = num_particles if budget is None else budget // price
        if self.foresight is None and self.worth is not None and self.blocks is None and prefixes >= WORTH_LESSONS:
            blocks = max(blocks, LESSONS)
        width = width_of(num_particles, circuit.length, budget, blocks, self.name)
        left = width * blocks * price if budget is None else budget
        run = Rounds(model, reader, num_particles, generator, self.worth, self.ahead)
        known: dict[str, Any] = {}
        if self.foresight is None:
            rounds = run.alike(blocks, left, None)
        else:
            rounds, known = self.foresight.rounds(run, blocks, self.blocks, left)
        return pooled(rounds, num_particles, generator, notes=run.notes, **known)
