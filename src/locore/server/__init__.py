"""An HTTP server in the manner of OpenAI's, whose answers are distributed as p(text | constraint). Needs the extra `server`.

`locore serve` starts it; `create_app` gives the application for another ASGI server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locore.kernel.plugins import lazy_names

if TYPE_CHECKING:
    from locore.server.app import create_app
    from locore.server.run import serve
    from locore.server.settings import Settings

__all__ = ["Settings", "create_app", "serve"]

# The worker is a part of this package too, and needs no web framework.
__getattr__ = lazy_names(__name__, {"create_app": ".app", "serve": ".run", "Settings": ".settings"})
