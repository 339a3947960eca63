"""Locore: sampling from language models under constraints, from the right distribution.

import locore
from locore import ban, contains

model = locore.load("tiny")
p = locore.generate(model, "The weather is", ban(["awful"]) & contains(" sun"), max_new_tokens=20)
print(p.report())
"""

import ast
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from locore.kernel import errors, plugins  # noqa: F401

__version__ = "0.2.0"

plugins.announce(plugins.CONSTRAINTS, "locore.puzzles")
plugins.announce(plugins.COMPILERS, "locore.puzzles.sdd.diagrams")
plugins.announce(plugins.COMPILERS, "locore.compilers.on_demand")
plugins.announce(plugins.NODES, "locore.circuits.layers")
plugins.announce(plugins.PICTURES, "locore.constraints.pictures")
plugins.announce(plugins.PICTURES, "locore.circuits.draw")
plugins.announce(plugins.EVIDENCE, "locore.evidence.judging")
plugins.announce(plugins.EVIDENCE, "locore.evidence.fields")
plugins.announce(plugins.TOKENIZERS, "locore.models.codec")

# The public names, written once, in the stub that type checkers read: each with the module it is imported from.
_HOME = {
    alias.name: str(node.module)
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text()).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
_CLASSES = "AllDifferent AllEqual Combinatorial DigitSum HowMany Permutation Sudoku TokenSum"  # of puzzles, as the rest
plugins.RENAMED.update({f"locore.constraints.{name}": f"locore.puzzles.combinatorial.{name}" for name in _CLASSES.split()})
plugins.RENAMED.update({f"locore.constraints.{name}": f"locore.puzzles.paths.{name}" for name in ("SimpleMoves", "SimplePath")})
plugins.RENAMED.update({f"locore.constraints.{name}": f"locore.{name}" for name, home in _HOME.items() if "puzzles." in home})
plugins.RENAMED["locore.samplers.GreedyMasking"] = "locore.samplers.Masking"
__all__ = sorted(name for name, home in _HOME.items() if home != __name__ or name in ("errors", "samplers"))


def __getattr__(name: str) -> Any:
    # Torch takes a second to import; nothing is loaded before it is used.
    if _HOME.get(name) == __name__:
        return import_module(f"{__name__}.{name}")
    if name in _HOME:
        home = import_module(_HOME[name])
        globals().update({other: getattr(home, other) for other, where in _HOME.items() if where == _HOME[name]})
        return globals()[name]
    raise AttributeError(f"module 'locore' has no attribute {name!r}")


class _Package(ModuleType):
    """This package. Importing `locore.generate` would bind the name to the module, and another thread might call that."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and _HOME.get(name) == value.__name__:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
