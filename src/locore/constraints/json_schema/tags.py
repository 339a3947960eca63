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
    known = [tags(rules, one) for one in nodes]
    named = node.content.get("discriminator")
    named = named.get("propertyName") if isinstance(named, dict) else None
    common = [name for name in known[0] if all(name in each for each in known)] if nodes else []
    for name in sorted(common, key=lambda name: name != named):
        if len(nodes) == 1 and name != named:
            continue
        values = [each[name] for each in known]
        if len(reduce(lambda left, right: left | right, values)) == sum(map(len, values)):
            met: tuple[Formula, ...] = tuple(one_of(list(each.values())) for each in values)
            return Union(tuple(map(Valid, nodes)), just_one, name, met, name == named)
    return None


def tags(rules: Rules, node: Node, above: tuple[Node, ...] = ()) -> dict[str, Values]:
    """The properties whose values a schema names, with these values."""
    if isinstance(node.content, bool) or node in above:
        return {}
    parts, above = rules.parts(node), (*above, node)
    found: dict[str, Values] = {}
    for fact in parts.own:
        if isinstance(fact, Member) and fact.names.name is not None and isinstance(fact.goal.formula, Valid):
            values = _values(rules, fact.goal.formula.node)
            if values is not None:
                found[fact.names.name] = values
    more = [tags(rules, one, above) for one in parts.every]
    for _, nodes in parts.unions:
        each = [tags(rules, one, above) for one in nodes] or [{}]
        common = [name for name in each[0] if all(name in one for one in each)]
        more.append({name: reduce(lambda left, right: left | right, (one[name] for one in each)) for name in common})
    for other in more:
        for name, values in other.items():
            before = found.get(name, values)
            found[name] = {key: value for key, value in values.items() if key in before}
    return found


def _values(rules: Rules, node: Node, above: tuple[Node, ...] = ()) -> Values | None:
    """The scalars that a schema names, where it names all that are valid for it."""
    if isinstance(node.content, bool) or node in above:
        return None
    parts, above = rules.parts(node), (*above, node)
    if not ("$ref" in node and node.draft <= 7):
        for keyword in ("const", "enum"):
            if keyword in node and rules.counts(node, keyword):
                named = [node.content[keyword]] if keyword == "const" else node.content[keyword]
                return None if any(isinstance(one, list | dict) for one in named) else {_key(one): one for one in named}
    for _, nodes in parts.unions:
        each = [_values(rules, one, above) for one in nodes]
        if all(one is not None for one in each):
            return {key: value for one in each if one is not None for key, value in one.items()}
    return next((found for one in parts.every if (found := _values(rules, one, above)) is not None), None)


def _key(value: Any) -> tuple[str, object]:
    return ("number", fraction(value)) if is_number(value) else (type(value).__name__, value)
