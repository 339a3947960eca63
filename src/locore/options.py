"""The options of `generate`, and what they may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from locore.constraints import Constraint
from locore.errors import InvalidArgument, InvalidConstraint

Stop = Literal["eos", "complete"]
Canonical = Literal["alpha", "only"]


def check_options(constraint: object, canonical: object, stop: object, numbers: Mapping[str, object]) -> None:
    """Are these options that `locore.generate` takes? Numbers go by their names there.

    Raises:
        InvalidArgument, InvalidConstraint: one is of the wrong kind or out of range.
    """
    if not isinstance(constraint, Constraint):
        raise InvalidConstraint(
            f"generate needs a constraint, got {type(constraint).__name__}; use ban, contains, ends_with or choice, decorate a "
            "Boolean function with @constraint, or read JSON with locore.from_json."
        )
    if canonical not in (None, "alpha", "only"):
        raise InvalidArgument(f"canonical must be None, 'alpha' or 'only', got {canonical!r}.")
    if stop not in ("eos", "complete"):
        raise InvalidArgument(f"stop must be 'eos' or 'complete', got {stop!r}.")
    for name, value in numbers.items():
        if value is None and name in ("budget", "seed"):
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidArgument(f"{name} must be a whole number, got {value!r}.")
        low, high = (0 if name in ("seed", "min_new_tokens") else 1), 2**63 - 1
        if not low <= value <= high:
            raise InvalidArgument(f"{name} must be at least {low} and below 2**63, got {value}.")
