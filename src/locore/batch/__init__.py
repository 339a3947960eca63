"""Many prompts from a file, on one machine or many: `locore batch`.

`run` writes results that do not depend on order, engine, placement or interruptions; `Settings` says what they do depend on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locore.kernel.plugins import lazy_names

if TYPE_CHECKING:
    from locore.batch.batch_settings import Settings
    from locore.batch.driver import Summary, run
    from locore.batch.engine import Engine

__all__ = ["Engine", "Settings", "Summary", "run"]

# Torch takes a second to import; the shell reads the settings without it.
__getattr__ = lazy_names(__name__, {"Engine": ".engine", "run": ".driver", "Settings": ".batch_settings", "Summary": ".driver"})
