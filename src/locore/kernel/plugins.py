"""What is made when it is first used: names of a package, modules that add something, also of other distributions; properties.

Who stands below does not know who stands above: `locore` itself says which of its parts there are, and another distribution
says so with an entry point, such as

    [project.entry-points."locore.constraints"]
    mine = "my_package.my_constraints"
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801
        """That of `functools` without its lock, with which all objects of a class wait while one computes."""

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            return self if instance is None else instance.__dict__.setdefault(self.attrname, self.func(instance))


CONSTRAINTS = "locore.constraints"  # modules that register types of constraints
COMPILERS = "locore.compilers"  # modules that register ways to compile
NODES = "locore.nodes"  # modules that write the nodes of a reading down
PICTURES = "locore.pictures"  # modules that register with `picture_of`
EVIDENCE = "locore.evidence"  # modules that judge particles, and read them as JSON
TOKENIZERS = "locore.tokenizers"  # modules that know tokenizers of others
RENAMED: dict[str, str] = {}  # by the whole name that something public had, the one that it has
_waiting: dict[str, list[str]] = {}
_said: set[str] = set()
_loading = RLock()


def announce(group: str, module: str) -> None:
    """Have a module imported as soon as anything of this group is looked for."""
    _waiting.setdefault(group, []).append(module)


def load(group: str) -> None:
    """Import what was announced, and what other distributions have; once."""
    with _loading:  # another thread has to wait until all is registered
        own = _waiting.get(group)
        if own is None or own:
            from importlib.metadata import entry_points  # takes longer than all that `import locore` does

            _waiting[group] = []
            try:
                for module in own or ():
                    import_module(module)
                for point in entry_points(group=group):
                    point.load()
            except BaseException:  # whoever asks next is not to miss what failed
                if again := [*(own or ()), *_waiting.pop(group)]:
                    _waiting[group] = again
                raise


def renamed(old: str, new: str) -> None:
    """Say, once for each name in a process, that something has another name now; the line is that of whoever called Locore."""
    if old not in _said:
        _said.add(old)
        frame = sys._getframe(1)
        while frame.f_back and str(frame.f_globals.get("__name__")).split(".")[0] in ("locore", "importlib"):
            frame = frame.f_back
        module, line = str(frame.f_globals.get("__name__")), frame.f_lineno
        said = f"{old} is {new} since Locore 0.2.0; the old name still works."
        warnings.warn_explicit(said, DeprecationWarning, frame.f_code.co_filename, line, module)


def lazy_names(package: str, home: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package.

    Args:
        package: its name.
        home: the module that defines each public name, named as seen from the package: ".auto".
    """

    def get(name: str) -> Any:
        if name in home:
            return getattr(import_module(home[name], package), name)
        old = f"{package}.{name}"
        if old in RENAMED:
            renamed(old, RENAMED[old])
            module, _, name = RENAMED[old].rpartition(".")
            return getattr(import_module(module), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get


class Drawable(Protocol):
    """A picture."""

    def dot(self) -> str:
        """In Graphviz's language."""

    def svg(self) -> str:
        """For notebooks."""


@functools.singledispatch
def picture_of(value: object, *options: Any) -> Drawable | None:
    """The picture of a value, by what knows how to draw its kind; None where there is none, or it would be too large."""
    return None


class Pictured:
    """What notebooks show as a picture, where a module has registered how it is drawn."""

    def picture(self, *options: Any) -> Drawable | None:
        """With the options of whoever draws it."""
        load(PICTURES)
        return picture_of(self, *options)

    def _repr_svg_(self) -> str | None:
        """For notebooks, which show its name where there is no picture."""
        drawn = self.picture()
        return None if drawn is None else drawn.svg()
