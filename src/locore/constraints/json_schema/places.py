"""What stands at a place of the values of a schema: may there be anything, and what could be there instead?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from locore.automata.pushdown import NEVER
from locore.constraints.base import And, Constraint, Or
from locore.constraints.json_schema import JsonSchema
from locore.constraints.json_schema.arrays import plan_of as plan_of_array
from locore.constraints.json_schema.facts import Goal, Valid
from locore.constraints.json_schema.properties import plan_of
from locore.constraints.json_schema.reader import Schema
from locore.constraints.json_schema.values import Goals, Reading

Steps = tuple[str, ...]  # of a JSON pointer
Places = Callable[[Steps], list[str] | None]  # None: something may be there; or the names at the first step that leads nowhere


def places_of(constraint: Constraint) -> Places | None:
    """Where the texts of a constraint may have a value; None where no JSON schema says so."""
    return partial(_answer, constraint) if _is_known(constraint) else None


def _is_known(constraint: Constraint) -> bool:
    """Of `&` one schema is enough, of `|` all alternatives need one."""
    if isinstance(constraint, And | Or):
        known = map(_is_known, constraint.of)
        return any(known) if isinstance(constraint, And) else all(known)
    return isinstance(constraint, JsonSchema)


def _answer(constraint: Constraint, steps: Steps) -> list[str] | None:
    if isinstance(constraint, And | Or):
        answers = [_answer(part, steps) for part in constraint.of if _is_known(part)]
        refused = [names for names in answers if names is not None]
        if isinstance(constraint, And):
            return refused[0] if refused else None
        return [name for names in refused for name in names] if len(refused) == len(answers) else None
    assert isinstance(constraint, JsonSchema)
    return _missing(constraint.read, steps)


def _missing(schema: Schema, steps: Steps) -> list[str] | None:
    reading = schema.reading_of(schema.style)
    places: list[Goals] = [(Goal(Valid(schema.document.root)),)]
    for depth, step in enumerate(steps):
        names: dict[str, None] = {}
        places = [found for goals in places for found in _inside(reading, goals, step, names, schema.depth - depth)]
        if not places:
            return list(names)
    return None


def _inside(reading: Reading, goals: Goals, step: str, names: dict[str, None], depth: int) -> list[Goals]:
    """What the values of a property or an item have to meet; fills in which names there are."""
    found: list[Goals] = []
    for shape in reading.shapes.of(goals) if depth > 0 else ():
        if "object" in shape.kinds:
            plan = plan_of(reading, shape.of("object"))
            names |= {name: None for number, name in enumerate(plan.listed) if plan.available[number]}
            if step in plan.number:
                found += [plan.goals[plan.number[step]]] * plan.available[plan.number[step]]
            else:
                scanners = ((label, plan.scanner(frozenset({label}))) for label in plan.labels)
                found += [plan.goals_by(label) for label, scanner in scanners if scanner is None or scanner.accepts(step)]
        if "array" in shape.kinds and step.isdecimal():
            items = plan_of_array(reading, shape.of("array"))
            if items.most is None or int(step) < items.most:
                found.append(items.goals(int(step)))
    return [one for one in dict.fromkeys(found) if reading.value(one, depth - 1, 0).cost != NEVER]
