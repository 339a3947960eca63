"""Engines that follow a text token by token and say what may come next, behind one interface; the others are in `peers`."""

from __future__ import annotations

import importlib.metadata
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch

import locore
from locore.circuits import Circuit
from locore.circuits.masks import MEMORY_BYTES, MaskReader
from locore.kernel.errors import LocoreError, Unsatisfiable
from locore_lab.mask_engines.cases import Constrained, Vocabulary


class NotTaken(Exception):
    """The engine refuses a constraint, or has none of its kind."""


class Walker(ABC):
    """One text, token by token; masks are Int32[1, words] of bits unless a subclass says otherwise."""

    @abstractmethod
    def mask(self) -> Any:
        """The mask after what was read so far, in the engine's own form."""

    @abstractmethod
    def read(self, token: int) -> bool:
        """Go on by a token; False where it may not come."""

    @abstractmethod
    def may_end(self) -> bool:
        """May the text end here?"""

    def allows(self, mask: Any, token: int) -> bool:
        """Is the bit of a token set?"""
        return bool(int(mask[0, token // 32]) >> token % 32 & 1)

    def unpacked(self, mask: Any, vocab_size: int) -> torch.Tensor:
        """Bool[vocab]."""
        bits: torch.Tensor = (mask[0, :, None] >> torch.arange(32) & 1).flatten()[:vocab_size].bool()
        return bits


class Engine(ABC):
    """Makes walkers from constraints."""

    name: str
    package: ClassVar[str]
    look_ahead: ClassVar[bool] = False

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    @classmethod
    def version(cls) -> str:
        """Of its package."""
        return importlib.metadata.version(cls.package)

    @abstractmethod
    def compile(self, case: Constrained) -> Any:
        """What is done once for a constraint."""

    @abstractmethod
    def start(self, compiled: Any) -> Walker:
        """A new text."""

    @abstractmethod
    def apply(self, logits: torch.Tensor, mask: Any) -> None:
        """Forbid in Float[1, vocab] what the mask forbids."""


class BooleanWalker(Walker):
    """Locore's masks are Bool[vocab]."""

    end: int

    def allows(self, mask: Any, token: int) -> bool:
        """Is it set?"""
        return bool(mask[token])

    def unpacked(self, mask: Any, vocab_size: int) -> torch.Tensor:
        """The mask itself."""
        return torch.as_tensor(mask)

    def may_end(self) -> bool:
        """May the text end here?"""
        return bool(self.mask()[self.end])


class ReaderWalker(BooleanWalker):
    """By a `MaskReader`."""

    def __init__(self, reader: MaskReader, end: int) -> None:
        self.reader, self.end = reader, end

    def mask(self) -> Any:
        """What may come."""
        return self.reader.mask()

    def read(self, token: int) -> bool:
        """Go on by a token."""
        allowed = bool(self.mask()[token])
        self.reader.advance(token)
        return allowed


class Nothing(BooleanWalker):
    """No text at all."""

    def mask(self) -> Any:
        """Nothing may come."""
        return None

    def read(self, token: int) -> bool:
        """Nothing may come."""
        return False

    def may_end(self) -> bool:
        """It may not."""
        return False


class Locore(Engine):
    """A `MaskReader`: keeps the state and the masks that it made. Of JSON the order and the white space that others allow."""

    package = "locore"
    look_ahead = True
    memory_bytes = MEMORY_BYTES

    def __init__(self, vocabulary: Vocabulary, name: str = "locore", **spelling: Any) -> None:
        super().__init__(vocabulary)
        self.name, self.spelling = name, spelling or {"whitespace": "single", "order": "schema"}

    def compile(self, case: Constrained) -> Any:
        """A reader; None where no text is valid: taken, and everything is refused."""
        try:
            circuit = self.circuit(case)
        except Unsatisfiable:
            return None
        except LocoreError as error:
            raise NotTaken(str(error)) from error
        assert circuit.reader is not None
        return MaskReader(circuit.reader, self.memory_bytes)

    def circuit(self, case: Constrained) -> Circuit:
        """Compiled anew at every call."""
        return locore.compile(case.alpha(**self.spelling), self.vocabulary.tokenizer, case.length, use_cache=False)

    def start(self, compiled: Any) -> Walker:
        """A new text; those of one reader share the masks that it keeps."""
        return Nothing() if compiled is None else ReaderWalker(compiled.copy(), self.vocabulary.end)

    def apply(self, logits: torch.Tensor, mask: Any) -> None:
        """Forbid what the mask forbids."""
        logits.masked_fill_(~mask, float("-inf"))


class ComputingLocore(Locore):
    """A `MaskReader` that keeps no masks."""

    memory_bytes = 0


class PlainWalker(BooleanWalker):
    """By `circuit.allowed(prefix)`, which reads the prefix anew each time."""

    def __init__(self, circuit: Circuit, end: int) -> None:
        self.circuit, self.end = circuit, end
        self.ids: list[int] = []

    def mask(self) -> Any:
        """What may come."""
        return self.circuit.allowed(torch.tensor(self.ids, dtype=torch.long))

    def read(self, token: int) -> bool:
        """Go on by a token, whatever it is."""
        self.ids.append(token)
        return True


class PlainLocore(Locore):
    """Without a reader."""

    def compile(self, case: Constrained) -> Any:
        """A circuit."""
        return self.circuit(case)

    def start(self, compiled: Any) -> Walker:
        """A new text."""
        return PlainWalker(compiled, self.vocabulary.end)
