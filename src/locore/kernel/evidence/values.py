"""What weighted texts say as JSON: the objects that they are, and the distribution of one of their fields.

A field's value is compared as a value, so that all its spellings and all tokenisations count together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor

from locore.kernel.errors import InvalidArgument, MissingExtra
from locore.kernel.evidence.blocks import Blocks
from locore.kernel.evidence.record import Draws
from locore.kernel.evidence.settled import settled_shares
from locore.kernel.evidence.verdict import Level
from locore.kernel.numerics import distinct
from locore.kernel.tokenizer import Tokenizer

SAID = 8  # names in a message
SHOWS = 16.0  # prefixes at a position that show an error
AT_ONCE = 1 << 20  # values times particles


@dataclass(frozen=True)
class FieldValue:
    """One value of a field.

    Attributes:
        value: as `json.loads` gives it; None where the field is missing.
        probability: of this value given α.
        error: standard error of the probability; None where it is not known, as where all draws have the same value.
        present: is the field there?
        verdict: on the particles that say so: no probability is better than they are.
        bounds: what the probability lies between for certain, by the texts found and what is left for all others.
    """

    value: Any
    probability: float
    error: float | None
    present: bool = True
    verdict: Level = "not judged"
    bounds: tuple[float, float] = (0.0, 1.0)

    def __str__(self) -> str:
        """In words: `'Paris': 0.93 ± 0.02; rough`."""
        value = repr(self.value) if self.present else "missing"
        error = "error unknown" if self.error is None else f"± {self.error:.2g}"
        return f"{value}: {self.probability:.3g}{',' if self.error is None else ''} {error}; {self.verdict}"


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
        present, found = _at(value, steps)
        key = _key(present, found)
        rows.setdefault(key, []).append(row)
        values.setdefault(key, (found, present))
    result, found_shares, early = [], _shares_found(draws), _early(draws, fields, steps)
    for key, (inside, error) in zip(rows, _with_errors(draws, list(rows.values())), strict=True):
        value, present = values[key]
        own, others = (min(1.0, float(found_shares[some].sum())) for some in (inside, ~inside))
        known = float(weights[inside].sum()) if early is None else early.pop(key, (0.0, value))[0]
        bounds = own, max(own, 1 - others)  # which differ by rounding where nothing is left
        result.append(FieldValue(value, min(max(known, own), bounds[1]), error, present, fields.verdict, bounds))
    for key, (share, value) in (early or {}).items():  # all texts with it were dropped on the way
        room = max(0.0, 1 - float(found_shares.sum()))
        result.append(FieldValue(value, min(share, room), None, bool(key), fields.verdict, (0.0, room)))
    return sorted(result, key=lambda one: -one.probability)


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


class Posterior(dict[str, float]):
    """Texts and their probabilities, the most probable first; printed, each with its standard error.

    An error says how far this run's own blocks or weights disagree; the verdict says what none of them may have seen.
    """

    def __init__(self, draws: Draws, probabilities: dict[str, float], rows: dict[str, list[int]]) -> None:
        """Of these probabilities, and the rows of the draws that spell each text."""
        super().__init__(probabilities)
        self._draws, self._rows = draws, rows

    def error(self, text: str) -> float | None:
        """Standard error of the probability of a text, by blocks where there are such; None where none is known."""
        return next(_with_errors(self._draws, [self._rows[text]]))[1]

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{text!r}: {self._shown(text)}" for text in self) + "}"

    def _shown(self, text: str) -> str:
        error = self.error(text)
        return f"{self[text]:.4g}" if not error else f"{self[text]:.3g} ± {error:.2g}"


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
    inside = [found for value in everything for there, found in (_at(value, before),) if there]
    return list(dict.fromkeys(name for found in inside if isinstance(found, dict) for name in found))


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


def _with_errors(draws: Draws, rows: list[list[int]]) -> Iterator[tuple[Tensor, float | None]]:
    """Bool[num] for each, and the error of its share; None where unknown, or where it is all: no spread is not no error."""
    is_exact, most = draws.record.enumerated and draws.record.guarantee == "proper", max(1, AT_ONCE // len(draws))
    for some in (rows[start : start + most] for start in range(0, len(rows), most)):
        inside = torch.zeros(len(some), len(draws), dtype=torch.bool)
        for each, members in zip(inside, some, strict=True):
            each[members] = True
        errors = torch.zeros(len(some)) if is_exact else torch.where(inside.all(1), math.nan, _ratio_errors(draws, inside))
        for each, error in zip(inside, errors.tolist(), strict=True):
            yield each, None if math.isnan(error) else error


def _shares_found(draws: Draws) -> Tensor:
    """f64[num]: of what p(α) may be at most, the share that each sequence has, counted once; 0 where that is not known."""
    shares, most = torch.zeros(len(draws), dtype=torch.float64), draws.log_evidence_bounds[1]
    if draws.token_scores is not None and draws.record.factors is None:
        first = distinct(draws.tokens)[0]
        shares[first] = (draws.token_scores[first].sum(-1) - most).exp()
    return shares


def _ratio_errors(draws: Draws, inside: Tensor) -> Tensor:
    """f64[values], of ratios of two means by the delta method, for Bool[values, num]: over blocks, or independent weights.

    With u_b the weight inside of block b and w_b its whole weight, r = Σu / Σw has variance B/(B−1) · Σ(u_b − r·w_b)² / (Σw)².
    """
    blocks, unknown = draws.blocks, torch.full((len(inside),), math.nan, dtype=torch.float64)
    if blocks is not None:
        if draws.record.resampled_from is not None or blocks.tokens is None or len(blocks.tokens) != len(draws):
            return unknown
        whole = torch.tensor(blocks.log_evidence, dtype=torch.float64)
        whole, held = ((logs - whole.max()).exp() for logs in (whole, blocks.log_evidence_of(inside)))
    elif draws.record.independent:
        # Zeros were drawn, too, and count as draws of weight 0.
        whole = (draws.log_weights - draws.log_weights.max()).exp()
        held = whole * inside
    else:
        return unknown
    number = len(whole) if blocks is not None else max(draws.drawn, len(whole))
    ratio = held.sum(1) / whole.sum()
    thinned = torch.zeros_like(ratio) if blocks is None else _thinned(blocks, inside, ratio)
    spread = (held - ratio[:, None] * whole).square().sum(1).mul(number / max(1, number - 1)).sqrt() / whole.sum()
    return torch.maximum(thinned, spread) if number > 1 else torch.where(thinned == 0, unknown, thinned)


def _thinned(blocks: Blocks, inside: Tensor, share: Tensor) -> Tensor:
    """Errors of f64[values] shares by what was drawn among: 0 where nothing was; nan with fewer than `SHOWS` prefixes.

    Draws keep the sum of all weights, so what one part has too much the other lacks: errors of the two do not average out. A
    few draws do not show how they differ: they are at least as far off as if what was drawn had been drawn once.
    """
    drawn = max((one.surprise.drawn for one in blocks.members if one.surprise), default=0.0)
    if not drawn or blocks.width < SHOWS:
        return torch.full_like(share, math.nan if drawn else 0.0)
    once = drawn * (share * (1 - share).clamp_min(0) / blocks.width).sqrt()
    sides = (size * blocks.thinning_of(part) for size, part in ((share, inside), (1 - share, ~inside)))
    return torch.stack([once, *(torch.where(side.isnan(), once, side) for side in sides)]).amax(0)
