"""Random constraints on parts of parts of a text, each beside a plain reading of its own that knows nothing of Locore."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from locore import after, ban, before, char_count, choice, contains, count, ends_with, grammar, json_schema, regex, template
from locore.constraints import Constraint

Truth = Callable[[bytes], bool]
LETTERS = 'abc "1é'
STOPS = ["c", " ", "ab", "a", "ba", "é", '"', "bab"]
MARKERS = ["c", "ab", " ", "é", "aa"]
PATTERN_MARKERS = ["[ab]c", "a+b", "é| ", "b|ab"]
PATTERNS = ["[ab]*", "a|b", "(?s).*", "[^c]*c?", "(ab)*", '"?1"?', ".", "é?[a-c]*"]
FIXED = ["", "a", "c", "b ", "é"]


@dataclass(frozen=True)
class View:
    """A constraint, and what it says of the bytes of a text."""

    constraint: Constraint
    truth: Truth


def read(text: bytes) -> str:
    """As a reader gets it."""
    return text.decode("utf-8", errors="replace")


def whole(text: bytes) -> str | None:
    """The text if it is UTF-8."""
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        return None


def leaf(rng) -> View:
    """One of every kind."""
    kind = rng.choice(["regex", "choice", "contains", "ban", "count", "char_count", "ends_with", "json", "grammar"])
    some = ["".join(rng.choice(LETTERS[:4]) for _ in range(rng.randint(1, 2))) for _ in range(2)]
    if kind == "regex":
        pattern = rng.choice(PATTERNS)
        return View(regex(pattern), lambda t: whole(t) is not None and re.fullmatch(pattern, whole(t)) is not None)
    if kind == "choice":
        return View(choice([*some, "a"]), lambda t: read(t) in [*some, "a"])
    if kind == "contains":
        return View(contains(some[0]), lambda t: some[0] in read(t))
    if kind == "ban":
        return View(ban(some), lambda t: not any(one in read(t) for one in some))
    if kind == "count":
        return View(count(some[0], exactly=1), lambda t: sum(read(t).startswith(some[0], i) for i in range(len(read(t)))) == 1)
    if kind == "char_count":
        low = rng.randint(0, 2)
        return View(char_count(low, low + 1), lambda t: low <= len(read(t)) <= low + 1)
    if kind == "ends_with":
        return View(ends_with(some[0]), lambda t: read(t).endswith(some[0]))
    if kind == "json":
        return View(json_schema({"enum": ["a", "ab", ""]}, whitespace="compact"), lambda t: t in (b'"a"', b'"ab"', b'""'))
    return View(grammar('start: "a" start "b" | "c"'), lambda t: re.fullmatch(b"(a*)c(b*)", t) is not None and nested(t))


def nested(text: bytes) -> bool:
    """As many a as b."""
    return text.count(b"a") == text.count(b"b")


def view(rng, depth: int) -> View:
    """A constraint of parts of parts of a text, at most so deep."""
    if depth == 0:
        return leaf(rng)
    kind = rng.choice(["leaf", "before", "before", "after", "after", "template", "template", "and", "or", "not"])
    if kind == "leaf":
        return leaf(rng)
    inner = view(rng, depth - 1)
    if kind == "before":
        stops = rng.sample(STOPS, rng.randint(1, 2))
        return View(before(stops, inner.constraint), lambda t: inner.truth(cut(t, [s.encode() for s in stops])))
    if kind == "after":
        return marked(rng, inner)
    if kind == "template":
        return filled(rng, inner, view(rng, depth - 1))
    if kind == "not":
        return View(~inner.constraint, lambda t: not inner.truth(t))
    other = view(rng, depth - 1)
    if kind == "and":
        return View(inner.constraint & other.constraint, lambda t: inner.truth(t) and other.truth(t))
    return View(inner.constraint | other.constraint, lambda t: inner.truth(t) or other.truth(t))


def cut(text: bytes, stops: list[bytes]) -> bytes:
    """Byte by byte: the first place where a string ends, and of those that end there the longest."""
    for end in range(len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))]
    return text


def marked(rng, inner: View) -> View:
    """What follows the first end of a marker."""
    if rng.random() < 0.5:
        marker = rng.choice(MARKERS)
        return View(
            after(marker, inner.constraint),
            lambda t: marker.encode() in t and inner.truth(t[t.index(marker.encode()) + len(marker.encode()) :]),
        )
    pattern = rng.choice(PATTERN_MARKERS)

    def truth(text: bytes) -> bool:
        for end in range(1, len(text) + 1):
            seen = whole(text[:end])
            if seen and any(re.fullmatch(pattern, seen[start:]) for start in range(len(seen))):
                return inner.truth(text[end:])
        return False

    return View(after(regex(pattern), inner.constraint), truth)


def filled(rng, first: View, second: View) -> View:
    """Two holes, every way of cutting the text tried."""
    left, middle, right = (rng.choice(FIXED) for _ in range(3))
    constraint = template(f"{left}{{x}}{middle}{{y}}{right}", x=first.constraint, y=second.constraint)

    def truth(text: bytes) -> bool:
        head, between, tail = left.encode(), middle.encode(), right.encode()
        if not text.startswith(head) or not text.endswith(tail) or len(text) < len(head + tail):
            return False
        rest = text[len(head) : len(text) - len(tail)]
        return any(
            rest.startswith(between, end) and first.truth(rest[:end]) and second.truth(rest[end + len(between) :])
            for end in range(len(rest) + 1)
        )

    return View(constraint, truth)
