"""Which property tells the schemas of a union apart: one whose values are named in each of them, and in no two the same.

So `oneOf` need not be written out in all combinations of what keeps the others from being valid.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from locore.constraints.json_schema.documents import Node, is_number
from locore.constraints.json_schema.facts import Formula, Member, Union, Valid, fraction, one_of

if TYPE_CHECKING:
    from locore.constraints.json_schema.rules import Rules

Values = dict[tuple[str, object], Any]  # scalars of JSON, by what makes them equal


def tagged(rules: Rules, node: Node, nodes: list[Node], just_one: bool) -> Union | None:
    """The union of these schemas of a schema; None if no property tells them apart."""
    by_schema = [tags(rules, schema) for schema in nodes]
    named = node.content.get("discriminator")
    named = named.get("propertyName") if isinstance(named, dict) else None
    common = [name for name in by_schema[0] if all(name in each for each in by_schema)] if nodes else []
    for name in sorted(common, key=lambda name: name != named):
        if len(nodes) == 1 and name != named:
            continue
        values = [each[name] for each in by_schema]
        if len(reduce(lambda left, right: left | right, values)) == sum(map(len, values)):
            met: tuple[Formula, ...] = tuple(one_of(list(each.values())) for each in values)
            return Union(tuple(map(Valid, nodes)), just_one, name, met, name == named)
    return None


def tags(rules: Rules, node: Node, above: tuple[Node, ...] = ()) -> dict[str, Values]:
    """The properties whose values a schema names, with these values."""
    if isinstance(node.content, bool) or node in above:
        return {}
    parts, above = rules.parts(node), (*above, node)
    by_name: dict[str, Values] = {}
    for fact in parts.own:
        if isinstance(fact, Member) and fact.names.name is not None and isinstance(fact.goal.formula, Valid):
            values = _values(rules, fact.goal.formula.node)
            if values is not None:
                by_name[fact.names.name] = values
    more = [tags(rules, schema, above) for schema in parts.every]
    for _, nodes in parts.unions:
        each = [tags(rules, schema, above) for schema in nodes] or [{}]
        common = [name for name in each[0] if all(name in named for named in each)]
        more.append({name: reduce(lambda left, right: left | right, (named[name] for named in each)) for name in common})
    for other in more:
        for name, values in other.items():
            before = by_name.get(name, values)
            by_name[name] = {key: value for key, value in values.items() if key in before}
    return by_name


def _values(rules: Rules, node: Node, above: tuple[Node, ...] = ()) -> Values | None:
    """The scalars that a schema names, where it names all that are valid for it."""
    if isinstance(node.content, bool) or node in above:
        return None
    parts, above = rules.parts(node), (*above, node)
    if not ("$ref" in node and node.draft <= 7):
        for keyword in ("const", "enum"):
            if keyword in node and rules.counts(node, keyword):
                named = [node.content[keyword]] if keyword == "const" else node.content[keyword]
                return None if any(isinstance(atom, list | dict) for atom in named) else {_key(atom): atom for atom in named}
    for _, nodes in parts.unions:
        each = [_values(rules, schema, above) for schema in nodes]
        if all(values is not None for values in each):
            return {key: value for values in each if values is not None for key, value in values.items()}
    return next((values for schema in parts.every if (values := _values(rules, schema, above)) is not None), None)


def _key(value: Any) -> tuple[str, object]:
    return ("number", fraction(value)) if is_number(value) else (type(value).__name__, value)
