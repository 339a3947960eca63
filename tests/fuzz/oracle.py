"""What constraints on text mean, said once more for the tests here.

The oracle reads the JSON form of a constraint with Python's `re`, `jsonschema`, `str.split` and slices of strings; it shares no
code with the automata nor with the plain check of Locore.
"""

from __future__ import annotations

import json
import re
import unicodedata
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jsonschema
from jsonschema.validators import extend

from locore.constraints import Constraint, has_text
from locore.kernel.tokenizer import Tokenizer


@dataclass(frozen=True)
class Read:
    """A sequence of ids as the oracle reads it."""

    ids: tuple[int, ...]
    tokenizer: Tokenizer

    @cached_property
    def spelled(self) -> list[bytes | None]:
        """The bytes of the tokens before the first end."""
        ends = [place for place, one in enumerate(self.ids) if one in self.tokenizer.eos_ids]
        return [self.tokenizer.token_bytes[one] for one in self.ids[: min(ends, default=len(self.ids))]]

    @cached_property
    def content(self) -> bytes:
        return b"".join(one or b"" for one in self.spelled)

    @cached_property
    def text(self) -> str:
        return self.content.decode("utf-8", errors="replace")

    @property
    def is_padded(self) -> bool:
        return all(one == self.tokenizer.eos_ids[0] for one in self.ids[len(self.spelled) + 1 :])

    @property
    def has_special(self) -> bool:
        return None in self.spelled

    @property
    def is_broken(self) -> bool:
        return self.content.decode("utf-8", errors="ignore").encode() != self.content


@dataclass(frozen=True)
class Case:
    """A constraint, and what the oracle says of a sequence; equal sizes only, as the positions of its tokens."""

    constraint: Constraint
    truth: Callable[[Read], bool] = field(repr=False)

    def accepts(self, read: Read) -> bool:
        """With the rules that hold for every constraint: padding, and where there is text no special token, and UTF-8."""
        is_text = has_text(self.constraint.at(len(read.ids)))
        return read.is_padded and not (is_text and (read.has_special or read.is_broken)) and self.truth(read)


# The oracle.


def truth_of(form: dict[str, Any], read: Read) -> bool:
    """Does the constraint of this JSON form hold?"""
    return bool(RULES[form["type"]](form, read))


def folded(text: str, form: dict[str, Any]) -> str:
    return "".join(one.lower() for one in text).replace("ς", "σ") if form.get("ignore_case") else text


def is_inside(one: str) -> bool:
    return re.match(r"\w", one) is not None or unicodedata.category(one)[0] == "M" or one in "\u200c\u200d"


def places(phrase: str, form: dict[str, Any], read: Read) -> list[tuple[int, int]]:
    """Beginnings and ends of the occurrences of a phrase."""
    text, phrase = folded(read.text, form), folded(phrase, form)
    cuts = {i for i in range(1, len(text)) if is_inside(text[i - 1]) and is_inside(text[i])} if form.get("words") else set()
    found = [(i, i + len(phrase)) for i in range(len(text)) if text[i : i + len(phrase)] == phrase]
    return [pair for pair in found if not cuts & set(pair)]


def within(number: int, form: dict[str, Any], names: tuple[str, str] = ("at_least", "at_most"), low: int = 0) -> bool:
    if "exactly" in form:
        return number == form["exactly"]
    return form.get(names[0], low) <= number <= form.get(names[1], number)


def in_order(form: dict[str, Any], read: Read) -> bool:
    end = 0
    for phrase in form["text"]:
        later = [pair for pair in places(phrase, form, read) if pair[0] >= end]
        if not later:
            return False
        end = later[0][1]
    return True


def contained(form: dict[str, Any], read: Read) -> bool:
    if form.get("ordered"):
        return in_order(form, read)
    return within(len(places(form["text"], form, read)), form, low=1)


def banned(form: dict[str, Any], read: Read) -> bool:
    if form.get("level") == "tokens":
        spelled = [read.tokenizer.encode(text) for phrase in form["phrases"] for text in (phrase, " " + phrase)]
        return not has_tokens(spelled, read)
    return not any(places(phrase, form, read) for phrase in form["phrases"])


def has_tokens(sequences: list[list[int]], read: Read) -> bool:
    return any(read.ids[i : i + len(ids)] == tuple(ids) for ids in sequences for i in range(len(read.ids)))


def counted(form: dict[str, Any], read: Read) -> bool:
    strings = {folded(string, form) for string in form["strings"]}
    return within(sum(len(places(string, form, read)) for string in strings), form)


def matched(form: dict[str, Any], read: Read) -> bool:
    try:
        text = read.content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.fullmatch(form["pattern"], text, re.IGNORECASE if form.get("ignore_case") else 0) is not None


def decimal(text: str) -> float:
    if "e" in text.lower():
        raise ValueError("an exponent")
    return float(text)


def ecma(_: Any, pattern: str, value: Any, __: Any) -> Any:
    if isinstance(value, str) and not re.search(pattern.replace("$", r"\Z"), value, re.ASCII):
        yield jsonschema.ValidationError("no match")


VALIDATOR = extend(jsonschema.Draft202012Validator, {"pattern": ecma})


def closed(schema: Any) -> Any:
    """The same with closed objects, whose automata are small."""
    if isinstance(schema, dict):
        schema = {key: closed(value) if key not in ("enum", "const") else value for key, value in schema.items()}
        return {**schema, "additionalProperties": False} if schema.get("type") == "object" else schema
    return [closed(value) for value in schema] if isinstance(schema, list) else schema


def unlike(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name twice")
    return dict(pairs)


def is_valid(form: dict[str, Any], read: Read) -> bool:
    try:
        text = read.content.decode("utf-8")
        value = json.loads(text, object_pairs_hook=unlike, parse_float=decimal, parse_constant=int)
        json.dumps(value, ensure_ascii=False).encode()  # no half of a surrogate pair
    except ValueError:
        return False
    return text[-1] not in " \t\n\r" and VALIDATOR(closed(form["schema"])).is_valid(value)


RULES: dict[str, Callable[[dict[str, Any], Read], Any]] = {
    "true": lambda form, read: True,
    "false": lambda form, read: False,
    "and": lambda form, read: all(truth_of(part, read) for part in form["of"]),
    "or": lambda form, read: any(truth_of(part, read) for part in form["of"]),
    "not": lambda form, read: not truth_of(form["of"], read),
    "ban": banned,
    "contains": contained,
    "count": counted,
    "starts_with": lambda form, read: any(start == 0 for start, _ in places(form["text"], form, read)),
    "ends_with": lambda form, read: any(end == len(folded(read.text, form)) for _, end in places(form["text"], form, read)),
    "choice": lambda form, read: folded(read.text, form) in [folded(text, form) for text in form["texts"]],
    "word_count": lambda form, read: within(len(read.text.split()), form, ("lo", "hi")),
    "char_count": lambda form, read: within(len(read.text), form, ("lo", "hi")),
    "sentence_count": lambda form, read: within(len(re.findall(r"[.!?](?=\s|\Z)", read.text)), form, ("lo", "hi")),
    "regex": matched,
    "json_schema": is_valid,
    "token": lambda form, read: read.ids[form["position"]] in form["in"],
    "count_tokens": lambda form, read: within(sum(read.ids[i] in form["in"] for i in form["positions"]), form),
    "contains_tokens": lambda form, read: has_tokens(form["sequences"], read),
    "finished": lambda form, read: any(one in read.tokenizer.eos_ids for one in read.ids),
}
