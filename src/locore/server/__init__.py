"""An HTTP server in the manner of OpenAI's, whose answers are distributed as p(text | constraint). Needs the extra `server`.

`locore serve` starts it; `create_app` gives the application for another ASGI server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from locore.server.app import create_app
    from locore.server.run import serve
    from locore.server.settings import Settings

__all__ = ["Settings", "create_app", "serve"]

_HOME = {"create_app": "app", "serve": "run", "Settings": "settings"}


def __getattr__(name: str) -> Any:
    # The worker is a part of this package too, and needs no web framework.
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(f"locore.server.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
