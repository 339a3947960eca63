"""What weighted texts say as JSON: the objects that they are, and the distribution of one of their fields.

A field's value is compared as a value, so that all its spellings and all tokenisations count together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor

from locore.evidence.settled import settled_shares
from locore.kernel.errors import InvalidArgument, MissingExtra
from locore.kernel.evidence.particles import Particles
from locore.kernel.evidence.record import Draws
from locore.kernel.evidence.shares import FieldValue, shares_with_errors
from locore.kernel.evidence.verdict import Level
from locore.kernel.lists import largest_first
from locore.kernel.numerics import distinct
from locore.kernel.tokenizer import Tokenizer

SAID = 8  # names in a message


def parsed(texts: Sequence[str], model: Any = None) -> list[Any]:
    """Each text as JSON; with a model as an object of it, validated by pydantic.

    Raises:
        InvalidArgument: a text is no JSON, or not valid for the model.
        MissingExtra: there is a model, and pydantic is not installed.
    """
    adapter = None if model is None else type_adapter(model)
    objects = []
    for text in texts:
        try:
            objects.append(json.loads(text) if adapter is None else adapter.validate_json(text))
        except ValueError as error:
            what = "JSON" if adapter is None else f"valid for {getattr(model, '__name__', model)}"
            raise InvalidArgument(f"parsed: the text {text[:80]!r} is not {what}: {error}") from error
    return objects


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


@dataclass(frozen=True)
class Fields:
    """What is known of the values that texts may be.

    Attributes:
        places: of the steps of a pointer: None where something may be there, else the names at the first step that leads
            nowhere; no function where that is not known.
        verdict: on the particles.
        tokenizer: that spells them; None if it is not to be known where values were settled.
    """

    places: Callable[[tuple[str, ...]], list[str] | None] | None
    verdict: Level
    tokenizer: Tokenizer | None = None


def marginal(draws: Draws, everything: list[Any], weights: Tensor, pointer: str, fields: Fields) -> list[FieldValue]:
    """The distribution of what stands at a JSON pointer (RFC 6901) of the values that texts are, most probable first.

    Raises:
        InvalidArgument: no pointer, or one to where no text can have a value.
    """
    steps = steps_of(pointer)
    _require_place(steps, pointer, everything, fields)
    rows: dict[str, list[int]] = {}
    values: dict[str, tuple[Any, bool]] = {}
    for row, value in enumerate(everything):
        present, part = _at(value, steps)
        key = _key(present, part)
        rows.setdefault(key, []).append(row)
        values.setdefault(key, (part, present))
    result, found_shares, early = [], _shares_found(draws), _early(draws, fields, steps)
    for key, (inside, error) in zip(rows, shares_with_errors(draws, list(rows.values())), strict=True):
        value, present = values[key]
        own, others = (min(1.0, float(found_shares[some].sum())) for some in (inside, ~inside))
        estimate = float(weights[inside].sum()) if early is None else early.pop(key, (0.0, value))[0]
        bounds = own, max(own, 1 - others)  # which differ by rounding where nothing is left
        result.append(FieldValue(value, min(max(estimate, own), bounds[1]), error, present, fields.verdict, bounds))
    for key, (share, value) in (early or {}).items():  # all texts with it were dropped on the way
        room = max(0.0, 1 - float(found_shares.sum()))
        result.append(FieldValue(value, min(share, room), None, bool(key), fields.verdict, (0.0, room)))
    return largest_first(result, lambda field: field.probability)


def _early(draws: Draws, fields: Fields, steps: tuple[str, ...]) -> dict[str, tuple[float, Any]] | None:
    """Probabilities of values by their keys, from where they were settled; None where that is not known."""
    shares = None if fields.tokenizer is None else settled_shares(draws, fields.tokenizer, steps)
    if shares is None:
        return None
    merged: dict[str, tuple[float, Any]] = {}
    for (present, value), share in shares:
        key = _key(present, value)
        merged[key] = (merged.get(key, (0.0, value))[0] + share, value)
    return merged


def _key(present: bool, value: Any) -> str:
    """The same for all spellings of a value."""
    return json.dumps(_normal(value), sort_keys=True) if present else ""


def steps_of(pointer: str) -> tuple[str, ...]:
    """The names along a JSON pointer."""
    if pointer and not pointer.startswith("/"):
        raise InvalidArgument(f'marginal needs a JSON pointer such as "/name" or "/items/0/price", got {pointer!r}.')
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])


def pointer_of(steps: Sequence[str]) -> str:
    """The JSON pointer of some names."""
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def _require_place(steps: tuple[str, ...], pointer: str, everything: list[Any], fields: Fields) -> None:
    """`InvalidArgument` where no text can have a value, or (where that is not known) none has and a similar name is there."""
    if any(_at(value, steps)[0] for value in everything):
        return
    for place, step in enumerate(steps):
        before = steps[:place]
        names = _seen(everything, before, step) if fields.places is None else fields.places((*before, step))
        if names is None:
            continue
        near = get_close_matches(step, names, 1)
        if near:
            meant = pointer_of((*before, *near, *steps[place + 1 :]))
            raise InvalidArgument(f"marginal: no text has a value at {pointer!r}; did you mean {meant!r}?")
        if fields.places is not None:
            listed = f"; there are {', '.join(pointer_of((*before, name)) for name in names[:SAID])}" if names else ""
            raise InvalidArgument(f"marginal: no text can have a value at {pointer!r}{listed}.")
        return


def _seen(everything: list[Any], before: tuple[str, ...], step: str) -> list[str] | None:
    """The names beside a step that leads nowhere in all values."""
    if any(_at(value, (*before, step))[0] for value in everything):
        return None
    inside = [part for value in everything for there, part in (_at(value, before),) if there]
    return list(dict.fromkeys(name for part in inside if isinstance(part, dict) for name in part))


def _at(value: Any, steps: Sequence[str]) -> tuple[bool, Any]:
    """Is there something, and what?"""
    for name in steps:
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


def _shares_found(draws: Draws) -> Tensor:
    """f64[num]: of what p(α) may be at most, the share that each sequence has, counted once; 0 where that is not known."""
    shares, most = torch.zeros(len(draws), dtype=torch.float64), draws.log_evidence_bounds[1]
    if draws.token_scores is not None and draws.record.factors is None:
        first = distinct(draws.tokens)[0]
        shares[first] = (draws.token_scores[first].sum(-1) - most).exp()
    return shares


def field_at(particles: Particles, pointer: str) -> list[FieldValue]:
    """See `Particles.marginal`."""
    fields = Fields(particles.places, particles.verdict.level, particles.tokenizer)
    # Fewer particles may have been asked for than texts were found, and of those that are left no error is known.
    every = particles.every
    return marginal(every, every.plain, every.weights, pointer, fields)


Particles.read_json = staticmethod(parsed)
Particles.field_at = field_at
