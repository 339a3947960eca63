"""What engines are compared on: constraints, texts that satisfy them, and vocabularies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as FastTokenizer
from transformers import PreTrainedTokenizerFast

import locore
from locore_lab.places import SHARED

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
    """A constraint, texts that satisfy it, and a number of tokens.

    Attributes:
        kind: "ban", "regex" or "json".
        what: phrases, a pattern or a schema.
        separators: of JSON, between items and after keys.
        formats: is `format` asserted, where an engine lets one choose?
    """

    name: str
    kind: str
    what: Any
    texts: tuple[str, ...]
    length: int
    separators: tuple[str, str] = (", ", ": ")
    formats: bool = False

    def alpha(self, **spelling: Any) -> locore.Constraint:
        """The constraint for Locore, new at every call; JSON is spelled like this."""
        if self.kind == "ban":
            return locore.ban(self.what)
        if self.kind == "regex":
            return locore.regex(self.what)
        spelling = spelling or {"whitespace": "single", "order": "schema"}
        return locore.json_schema(self.what, formats="asserted" if self.formats else "annotations", **spelling)


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
