"""The options of `generate`, and what they may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from locore.circuits import Circuit
from locore.constraints import Constraint
from locore.errors import InvalidArgument, InvalidConstraint
from locore.models import LanguageModel

Stop = Literal["eos", "complete"]
Canonical = Literal["alpha", "only"]
MOST_TOKENS = 2**32  # of all particles together


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
    if stop not in (None, "eos", "complete"):
        raise InvalidArgument(f"stop must be 'eos' or 'complete', or None for 'complete' where that is possible, got {stop!r}.")
    for name, value in numbers.items():
        if value is None and name in ("budget", "seed"):
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidArgument(f"{name} must be a whole number, got {value!r}.")
        low, high = (0 if name in ("seed", "min_new_tokens") else 1), 2**63 - 1
        if not low <= value <= high:
            raise InvalidArgument(f"{name} must be at least {low} and below 2**63, got {value}.")
    _check_room(numbers["num_particles"], numbers["max_new_tokens"])


def stop_of(asked: Stop | None, circuit: Circuit, model: LanguageModel) -> Stop:
    """What was asked for; by default "complete" if the model has an end and the circuit is read from left to right."""
    if asked is not None:
        return asked
    return "complete" if circuit.reader is not None and model.tokenizer.eos_ids else "eos"


def _check_room(num_particles: Any, max_new_tokens: Any) -> None:
    """Better refused than begun: a token of a particle takes an id and a score, of 8 bytes each."""
    tokens = num_particles * max_new_tokens
    if tokens > MOST_TOKENS:
        raise InvalidArgument(
            f"num_particles={num_particles} with max_new_tokens={max_new_tokens} would take "
            f"{tokens * 16 / 1e9:,.0f} GB at the end; ask for fewer, and call again with another "
            "seed for more."
        )
