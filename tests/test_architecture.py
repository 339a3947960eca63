"""What docs/architecture.md says of the code is so: files and names are there, and a request goes the way that it tells."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

import locore
from tests.house import FILES, SOURCE, names_of

ROOT = SOURCE.parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PROSE = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
TERMS = re.findall(r"`([^`]+)`", PROSE)
PATHS = sorted({term for term in TERMS if re.fullmatch(r"[\w/.]+(\.py|\.json|/)", term)})
NAMES = sorted({term for term in TERMS if re.fullmatch(r"[A-Za-z_][\w.]*(\(.*\))?", term)} - set(PATHS))
WALK = PROSE.split("## One request")[1].split("\n## ")[0]


def places_of(text: str) -> list[tuple[str, str]]:
    """Of "`file.py`: `function`, `Class.method`": the file and each name that it defines."""
    groups = re.findall(r"`([\w/]+\.py)`:\s+((?:`[\w.]+`(?:,\s+)?)+)", text)
    return [(path, name) for path, names in groups for name in re.findall(r"`([\w.]+)`", names)]


def defined_in(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """Functions, classes and variables; methods and fields with the name of their class before them."""
    for node in body:
        yield from (f"{prefix}{name}" for name in names_of(node))
        if isinstance(node, ast.ClassDef):
            yield from defined_in(node.body, f"{node.name}.")


def known_names() -> set[str]:
    """What is defined anywhere, modules, names of samplers, and variables of the environment."""
    names = {path.stem for path in FILES} | {path.parent.name for path in FILES} | {*dir(locore), *locore.samplers.NAMED}
    for path in FILES:
        names |= {part for name in defined_in(ast.parse(path.read_text()).body) for part in (name, name.rpartition(".")[2])}
        names |= set(re.findall(r'"(LOCORE_\w+)"', path.read_text()))
    return names


@pytest.mark.parametrize("path", PATHS)
def test_files_are_there(path):
    assert any((folder / path).exists() for folder in (SOURCE, ROOT)), path


def test_names_are_there():
    """`model.device` is there if anything has a `device`; `Merit.select` only if `Merit` has it."""
    names = known_names()
    called = {term: term.partition("(")[0] for term in NAMES}
    alone = {term: name if name[0].isupper() else name.rpartition(".")[2] for term, name in called.items()}
    assert {term for term in NAMES if alone[term] not in names} == set()


@pytest.mark.parametrize(("path", "name"), places_of(PROSE))
def test_names_are_where_they_are_said_to_be(path, name):
    assert name in set(defined_in(ast.parse((SOURCE / path).read_text()).body))


def entered(call: Callable[[], object]) -> list[tuple[str, str]]:
    """Files and functions in the order in which a call first enters them."""
    order: dict[tuple[str, str], None] = {}

    def see(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(SOURCE)):
            order.setdefault((code.co_filename[len(str(SOURCE)) + 1 :], code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(before)
    return list(order)


def test_a_request_goes_the_way_that_is_told():
    """Each function of the walk is entered, and first entered in this order."""
    tiny, alpha = locore.load("tiny"), locore.ban(["awful"]) & locore.contains(" sun")
    order = entered(lambda: locore.generate(tiny, "The weather is", alpha, temperature=0.5, seed=0))
    told = places_of(WALK)
    assert len(told) > 20
    assert [place for place in told if place not in order] == []
    steps = [order.index(place) for place in told]
    assert steps == sorted(steps)
