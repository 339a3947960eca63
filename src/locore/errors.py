"""See `locore.kernel.errors`."""

from locore.kernel.errors import *  # noqa: F403
