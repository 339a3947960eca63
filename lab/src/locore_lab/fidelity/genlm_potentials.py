"""genlm-control over our models and circuits. The one file that imports it (extra `locore_lab[peers]`).

A potential of genlm-control weighs token sequences: `prefix` as beginnings, `complete` as finished ones, and
logw_next(v | y) = prefix(yv) − prefix(y). Finishing is a token EOS of its own, the last column of `logw_next`. Sequences here
have exactly n tokens, padding included, so that EOS is certain after n tokens and impossible before.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from genlm.control import AWRS, Potential, direct_token_sampler
from numpy.typing import NDArray
from torch import Tensor

from locore.circuits import DEAD, LeftToRight
from locore.kernel.numerics import NEG_INF
from locore.models import Cursor, LanguageModel
from locore.potentials import Scorer

Context = list[int]


def weighted_sequences(
    model: LanguageModel,
    reader: LeftToRight,
    num: int,
    ess_threshold: float,
    rejection: bool,
    seed: int,
    critic: Scorer | None = None,
) -> tuple[Tensor, Tensor, int]:
    """SMC as genlm-control does it, with nothing kept from earlier runs.

    Args:
        model: the prompted model.
        num: particles.
        ess_threshold: resample below this share of the particles; 0 for never.
        rejection: draw tokens by adaptive weighted rejection (AWRS), instead of directly from the product of both potentials.
        seed: of adaptive rejection; everything else draws from the global states of torch and numpy.
        critic: what texts are worth, and their beginnings if it steers: genlm-control's critic.

    Returns:
        Long[kept, length], the particles of positive weight; f64[kept], their log weights; and how many particles had none.
    """
    length = reader.length
    language, constraint = ModelPotential(model, length), CircuitPotential(reader)
    sampler = AWRS(language, constraint, seed=seed) if rejection else direct_token_sampler(language * constraint)
    # Without `terminate_when`, it would end a text by force and charge the model's price of ending there.
    asked = None if critic is None else CriticPotential(critic, model.vocab_size, length)
    ends = {"max_tokens": length + 1, "terminate_when": lambda context: len(context) >= length}
    run = sampler.smc(num, ess_threshold, critic=asked, **ends)
    found = asyncio.run(run)
    alive = [(context[:length], weight) for context, weight in found if weight > NEG_INF]
    tokens = torch.tensor([context for context, _ in alive], dtype=torch.long).reshape(len(alive), length)
    return tokens, torch.tensor([weight for _, weight in alive], dtype=torch.float64), num - len(alive)


@lru_cache(maxsize=4)
def _vocabulary(vocab_size: int) -> tuple[list[int], Any]:
    """The tokens and their tables; made once, so that no run pays for it.

    Two potentials with the very same list of tokens are multiplied without matching their tokens.
    """
    tokens = list(range(vocab_size))
    return tokens, Potential.build_tables(tokens)


class _FixedLength(Potential):  # type: ignore[misc]
    """A potential over sequences of exactly `length` token ids; a subclass answers for contexts of one length at once."""

    def __init__(self, vocab_size: int, length: int) -> None:
        tokens, tables = _vocabulary(vocab_size)
        super().__init__(tokens, tables=tables)
        self.length = length

    @abstractmethod
    def _scores(self, contexts: list[Context]) -> Tensor:
        """f64[contexts]: log weights of equally long beginnings, of 1 to `length` tokens."""

    @abstractmethod
    def _next(self, contexts: list[Context]) -> Tensor:
        """f64[contexts, vocab]: log weights of the next token after equally long beginnings shorter than `length`."""

    async def prefix(self, context: Context) -> float:
        """Log weight of a beginning."""
        return float((await self.batch_prefix([context]))[0])

    async def complete(self, context: Context) -> float:
        """Log weight of a finished sequence."""
        return float((await self.batch_complete([context]))[0])

    async def logw_next(self, context: Context) -> Any:
        """Log weights of every next token and of EOS."""
        return self.make_lazy_weights((await self.batch_logw_next([context])).weights[0])

    async def batch_prefix(self, contexts: list[Context]) -> NDArray[np.float64]:
        """`prefix` of many."""
        result = torch.zeros(len(contexts), dtype=torch.float64)
        for size, rows in _by_length(contexts).items():
            if size > self.length:
                result[rows] = NEG_INF
            elif size:
                result[rows] = self._scores([contexts[row] for row in rows])
        return result.numpy()

    async def batch_complete(self, contexts: list[Context]) -> NDArray[np.float64]:
        """`complete` of many."""
        finished = np.array([len(context) == self.length for context in contexts])
        return np.where(finished, await self.batch_prefix(contexts), NEG_INF)

    async def batch_logw_next(self, contexts: list[Context]) -> Any:
        """`logw_next` of many."""
        result = torch.full((len(contexts), len(self.vocab) + 1), NEG_INF, dtype=torch.float64)
        for size, rows in _by_length(contexts).items():
            if size < self.length:
                result[rows, :-1] = self._next([contexts[row] for row in rows])
            else:
                result[rows, -1] = 0.0
        return self.make_lazy_weights(result)


def _by_length(contexts: list[Context]) -> dict[int, list[int]]:
    """Rows of each length; in a run all contexts that go on are equally long."""
    groups: dict[int, list[int]] = {}
    for row, context in enumerate(contexts):
        groups.setdefault(len(context), []).append(row)
    return groups


class ModelPotential(_FixedLength):
    """p(y): every question is put to the model, once for each particle that asks.

    The cursor of the last step is kept, so that a particle that goes on feeds the model one token.
    """

    def __init__(self, model: LanguageModel, length: int) -> None:
        super().__init__(model.vocab_size, length)
        self._model = model
        self._cursor: Cursor | None = None
        self._row: dict[tuple[int, ...], int] = {}

    def _scores(self, contexts: list[Context]) -> Tensor:
        return self._model.score(torch.tensor(contexts))

    def _next(self, contexts: list[Context]) -> Tensor:
        return self._read(contexts).log_probs.double()

    def _read(self, contexts: list[Context]) -> Cursor:
        """The cursor after these contexts, which continue those of the last step, or else are read from their beginning."""
        if not contexts[0]:
            self._cursor = self._model.begin(len(contexts))
        else:
            parents = [tuple(context[:-1]) for context in contexts]
            if self._cursor is None or not all(parent in self._row for parent in parents):
                self._cursor = self._read([context[:-1] for context in contexts])
            last = torch.tensor([context[-1] for context in contexts])
            self._cursor = self._cursor.advance(last, torch.tensor([self._row[parent] for parent in parents]))
        self._row = {tuple(context): row for row, context in enumerate(contexts)}
        return self._cursor


class CriticPotential(_FixedLength):
    """What a critic of ours says: of beginnings on the way, if it steers, and of finished sequences at their end."""

    def __init__(self, critic: Scorer, vocab_size: int, length: int) -> None:
        super().__init__(vocab_size, length)
        self._critic = critic

    def is_terminal_only(self) -> bool:
        """Is nothing known of beginnings?"""
        return not self._critic.steers

    async def batch_complete(self, contexts: list[Context]) -> NDArray[np.float64]:
        """`complete` of many."""
        return self._critic.of(torch.tensor(contexts)).numpy()

    def _scores(self, contexts: list[Context]) -> Tensor:
        if not self._critic.steers:
            return torch.zeros(len(contexts), dtype=torch.float64)
        return self._critic.of_beginnings(torch.tensor(contexts))

    def _next(self, contexts: list[Context]) -> Tensor:
        raise NotImplementedError  # critics are asked for scores only


class CircuitPotential(_FixedLength):
    """1[y ⊨ α] for finished sequences; 1 for a beginning that can be completed within the length, which is what masks."""

    def __init__(self, reader: LeftToRight) -> None:
        super().__init__(len(reader.token_class), reader.length)
        self._reader = reader
        self._state: dict[tuple[int, ...], int] = {(): reader.start}

    def _scores(self, contexts: list[Context]) -> Tensor:
        return torch.where(self._states(contexts) == DEAD, NEG_INF, 0.0).double()

    def _next(self, contexts: list[Context]) -> Tensor:
        allowed = self._reader.allowed(len(contexts[0]), self._states(contexts))[:, self._reader.token_class]
        return torch.zeros(allowed.shape, dtype=torch.float64).masked_fill_(~allowed, NEG_INF)

    def _states(self, contexts: list[Context]) -> Tensor:
        """Long[contexts]: the reader's states; those that go on are remembered."""
        known = [self._state.get(tuple(context)) for context in contexts]
        if None not in known:
            return torch.tensor(known)
        parents = self._states([context[:-1] for context in contexts])
        states = self._reader.step(len(contexts[0]) - 1, parents, torch.tensor([context[-1] for context in contexts]))
        for context, state in zip(contexts, states.tolist(), strict=True):
            if state != DEAD:
                self._state[tuple(context)] = state
        return states
