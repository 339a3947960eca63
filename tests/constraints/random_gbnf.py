"""Random grammars in GBNF as trees, how they are spelled, which texts they have, and texts that are nearly theirs.

The trees are read here by themselves, so that neither llama.cpp's syntax nor any parser of Locore's is trusted: which ends each
rule has from each place of a text is found as a least fixed point.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

LETTERS = 'ab\n"\\[]-é日😀'
SPELLED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\", "[": "\\[", "]": "\\]", "-": "\\-"}
NAMES = ("root", "x", "Y-1", "z_z")


@dataclass(frozen=True)
class Text:
    """A string."""

    text: str


@dataclass(frozen=True)
class Class:
    """One character of some ranges, or of none of them; None: any character."""

    ranges: tuple[tuple[str, str], ...] | None
    negated: bool = False

    def has(self, one: str) -> bool:
        """Is it one of them?"""
        return self.ranges is None or any(first <= one <= last for first, last in self.ranges) != self.negated


@dataclass(frozen=True)
class Rule:
    """A use of a rule."""

    name: str


@dataclass(frozen=True)
class Row:
    """One after the other."""

    parts: tuple[object, ...]


@dataclass(frozen=True)
class Ways:
    """One of several."""

    parts: tuple[object, ...]


@dataclass(frozen=True)
class Times:
    """Repeated; None: without a limit."""

    part: object
    least: int
    most: int | None


def random_grammar(rng: random.Random) -> dict[str, object]:
    """A rule or a few, with and without recursion."""
    names = NAMES[: rng.randint(1, len(NAMES))]
    return {name: _ways(rng, names, rng.randint(0, 2)) for name in names}


def _ways(rng: random.Random, names: tuple[str, ...], depth: int) -> object:
    return Ways(tuple(_row(rng, names, depth) for _ in range(rng.choice([1, 1, 2, 3]))))


def _row(rng: random.Random, names: tuple[str, ...], depth: int) -> object:
    return Row(tuple(_item(rng, names, depth) for _ in range(rng.choice([0, 1, 1, 2, 2, 3]))))


def _item(rng: random.Random, names: tuple[str, ...], depth: int) -> object:
    kind = rng.random()
    if kind < 0.3:
        item: object = Text("".join(rng.choices(LETTERS, k=rng.choice([0, 1, 1, 1, 2, 3]))))
    elif kind < 0.5:
        item = _class(rng)
    elif kind < 0.7 or not depth:
        item = Rule(rng.choice(names))
    else:
        item = _ways(rng, names, depth - 1)
    for _ in range(rng.choice([0, 0, 0, 1, 1, 2])):
        least, most = rng.choice([(0, None), (1, None), (0, 1), (2, 2), (0, 2), (1, 3), (2, None), (0, 0), (1, 1)])
        item = Times(item, least, most)
    return item


def _class(rng: random.Random) -> Class:
    if rng.random() < 0.2:
        return Class(None)
    pairs = [rng.choices(LETTERS, k=2) if rng.random() < 0.4 else [rng.choice(LETTERS)] * 2 for _ in range(rng.randint(1, 3))]
    return Class(tuple((min(pair), max(pair)) for pair in pairs), rng.random() < 0.4)


# How it is spelled.


def spelled(rules: dict[str, object], rng: random.Random) -> str:
    """One of the ways to write a grammar."""
    lines = []
    for name, ways in rng.sample(list(rules.items()), len(rules)):
        lines += [rng.choice(["", "# a comment | with ) signs", "  "]) for _ in range(rng.randint(0, 1))]
        bars = [" | ", "|", " |\n  ", "\n  | ", " | # or\n\n "]
        lines.append(f"{name}{rng.choice(['', ' '])}::= " + _joined(rng, ways, bars, False) + rng.choice(["", " # so", "\t"]))
    return rng.choice(["\n", "\r\n"]).join(lines) + rng.choice(["", "\n"])


def _joined(rng: random.Random, ways: object, bars: list[str], nested: bool) -> str:
    result = ""
    for number, row in enumerate(ways.parts):
        result += rng.choice(bars) if number else ""
        gaps = ["\n", " # a comment\n "] if nested else []
        if not (row.parts or nested) and number in (
            0,
            len(ways.parts) - 1,
        ):  # a line that ends with ::= or | goes on in the next
            result += '""'
        result += "".join(
            (rng.choice([" ", "\t", *gaps]) if place else "") + _spelled(rng, one) for place, one in enumerate(row.parts)
        )
    return result


def _spelled(rng: random.Random, item: object) -> str:
    if isinstance(item, Text):
        return '"' + "".join(_character(rng, one, '"') for one in item.text) + '"'
    if isinstance(item, Class):
        if item.ranges is None:
            return "."
        parts = (
            _character(rng, a, "]") + ("" if a == b and rng.random() < 0.7 else "-" + _character(rng, b, "]"))
            for a, b in item.ranges
        )
        return "[" + "^" * item.negated + "".join(parts) + "]"
    if isinstance(item, Rule):
        return item.name
    if isinstance(item, Ways):
        return (
            "("
            + rng.choice(["", " ", "\n"])
            + _joined(rng, item, [" | ", "|", "\n|\n"], True)
            + rng.choice(["", " ", "\n"])
            + ")"
        )
    return _spelled(rng, item.part) + rng.choice(["", " "]) + _times(rng, item.least, item.most)


def _times(rng: random.Random, least: int, most: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
    exact = [f"{{{least}}}"] if least == most else []
    long = f"{{{least},}}" if most is None else f"{{{least},{most}}}"
    return rng.choice([*([short] * 3 if short else []), *exact, long, long.replace(",", " , ")])


def _character(rng: random.Random, one: str, closing: str) -> str:
    code = ord(one)
    ways = [f"\\U{code:08x}"] + [f"\\u{code:04X}"] * (code < 0x10000) + [f"\\x{code:02x}"] * (code < 0x100)
    if one in SPELLED and rng.random() < 0.7:
        return SPELLED[one]
    if one in '\\"[]-^' or rng.random() < 0.2:
        return rng.choice(ways)
    return one


# Which texts it has.


def is_sentence(rules: dict[str, object], text: str) -> bool:
    """Is it a text of `root`?"""
    found: dict[tuple[str, int], frozenset[int]] = {}
    known: dict[tuple[int, int], frozenset[int]] = {}  # within one round

    def ends(item: object, start: int) -> frozenset[int]:
        if (id(item), start) not in known:
            known[id(item), start] = ends_of(item, start)
        return known[id(item), start]

    def ends_of(item: object, start: int) -> frozenset[int]:
        if isinstance(item, Text):
            return frozenset([start + len(item.text)] if text.startswith(item.text, start) else [])
        if isinstance(item, Class):
            return frozenset([start + 1] if start < len(text) and item.has(text[start]) else [])
        if isinstance(item, Rule):
            return found.setdefault((item.name, start), frozenset())
        if isinstance(item, Ways):
            return frozenset().union(*(ends(part, start) for part in item.parts))
        if isinstance(item, Row):
            places = frozenset([start])
            for part in item.parts:
                places = frozenset().union(*(ends(part, place) for place in places))
            return places
        places, counted = frozenset([start]), frozenset([start] if not item.least else [])
        for number in range(1, (len(text) + item.least + 1 if item.most is None else item.most) + 1):
            places = frozenset().union(*(ends(item.part, place) for place in places))
            counted |= places if number >= item.least else frozenset()
        return counted

    found["root", 0] = frozenset()
    while True:
        before = dict(found)
        known.clear()
        for name, start in list(found):
            found[name, start] = ends(rules[name], start)
        if found == before:
            return len(text) in found["root", 0]


def some_text(rules: dict[str, object], rng: random.Random) -> str:
    """A text of the grammar, one that is nearly so, or any; short."""
    kind = rng.random()
    text = "".join(rng.choices(LETTERS, k=rng.randint(0, 5)))
    if kind < 0.8:
        drawn = _drawn(rules, Rule("root"), rng, [60])
        text = text if drawn is None or len(drawn) > 12 else drawn
    if kind < 0.4 or not text:
        return text
    place, letter = rng.randrange(len(text)), rng.choice(LETTERS)
    return rng.choice(
        [text[:place] + text[place + 1 :], text[:place] + letter + text[place:], text[:place] + letter + text[place + 1 :]]
    )


def _drawn(rules: dict[str, object], item: object, rng: random.Random, left: list[int]) -> str | None:
    left[0] -= 1
    if left[0] < 0:
        return None
    if isinstance(item, Text):
        return item.text
    if isinstance(item, Class):
        fitting = [one for one in LETTERS if item.has(one)]
        return rng.choice(fitting) if fitting else None
    if isinstance(item, Rule):
        return _drawn(rules, rules[item.name], rng, left)
    if isinstance(item, Ways):
        return _drawn(rules, rng.choice(item.parts), rng, left)
    if isinstance(item, Times):
        most = item.least + 2 if item.most is None else item.most
        item = Row((item.part,) * rng.randint(item.least, most))
    texts = [_drawn(rules, part, rng, left) for part in item.parts]
    return None if None in texts else "".join(texts)
