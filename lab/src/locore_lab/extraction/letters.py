"""Short business letters, all fictitious, with the records that a careful reader takes from them.

Most are made from templates, in which other numbers and other people stand beside those that are asked for; the others were
written by hand.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

NAMES = (
    *("Anna Weber", "John Miller", "Carla Novak", "Peter Chen", "Maria Lopez", "Tom Baker", "Julia Stone", "Omar Haddad"),
    *("Lena Fischer", "David Okafor", "Sara Lind", "Paul Martin", "Nina Rossi", "Mark Evans", "Ivy Zhang", "Hugo Silva"),
)
ITEMS = ("lamps", "chairs", "desks", "mirrors", "shelves", "vases", "clocks", "rugs", "tables", "curtains")
VAGUE = {2: ("a pair of", "two"), 3: ("three",), 6: ("half a dozen", "six"), 12: ("a dozen", "twelve"), 24: ("two dozen",)}
URGENT = (
    "We need them tomorrow.",
    "Please hurry, it is urgent.",
    "This cannot wait.",
    "The sooner the better, we open on Monday.",
)
CALM = ("There is no hurry.", "Take your time.", "Any day next month is fine.", "We are in no rush.")
# {name} buys {amount} {items}; {other} is somebody else, {number} and {price} count nothing that is ordered.
TEMPLATES = (
    "Hello, this is {name}. I would like to order {amount} {items}. {pace}",
    "Dear {other}, please send {amount} {items} to our office at {number} Mill Road. {pace} Best wishes, {name}",
    "Order {number}: {amount} {items} at {price} dollars each. {pace} Yours, {name}",
    "{other} told me that you sell {items}. Could I have {amount}? {pace} Regards, {name}",
    "My name is {name} and I bought {number} {items} last year. Now I need {amount} more. {pace}",
    "Hi {other}! {name} speaking. Put me down for {amount} {items}, please. {pace} My budget is {price} dollars.",
    "Invoice to {name}, delivery to {other}: {amount} {items}, room {number}. {pace}",
    "Thanks for the quote of {price} dollars. We take {amount} of the {items}. {pace} {name}, purchasing",
    "We first wanted {number} {items}, but {amount} will do. {pace} Signed, {name}",
    "Please cancel the {other_items} and send {amount} {items} instead. {pace} {name}",
)


@dataclass(frozen=True)
class Letter:
    """A text and its record."""

    text: str
    record: Mapping[str, Any]


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "customer": {"type": "string", "pattern": "^[A-Z][A-Za-z]{1,11}( [A-Z][A-Za-z]{1,11}){0,2}$"},
        "amount": {"type": "integer", "minimum": 1, "maximum": 999},
        "urgent": {"type": "boolean"},
    },
    "required": ["customer", "amount", "urgent"],
    "additionalProperties": False,
}
EXAMPLE = Letter(
    "Hello Ms Gray, we would like 15 benches for the park at 9 High Street. It is not urgent. Kind regards, Robert Hill",
    {"customer": "Robert Hill", "amount": 15, "urgent": False},
)
TASK = "Read the letter and write who orders, how many pieces, and whether it is urgent, as JSON."


def chat(text: str) -> list[dict[str, str]]:
    """What a model is asked, with one example."""
    return [
        {"role": "user", "content": f"{TASK}\n\n{EXAMPLE.text}"},
        {"role": "assistant", "content": json.dumps(EXAMPLE.record)},
        {"role": "user", "content": f"{TASK}\n\n{text}"},
    ]


def written() -> list[Letter]:
    """Those that were written by hand."""
    lines = files("locore_lab.extraction").joinpath("letters.jsonl").read_text(encoding="utf-8").splitlines()
    return [Letter(**json.loads(line)) for line in lines]


def letters(number: int, seed: int = 0) -> list[Letter]:
    """So many, of which those that were written by hand are a part, in any order."""
    rng, by_hand = random.Random(f"letters/{seed}"), written()
    whole = by_hand + [_made(rng) for _ in range(max(0, number - len(by_hand)))]
    rng.shuffle(whole)
    return whole[:number]


def _made(rng: random.Random) -> Letter:
    name, other = rng.sample(NAMES, 2)
    items, other_items = rng.sample(ITEMS, 2)
    amount, urgent = rng.choice([*VAGUE, *range(4, 60)]), rng.random() < 0.5
    said = rng.choice(VAGUE[amount]) if amount in VAGUE and rng.random() < 0.7 else str(amount)
    pace = rng.choice(URGENT if urgent else CALM)
    numbers = {"number": rng.randrange(2, 400), "price": rng.randrange(20, 900)}
    facts = {"name": name, "other": other, "items": items, "other_items": other_items, "amount": said, "pace": pace, **numbers}
    text = rng.choice(TEMPLATES).format(**facts)
    return Letter(text, {"customer": name, "amount": amount, "urgent": urgent})
