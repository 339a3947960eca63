"""Ready patterns: `ban(patterns.email)`, `count(patterns.emoji, at_most=1)`.

Each is from a standard; `locore.constraints.ready` says which. There are `email`, `url`, `phone`, `iban`, `date`,
`emoji`, and the scripts of Unicode: `cyrillic`, `han`, `latin`, ….
"""

from __future__ import annotations

from locore.constraints import Pattern, pattern
from locore.constraints.ready import READY

email: Pattern = pattern(name="email")
url: Pattern = pattern(name="url")
phone: Pattern = pattern(name="phone")
iban: Pattern = pattern(name="iban")
date: Pattern = pattern(name="date")
emoji: Pattern = pattern(name="emoji")

__all__ = ["date", "email", "emoji", "iban", "phone", "url"]


def __getattr__(name: str) -> Pattern:
    """A script."""
    if name in READY:
        return pattern(name=name)
    raise AttributeError(f"there is no ready pattern {name!r}; there are {', '.join(READY)}")


def __dir__() -> list[str]:
    return sorted(READY)
