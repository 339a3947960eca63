"""What Locore asks of an engine: token ids in, natural logs of probabilities out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from locore.errors import EngineError
from locore.numerics import NEG_INF

Ids = Sequence[int]

FORCED = "locore_forced"  # the name under which a request to vLLM carries tokens that it must generate
ROUNDING = 1e-4  # nats by which a log-probability may exceed 0
SUM_ROUNDING = 1e-3  # nats by which a whole distribution may miss a mass of 1
CLAMPED = -9999.0  # what engines write for a probability of zero: JSON has no infinity


class Refused(EngineError):
    """The engine answered that it does not do this (over HTTP: 4xx).

    Attributes:
        status: of the answer.
        said: the engine's own words.
    """

    def __init__(self, message: str, status: int, said: str) -> None:
        super().__init__(message)
        self.status = status
        self.said = said


class Engine(ABC):
    """An engine with one model.

    Attributes:
        name: what errors call it.
        context: tokens of prompt and continuation together that it can read; None if it does not say.
        vocab_size: columns of a distribution.
        whole_rows: None if it gives whole distributions; otherwise why not.
        reuses_prefix: does it score what follows a prefix without reading the prefix again?
        draws: does it draw texts by itself, with `draw`?
        verified: has this code been run against a real one?
    """

    name: str
    context: int | None
    vocab_size: int
    whole_rows: str | None = None
    reuses_prefix = False
    draws = False
    verified = True

    @abstractmethod
    def next_log_probs(self, prefixes: Sequence[Ids]) -> Tensor:
        """Float[prefix, vocab], log p(· | prefix) of non-empty prefixes.

        Raises:
            CannotScore: the engine does not give whole distributions.
        """

    @abstractmethod
    def tail_scores(self, prefixes: Sequence[Ids], tails: Sequence[Ids]) -> list[list[float]]:
        """Log p of each token of each tail after its prefix; neither is empty."""

    def plain_scores(self, prefixes: Sequence[Ids], tails: Sequence[Ids]) -> list[list[float]]:
        """As `tail_scores`, by the engine's plainest road: what the others are checked against."""
        return self.tail_scores(prefixes, tails)

    def chosen_log_probs(self, prefixes: Sequence[Ids], chosen: Sequence[Ids]) -> Tensor:
        """Float[prefix, k], log p of k chosen tokens after each prefix; errors as `next_log_probs`."""
        return self.next_log_probs(prefixes).gather(1, torch.tensor(chosen))

    def draw(self, prefix: Ids, num: int, length: int, seed: int, eos_ids: Ids) -> tuple[list[list[int]], list[list[float]]]:
        """Ids and log-probabilities of texts drawn by the engine, up to and with an end; few are the first of many."""
        raise NotImplementedError


def log_probabilities(values: Iterable[object], engine: str) -> list[float]:
    """Checked logs of probabilities, as an engine wrote them; −inf where it means zero.

    Raises:
        EngineError: a value is no number, NaN, or above 0.
    """
    checked = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value > ROUNDING:
            raise EngineError(
                f"{engine} gave {value!r} as the log of a probability. Nothing was computed from it. "
                "Ask again; if it stays so, restart the engine, and see docs/engines.md for settings that are known to do this."
            )
        checked.append(NEG_INF if value <= CLAMPED else float(value))
    return checked


def whole_row(found: dict[int, float], vocab_size: int, engine: str) -> Tensor:
    """Float[vocab] of a distribution given as {id: log p}, which must be whole.

    Raises:
        EngineError: a token is missing or unknown, a value is no log of a probability, or the mass is not 1.
    """
    missing = vocab_size - len(found)
    wrong = next((token for token in found if not 0 <= token < vocab_size), None)
    if missing or wrong is not None:
        what = f"has the token {wrong}" if wrong is not None else f"lacks {missing} of {vocab_size} tokens"
        raise EngineError(f"A next-token distribution of {engine} {what}. Nothing was computed from it.")
    row = torch.empty(vocab_size)
    row[torch.tensor(list(found))] = torch.tensor(log_probabilities(found.values(), engine))
    mass = float(row.double().logsumexp(0))
    if not abs(mass) <= SUM_ROUNDING:
        raise EngineError(
            f"The probabilities of a next-token distribution of {engine} sum to {math.exp(mass):.6g}, not to 1. Start it "
            "without options that reshape what it reports (vLLM: --logprobs-mode raw_logprobs, the default)."
        )
    return row
