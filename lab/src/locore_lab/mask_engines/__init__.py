"""Engines that follow a text token by token and say what may come next, behind one interface; the others are in `peers`."""

from __future__ import annotations

import importlib.metadata
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from tokenizers import Tokenizer as FastTokenizer
from transformers import PreTrainedTokenizerFast

import locore
from locore.circuits import Circuit
from locore.circuits.masks import MEMORY_BYTES, MaskReader
from locore.kernel.errors import LocoreError, Unsatisfiable
from locore_lab.shared import SHARED

WORDS = SHARED / "data" / "detox" / "ldnoobw_en.txt"
SIZES = (32_000, 128_000)
END = "<|end|>"

DATE = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
EMAIL = r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)*\.[a-zA-Z]{2,}"
PASSAGES = (
    " The quick brown fox jumps over the lazy dog while the good people of the town drink tea in the garden and talk about the"
    " long winter, the price of bread and the new railway; then they eat their dinner, wash the dishes and go home to sleep for"
    " ten hours before the long day of work tomorrow, which begins at five in the morning.",
    " In 1905 the young engineer moved to Bern, where he read about light, time and motion in the evening. He wrote four short"
    " papers, and nobody at the office knew how far his ideas would reach. Twenty years later every student had heard of him,"
    " and the little flat above the street had become a museum.",
    " def mean(values):\n    total = 0.0\n    for value in values:\n        total += value\n    return total / len(values)\n\n"
    " def spread(values):\n    centre = mean(values)\n    return sum((v - centre) ** 2 for v in values) / len(values)\n",
)
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue", "amber"]}, "maxItems": 3},
        "active": {"type": "boolean"},
    },
    "required": ["name", "age", "tags", "active"],
    "additionalProperties": False,
}
PEOPLE = (
    '{"name": "Jane Doe", "age": 34, "tags": ["red", "green"], "active": true}',
    '{"name": "Ångström, A. J.", "age": -7, "tags": [], "active": false}',
    '{"name": "the well-known name", "age": 123456, "tags": ["blue", "amber", "blue"], "active": true}',
    '{"name": "x", "age": 0, "tags": ["amber"], "active": false}',
)


@dataclass(frozen=True)
class Constrained:
    """A constraint, texts that satisfy it, and a number of tokens."""

    name: str
    kind: str  # "ban", "regex", "json", "lark" or "gbnf"
    what: Any  # phrases, a pattern, a schema or a grammar
    texts: tuple[str, ...]
    length: int
    separators: tuple[str, str] = (", ", ": ")  # of JSON, between items and after keys
    formats: bool = False  # is `format` asserted, where an engine lets one choose?
    documents: dict[str, Any] = field(default_factory=dict)  # by URI, where an engine takes others than the schema

    def alpha(self, **spelling: Any) -> locore.Constraint:
        """The constraint for Locore, new at every call; JSON is spelled like this."""
        if self.kind == "ban":
            return locore.ban(self.what)
        if self.kind == "regex":
            return locore.regex(self.what)
        if self.kind in ("lark", "gbnf"):
            return locore.grammar(self.what, self.kind)  # type: ignore[arg-type]
        spelling = spelling or {"whitespace": "single", "order": "schema"}
        formats: Any = "asserted" if self.formats else "annotations"
        return locore.json_schema(self.what, formats=formats, documents=self.documents, **spelling)


def constraints(words: Path) -> list[Constrained]:
    """The constraints, given a file of phrases to ban."""
    listed = [line.strip() for line in words.read_text().splitlines() if line.strip()]
    variants = sorted({form for word in listed for form in (word, word.capitalize(), word.upper())})
    return [
        Constrained(f"ban, {len(listed)} phrases", "ban", variants, PASSAGES, 64),
        Constrained("regex, ISO date", "regex", DATE, ("2026-11-20", "1905-06-30", "0001-12-01", "1789-07-14"), 12),
        Constrained("regex, e-mail", "regex", EMAIL, ("jane.doe@example.org", "a+b@mail-3.uni.ac.uk", "info@locore.dev"), 24),
        Constrained("JSON schema", "json", PERSON, PEOPLE, 64),
    ]


@dataclass(frozen=True)
class Vocabulary:
    """A byte-level BPE, as transformers and as Locore read it."""

    fast: PreTrainedTokenizerFast
    tokenizer: locore.Tokenizer

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """From a tokenizer.json."""
        fast = PreTrainedTokenizerFast(tokenizer_object=FastTokenizer.from_file(str(path)), eos_token=END)  # type: ignore[no-untyped-call]
        return cls(fast, locore.Tokenizer.from_huggingface(fast))

    @property
    def size(self) -> int:
        """Tokens."""
        return self.tokenizer.vocab_size

    @property
    def end(self) -> int:
        """The token that ends a text."""
        return self.tokenizer.eos_ids[0]


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
        return bool(mask[token])

    def unpacked(self, mask: Any, vocab_size: int) -> torch.Tensor:
        return torch.as_tensor(mask)

    def may_end(self) -> bool:
        return bool(self.mask()[self.end])


class ReaderWalker(BooleanWalker):
    """By a `MaskReader`."""

    def __init__(self, reader: MaskReader, end: int) -> None:
        self.reader, self.end = reader, end

    def mask(self) -> Any:
        return self.reader.mask()

    def read(self, token: int) -> bool:
        allowed = bool(self.mask()[token])
        self.reader.advance(token)
        return allowed


class Nothing(BooleanWalker):
    """No text at all."""

    def mask(self) -> Any:
        return None

    def read(self, token: int) -> bool:
        return False

    def may_end(self) -> bool:
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
        return self.circuit.allowed(torch.tensor(self.ids, dtype=torch.long))

    def read(self, token: int) -> bool:
        self.ids.append(token)
        return True


class PlainLocore(Locore):
    """Without a reader."""

    def compile(self, case: Constrained) -> Any:
        return self.circuit(case)

    def start(self, compiled: Any) -> Walker:
        return PlainWalker(compiled, self.vocabulary.end)
