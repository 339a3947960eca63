"""How often statistical laws are tried: a third of the runs in `make test`, all of them in `make test-slow`.

Fewer runs see smaller faults only; the false-alarm rate of a law is what it says either way.
"""

import os

THOROUGH = bool(os.environ.get("LOCORE_THOROUGH"))


def runs(num: int) -> int:
    """Of a law that is tried `num` times when there is time."""
    return num if THOROUGH else max(num // 3, 40)
