"""How much there is to read: python -m locore_lab.micro.anatomy [--json lab/results/anatomy.json]

Lines and files of the package, files and functions that a default `generate` enters, and imports in a circle between the
modules of a part (those for types alone included).
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import FrameType

import locore

SOURCE = Path(locore.__file__).parent


def modules() -> dict[str, Path]:
    """Dotted name -> file."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ("locore", *path.relative_to(SOURCE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of the package that a file imports when it is read, or for types."""
    found: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nested = {id(node) for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) for node in ast.walk(each)}
    for node in ast.walk(tree):
        if id(node) in nested:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in known else node.module for name in names} & known.keys()
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & known.keys()
    return found


def circles(known: dict[str, Path]) -> dict[str, list[str]]:
    """Part -> a circle of its modules, if there is one; the files that only list a part's names are left out."""
    parts: dict[str, dict[str, set[str]]] = defaultdict(dict)
    for name, path in known.items():
        if path.name != "__init__.py" and name.count(".") > 1:
            part = name.split(".")[1]
            parts[part][name] = {other for other in imports(path, known) if other.split(".")[1:2] == [part] and other != name}
    found = {}
    for part, graph in parts.items():
        graph = {name: {other for other in others if other in graph} for name, others in graph.items()}
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            found[part] = [name.removeprefix("locore.") for name in error.args[1]]
    return found


def entered() -> tuple[set[str], set[tuple[str, str]]]:
    """Files and functions that a default call enters, once everything is loaded."""
    model = locore.load("tiny")

    def call() -> None:
        locore.generate(model, "The weather is", locore.ends_with(" happy."), 6, seed=0).report()

    call()
    functions: set[tuple[str, str]] = set()

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            functions.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return {file for file, _ in functions}, functions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    known = modules()
    files, functions = entered()
    record = {
        "files": len(known),
        "lines": sum(map(lines_of, known.values())),
        "files_entered": len(files),
        "functions_entered": len(functions),
        "lines_of_files_entered": sum(lines_of(Path(file)) for file in files),
        "circles": circles(known),
    }
    print(json.dumps(record, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
