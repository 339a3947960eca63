"""Local distributions around many sequences, each made once."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor

from locore.circuits import Circuit
from locore.compilers import compile
from locore.constraints import Constant
from locore.local import Kernel
from locore.models import Drafts, LanguageModel
from locore.numerics import NEG_INF
from locore.tokenizer import Tokenizer

TOGETHER = 2**23  # numbers of local distributions that are worked on together
KEPT = 2**27  # numbers that are kept: 1 GiB; what is not kept is paid for again when needed again


class Neighbourhoods:
    """A kernel around sequences; one that is asked for again costs nothing while memory lasts."""

    def __init__(self, model: LanguageModel, kernel: Kernel, drafts: Drafts | None = None) -> None:
        """None has been made yet.

        Args:
            model: p.
            kernel: what is made around a sequence.
            drafts: drawn from the model with their distributions, which then need not be asked for again.
        """
        self._model = model
        self._kernel = kernel
        self._made: dict[tuple[int, ...], Tensor] = {}
        self._scores: dict[tuple[int, ...], Tensor] = {}
        self._drawn: dict[tuple[int, ...], Tensor] = {}
        if drafts is not None and drafts.log_probs is not None:
            self._drawn.update(zip(map(tuple, drafts.tokens.tolist()), drafts.log_probs, strict=True))

    @property
    def everywhere(self) -> bool:
        """Does the floor give every sequence a positive probability, and so every constraint?"""
        return self._kernel.floor > 0

    def around(self, tokens: Tensor) -> Tensor:
        """f64[batch, time, vocab] around Long[batch, time]; rows may repeat."""
        keys = [tuple(y) for y in tokens.tolist()]
        rows = {key: self._made[key] for key in keys if key in self._made}
        missing = list(dict.fromkeys(key for key in keys if key not in rows))
        if missing:
            wanted = torch.tensor(missing)
            forward = self._forward(wanted, missing)
            made = self._kernel.distributions(self._model, wanted, forward=forward)
            scores = forward.gather(-1, wanted[..., None])[..., 0].double()
            self._scores.update(zip(missing, scores, strict=True))
            rows.update(zip(missing, made, strict=True))
            for key in missing:
                if (len(self._made) + 1) * rows[key].numel() <= KEPT:
                    self._made[key] = rows[key]
            if keys == missing:
                return made
        return torch.stack([rows[key] for key in keys])

    def token_scores(self, tokens: Tensor) -> Tensor:
        """f64[batch, time]: log p(y_t | y_<t); of sequences that a neighbourhood was made of it is known."""
        keys = [tuple(y) for y in tokens.tolist()]
        missing = list(dict.fromkeys(key for key in keys if key not in self._scores))
        if missing:
            self._scores.update(zip(missing, self._model.token_scores(torch.tensor(missing)), strict=True))
        return torch.stack([self._scores[key] for key in keys])

    def _forward(self, tokens: Tensor, keys: list[tuple[int, ...]]) -> Tensor:
        """Float[batch, time, vocab], log p(· | y_<t), of distinct sequences."""
        known = [self._drawn.pop(key, None) for key in keys]
        unknown = torch.tensor([row is None for row in known])
        if bool(unknown.all()):
            return self._model.log_probs(tokens)
        found = iter(self._model.log_probs(tokens[unknown]) if bool(unknown.any()) else ())
        return torch.stack([next(found) if row is None else row for row in known])

    def padded_circuit(self, length: int) -> Circuit:
        """The circuit of "only padding follows the end" of the model's texts."""
        return padded_circuit(self._model, length)

    def parts(self, num: int, length: int) -> Iterator[slice]:
        """Slices of `num` rows of `length` tokens, small enough to be worked on together."""
        size = max(1, TOGETHER // (length * self._model.vocab_size))
        return (slice(start, min(start + size, num)) for start in range(0, num, size))


def conditional(circuit: Circuit, log_probs: Tensor, tokens: Tensor) -> Tensor:
    """f64[batch]: log p̃(tokens | the circuit's constraint) of tokens that satisfy it."""
    chosen = log_probs.gather(-1, tokens[..., None]).squeeze(-1).sum(-1)
    return torch.where(chosen > NEG_INF, chosen - circuit.log_mass(log_probs), NEG_INF)


def padded_circuit(model: LanguageModel, length: int) -> Circuit:
    """The circuit of "only padding follows the end"."""
    return _padded(model.tokenizer.vocab_size, model.tokenizer.eos_ids, length)


@functools.lru_cache(maxsize=32)
def _padded(vocab_size: int, eos_ids: tuple[int, ...], length: int) -> Circuit:
    return compile(Constant(True), Tokenizer.integers(vocab_size, eos_ids), length)
