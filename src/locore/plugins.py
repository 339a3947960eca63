"""Modules that add something when they are imported: parts of Locore, and what other distributions have.

Who stands below does not know who stands above: `locore` itself says which of its parts there are, and another distribution
says so with an entry point, such as

    [project.entry-points."locore.constraints"]
    mine = "my_package.my_constraints"
"""

from __future__ import annotations

from importlib import import_module

CONSTRAINTS = "locore.constraints"  # modules that register types of constraints
_waiting: dict[str, list[str]] = {}


def announce(group: str, module: str) -> None:
    """Have a module imported as soon as anything of this group is looked for."""
    _waiting.setdefault(group, []).append(module)


def load(group: str) -> None:
    """Import what was announced, and what other distributions have; once."""
    own = _waiting.get(group)
    if own is None or own:
        from importlib.metadata import entry_points  # takes longer than all that `import locore` does

        _waiting[group] = []
        for module in own or ():
            import_module(module)
        for point in entry_points(group=group):
            point.load()
