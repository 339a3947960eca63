"""What benches say while they run."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Progress goes to stderr."""
    print(text, file=sys.stderr, flush=True)
