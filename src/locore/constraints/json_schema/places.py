"""What stands at a place of the values of a schema: may there be anything, and what could be there instead?"""

from __future__ import annotations

from locore.automata.pushdown import NEVER
from locore.constraints.json_schema.arrays import Plan as ArrayPlan
from locore.constraints.json_schema.facts import Goal, Valid
from locore.constraints.json_schema.properties import Plan as ObjectPlan
from locore.constraints.json_schema.reader import Schema
from locore.constraints.json_schema.value_symbols import Goals, Reading


def missing(schema: Schema, steps: tuple[str, ...]) -> list[str] | None:
    """The names at the first step of a JSON pointer that leads nowhere; None where something may be."""
    reading = schema.reading_of(schema.style)
    places: list[Goals] = [(Goal(Valid(schema.document.root)),)]
    for depth, step in enumerate(steps):
        names: dict[str, None] = {}
        places = [inner for goals in places for inner in _inside(reading, goals, step, names, schema.depth - depth)]
        if not places:
            return list(names)
    return None


def _inside(reading: Reading, goals: Goals, step: str, names: dict[str, None], depth: int) -> list[Goals]:
    """What the values of a property or an item have to meet; fills in which names there are."""
    demands: list[Goals] = []
    for shape in reading.shapes.of(goals) if depth > 0 else ():
        if "object" in shape.kinds:
            plan = reading.plan(ObjectPlan, shape.of("object"))
            names |= {name: None for number, name in enumerate(plan.listed) if plan.available[number]}
            if step in plan.number:
                demands += [plan.goals[plan.number[step]]] * plan.available[plan.number[step]]
            else:
                scanners = ((label, plan.scanner(frozenset({label}))) for label in plan.labels)
                demands += [plan.goals_by(label) for label, scanner in scanners if scanner is None or scanner.accepts(step)]
        if "array" in shape.kinds and step.isdecimal():
            items = reading.plan(ArrayPlan, shape.of("array"))
            if items.most is None or int(step) < items.most:
                demands.append(items.goals(int(step)))
    return [demand for demand in dict.fromkeys(demands) if reading.value(demand, depth - 1, 0).cost != NEVER]
