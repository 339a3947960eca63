"""The paper's local distributions as a twist: how probable α still is if every token comes from around a text ỹ.

A text ỹ that the model wrote has a factorised distribution p̃_ỹ around it (`locore.local`). One backward pass over the
constraint's left-to-right reading gives p̃_ỹ(α | state at position i) for all states and positions; β is its mean over several
ỹ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from locore.circuits import DEAD, LeftToRight
from locore.kernel.samplers.rounds import Round
from locore.local import Forward
from locore.models import LanguageModel
from locore.samplers.twist.lookahead import Twist, raised
from locore.samplers.without_replacement import Rounds

RELATIVE_FLOOR = 1e-12  # of the largest β at a position: what no context reaches must stay possible
TOGETHER = 2**23  # numbers of local distributions that are worked on together
STEP_NUMBERS = 2**22  # that a step of the backward pass holds
PASS_NUMBERS = 2**31  # of the whole pass, which bound how many contexts it reads


@dataclass(frozen=True, eq=False)
class LocalTwist(Twist):
    """log β for every position and state; see `Twist`.

    Attributes:
        reader: the states, those of an outline.
        log_beta: for each position 0..n, f32[states] on the device.
    """

    reader: LeftToRight
    log_beta: tuple[Tensor, ...]

    @property
    def device(self) -> torch.device:
        """The model's."""
        return self.log_beta[0].device

    def by_state(self, position: int, states: Tensor, log_floor: Tensor | None = None) -> Tensor:
        """f32[states, vocab], as `Twist.by_state`."""
        of_classes = self.reader.rows[position][states].long().clamp_min(0).to(self.device)
        beta = raised(self.log_beta[position + 1][of_classes], log_floor, of_classes)
        return beta[:, self.reader.classes_on(self.device)]

    def of_states(self, position: int, states: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """f32[batch], as `Twist.of_states`; the tokens say nothing beyond the state."""
        return self.log_beta[position][states.to(self.device)].cpu()


@dataclass(frozen=True)
class Contexts:
    """A `Foresight` of `WithoutReplacement`: texts are drawn, and what is to come is taken to come from around them.

    There is no look-ahead in a reading whose states are not all there (`tabulated`), nor where contexts would cost more than a
    quarter of the budget.

    Attributes:
        share: of all prefixes at a position, that go on contexts.
        least: contexts; fewer mislead.
    """

    share: float = 1 / 8
    least: int = 4

    def times_through(self, model: LanguageModel) -> int:
        """For contexts, a trial and rounds."""
        return 3

    def rounds(self, run: Rounds, blocks: int, asked: int | None, budget: int) -> tuple[list[Round], dict[str, Any]]:
        """As `Foresight.rounds`."""
        prefixes = budget // run.price
        contexts = max(self.least, round(prefixes * self.share)) if run.reader.outline is not None else 0
        contexts = contexts if 4 * contexts <= prefixes else 0
        if contexts:
            ahead = local_twist(run.model, run.reader, contexts, run.generator)
            rounds = run.by_foresight(blocks, budget - contexts * run.price, ahead)
        else:
            rounds = run.alike(blocks, budget, None)
        # Not `guided`: around ỹ no token depends on the one before it: a word of two may be out of sight of every round.
        return rounds, {"details": {"contexts": contexts, "left_aside": run.left_aside}}


def local_twist(model: LanguageModel, reader: LeftToRight, contexts: int, generator: torch.Generator) -> LocalTwist:
    """Draw contexts from the model, at the price of so many texts, and look ahead by the distributions around them.

    Around ỹ every position draws from what the model said there, p(· | ỹ_<i), known from drawing ỹ (`locore.local.Forward`).
    """
    outline = reader.outline
    assert outline is not None  # who asks for it has seen to it
    size = max(1, TOGETHER // (reader.length * model.vocab_size))
    drawn = [_around(model, outline, min(size, contexts - start), generator) for start in range(0, contexts, size)]
    return _mean(outline, torch.cat(drawn), model.device)


def _around(model: LanguageModel, reader: LeftToRight, num: int, generator: torch.Generator) -> Tensor:
    """f64[num, time, classes]: how probable each class of tokens is around each of so many contexts."""
    drafts = model.sample(num, reader.length, generator, keep_log_probs=True)
    local = Forward().distributions(model, drafts.tokens, forward=drafts.log_probs).exp().cpu()
    classes = torch.zeros(num * reader.length, int(reader.token_class.max()) + 1, dtype=torch.float64)
    classes.index_add_(1, reader.token_class, local.flatten(0, 1))
    return classes.view(num, reader.length, -1)


def _mean(reader: LeftToRight, around: Tensor, device: torch.device) -> LocalTwist:
    """β, the mean over contexts with f64[contexts, time, classes] around them."""
    entries = sum(rows.numel() for rows in reader.rows)
    around = around[: max(1, PASS_NUMBERS // max(1, entries))]
    means = [(mass.mean(0), log_scale) for mass, log_scale in _backward(reader, around)]
    tops = [float(mean.max()) for mean, _ in means]
    logs = [(mean + RELATIVE_FLOOR * top).log() + scale for (mean, scale), top in zip(means, tops, strict=True)]
    return LocalTwist(reader, tuple(log_beta.float().to(device) for log_beta in reversed(logs)))


def _backward(reader: LeftToRight, around: Tensor) -> Iterator[tuple[Tensor, float]]:
    """From behind the last position to the first, f64[contexts, states] of p̃_ỹ(α | state), and the log of its scale.

    Behind many positions the probabilities themselves may be no numbers, so the largest is 1.
    """
    mass, log_scale = reader.live[-1].double().expand(len(around), -1), 0.0
    yield mass, log_scale
    for position in reversed(range(reader.length)):
        mass = _step(reader.rows[position].long(), around[:, position], mass)
        top = float(mass.max())
        if top > 0:
            mass, log_scale = mass / top, log_scale + math.log(top)
        yield mass, log_scale


def _step(rows: Tensor, around: Tensor, mass: Tensor) -> Tensor:
    """f64[contexts, states] before a position, from those after it, Long[states, classes] and f64[contexts, classes]."""
    padded = torch.nn.functional.pad(mass, (0, 1))  # a last column of zeros stands for DEAD
    targets = torch.where(rows == DEAD, mass.shape[1], rows)
    size = max(1, STEP_NUMBERS // (targets.shape[1] * len(mass)))
    return torch.cat([torch.einsum("jc,jsc->js", around, padded[:, part]) for part in torch.split(targets, size)], 1)
