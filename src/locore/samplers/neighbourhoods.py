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
from locore.models import LanguageModel
from locore.numerics import NEG_INF
from locore.tokenizer import Tokenizer

TOGETHER = 2**23  # numbers of local distributions that are worked on together
KEPT = 2**27  # numbers that are kept: 1 GiB; what is not kept is paid for again when needed again


class Neighbourhoods:
    """A kernel around sequences; one that is asked for again costs nothing while memory lasts."""

    def __init__(self, model: LanguageModel, kernel: Kernel) -> None:
        self._model = model
        self._kernel = kernel
        self._made: dict[tuple[int, ...], Tensor] = {}

    def around(self, tokens: Tensor) -> Tensor:
        """f64[batch, time, vocab] around Long[batch, time]; rows may repeat."""
        distinct, index = torch.unique(tokens, dim=0, return_inverse=True)
        keys = [tuple(y) for y in distinct.tolist()]
        rows = {key: self._made[key] for key in keys if key in self._made}
        missing = [key for key in keys if key not in rows]
        if missing:
            made = self._kernel.distributions(self._model, torch.tensor(missing))
            rows.update(zip(missing, made, strict=True))
            for key in missing:
                if (len(self._made) + 1) * rows[key].numel() <= KEPT:
                    self._made[key] = rows[key]
        return torch.stack([rows[key] for key in keys])[index]

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
