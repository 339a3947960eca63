"""The layers of docs/architecture.md: a module imports from lower rows, or from its own part, only."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.house import FILES, MODULES, SOURCE, imported_modules

ROWS = {
    "errors": 0,
    "automata": 1,
    "cache": 1,
    "certain": 1,
    "chat": 1,
    "io": 1,
    "limits": 1,
    "lists": 1,
    "local": 3,
    "patterns": 3,
    "numerics": 1,
    "patience": 1,
    "picture": 1,
    "request": 1,
    "watching": 1,
    "tokenizer": 1,
    "constraints": 2,
    "circuits": 2,
    "evidence": 2,
    "models": 2,
    "compilers": 3,
    "plugins": 1,
    "potentials": 3,
    "puzzles": 3,
    "stopping": 3,
    "samplers": 4,
    "audit": 5,
    "auditing": 5,
    "classification": 5,
    "explanation": 5,
    "generate": 5,
    "odds": 5,
    "parsing": 5,
    "rollouts": 5,
    "shaping": 5,
    "streaming": 5,
    "testing": 5,
    "__main__": 6,
    "answering": 5,
    "pipeline": 5,
    "batch": 6,
    "cli": 6,
    "hf": 6,
    "server": 6,
}
STRANGERS = ("constraints", "circuits", "models", "evidence")  # parts of one row that do not know of each other
# Parts within parts that are known alone: who works on one needs the kernel and what all texts share, and none of the others.
WINGS = {
    "grammars": ("automata.grammar", "constraints.context_free"),
    "schemas": ("constraints.json_schema",),
    "puzzles": ("puzzles",),
    "engines": ("models.engines",),
    "foresight": ("samplers.twist",),
}
# Who names a wing that does not stand below: lists of public names, ready patterns, what opens a model by its name, and the
# two samplers that choose a foresight.
DOORS = {"constraints", "constraints.ready", "models.by_name", "samplers", "samplers.auto", "samplers.lcr"}
PUBLIC = 6  # from this row on, modules may import `locore` itself
FACES = [part for part, row in ROWS.items() if row == PUBLIC]
STARTERS = ("cli", "__main__")


def part_of(module: str) -> str:
    """The part of `locore` that a dotted name belongs to; "" for the package itself."""
    parts = [part for part in module.split(".") if part != "kernel"]
    places = [folder / parts[1] for folder in (SOURCE, SOURCE / "kernel")] if len(parts) > 1 else []
    known = any(place.is_dir() or place.with_suffix(".py").is_file() for place in places)
    return parts[1] if known else ""


def imported_parts(path: Path) -> Iterator[str]:
    """The parts of `locore` that a file imports, wherever in the file, "" for the package itself."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively, line {node.lineno}"
            submodules = node.module in ("locore", "locore.kernel")
            names = [f"locore.{alias.name}" if submodules else str(node.module) for alias in node.names]
        else:
            continue
        yield from (part_of(name) for name in names if name.split(".")[0] == "locore")


def own_part(path: Path) -> str:
    """The part that a file belongs to."""
    parts = [part for part in path.relative_to(SOURCE).with_suffix("").parts if part not in ("kernel", "__init__")]
    return parts[0] if parts else "errors"


def test_every_module_has_a_row():
    unknown = {own_part(path) for path in FILES} - set(ROWS)
    assert not unknown, f"say in ROWS and in docs/architecture.md where {unknown} belong"


def test_the_table_is_that_of_the_documentation():
    text = (SOURCE.parents[1] / "docs" / "architecture.md").read_text()
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0].isdigit():
            names = [name.strip(" `/") for name in cells[1].split(",")]
            rows.update(dict.fromkeys(names, int(cells[0])))
    assert rows
    assert {name: ROWS.get(name) for name in rows} == rows


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_downwards(path):
    own = own_part(path)
    for part in imported_parts(path):
        if part == own:
            continue
        if part == "":
            assert ROWS[own] >= PUBLIC, f"{own} imports the package itself, which knows of everything"
            continue
        assert ROWS[part] <= ROWS[own], f"{own} (row {ROWS[own]}) imports {part} (row {ROWS[part]})"
        if own in STRANGERS:
            assert ROWS[part] < ROWS[own], f"{own} must not know of {part}"


def wing_of(module: str) -> str | None:
    """The wing that a module belongs to."""
    name = module.removeprefix("locore.")
    return next((wing for wing, places in WINGS.items() for place in places if f"{name}.".startswith(f"{place}.")), None)


def test_wings_do_not_know_of_each_other():
    between = {
        (module, other)
        for module in MODULES
        for other in imported_modules(module)
        if wing_of(module) and wing_of(other) and wing_of(module) != wing_of(other)
    }
    assert between == set()
    assert {wing_of(module) for module in MODULES} == {None, *WINGS}


def test_wings_are_known_by_their_doors():
    """What no grammar is needed for can be read without grammars; likewise for the others."""
    doors = {
        module.removeprefix("locore.")
        for module, path in MODULES.items()
        for other in imported_modules(module)
        if wing_of(other) and not wing_of(module) and ROWS[own_part(path)] <= ROWS[own_part(MODULES[other])]
    }
    assert doors == DOORS


@pytest.mark.parametrize(
    "path", [path for path in FILES if own_part(path) in FACES], ids=lambda path: str(path.relative_to(SOURCE))
)
def test_faces_do_not_know_of_each_other(path):
    """The shell starts the others; none of them needs another."""
    own = own_part(path)
    others = {part for part in imported_parts(path) if ROWS.get(part) == ROWS["cli"]} - {own}
    assert not others or own in STARTERS, f"{own} imports {others}"


def test_the_check_sees_imports():
    """The laws above would also hold if nothing were found."""
    found = {own_part(path): set(imported_parts(path)) for path in FILES if path.name == "answering.py"}
    assert {"compilers", "samplers", "models"} <= found["answering"]


@pytest.mark.parametrize("module", ["locore", "locore.cli", "locore.constraints", "locore.batch.batch_settings"])
def test_importing_is_cheap(module):
    """Torch and transformers take seconds to import; nobody pays before they are used."""
    code = f"import {module}, sys; print(*(heavy for heavy in ('torch', 'transformers', 'scipy') if heavy in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_process_that_answers_for_a_server_is_cheap():
    """It has no model: what torch takes, seconds and 180 MB, its workers take."""
    code = "import sys; from locore.server.app import create_app; from locore.server.settings import Settings; "
    code += "create_app(Settings()).openapi(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"


FIRST = ("holds", "generate", "load", "compile", "testing")


def _of_names(first: str | None, says: Callable[[str], object]) -> None:
    """In a process that has yet to import locore: how it came to a name, the name, and whether all is well."""
    import locore

    if first is not None:
        getattr(locore, first)
        says(f"first {first} {all(callable(getattr(locore, name)) for name in ('generate', 'holds', 'compile'))}")
        return
    for name, home in sorted(locore._HOME.items()):
        if home == f"locore.{name}":
            import_module(home)  # as another thread does, which has not come to use the name
            says(f"imported {name} {getattr(locore, name) is getattr(import_module(home), name)}")


@pytest.fixture(scope="module")
def told():
    """What processes say that begin with different names; torch and transformers, which take seconds, are there already."""
    if not hasattr(os, "fork"):
        pytest.skip("needs processes that fork")
    import transformers.modeling_utils  # noqa: F401

    with tempfile.TemporaryFile("w+") as said:
        for first in (*FIRST, None):
            if os.fork() == 0:
                try:
                    for module in [name for name in sys.modules if name.partition(".")[0] == "locore"]:
                        del sys.modules[module]
                    _of_names(first, lambda line: print(line, file=said, flush=True))
                finally:
                    os._exit(0)
            os.wait()
        said.seek(0)
        return [tuple(line.split()) for line in said.read().splitlines()]


def test_public_names_do_not_depend_on_the_order_of_use(told):
    """`generate` is a function and the name of the module that defines it."""
    found = [line[1:] for line in told if line[0] == "first"]
    assert found == [(name, "True") for name in FIRST]


def test_a_public_name_is_never_the_module_of_that_name(told):
    """Not even between the import of the module and the first use of the name, where another thread may look."""
    found = dict(line[1:] for line in told if line[0] == "imported")
    assert "generate" in found and set(found.values()) == {"True"}
