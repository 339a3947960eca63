"""How often laws are tried: statistical ones with a fifth of the runs in `make test`, the dear ones on every second case only,
others with two fifths of the examples; all of it in `make test-slow`.

Fewer runs see larger faults only; the false-alarm rate of a law is what it says either way.
"""

import os
from collections.abc import Iterable
from typing import Any

import pytest

THOROUGH = bool(os.environ.get("LOCORE_THOROUGH"))


def runs(num: int) -> int:
    """Of a law that is tried `num` times when there is time."""
    return num if THOROUGH else max(num // 5, 40)


def examples(num: int) -> int:
    """For Hypothesis, which tries as many when there is time."""
    return num if THOROUGH else max(num * 2 // 5, 12)


def some(cases: Iterable[Any]) -> list[Any]:
    """For `parametrize`: every second case waits for `make test-slow`."""
    return [case if number % 2 == 0 else pytest.param(case, marks=pytest.mark.slow) for number, case in enumerate(cases)]
