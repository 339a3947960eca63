"""How often laws are tried in `make test`: statistical ones with a fifteenth of the runs, others with a twelfth of the
examples, the dear ones on some of the cases only; `make test-slow` has all of it.

Fewer runs see larger faults only; the false-alarm rate of a law is what it says either way.
"""

import os
from collections.abc import Iterable
from typing import Any

import pytest

THOROUGH = bool(os.environ.get("LOCORE_THOROUGH"))


def runs(num: int) -> int:
    """Of a law that is tried `num` times when there is time."""
    return num if THOROUGH else min(num, max(num // 15, 40))


def examples(num: int) -> int:
    """For Hypothesis, which tries as many when there is time."""
    return num if THOROUGH else min(num, max(num // 12, 8))


def some(cases: Iterable[Any], every: int = 3, several: bool = False) -> list[Any]:
    """For `parametrize`: the first of every three cases, or of so many, is tried; the others wait for `make test-slow`.

    Args:
        several: a case is a tuple of arguments.
    """
    given = [case if several else (case,) for case in cases]
    return [pytest.param(*each, marks=[pytest.mark.slow] * (number % every > 0)) for number, each in enumerate(given)]
