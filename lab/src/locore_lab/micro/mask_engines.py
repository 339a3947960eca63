"""The interface behind which `masks.py` compares engines, and Locore's three ways; the others are in `mask_peers.py`."""

import importlib.metadata
import time
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch

import locore
from locore.circuits import Circuit
from locore.circuits.left_to_right import MEMORY_BYTES, MaskReader
from locore_lab.micro.mask_cases import Case, Vocabulary


class NotExpressible(Exception):
    """The engine has no such constraints."""


class Walker(ABC):
    """One text, token by token."""

    @abstractmethod
    def mask(self) -> torch.Tensor:
        """The mask after what was read so far, in the engine's own form."""

    @abstractmethod
    def read(self, token: int) -> None:
        """Go on by a token."""

    def allows(self, mask: torch.Tensor, token: int) -> bool:
        """Is a bit of an Int32[1, words] mask set?"""
        return bool(int(mask[0, token // 32]) >> token % 32 & 1)

    def unpacked(self, mask: torch.Tensor, vocab_size: int) -> torch.Tensor:
        """Bool[vocab] of an Int32[1, words] mask."""
        return (mask[0, :, None] >> torch.arange(32) & 1).flatten()[:vocab_size].bool()


class Engine(ABC):
    """Makes walkers from constraints."""

    name: ClassVar[str]
    package: ClassVar[str]
    look_ahead: ClassVar[bool] = False

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.set_up()  # imports are not counted
        start = time.process_time()
        self.set_up()
        self.set_up_seconds = time.process_time() - start

    @classmethod
    def version(cls) -> str:
        return importlib.metadata.version(cls.package)

    @abstractmethod
    def set_up(self) -> None:
        """Whatever is done once for a vocabulary."""

    @abstractmethod
    def compile(self, case: Case) -> Any:
        """What is done once for a constraint."""

    @abstractmethod
    def start(self, grammar: Any) -> Walker:
        """A new text."""

    @abstractmethod
    def apply(self, logits: torch.Tensor, mask: torch.Tensor) -> None:
        """Forbid in Float[1, vocab] what the mask forbids."""


class BooleanWalker(Walker):
    """Locore's masks are Bool[vocab]."""

    def allows(self, mask: torch.Tensor, token: int) -> bool:
        return bool(mask[token])

    def unpacked(self, mask: torch.Tensor, vocab_size: int) -> torch.Tensor:
        return mask


class ReaderWalker(BooleanWalker):
    """By a `MaskReader`."""

    def __init__(self, reader: MaskReader) -> None:
        self.reader = reader

    def mask(self) -> torch.Tensor:
        return self.reader.mask()

    def read(self, token: int) -> None:
        self.reader.advance(token)


class Locore(Engine):
    """A `MaskReader`: keeps the state and the masks that it made."""

    name = package = "locore"
    look_ahead = True
    memory_bytes = MEMORY_BYTES

    def set_up(self) -> None:
        locore.Tokenizer.from_huggingface(self.vocabulary.fast)

    def compile(self, case: Case) -> MaskReader:
        circuit = self.circuit(case)
        assert circuit.reader is not None
        return MaskReader(circuit.reader, self.memory_bytes)

    def circuit(self, case: Case) -> Circuit:
        """Compiled anew at every call."""
        return locore.compile(case.alpha(), self.vocabulary.tokenizer, case.length, use_cache=False)

    def start(self, grammar: MaskReader) -> Walker:
        return ReaderWalker(grammar.copy())

    def apply(self, logits: torch.Tensor, mask: torch.Tensor) -> None:
        logits.masked_fill_(~mask, float("-inf"))


class ComputingLocore(Locore):
    """A `MaskReader` that keeps no masks."""

    name = "locore, none kept"
    memory_bytes = 0


class PlainWalker(BooleanWalker):
    """By `circuit.allowed(prefix)`, which reads the prefix anew each time."""

    def __init__(self, circuit: Circuit) -> None:
        self.circuit = circuit
        self.ids: list[int] = []

    def mask(self) -> torch.Tensor:
        return self.circuit.allowed(torch.tensor(self.ids, dtype=torch.long))

    def read(self, token: int) -> None:
        self.ids.append(token)


class PlainLocore(Locore):
    """Without a reader."""

    name = "locore, plain path"

    def compile(self, case: Case) -> Circuit:  # type: ignore[override]
        return self.circuit(case)

    def start(self, grammar: Circuit) -> Walker:  # type: ignore[override]
        return PlainWalker(grammar)


WAYS: tuple[type[Engine], ...] = (Locore, ComputingLocore, PlainLocore)
