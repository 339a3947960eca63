"""genlm-eval's 454 patterns: which of them `locore.regex` takes, and whether its automata read texts as `re` and `regex` do.

Texts are random walks through each automaton, the same with a character changed, left out or put in, and random strings of the
pattern's own characters. Python's `re` is asked where it takes the pattern, otherwise the library `regex`, whose words and
digits are others beyond ASCII, so that only texts of ASCII are compared. What it needs more than a second for is not.
"""

from __future__ import annotations

import csv
import io
import random
import re
import time
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from locore.automata.byte_machine import ByteMachine
from locore.automata.composed import AutomatonMachine
from locore.automata.walking import DEAD
from locore.constraints import regex as taken_as
from locore.constraints.regular_expression import FollowedRegex, Regex
from locore.constraints.text_leaf import MachineLeaf
from locore.kernel.errors import LocoreError
from locore_lab.harness import Case, Row, measurement
from locore_lab.shared import changed, pinned

SOURCE = "https://github.com/genlm/genlm-eval at 27836c9 (Apache-2.0): assets/pattern_matching/patterns.csv"
SHA256 = "0c51cac989fed0de138ed6a3825955fc91b6608771555a54c9044bd8751dd98a"
LONGEST = 24  # bytes of a walk that is not at an end yet; then the shortest way out
REGULAR, FEW, FOLLOWED, REFUSED = "regular", "few states after all", "followed as texts go", "refused"
SETS = re.compile(r"--|&&|~~|\|\||\[\^?\[")  # which `regex` reads in its version 1
PLAIN = re.compile(r"[\t\n\r -~]*")
ASCII, EVERY = np.array([9, 10, *range(0x20, 0x7F)]), np.arange(256)  # bytes
Ints = NDArray[np.int64]
Constraint = Regex | FollowedRegex


def patterns(clone: Path) -> list[str]:
    """In their order.

    Raises:
        InvalidArgument: the file is not there, or another one.
    """
    path = clone / "assets" / "pattern_matching" / "patterns.csv"
    [content] = pinned([path], SHA256, f"clone {SOURCE}")
    return [row["regex"] for row in csv.DictReader(io.StringIO(content.decode(), newline=""))]


def kind(constraint: Constraint) -> str:
    """How a pattern is taken."""
    if isinstance(constraint, Regex):
        return REGULAR
    return FEW if constraint.is_small else FOLLOWED


def machine(constraint: Constraint) -> ByteMachine:
    """What decides for samplers."""
    if isinstance(constraint, MachineLeaf) and not constraint.is_small:
        return constraint.machine()
    return AutomatonMachine(constraint.automaton())


def after(reader: ByteMachine, state: int, symbols: Ints) -> dict[int, int]:
    """The states behind those of some bytes that may come."""
    found = reader.after_each(np.full(len(symbols), state, dtype=np.int32), symbols)
    return {byte: number for byte, number in zip(symbols.tolist(), found.tolist(), strict=True) if number != DEAD}


def walk(reader: ByteMachine, chance: random.Random) -> str | None:
    """A random text of a machine; None where a walk ends in a place without a way out."""
    state, content = 0, bytearray()
    while True:
        check = chance.random() < 0.3 or len(content) > LONGEST
        if check and reader.accepts(state):
            return content.decode()
        wide = chance.random() < 0.1
        following = after(reader, state, EVERY if wide else ASCII)
        bytes_ = sorted(following) or sorted(following := after(reader, state, EVERY))
        if len(content) > LONGEST and bytes_:
            nearest = min(reader.least(following[byte]) for byte in bytes_)
            bytes_ = [byte for byte in bytes_ if reader.least(following[byte]) == nearest]
        if not bytes_ or len(content) > 4 * LONGEST:
            return content.decode() if reader.accepts(state) else None
        content.append(chance.choice(bytes_))
        state = following[content[-1]]


def texts(pattern: str, reader: ByteMachine, number: int) -> Iterator[str]:
    """What the readings are compared on."""
    chance = random.Random(pattern)
    letters = "".join(sorted({*re.sub(r"\W", "", pattern), *"ab1 -_.("}))
    walks = [found for _ in range(number) if (found := walk(reader, chance)) is not None]
    yield from walks
    yield from changed(walks, 1, pattern)
    for _ in range(number):
        yield "".join(chance.choices(letters, k=chance.randrange(9)))


def readings(pattern: str) -> list[tuple[Any, bool]]:
    """Functions that match a text: of Python, or where that does not take the pattern of `regex`, which is for ASCII alone.

    What is a digit or a letter of a word beyond ASCII is not the same for both.
    """
    try:
        return [(re.compile(pattern).fullmatch, False)]
    except re.error:
        engine: Any = import_module("regex")
        version = engine.V1 if SETS.search(pattern) else engine.V0
        return [(partial(engine.compile(pattern, version).fullmatch, timeout=1.0), True)]


def disagreements(pattern: str, reader: ByteMachine, number: int) -> tuple[int, int, list[str]]:
    """Comparisons, texts accepted in them, and the texts on which two readings differ."""
    compared, accepted, wrong = 0, 0, list[str]()
    for text in texts(pattern, reader, number):
        state = reader.after(text.encode())
        ours = state != DEAD and reader.accepts(state)
        for match, ascii_only in readings(pattern):
            if ascii_only and not PLAIN.fullmatch(text):
                continue
            try:
                theirs = match(text) is not None
            except TimeoutError:
                continue
            compared, accepted = compared + 1, accepted + ours
            if ours != theirs:
                wrong.append(text)
    return compared, accepted, wrong


def judged(pattern: str, number: int) -> Row:
    """One pattern."""
    begun = time.process_time()
    try:
        constraint = taken_as(pattern)
    except LocoreError as error:
        return {"pattern": pattern, "kind": REFUSED, "why": str(error)}
    row: Row = {"pattern": pattern, "kind": kind(constraint), "seconds": round(time.process_time() - begun, 4)}
    compared, accepted, wrong = disagreements(pattern, machine(constraint), number)
    return row | {"compared": compared, "accepted": accepted, "wrong": wrong}


def summed(rows: Iterable[Row], name: str) -> Row:
    """All patterns of one kind."""
    mine = [row for row in rows if row["kind"] == name]
    taken = [row for row in mine if name != REFUSED]
    return {
        "kind": name,
        "patterns": len(mine),
        "compared": sum(row["compared"] for row in taken),
        "accepted": sum(row["accepted"] for row in taken),
        "disagreements": sum(len(row["wrong"]) for row in taken),
        "milliseconds": 1000 * median(row["seconds"] for row in taken) if taken else 0.0,
        "slowest": max((row["seconds"] for row in taken), default=0.0),
    }


def suite(clone: Path, number: int, every: int) -> list[Row]:
    """All of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        rows = [judged(pattern, number) for pattern in patterns(clone)[::every]]
    kinds = [summed(rows, name) for name in (REGULAR, FEW, FOLLOWED, REFUSED)]
    left = [{"part": "left", **row} for row in rows if row["kind"] == REFUSED]
    wrong = [{"part": "wrong", "pattern": row["pattern"], "text": text} for row in rows for text in row.get("wrong", ())]
    return [*kinds, *wrong, *left]


@measurement(
    "kind | patterns | comparisons | accepted | disagreements | median ms to take | slowest, s",
    "{kind} | {patterns} | {compared:,} | {accepted:,} | {disagreements} | {milliseconds:.1f} | {slowest:.2f}",
    wrong=("pattern | text", "`{pattern}` | `{text!r}`"),
    left=("refused | why", "`{pattern}` | {why}"),
)
def run(
    clone: Annotated[Path, "folder of the repository"] = Path("genlm-eval"),
    texts: Annotated[int, "walks through each automaton"] = 20,
    every: Annotated[int, "of so many patterns one"] = 1,
) -> Iterator[Case]:
    """All patterns of genlm-eval."""
    yield {"suite": "genlm-eval", "texts": texts, "every": every}, partial(suite, clone, texts, every)
