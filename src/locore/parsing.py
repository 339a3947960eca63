"""`parse`: a record read out of a text, each of its fields with the probability that the model gives it.

One posterior, that of the JSON texts which the type allows, answers for all: a field's probability is the sum over all values
of the others, and over all spellings and tokenisations of its own. Nothing is asked twice.

**What is known of a field.** The share of the weight whose texts have the value estimates its probability, with a standard
error from blocks and from what was drawn among on the way. Beside it stand certain bounds: the texts found have known
probabilities, and no more than the upper bound of p(α) is left for all others; where too few prefixes were read to show an
error, they are all that is said. Where every text has the same value no spread shows an error; then the share of p(α) that was
found is the lower end of the interval, and half of what was not found is counted against the value. A probability of 1 is said
of enumerated laws only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from locore.answering import BAD
from locore.constraints import Constraint, json_schema
from locore.evidence import Particles
from locore.evidence.fields import parsed, pointer_of, steps_of
from locore.generate import OF_EACH, generate, generate_many
from locore.kernel.chat import Prompt
from locore.kernel.constraints.constraint import conjunction
from locore.kernel.errors import InvalidArgument, LocoreError
from locore.kernel.evidence.bounds import is_out_of_sight
from locore.kernel.evidence.shares import FieldValue
from locore.kernel.models.validation import positive
from locore.kernel.plugins import cached_property
from locore.kernel.request import require_known
from locore.models import LanguageModel

MAX_NEW_TOKENS = 64
SAMPLER = "swor"
PREFIXES = 32  # that are read at a position: what three masked texts cost on a processor
NORMAL = 1.96  # standard errors on either side of a 95 % interval
WIDEST = 0.5  # of an interval: what is known less well is called unknown
HARDLY = math.log(1e-6)  # p(α) below which a model does not write such records by itself
STYLES = tuple(name for name in signature(json_schema).parameters if name != "schema")


@dataclass(frozen=True)
class Field:
    """What is known of one field.

    Attributes:
        pointer: where it stands, a JSON pointer; "" is the whole record.
        value: the most probable one, as `json.loads` gives it; None where the field is probably missing, or nothing is known.
        probability: of the value given the text and the type; None where it is not known well enough.
        interval: a 95 % interval of it, within certain bounds.
        present: is the field there, most probably?
        alternatives: the other values that were found, most probable first.
    """

    pointer: str
    value: Any
    probability: float | None
    interval: tuple[float, float]
    present: bool
    alternatives: tuple[FieldValue, ...]

    def __str__(self) -> str:
        """In words: `/amount: 3, 0.93 (0.90 to 0.97)`."""
        value = repr(self.value) if self.present else "missing"
        if self.probability is None:
            return f"{self.pointer}: unknown, perhaps {value}"
        return f"{self.pointer}: {value}, {self.probability:.3g} ({self.interval[0]:.3g} to {self.interval[1]:.3g})"


class Fields(Mapping[str, Field]):
    """The fields of a record by their JSON pointers; the slash in front may be left out: `fields["address/city"]`.

    Those that are listed are all single values outside lists, and lists as wholes. Any other pointer can be asked for, such as
    "items/0/price", or "address" for a whole object.
    """

    def __init__(self, particles: Particles) -> None:
        """Of texts that are JSON."""
        self._particles = particles
        self._fields: dict[str, Field] = {}

    @cached_property
    def _pointers(self) -> list[str]:
        pointers: dict[str, None] = {}
        for value in parsed(list(self._particles.posterior())):  # the most probable text says the order
            pointers.update(dict.fromkeys(_units(value)))
        return [pointer for pointer in pointers if not any(other.startswith(f"{pointer}/") for other in pointers)]

    def __getitem__(self, pointer: str) -> Field:
        """What is known of a field.

        Raises:
            InvalidArgument: no text can have a value there; with the names that are there.
        """
        whole = pointer if not pointer or pointer.startswith("/") else f"/{pointer}"
        if whole not in self._fields:
            self._fields[whole] = _field(self._particles, whole)
        return self._fields[whole]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pointers)

    def __len__(self) -> int:
        return len(self._pointers)

    def __contains__(self, pointer: object) -> bool:
        return isinstance(pointer, str) and (pointer in self._pointers or f"/{pointer}" in self._pointers)


@dataclass(frozen=True, eq=False)
class Answer:
    """A record with what is known of it.

    Attributes:
        particles: the weighted texts that all of this is read from.
        kind: the type, or None where a schema was given and records are plain values.
        abstain_below: fields that are less probable are left out of `kept`; None: none are.
    """

    particles: Particles
    kind: Any = None
    abstain_below: float | None = None

    @cached_property
    def fields(self) -> Fields:
        """What is known of each field."""
        return Fields(self.particles)

    @cached_property
    def value(self) -> Any:
        """The most probable record as a whole, validated: an object of the type."""
        return parsed([self.particles.best], self.kind)[0]

    @property
    def probability(self) -> float | None:
        """Of that record as a whole, all its spellings together; None where it is not known well enough."""
        return self.fields[""].probability

    @cached_property
    def fieldwise(self) -> Any:
        """The record of the values that are most probable each by itself, as plain JSON; it may be valid for no type."""
        return _record({pointer: field.value for pointer, field in self.fields.items() if field.present})

    @property
    def left_out(self) -> tuple[str, ...]:
        """The pointers of fields that are not known, or less probable than `abstain_below`."""
        if self.abstain_below is None:
            return ()
        return tuple(field.pointer for field in self.fields.values() if (field.probability or 0.0) < self.abstain_below)

    @property
    def kept(self) -> Any:
        """As `fieldwise`, without the fields that are left out."""
        out = self.left_out
        return _record({name: field.value for name, field in self.fields.items() if field.present and name not in out})

    @property
    def note(self) -> str:
        """Why fields are unknown, and what to do; "" where all are known."""
        if all(field.probability is not None for field in self.fields.values()):
            return ""
        written = self.particles.log_evidence
        if not written <= HARDLY:  # it may be unknown, too
            return (
                "A field is unknown where its interval is too wide or the run is not to be trusted; a larger budget tells more."
            )
        return (
            f"The probability that this model writes such a record by itself is some 1e{written / math.log(10):.0f}, so little "
            "is known of its fields. Ask for JSON in the prompt, show an example there, or take a model that writes JSON."
        )

    def report(self) -> str:
        """All fields in words, the verdict on the run, and why fields are unknown."""
        lines = [f"{field}{' (left out)' if field.pointer in self.left_out else ''}" for field in self.fields.values()]
        return "\n".join([*lines, f"verdict: {self.particles.verdict.level}", *filter(None, [self.note])])

    def to_json(self) -> dict[str, Any]:
        """As plain values: the record, its probability, fields by pointer, and what was left out."""
        fields = {name: asdict(field) for name, field in self.fields.items()}
        return {
            "value": parsed([self.particles.best])[0],
            "probability": self.probability,
            "fields": fields,
            "kept": self.kept,
            "left_out": list(self.left_out),
            "verdict": self.particles.verdict.level,
            "note": self.note,
        }


def parse(
    model: LanguageModel | str | Path,
    prompt: Prompt,
    kind: Any,
    max_new_tokens: int = MAX_NEW_TOKENS,
    *,
    also: Constraint | None = None,
    abstain_below: float | None = None,
    **options: Any,
) -> Answer:
    """Read a record out of a text: the prompt says what to extract, the type what comes back.

    Args:
        model: see `locore.generate`.
        prompt: a text or a chat that asks for JSON.
        kind: a pydantic model, a dataclass, a TypedDict, any other type that pydantic knows; or a JSON schema.
        max_new_tokens: the longest record.
        also: a constraint that the JSON text satisfies, too.
        abstain_below: leave fields out of `kept` whose probability is smaller, such as .8.
        options: styles of `locore.json_schema` (`whitespace`, …), and any others of `locore.generate`, such as `seed`. By
            default the budget is what about three masked texts cost.

    Raises:
        InvalidArgument: an unknown option, or a level that is no probability.
        InvalidConstraint, UnsupportedKeyword, Unsatisfiable, BudgetExceeded: as `locore.json_schema` and `locore.generate`.
    """
    reading = _Reading.of("parse", kind, max_new_tokens, also, abstain_below, options)
    return reading.answer(generate(model, prompt, reading.constraint, max_new_tokens, **reading.options))


def parse_many(
    model: LanguageModel | str | Path,
    prompts: Sequence[Prompt],
    kind: Any,
    max_new_tokens: int = MAX_NEW_TOKENS,
    *,
    also: Constraint | None = None,
    abstain_below: float | None = None,
    **options: Any,
) -> list[Answer | LocoreError]:
    """As `parse`, of many texts that are read together, as `locore.generate_many` reads them.

    Args:
        model: see `parse`.
        prompts: any number of them.
        kind: see `parse`.
        max_new_tokens: see `parse`.
        also: see `parse`.
        abstain_below: see `parse`.
        options: those of `parse` and `locore.generate_many`. With errors="return" an error stands in place of its answer.

    Raises:
        LocoreError: as `parse`; unless errors are returned.
    """
    reading = _Reading.of("parse_many", kind, max_new_tokens, also, abstain_below, options, ("together", "errors"))
    drawn: list[Any] = generate_many(model, prompts, reading.constraint, max_new_tokens, **reading.options)
    return [particles if isinstance(particles, LocoreError) else reading.answer(particles) for particles in drawn]


@dataclass(frozen=True, eq=False)
class _Reading:
    """What texts are asked for, and what is made of them."""

    kind: Any
    constraint: Constraint
    level: float | None
    options: dict[str, Any]

    @classmethod
    def of(
        cls,
        where: str,
        kind: Any,
        length: int,
        also: Constraint | None,
        level: Any,
        options: dict[str, Any],
        more: Sequence[str] = (),
    ) -> _Reading:
        """By the arguments of `parse`."""
        names = [name for name in signature(generate).parameters if name not in OF_EACH]
        require_known(options, [*names, *STYLES, *more], where)
        styled = json_schema(kind, **{name: value for name, value in options.items() if name in STYLES})
        rest = {name: value for name, value in options.items() if name not in STYLES}
        rest["sampler"], rest["budget"] = suited(length, *(rest.get(name) for name in ("sampler", "budget", "temperature")))
        typed = None if isinstance(kind, Mapping | bool) else kind
        return cls(typed, styled if also is None else conjunction([styled, also]), checked_level(level), rest)

    def answer(self, particles: Particles) -> Answer:
        """Of texts of this constraint."""
        return Answer(particles, self.kind, self.level)


def suited(length: Any, sampler: Any, budget: Any, temperature: float | None = None) -> tuple[Any, Any]:
    """The sampler and the budget that read records of at most so many tokens, in Python, shell, batches and servers alike.

    Where none is named "swor" draws: it knows what every prefix left, and so weighs fields early.
    """
    spent = PREFIXES * max(1, positive(length, "max_new_tokens") - 1) if budget is None else budget
    return (SAMPLER if sampler is None and temperature != 0 else sampler), spent


def checked_level(level: Any) -> float | None:
    """A level of `abstain_below`.

    Raises:
        InvalidArgument: it is no probability.
    """
    if level is None:
        return None
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level <= 1:
        raise InvalidArgument(f"abstain_below must be a probability above 0 and at most 1, such as 0.8; got {level!r}.")
    return float(level)


def _field(particles: Particles, pointer: str) -> Field:
    best, *others = particles.marginal(pointer)
    low, high = best.bounds
    probability = best.probability
    if best.error is not None:
        ends = probability - NORMAL * best.error, probability + NORMAL * best.error
        low, high = (min(max(end, low), high) for end in ends)
    elif not others:
        low = max(low, min(high, _share_found(particles)))
        probability = (low + high) / 2
    is_known = particles.verdict.level not in BAD and high - low <= WIDEST and not is_out_of_sight(particles)
    shown = min(max(probability, low), high) if is_known else None
    return Field(pointer, best.value, shown, (low, high), best.present, tuple(others))


def _share_found(particles: Particles) -> float:
    """The least share of p(α) that the texts found have, by the interval of the evidence."""
    most = particles.log_evidence_interval[1]
    return math.exp(min(0.0, particles.log_evidence_bounds[0] - most)) if math.isfinite(most) else 0.0


def _units(value: Any, steps: tuple[str, ...] = ()) -> Iterator[str]:
    """The pointers of single values outside lists, and of lists as wholes."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _units(inner, (*steps, name))
    else:
        yield pointer_of(steps)


def _record(values: Mapping[str, Any]) -> Any:
    """The JSON value whose parts at some pointers are these."""
    if "" in values:
        return values[""]
    record: dict[str, Any] = {}
    for pointer, value in values.items():
        inner = record
        *before, last = steps_of(pointer)
        for name in before:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return record
