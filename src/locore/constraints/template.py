r"""Fixed text with holes, of each of which a constraint says something: `template("{name} is {age}", age=regex(r"\d+"))`.

All holes are drawn from one distribution, so that a later one influences those before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from locore.automata.byte_machine import ByteMachine
from locore.automata.composed import AutomatonMachine, Concatenated
from locore.constraints.regular_expression import regex
from locore.constraints.text import ban, choice
from locore.constraints.text_leaf import MachineLeaf, PartOfText, is_finite, machine_of, require_text
from locore.kernel.automata.tables import Automaton
from locore.kernel.constraints.constraint import Constant, Constraint, Json
from locore.kernel.constraints.sequence import TokenSequence
from locore.kernel.constraints.serial import described, read_constraint, read_string, register
from locore.kernel.constraints.spelling import quoted
from locore.kernel.errors import InvalidArgument, InvalidConstraint
from locore.kernel.lists import items_of, largest_first
from locore.kernel.plugins import cached_property

_HOLE = re.compile(r"\{\{|\}\}|\{(?P<name>[A-Za-z_]\w*)(?::(?P<kind>\w+)\((?P<body>.*?)\))?\}|[{}]", re.DOTALL)
_KINDS = "choice(a, b, …) or regex(…)"
Pieces = tuple[bytes | str, ...]  # fixed text, and names of holes


def template(text: str, /, **holes: Constraint) -> Template:
    r"""Fixed text with holes `{name}`.

    What a hole holds is given by name, or in the text: `{sign:choice(+, -)}`, `{year:regex(\d{4})}`. A choice is cut at commas,
    and spaces around its items do not count; a regular expression ends before the first `)}`. A hole of which nothing is said
    holds any text up to the fixed text behind it. `{{` and `}}` are braces.

    Args:
        text: the template.
        holes: a constraint on text for each hole of which the text says nothing. It sees what stands in the hole and no more.

    Raises:
        InvalidConstraint: a brace by itself, a hole that is there twice or not at all, one that is followed by another without
            anything said of it, or a constraint that speaks of more than text; the message says which.
    """
    if not isinstance(text, str):
        raise InvalidConstraint(f"template needs a string, got {type(text).__name__}")
    pieces, said = _read(text)
    names = [piece for piece in pieces if isinstance(piece, str)]
    unknown = [name for name in holes if name not in names]
    if unknown:
        raise InvalidConstraint(f"template has no hole {unknown[0]!r}; its holes are: {', '.join(names) or 'none'}")
    twice = [name for name in holes if name in said]
    if twice:
        raise InvalidConstraint(f"what the hole {twice[0]!r} of template holds is said twice, in the text and by name")
    for name, constraint in holes.items():
        require_text(constraint, f"the hole {name!r} of template")
    leaf = Template(text, tuple(sorted(holes.items())))
    leaf.machine()
    return leaf


class Weighted(Protocol):
    """Particles, as far as a template looks at them: pairs of a text and its weight; the weights sum to 1."""

    def __iter__(self) -> Any:
        """The pairs."""


@dataclass(frozen=True, eq=False)
class Template(MachineLeaf):
    """Fixed text with holes.

    Attributes:
        text: the template.
        holes: what is said of holes by name, sorted.
    """

    text: str
    holes: tuple[tuple[str, Constraint], ...] = ()

    @property
    def is_small(self) -> bool:
        """As what the holes hold."""
        return all(is_finite(constraint) for _, constraint in self.holes)

    @cached_property
    def pieces(self) -> Pieces:
        """Fixed text as bytes, and the names of holes, in order."""
        return _read(self.text)[0]

    @cached_property
    def constraints(self) -> dict[str, Constraint]:
        """What each hole holds."""
        said = dict(self.holes) | {name: _inline(name, *what) for name, what in _read(self.text)[1].items()}
        following = (*self.pieces[1:], b"")
        for piece, behind in zip(self.pieces, following, strict=True):
            if isinstance(piece, str) and piece not in said:
                said[piece] = _anything_before(piece, behind)
        return said

    @property
    def names(self) -> tuple[str, ...]:
        """The holes, in order."""
        return tuple(piece for piece in self.pieces if isinstance(piece, str))

    @cached_property
    def _machine(self) -> ByteMachine:
        """Reads one piece after the other."""
        return Concatenated([self._piece(piece) for piece in self.pieces] or [_fixed(b"")])

    def _piece(self, piece: bytes | str) -> ByteMachine:
        return _fixed(piece) if isinstance(piece, bytes) else machine_of(self.constraints[piece])

    def values(self, text: str | bytes) -> dict[str, str]:
        """What stands in each hole of a text.

        Where there are several ways to cut it, the first hole holds as little as it can, then the second, and so on.

        Raises:
            InvalidArgument: the text is not one of the template's.
        """
        content = text.encode() if isinstance(text, str) else text
        fillings = self._cut(content)
        if fillings is None:
            raise InvalidArgument(
                f"{quoted(content.decode('utf-8', errors='replace'))} is no text of the template {self.text!r}."
            )
        return {name: value.decode("utf-8", errors="replace") for name, value in fillings.items()}

    def marginal(self, particles: Weighted | Iterable[tuple[str, float]], name: str) -> dict[str, float]:
        """The probability of each value of a hole, given everything else that is asked for; most probable first.

        Args:
            particles: what `locore.generate` returned for this template, or for a conjunction with it.
            name: of the hole.
        """
        return self.joint(particles, [name], lambda values: values[0])

    def joint(
        self, particles: Weighted | Iterable[tuple[str, float]], names: Iterable[str], key: Any = tuple
    ) -> dict[Any, float]:
        """The same for several holes at once: the probability of each tuple of values."""
        wanted = items_of(names, "joint", "a list of names of holes", ordered=True, error=InvalidArgument)
        for name in wanted:
            if name not in self.names:
                raise InvalidArgument(f"the template has no hole {name!r}; its holes are: {', '.join(self.names) or 'none'}.")
        total: dict[Any, float] = {}
        for text, weight in particles:
            values = self.values(text)
            value = key([values[name] for name in wanted])
            total[value] = total.get(value, 0.0) + weight
        return dict(largest_first(total.items(), lambda item: item[1]))

    def _cut(self, content: bytes) -> dict[str, bytes] | None:
        """By trying all ends of each hole, the nearest first; what cannot be read on is remembered."""
        failed: set[tuple[int, int]] = set()
        truth: dict[tuple[str, int, int], bool] = {}

        def ends(number: int, start: int) -> Iterable[int]:
            piece = self.pieces[number]
            if isinstance(piece, bytes):
                return [start + len(piece)] if content.startswith(piece, start) else []
            last = number == len(self.pieces) - 1
            return [len(content)] if last else range(start, len(content) + 1)

        def fits(number: int, start: int, end: int) -> bool:
            piece = self.pieces[number]
            if isinstance(piece, bytes):
                return True
            key = piece, start, end
            if key not in truth:
                truth[key] = self.constraints[piece].truth(PartOfText(content[start:end]))
            return truth[key]

        def read(number: int, start: int) -> list[int] | None:
            if number == len(self.pieces):
                return [] if start == len(content) else None
            if (number, start) in failed:
                return None
            for end in ends(number, start):
                if fits(number, start, end) and (rest := read(number + 1, end)) is not None:
                    return [end, *rest]
            failed.add((number, start))
            return None

        cuts = read(0, 0)
        if cuts is None:
            return None
        spans = zip(self.pieces, [0, *cuts], cuts, strict=False)
        return {piece: content[start:end] for piece, start, end in spans if isinstance(piece, str)}

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """Is there a way to cut the text, whose holes are read plainly?"""
        return self._cut(sequence.text) is not None

    def why(self, sequence: TokenSequence) -> str:
        """What stands in the holes."""
        fillings = self._cut(sequence.text)
        if fillings is None:
            return "no way to cut the text fits"
        shown = [f"{name} is {quoted(value.decode('utf-8', errors='replace'))}" for name, value in fillings.items()]
        return ", ".join(shown) or "the text is that of the template"

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "template", "text": ..., "holes": {name: ...}}`."""
        json: Json = {"type": "template", "text": self.text}
        holes = {name: constraint.to_json() for name, constraint in self.holes}
        return json | {"holes": holes} if holes else json


def _read(text: str) -> tuple[Pieces, dict[str, tuple[str, str]]]:
    """The pieces of a template, and the kind and the body of each hole of which the text says what it holds."""
    pieces: list[bytes | str] = []
    said: dict[str, tuple[str, str]] = {}
    fixed, place = "", 0
    for match in _HOLE.finditer(text):
        fixed, place = fixed + text[place : match.start()], match.end()
        name = match["name"]
        if name is None:
            if len(match.group()) == 1:
                raise InvalidConstraint(
                    f"template has {match.group()!r} by itself at character {match.start()}, or a hole that is none: a hole is "
                    f"{{name}} or {{name:kind}} with {_KINDS}; write {{{{ and }}}} for braces"
                )
            fixed += match.group()[0]
            continue
        if name in pieces:
            raise InvalidConstraint(f"template has the hole {name!r} twice; give each its own name")
        if match["kind"]:
            said[name] = match["kind"], match["body"]
        pieces += [fixed.encode(), name] if fixed else [name]
        fixed = ""
    fixed += text[place:]
    return tuple([*pieces, fixed.encode()] if fixed else pieces), said


def _inline(name: str, kind: str, body: str) -> Constraint:
    """What the text of a template says of a hole."""
    try:
        if kind == "choice":
            return choice([item.strip() for item in body.split(",")])
        if kind == "regex":
            return regex(body)
    except InvalidConstraint as error:
        raise InvalidConstraint(f"the hole {name!r} of template: {error}") from error
    raise InvalidConstraint(f"the hole {name!r} of template is {kind}(…), which is not known; use {_KINDS}, or give it by name")


def _anything_before(name: str, behind: bytes | str) -> Constraint:
    """Any text in which the fixed text behind it does not occur."""
    if isinstance(behind, str):
        raise InvalidConstraint(
            f"nothing is said of the hole {name!r} of template, and another hole follows it at once; say what it holds, or put "
            "text between them"
        )
    return ban([behind.decode()]) if behind else Constant(True)


def _fixed(content: bytes) -> ByteMachine:
    """The machine of one text."""
    symbols = sorted(set(content))
    column = {byte: number + 1 for number, byte in enumerate(symbols)}
    table = [[len(content) + 1] * (len(symbols) + 1) for _ in range(len(content) + 2)]
    for place, byte in enumerate(content):
        table[place][column[byte]] = place + 1
    accepting = [place == len(content) for place in range(len(content) + 2)]
    return AutomatonMachine(Automaton(np.array(table, dtype=np.int32), np.array(accepting), column, default=0))


@described({"type": "object", "additionalProperties": {"$ref": "Constraint"}})
def read_holes(value: Any, path: str) -> Mapping[str, Constraint]:
    """An object from names to constraints."""
    if not isinstance(value, dict):
        raise InvalidConstraint(f"{path} must be an object of constraints by the names of holes, got {value!r}")
    return {str(name): read_constraint(item, f"{path}.{name}") for name, item in value.items()}


register("template", lambda text, holes=None: template(text, **(holes or {})), {"text": read_string}, {"holes": read_holes})
