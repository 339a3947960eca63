"""What may only get better: arrows out of the kernel, names of samplers below them, circles, and what `tests.house` counts."""

from __future__ import annotations

import re

import pytest

from tests import house
from tests.house import MEASURES, MODULES
from tests.test_layers import ROWS, own_part

# Modules below the samplers that name one of them in what they say or ask: how many strings.
HINTS = {"models.engines.vllm": 1}
# Pairs of files of which one says of what type the other is; nothing is imported twice when they run.
CIRCLES_OF_TYPES = [
    ["constraints.json_schema.names", "constraints.json_schema.objects"],
    ["constraints.json_schema.rules", "constraints.json_schema.tags"],
    ["models.abilities", "models.causal"],
]


def short(module: str) -> str:
    return module.removeprefix("locore.")


def test_the_kernel_knows_of_nothing_beside_it():
    assert house.arrows() == {}


def test_what_it_would_know_is_seen(monkeypatch):
    """Imports at the head of a file and within functions, and names in strings."""
    monkeypatch.setattr(house, "KERNEL", frozenset({"locore.kernel.circuits.circuit", "locore.cli.commands"}))
    found = house.arrows()
    assert "locore.kernel.circuits.nodes" in found["locore.kernel.circuits.circuit"]
    assert "locore.compilers.compile" in found["locore.cli.commands"]
    monkeypatch.setattr(house, "strings_of", lambda module: ["locore.puzzles"])
    monkeypatch.setattr(house, "KERNEL", frozenset({"locore.kernel.errors"}))
    assert house.arrows() == {"locore.kernel.errors": {"locore.puzzles"}}


def named_samplers(module: str) -> int:
    """Strings that name a sampler: behind the word "sampler", or by a name that no other thing has."""
    from locore.samplers import NAMED

    names = "|".join(sorted(map(re.escape, NAMED), key=len, reverse=True))
    told, alone = re.compile(f"sampler.*['\"]({names})['\"]", re.DOTALL), NAMED.keys() - {"exact", "auto"}
    return sum(bool(told.search(text)) or text in alone for text in house.strings_of(module))


def test_lower_rows_name_no_more_samplers_than_they_did():
    """A word is an arrow too: who renames a sampler has to change it."""
    below = [module for module, path in MODULES.items() if ROWS[own_part(path)] < ROWS["samplers"]]
    assert {short(module): number for module in below if (number := named_samplers(module))} == HINTS


def test_there_is_no_circle():
    assert house.circles(for_types=False) == []
    assert [list(map(short, group)) for group in house.circles(for_types=True)] == CIRCLES_OF_TYPES


def test_no_two_modules_have_one_name():
    """A name leads to one file. Folders of the kernel are named like those beside it; `locore.errors` passes names on."""
    places: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        passes_on = not house.definitions(module) and path.name != "__init__.py"
        kernels_folder = module in house.KERNEL and path.name == "__init__.py"
        if not passes_on and not kernels_folder:
            places.setdefault(module.rpartition(".")[2], []).append(module)
    assert places.keys() >= {"smc", "samplers", "restriction"}
    assert [modules for modules in places.values() if len(modules) > 1] == []


@pytest.mark.parametrize("name", MEASURES)
def test_no_number_rises(name):
    """`python -m tests.house` prints them all; a number that has fallen gets a lower ceiling."""
    measure = MEASURES[name]
    assert measure.count() <= measure.ceiling, measure.of


def test_the_house_is_seen():
    """The laws above would also hold if nothing were found."""
    assert MODULES.keys() >= house.KERNEL
    assert "locore.kernel.samplers.rounds" in house.imported_modules("locore.kernel.samplers.smc")
    assert house.home(house.Place("locore.evidence", "Draws")) == house.Place("locore.kernel.evidence.record", "Draws")
    near, far = (
        house.reached(house.Place("locore.kernel.samplers.smc", name)) for name in ("systematic", "SequentialMonteCarlo")
    )
    assert near < far
    assert all(measure.count() > 0 for name, measure in MEASURES.items() if name in ("smc", "kernel", "compilers"))


def test_circles_are_seen(monkeypatch, tmp_path):
    """A circle through a function is one too; one of types alone only if types are asked for."""
    texts = {
        "locore.a": "def f():\n    from locore.b import g",
        "locore.b": "from locore.c import h",
        "locore.c": "from typing import TYPE_CHECKING\nfrom locore import a\nif TYPE_CHECKING:\n    import locore.d",
        "locore.d": "import locore.c",
    }
    files = {name: tmp_path / f"{name}.py" for name in texts}
    for name, path in files.items():
        path.write_text(texts[name])
    monkeypatch.setattr(house, "MODULES", files)
    house.imports_of.cache_clear()
    try:
        assert house.circles(for_types=False) == [["locore.a", "locore.b", "locore.c"]]
        assert house.circles(for_types=True) == [["locore.a", "locore.b", "locore.c", "locore.d"]]
    finally:
        house.imports_of.cache_clear()
