"""From constraints to circuits."""

from locore.compilers.compile import compile

__all__ = ["compile"]
