"""Orders, the sentences that people write for them, and Bayes' posterior of an order given its sentence.

A sentence is a greeting and clauses, one for each field that is mentioned, in any order. Each clause says which field it is
about, but not always its value: "a few" may be three, four or five, "J. Miller" is Jane or John, digits of order numbers are
misread. Where the writer is from cannot be seen, though the greeting tells something: "3/4" is the third of April or the
fourth of March, "1.250 kg" is one kilogram and a quarter or more than a ton. So fields depend on each other, and the posterior
of all of them is a sum over both origins of products over fields.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Any

Origin = str  # of the writer
ORIGINS: dict[Origin, float] = {"US": 0.5, "EU": 0.5}
GREETINGS: dict[Origin, dict[str, float]] = {
    "US": {"Hi there": 0.5, "Hello": 0.3, "Good day": 0.1, "Dear all": 0.1},
    "EU": {"Hi there": 0.15, "Hello": 0.3, "Good day": 0.3, "Dear all": 0.25},
}
ABSENT = None  # the value of a field that is not in the record
Value = Any  # as `json.loads` gives it; lists are tuples here
Chances = Mapping[Value, float]


class Slot(ABC):
    """A field of an order.

    Attributes:
        name: its key.
        schema: a JSON Schema of its values.
        optional: may it be missing in a record?
    """

    name: str
    schema: Mapping[str, Any]
    optional = False

    @abstractmethod
    def draw(self, rng: random.Random) -> Value:
        """A value by the prior."""

    @abstractmethod
    def say(self, value: Value, origin: Origin, rng: random.Random) -> str:
        """A clause for it; "" says nothing."""

    @abstractmethod
    def explain(self, clause: str, origin: Origin) -> dict[Value, float]:
        """P(value, clause | origin) of all values that it may mean."""


class Table(Slot):
    """A field of few values, each with the clauses that are said for it."""

    def __init__(
        self,
        name: str,
        schema: Mapping[str, Any],
        values: Mapping[Value, tuple[float, Mapping[str, Any]]],
        optional: bool = False,
    ) -> None:
        """By value: its prior, and how probable each clause is, from anybody or by origin."""
        self.name, self.schema, self.optional = name, schema, optional
        total = sum(prior for prior, _ in values.values())
        self._prior = {value: prior / total for value, (prior, _) in values.items()}
        self._said = {
            (value, origin): _shares(clauses.get(origin, clauses))
            for value, (_, clauses) in values.items()
            for origin in ORIGINS
        }
        self._explained: dict[tuple[str, Origin], dict[Value, float]] = {}
        for (value, origin), clauses in self._said.items():
            for clause, chance in clauses.items():
                self._explained.setdefault((clause, origin), {})[value] = self._prior[value] * chance

    def draw(self, rng: random.Random) -> Value:
        """By the prior."""
        return _drawn(self._prior, rng)

    def say(self, value: Value, origin: Origin, rng: random.Random) -> str:
        """By the table."""
        return str(_drawn(self._said[value, origin], rng))

    def clauses(self, origin: Origin) -> Iterator[dict[Value, float]]:
        """P(value, clause | origin) of each clause."""
        return (chances for (_, whose), chances in self._explained.items() if whose == origin)

    def explain(self, clause: str, origin: Origin) -> dict[Value, float]:
        """By the table, turned round."""
        return self._explained.get((clause, origin), {})


class OrderNumber(Slot):
    """Four digits, each of which may be misread as one that looks like it."""

    name, schema = "order", MappingProxyType({"type": "string", "pattern": "^[0-9]{4}$"})
    partner = MappingProxyType(dict(zip("3817560924", "8371659042", strict=True)))
    misread = 0.06

    def draw(self, rng: random.Random) -> Value:
        """All are equally probable."""
        return f"{rng.randrange(10_000):04}"

    def say(self, value: Value, origin: Origin, rng: random.Random) -> str:
        """As it is read."""
        read = (self.partner[digit] if rng.random() < self.misread else digit for digit in value)
        return f"order no. {''.join(read)}"

    def explain(self, clause: str, origin: Origin) -> dict[Value, float]:
        """Each digit by itself."""
        digits = [{digit: 1 - self.misread, self.partner[digit]: self.misread} for digit in clause[-4:]]
        whole = product(*(one.items() for one in digits))
        return {"".join(d for d, _ in each): 1e-4 * _product(p for _, p in each) for each in whole}


def _product(numbers: Iterator[float]) -> float:
    result = 1.0
    for number in numbers:
        result *= number
    return result


def _shares(chances: Mapping[Any, float]) -> dict[Any, float]:
    total = sum(chances.values())
    return {key: chance / total for key, chance in chances.items()}


def _drawn(chances: Mapping[Any, float], rng: random.Random) -> Any:
    return rng.choices(list(chances), list(chances.values()))[0]


def _item() -> Table:
    words = {
        "chair": (3, {"chair": 0.7, "seat": 0.3}),
        "sofa": (2, {"sofa": 0.5, "couch": 0.2, "seat": 0.3}),
        "lamp": (3, {"lamp": 0.7, "light": 0.3}),
        "candle": (1, {"candle": 0.6, "light": 0.4}),
        "desk": (2, {"desk": 0.6, "table": 0.4}),
        "shelf": (2, {"shelf": 0.6, "rack": 0.4}),
        "hook": (1, {"hook": 0.7, "rack": 0.3}),
        "mirror": (1, {"mirror": 0.8, "glass": 0.2}),
        "vase": (1, {"vase": 0.5, "glass": 0.5}),
    }
    values = {item: (prior, {f"item: {word}": p for word, p in said.items()}) for item, (prior, said) in words.items()}
    return Table("item", {"enum": list(words)}, values)


def _amount() -> Table:
    vague = {
        2: {"a couple": 0.4},
        3: {"a couple": 0.1, "a few": 0.4},
        4: {"a few": 0.3, "several": 0.2},
        5: {"a few": 0.15, "several": 0.4},
        6: {"half a dozen": 0.4, "several": 0.2},
        7: {"several": 0.4},
        12: {"a dozen": 0.5},
    }
    values = {}
    for number in range(1, 13):
        said = vague.get(number, {})
        clear = {f"{number} of them": 1 - sum(said.values())}
        values[number] = (3 if number < 4 else 1, clear | {f"{word} of them": p for word, p in said.items()})
    return Table("amount", {"type": "integer", "minimum": 1, "maximum": 12}, values)


MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _date() -> Table:
    values = {}
    for month, day in product(range(1, 13), range(1, 29)):
        numbers, name = {"US": f"{month}/{day}", "EU": f"{day}/{month}"}, MONTHS[month - 1]
        names = {"US": f"{name} {day}", "EU": f"{day} {name}"}
        said = {origin: {f"by {numbers[origin]}": 0.6, f"by {names[origin]}": 0.4} for origin in ORIGINS}
        values[f"{month:02}-{day:02}"] = (1, said)
    return Table("date", {"type": "string", "pattern": "^(0[1-9]|1[0-2])-[0-3][0-9]$"}, values)


def _weight() -> Table:
    values: dict[Value, tuple[float, Any]] = {}
    for whole, rest in product(range(1, 10), (125, 250, 375, 500, 750)):
        marks = {"US": (",", "."), "EU": (".", ",")}
        values[whole * 1000 + rest] = (1, {o: {f"{whole}{marks[o][0]}{rest} kg": 1} for o in ORIGINS})
        values[whole + rest / 1000] = (1, {o: {f"{whole}{marks[o][1]}{rest} kg": 1} for o in ORIGINS})
    return Table("weight", {"type": "number", "exclusiveMinimum": 0, "maximum": 9999}, values)


FIRST = {"Jane": 3, "John": 2, "Julia": 1, "Mary": 2, "Mark": 2, "Anna": 1, "Adam": 1, "Peter": 2}
LAST = ("Miller", "Smith", "Lopez", "Novak", "Chen", "Weber")


def _customer() -> Table:
    values = {}
    for (first, prior), last in product(FIRST.items(), LAST):
        said = {f"for {first} {last}": 0.5, f"for {first[0]}. {last}": 0.4, f"for the {last} family": 0.1}
        values[first, last] = (prior, said)
    names = {"first": {"enum": list(FIRST)}, "last": {"enum": list(LAST)}}
    schema = {"type": "object", "properties": names, "required": list(names), "additionalProperties": False}
    return Table("customer", schema, values)


def _express() -> Table:
    values = {
        True: (3, {"as soon as you can": 0.5, "soon please": 0.4, "": 0.1}),
        False: (2, {"no hurry": 0.6, "soon please": 0.2, "": 0.2}),
        ABSENT: (4, {"soon please": 0.1, "": 0.9}),
    }
    return Table("express", {"type": "boolean"}, values, optional=True)


COLOURS = ("red", "blue", "green", "black", "white")


def _colours() -> Table:
    values: dict[Value, tuple[float, Any]] = {}
    for one in COLOURS:
        maybe = {f"in {one}, maybe {other}": 0.1 for other in COLOURS if other != one}
        values[(one,)] = (4, {f"in {one}": 0.6} | maybe)
        for other in COLOURS:
            if other != one:
                values[one, other] = (1, {f"in {one} and {other}": 0.7, f"in {one}, maybe {other}": 0.3})
    items = {"type": "array", "items": {"enum": list(COLOURS)}, "minItems": 1, "maxItems": 2}
    return Table("colours", items, values)


SLOTS: dict[str, Slot] = {
    slot.name: slot for slot in (_item(), _amount(), _date(), _weight(), OrderNumber(), _customer(), _express(), _colours())
}


@dataclass(frozen=True)
class Order:
    """An order, what was said of it, and which fields are asked for.

    Attributes:
        values: of the fields that may be spoken of; `ABSENT` where a field is missing.
        greeting: how the sentence begins.
        clauses: what was said, by field, in the order of the sentence; "" for nothing.
        asked: the fields of the record that is wanted.
    """

    values: Mapping[str, Value]
    greeting: str
    clauses: Mapping[str, str]
    asked: tuple[str, ...]

    @classmethod
    def drawn(cls, rng: random.Random, asked: Sequence[str] | None = None) -> Order:
        """By the prior; by default one to four fields are asked for, and up to two others spoken of."""
        if asked is None:
            asked = rng.sample(sorted(SLOTS), rng.choice((1, 2, 2, 3, 3, 4)))
        others = [name for name in SLOTS if name not in asked]
        spoken = [*asked, *rng.sample(others, min(len(others), rng.choice((0, 1, 2))))]
        rng.shuffle(spoken)
        origin = _drawn(ORIGINS, rng)
        values = {name: SLOTS[name].draw(rng) for name in spoken}
        clauses = {name: SLOTS[name].say(values[name], origin, rng) for name in spoken}
        return cls(values, _drawn(GREETINGS[origin], rng), clauses, tuple(asked))

    @property
    def sentence(self) -> str:
        """What was written."""
        return f"{self.greeting}, {', '.join(clause for clause in self.clauses.values() if clause) or 'an order'}."

    @property
    def prompt(self) -> str:
        """The sentence and the names of the fields that are asked for."""
        return f"{self.sentence}\n{', '.join(self.asked)}\n"

    @property
    def record(self) -> dict[str, Value]:
        """The true one, as `json.loads` gives it."""
        return record({name: self.values[name] for name in self.asked})

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the records that are asked for."""
        return schema(self.asked)

    def posterior(self) -> dict[tuple[Value, ...], float]:
        """P(values of the fields asked for | sentence), by Bayes' theorem."""
        joint: dict[tuple[Value, ...], float] = {}
        for origin, prior in ORIGINS.items():
            explained = {name: SLOTS[name].explain(clause, origin) for name, clause in self.clauses.items()}
            weight = prior * GREETINGS[origin].get(self.greeting, 0.0)
            for name, values in explained.items():
                weight *= 1.0 if name in self.asked else sum(values.values())
            for combination in product(*(explained[name].items() for name in self.asked)):
                key = tuple(value for value, _ in combination)
                joint[key] = joint.get(key, 0.0) + weight * _product(p for _, p in combination)
        return _shares({key: chance for key, chance in joint.items() if chance > 0})


def record(values: Mapping[str, Value]) -> dict[str, Value]:
    """An order as JSON has it: without what is absent; names are objects."""
    plain: dict[str, Value] = {}
    for name, value in values.items():
        if name == "customer":
            plain[name] = dict(zip(("first", "last"), value, strict=True))
        elif value is not ABSENT:
            plain[name] = list(value) if isinstance(value, tuple) else value
    return plain


def schema(asked: Sequence[str]) -> dict[str, Any]:
    """JSON Schema of records with these fields."""
    return {
        "type": "object",
        "properties": {name: dict(SLOTS[name].schema) for name in asked},
        "required": [name for name in asked if not SLOTS[name].optional],
        "additionalProperties": False,
    }
