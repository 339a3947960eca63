"""Constraints in words, for messages: close to how they are written in Python, and never long."""

from __future__ import annotations

import json
from typing import Any

from locore.kernel.constraints.constraint import Constraint, Json, Not, Several

SHOWN = 5  # items of a list
WIDTH = 72  # characters of a leaf
QUOTED = 40  # characters of a quotation
LEVELS = 3
PARTS = ("of", "marker")  # fields that hold a constraint


def spelled(constraint: Constraint, levels: int = LEVELS) -> str:
    """A constraint, such as `(ban(["hate"]) and not word_count(hi=3))`; what does not fit is left out."""
    if isinstance(constraint, Several):
        word = " and " if constraint.neutral else " or "
        shown = [spelled(part, levels - 1) for part in constraint.of[:SHOWN]] if levels else []
        more = len(constraint.of) - len(shown)
        return f"({word.join([*shown, f'{more} more'] if more else shown)})"
    if isinstance(constraint, Not):
        return f"not {spelled(constraint.of, levels)}"
    return constraint.title or cut(called(constraint.json_of([])), WIDTH)


def called(form: Json) -> str:
    """A JSON form as the call of a function, such as `ban(["hate", "awful"], words=True)`; long lists are cut short."""
    if form["type"] in ("and", "or"):
        between = f" {form['type']} "
        return f"({between.join(map(called, form['of']))})"
    if form["type"] == "not":
        return f"not {called(form['of'])}"
    if form["type"] == "over":
        return f"{called(form['of'])}.over({_written(form['what'])})"
    arguments: list[str] = []
    for name, value in form.items():
        if name in PARTS and isinstance(value, dict):
            arguments.append(called(value))
        elif name == "holes":
            arguments += [f"{hole}={called(part)}" for hole, part in value.items()]
        elif name != "type":
            unnamed = not arguments and isinstance(value, str | list | dict)  # what to look for needs no name
            arguments.append(_written(value) if unnamed else f"{name}={_written(value)}")
    return f"{form['type']}({', '.join(arguments)})"


def _written(value: Any) -> str:
    if isinstance(value, list):
        more = f", … {len(value) - SHOWN} more" if len(value) > SHOWN else ""
        return f"[{', '.join(map(_written, value[:SHOWN]))}{more}]"
    if isinstance(value, dict) and value.get("type") == "pattern":
        return called(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | dict) else repr(value)


def cut(text: str, most: int) -> str:
    """At most so many characters; of a longer text the last one is "…"."""
    return text if len(text) <= most else text[: most - 1] + "…"


def quoted(text: str) -> str:
    """A text in quotes with line breaks and the like escaped; long ones are shortened."""
    return json.dumps(cut(text, QUOTED), ensure_ascii=False)


def allowed(low: int, high: int | None) -> str:
    """Bounds in words."""
    if high is None:
        return f"at least {low}"
    if low in (0, high):
        return f"{'exactly' if low == high else 'at most'} {high}"
    return f"between {low} and {high}"


def with_exactly(form: dict[str, Any], at_least: int, at_most: int | None) -> dict[str, Any]:
    """The JSON of a leaf with these bounds, in which `exactly` stands for two equal ones, behind what is counted."""
    if at_least != at_most:
        return form
    kind, sought, *options = [(name, value) for name, value in form.items() if name not in ("at_least", "at_most")]
    return dict([kind, sought, ("exactly", at_least), *options])
