"""Many prompts from a file, on one machine or many: `locore batch`.

`run` writes results that do not depend on order, engine, placement or interruptions; `Settings` says what they do depend on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from locore.batch.driver import run
    from locore.batch.engines import Engine
    from locore.batch.settings import Settings

__all__ = ["Engine", "Settings", "run"]

_HOME = {"Engine": "engines", "run": "driver", "Settings": "settings"}


def __getattr__(name: str) -> Any:
    # Torch takes a second to import; the shell reads the settings without it.
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(f"locore.batch.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
