"""The house measured: how much of the library one has to open to know a part of it. `python -m tests.house` prints the table.

A name leads to where it is defined: `from locore.evidence import Draws` to `evidence/record.py`, not to all that
`locore.evidence` imports. Files that are reached by names are those that a reader opens who follows every name that a
definition uses, and every name that these use. What is imported within functions, when it is needed, is not followed.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parents[1] / "src" / "locore"
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def module_of(path: Path) -> str:
    """The dotted name of a file."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}
FUNCTION = ast.FunctionDef, ast.AsyncFunctionDef
STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)  # an import is one, or stands in one

# What everything else stands on: numbers, models as a protocol, constraints over tokens, circuits and their compilation,
# samplers, what is known of draws, and the pipeline from one to the other.
KERNEL = frozenset(module for module in MODULES if module.split(".")[1:2] == ["kernel"])


class Place(NamedTuple):
    """A definition, or a whole module."""

    module: str
    name: str | None = None


@cache
def imports_of(module: str, at_use: bool = True, for_types: bool = True) -> Mapping[str, Place]:
    """The names that a module imports from the library, and from where.

    Args:
        at_use: also those within functions.
        for_types: also those that only type checkers import.
    """
    return dict(_walked(ast.parse(MODULES[module].read_text()), at_use, for_types))


def _walked(tree: ast.AST, at_use: bool, for_types: bool) -> Iterator[tuple[str, Place]]:
    pending = [tree]
    while pending:
        node = pending.pop()
        is_function = isinstance(node, FUNCTION)
        is_typing = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        if (is_function and not at_use) or (is_typing and not for_types):
            continue
        if isinstance(node, ast.ImportFrom) and node.level == 0 and str(node.module).split(".")[0] == "locore":
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                is_module = whole in MODULES and not _is_exported(str(node.module), alias.name)
                yield alias.asname or alias.name, Place(whole) if is_module else Place(str(node.module), alias.name)
        elif isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name, Place(alias.name)) for alias in node.names if alias.name in MODULES)
        pending += (child for child in ast.iter_child_nodes(node) if isinstance(child, STATEMENTS))


def _is_exported(package: str, name: str) -> bool:
    """Does a package import something of this name from its module of the same name, which hides the module?"""
    body = ast.parse(MODULES[package].read_text()).body if package in MODULES else []
    return any(isinstance(node, ast.ImportFrom) and node.module == f"{package}.{name}" for node in body)


def imported_modules(module: str, for_types: bool = True) -> set[str]:
    """The modules of the library that a module imports, wherever in the file."""
    return {place.module for place in imports_of(module, for_types=for_types).values()} & MODULES.keys() - {module}


def circles(for_types: bool) -> list[list[str]]:
    """Groups of modules none of which can be read before the others of its group."""
    left = {module: imported_modules(module, for_types) for module in MODULES}
    while ready := {name for name, wanted in left.items() if not wanted & left.keys()}:
        left = {name: wanted for name, wanted in left.items() if name not in ready}
    reached = {name: _closure(name, left) for name in left}
    groups = {frozenset(other for other in reached[name] if name in reached[other]) for name in left}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _closure(start: str, imports: dict[str, set[str]]) -> set[str]:
    found, todo = set(), [start]
    while todo:
        for name in (imports[todo.pop()] & imports.keys()) - found:
            found.add(name)
            todo.append(name)
    return found


@cache
def definitions(module: str) -> dict[str, list[ast.stmt]]:
    """What a module defines, by name."""
    found: dict[str, list[ast.stmt]] = {}
    for node in ast.parse(MODULES[module].read_text()).body:
        for name in names_of(node):
            found.setdefault(name, []).append(node)
    return found


def names_of(node: ast.stmt) -> list[str]:
    """The names that a statement of a module or a class defines."""
    if isinstance(node, (*FUNCTION, ast.ClassDef)):
        return [node.name]
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


def home(place: Place) -> Place:
    """Where a name that is imported is defined; the module, where it is not found (names that are imported when first used)."""
    seen = set()
    while place.name is not None and place.module in MODULES and place.name not in definitions(place.module):
        following = imports_of(place.module).get(place.name)
        if following is None or place in seen:
            return Place(place.module)
        seen.add(place)
        place = following
    return place


def reached(start: Place) -> set[str]:
    """The modules that a reader opens who follows every name from a definition on."""
    todo, seen = [home(start)], set()
    while todo:
        place = todo.pop()
        if place in seen or place.module not in MODULES:
            continue
        seen.add(place)
        if place.name is not None:
            todo += _used(place)
    return {place.module for place in seen}


def _used(place: Place) -> Iterator[Place]:
    """The definitions that a definition names."""
    own, imported = definitions(place.module), imports_of(place.module, at_use=False, for_types=False)
    for node in own[str(place.name)]:
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                if part.id in own:
                    yield Place(place.module, part.id)
                elif part.id in imported:
                    yield home(imported[part.id])
            elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
                module = imported.get(part.value.id)
                if module is not None and module.name is None:
                    yield home(Place(module.module, part.attr))


def arrows() -> dict[str, set[str]]:
    """By module of the kernel, the modules outside it that it knows by name, be it in a string."""
    found = {}
    for module in sorted(KERNEL):
        outside = {home(place).module for place in imports_of(module).values()} - KERNEL
        if module != "locore.kernel.plugins":  # whose groups are named like packages
            outside |= set(strings_of(module)) & MODULES.keys() - KERNEL
        if outside:
            found[module] = outside
    return found


def strings_of(module: str) -> Iterator[str]:
    """The strings in a module that are no docstrings."""
    tree = ast.parse(MODULES[module].read_text())
    said = set()
    for node in ast.walk(tree):
        if isinstance(node, (*FUNCTION, ast.ClassDef, ast.Module)) and node.body:
            first = node.body[0]
            said.add(id(first.value) if isinstance(first, ast.Expr) else None)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value


def lines(modules: Collection[str]) -> int:
    """Of these files, everything counted."""
    return sum(len(MODULES[module].read_text().splitlines()) for module in modules)


# A default call that is not the first, so that nothing has to be imported, of a constraint that was not compiled before. It
# prints the files whose functions were called.
TRACED = """
import cProfile, sys, threading, locore
model = locore.load("tiny")
locore.generate(model, "It was", locore.ban(["bad"]) & locore.contains(" moon"), seed=0)
entered = set()
def see(frame, event, argument):
    if event == "call":
        entered.add(frame.f_code.co_filename)
threading.setprofile(see)
calls = cProfile.Profile()  # of this thread, in a tenth of the time
calls.enable()
locore.generate(model, "The weather is", locore.ban(["awful"]) & locore.contains(" sun"), seed=0)
calls.disable()
entered |= {one.code.co_filename for one in calls.getstats() if not isinstance(one.code, str)}
print(*sorted(entered), sep="\\n")
"""


def entered_by_default() -> int:
    """Files of which a default call of `generate` enters a function."""
    environment = {**os.environ, "LOCORE_COMPILE_CACHE_BYTES": "0"}
    done = subprocess.run([sys.executable, "-c", TRACED], capture_output=True, text=True, check=True, env=environment)
    return len({line for line in done.stdout.splitlines() if line.startswith(str(SOURCE))})


def sampler_classes() -> int:
    """Classes of samplers that have a name here and draw; what other distributions register has them there."""
    from locore.kernel.samplers.sampler import promised
    from locore.samplers import BY_NAME, NAMED

    return len({type(BY_NAME[name]) for name in NAMED if promised(BY_NAME[name], "guarantee") != "mode"})


def ways_to_compile() -> int:
    """What `circuit_of` hands a constraint to: ways that register, and imported functions whose circuit `written` returns."""
    from locore.kernel.compilers.ways import ways

    (written,) = definitions("locore.kernel.compilers.ways")["written"]
    names = {part.func.id for part in ast.walk(written) if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)}
    homes = {home(place) for name, place in imports_of("locore.kernel.compilers.ways").items() if name in names}
    registered = [way for group in ways() for way in group if way.__module__ in MODULES]
    return len(registered) + len(list(filter(_makes_circuit, homes)))


def _makes_circuit(place: Place) -> bool:
    """Is it a function whose result is a circuit?"""
    own = definitions(place.module).get(str(place.name), [])
    return any(
        isinstance(node, ast.FunctionDef) and isinstance(node.returns, ast.Name) and node.returns.id == "Circuit"
        for node in own
    )


MOST_LINES, MOST_OF_A_FUNCTION = 400, 40


def long_files() -> int:
    """Files that are more than one concept, by their lines."""
    return sum(lines([module]) > MOST_LINES for module in MODULES)


def long_functions() -> int:
    """Functions with more lines than one reads at once, beside their signature and docstring."""
    nodes = (node for module in MODULES for node in ast.walk(ast.parse(MODULES[module].read_text())))
    return sum(isinstance(node, FUNCTION) and _body_lines(node) > MOST_OF_A_FUNCTION for node in nodes)


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = function.body[ast.get_docstring(function) is not None :]
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


# Participles and numerals: no reader can search for them.
GENERIC = frozenset({"found", "kept", "known", "made", "one", "told"})


def generic_names() -> int:
    """Functions, parameters, fields and variables that have a word for a name which could stand anywhere."""
    return sum(generic_names_of(module) for module in MODULES)


def generic_names_of(module: str) -> int:
    """The same, of one module; a variable counts once in each function."""
    names: set[tuple[int, str]] = set()
    pending: list[tuple[ast.AST, int]] = [(ast.parse(MODULES[module].read_text()), 0)]
    while pending:
        node, scope = pending.pop()
        names |= {(scope, name.strip("_")) for name in _bound(node)}
        is_scope = isinstance(node, (*FUNCTION, ast.ClassDef))
        pending += ((child, node.lineno if is_scope else scope) for child in ast.iter_child_nodes(node))
    return sum(name in GENERIC for _, name in names)


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that a node gives to something."""
    if isinstance(node, (*FUNCTION, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr


@dataclass(frozen=True)
class Measure:
    """A number that may only fall.

    Attributes:
        of: what is counted.
        count: counts it.
        ceiling: what it may be today.
        goal: what it is to become.
    """

    of: str
    count: Callable[[], int]
    ceiling: int
    goal: int


MEASURES = {
    "smc": Measure(
        "files reached by names from SequentialMonteCarlo",
        lambda: len(reached(Place("locore.samplers", "SequentialMonteCarlo"))),
        19,
        20,
    ),
    "generate": Measure(
        "files reached by names from generate", lambda: len(reached(Place("locore.generate", "generate"))), 60, 60
    ),
    "entered": Measure("files entered by a default call", entered_by_default, 61, 40),
    "arrows": Measure("arrows out of the kernel", lambda: sum(map(len, arrows().values())), 0, 0),
    "kernel": Measure("lines of the kernel", lambda: lines(KERNEL), 9_000, 9_000),
    "circles": Measure("circles of imports", lambda: len(circles(for_types=False)), 0, 0),
    "samplers": Measure("classes of samplers that draw", sampler_classes, 7, 7),
    "compilers": Measure("ways to compile", ways_to_compile, 5, 5),
    "long_files": Measure("files of more than 400 lines", long_files, 13, 0),
    "long_functions": Measure("functions of more than 40 lines", long_functions, 0, 0),
    "generic": Measure("names that could stand anywhere", generic_names, 3, 0),
    "library": Measure("lines of the library", lambda: lines(MODULES), 59_560, 40_000),
}


def main() -> None:
    """Print what is measured, what it may be, and what it is to become."""
    print(f"{'':50} {'now':>7} {'ceiling':>8} {'goal':>7}")
    for measure in MEASURES.values():
        print(f"{measure.of:50} {measure.count():7,} {measure.ceiling:8,} {measure.goal:7,}")


if __name__ == "__main__":
    main()
