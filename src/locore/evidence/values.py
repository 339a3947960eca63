"""What weighted texts say as JSON: the objects that they are, and the distribution of one of their fields.

A field's value is compared as a value, so that all its spellings and all tokenisations count together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from locore.errors import InvalidArgument, MissingExtra
from locore.evidence.record import Draws


@dataclass(frozen=True)
class FieldValue:
    """One value of a field.

    Attributes:
        value: as `json.loads` gives it; None where the field is missing.
        probability: of this value given α.
        error: standard error of the probability; nan where it is not known.
        present: is the field there?
    """

    value: Any
    probability: float
    error: float
    present: bool = True


def parsed(texts: Sequence[str], model: Any = None) -> list[Any]:
    """Each text as JSON; with a model as an object of it, validated by pydantic.

    Raises:
        InvalidArgument: a text is no JSON, or not valid for the model.
        MissingExtra: there is a model, and pydantic is not installed.
    """
    adapter = None if model is None else type_adapter(model)
    found = []
    for text in texts:
        try:
            found.append(json.loads(text) if adapter is None else adapter.validate_json(text))
        except ValueError as error:
            what = "JSON" if adapter is None else f"valid for {getattr(model, '__name__', model)}"
            raise InvalidArgument(f"parsed: the text {text[:80]!r} is not {what}: {error}") from error
    return found


def type_adapter(model: Any) -> Any:
    """Of pydantic: for a model, a dataclass, a TypedDict, or any other type.

    Raises:
        MissingExtra: pydantic is not installed.
        InvalidArgument: pydantic knows no schema for it.
    """
    try:
        import pydantic
    except ImportError as error:
        raise MissingExtra("types are read with pydantic; install it with: pip install 'locore[json]'") from error
    try:
        return pydantic.TypeAdapter(model)
    except pydantic.errors.PydanticUserError as error:
        raise InvalidArgument(f"pydantic has no schema for {model!r}: {error}") from error


def marginal(draws: Draws, texts: Sequence[str], weights: Tensor, pointer: str) -> list[FieldValue]:
    """The distribution of what stands at a JSON pointer (RFC 6901), most probable first."""
    rows: dict[str, list[int]] = {}
    values: dict[str, tuple[Any, bool]] = {}
    for row, value in enumerate(parsed(texts)):
        present, found = _at(value, pointer)
        key = json.dumps(_normal(found), sort_keys=True) if present else ""
        rows.setdefault(key, []).append(row)
        values.setdefault(key, (found, present))
    result = []
    for key, members in rows.items():
        inside = torch.zeros(len(texts), dtype=torch.bool)
        inside[members] = True
        value, present = values[key]
        result.append(FieldValue(value, float(weights[inside].sum()), _error(draws, inside), present))
    return sorted(result, key=lambda one: -one.probability)


def _at(value: Any, pointer: str) -> tuple[bool, Any]:
    """Is there something, and what?"""
    if pointer and not pointer.startswith("/"):
        raise InvalidArgument(f'marginal needs a JSON pointer such as "/name" or "/items/0/price", got {pointer!r}.')
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return False, None
    return True, value


def _normal(value: Any) -> Any:
    if isinstance(value, list):
        return [_normal(item) for item in value]
    if isinstance(value, dict):
        return {name: _normal(item) for name, item in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _error(draws: Draws, inside: Tensor) -> float:
    """Of the share of weight inside, a ratio of two means, by the delta method: over blocks, or over independent weights.

    With u_b the weight inside of block b and w_b its whole weight, r = Σu / Σw has variance B/(B−1) · Σ(u_b − r·w_b)² / (Σw)².
    """
    blocks = draws.blocks
    if blocks is not None:
        part = blocks.where(inside) if draws.record.resampled_from is None else None
        if part is None:
            return math.nan
        logs = torch.tensor([blocks.log_evidence, part.log_evidence], dtype=torch.float64)
        whole, held = (logs - logs.max()).exp()
    elif draws.record.independent:
        # Zeros were drawn, too, and count as draws of weight 0.
        whole = (draws.log_weights - draws.log_weights.max()).exp()
        held = whole * inside
    else:
        return math.nan
    number = len(whole) if blocks is not None else max(draws.drawn, len(whole))
    if number < 2:
        return math.nan
    ratio = held.sum() / whole.sum()
    return float((held - ratio * whole).square().sum().mul(number / (number - 1)).sqrt() / whole.sum())
