"""From the keywords of a JSON schema to formulas over facts, by drafts 4 to 2020-12.

Every keyword is understood, refused with its place, or a remark: what the standard calls an annotation, or does not know.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from fractions import Fraction

from locore.automata.regex.parse import language_of
from locore.automata.regex.pattern import parse_ecma
from locore.constraints.json_schema.documents import LATEST, Document, Node, is_number
from locore.constraints.json_schema.facts import (
    FALSE,
    TRUE,
    All,
    Bound,
    Distinct,
    EachName,
    Formula,
    Goal,
    Has,
    Holding,
    ItemCount,
    Items,
    Kinds,
    Length,
    Listed,
    Matches,
    Member,
    Multiple,
    Names,
    Negation,
    Size,
    Some,
    Union,
    Valid,
    constant,
    fraction,
    one_of,
)
from locore.constraints.json_schema.formats import FORMATS, REFUSED
from locore.constraints.json_schema.tags import tagged
from locore.kernel.errors import InvalidConstraint

ANNOTATIONS = {
    *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator"),
    *(
        "$schema",
        "$id",
        "id",
        "$anchor",
        "$dynamicAnchor",
        "$recursiveAnchor",
        "$comment",
        "$defs",
        "definitions",
        "$vocabulary",
    ),
    *("contentEncoding", "contentMediaType", "contentSchema", "then", "else"),
}
SINCE = {  # the first draft that knows a keyword
    **dict.fromkeys(("const", "contains", "propertyNames"), 6),
    "if": 7,
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "minContains", "maxContains"), 2019),
    **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties", "$recursiveRef"), 2019),
    **dict.fromkeys(("prefixItems", "$dynamicRef"), 2020),
}
UNTIL = {"dependencies": LATEST, "additionalItems": 2019, "$recursiveRef": 2019}  # the last one
ASSERTING = {
    *("type", "enum", "$ref", "allOf", "anyOf", "oneOf", "not", "format", "minLength", "maxLength", "pattern", "items"),
    *("minItems", "maxItems", "uniqueItems", "properties", "required", "additionalProperties", "patternProperties"),
    *("minProperties", "maxProperties", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *SINCE,
    *UNTIL,
}
FOREIGN = {  # asserted by others than drafts 4 to 2020-12
    "nullable": 'it is a word of OpenAPI; say "type": [..., "null"]',
    "divisibleBy": 'it is a word of draft 3; say "multipleOf"',
    "disallow": 'it is a word of draft 3; say "not"',
    "extends": 'it is a word of draft 3; say "allOf"',
}
KNOWN = ANNOTATIONS | ASSERTING | set(FOREIGN)
SPELLED = {keyword.lower(): keyword for keyword in sorted(ASSERTING | set(FOREIGN))}  # those with which a slip is compared
SIMILAR = 0.85  # of words, from which one is taken for a slip of the other
OF_TYPE: dict[str, frozenset[str]] = {
    **{name: frozenset({name}) for name in ("null", "number", "string", "array", "object")},
    "boolean": frozenset({"true", "false"}),
    "integer": frozenset({"number"}),
}


@dataclass
class Parts:
    """What a schema says.

    Attributes:
        own: of the value itself, by keywords that apply to no other schema in the same place.
        every: schemas that the value has to be valid for (`$ref`, `allOf`).
        unions: lists of schemas, of which one has to be valid, or (True) just one.
        branch: `if`, `then`, `else`; a schema that is always valid where one is missing.
        given: `dependentSchemas`.
        unwanted: `not`.
        names, patterns, all_names: of the properties that keywords here have evaluated.
        items: how many first items have been evaluated, None for all; `held`: and those that meet one of these goals.
    """

    own: list[Formula] = field(default_factory=list)
    every: list[Node] = field(default_factory=list)
    unions: list[tuple[bool, list[Node]]] = field(default_factory=list)
    branch: tuple[Node, Node | None, Node | None] | None = None
    given: dict[str, Node] = field(default_factory=dict)
    unwanted: Node | None = None
    names: set[str] = field(default_factory=set)
    patterns: set[str] = field(default_factory=set)
    all_names: bool = False
    items: int | None = 0
    held: list[Goal] = field(default_factory=list)
    unevaluated_items: Node | None = None
    unevaluated_names: Node | None = None


class Rules:
    """Reads the schemas of a document.

    Attributes:
        remarks: the pointers of keywords that constrain nothing because the draft does not know them.
        nests: can a value be nested without end, as far as the schemas say?
    """

    def __init__(self, document: Document, formats: bool, closed: bool) -> None:
        """Nothing has been read.

        Args:
            formats: is `format` asserted?
            closed: are objects closed that do not say what else they may have?
        """
        self._document = document
        self._formats, self._closed = formats, closed
        self._parts: dict[Node, Parts] = {}
        self._formulas: dict[Node, Formula] = {}
        self._unions: dict[tuple[Node, bool], Union | None] = {}
        self.remarks: list[str] = []

    def formula(self, node: Node) -> Formula:
        """What holds of the values that are valid for a schema, but for `unevaluatedItems` and `unevaluatedProperties`."""
        if node not in self._formulas:
            self._formulas[node] = self._joined(node)
        return self._formulas[node]

    def parts(self, node: Node) -> Parts:
        """What a schema says."""
        if node not in self._parts:
            self._parts[node] = self._read(node)
        return self._parts[node]

    def _joined(self, node: Node) -> Formula:
        if isinstance(node.content, bool):
            return TRUE if node.content else FALSE
        parts = self.parts(node)
        formulas = [*parts.own, *map(Valid, parts.every)]
        for just_one, nodes in parts.unions:
            formulas.append(self.union(node, just_one, nodes) or either([Valid(schema) for schema in nodes], just_one))
        if parts.unwanted is not None:
            formulas.append(Negation(Valid(parts.unwanted)))
        if parts.branch is not None:
            test, then, otherwise = parts.branch
            yes = All((Valid(test), *([] if then is None else [Valid(then)])))
            no = All((Negation(Valid(test)), *([] if otherwise is None else [Valid(otherwise)])))
            formulas.append(Some((yes, no)))
        for name, given in parts.given.items():
            formulas.append(Some((without(name), All((with_(name), Valid(given))))))
        return formulas[0] if len(formulas) == 1 else All(tuple(formulas))

    def union(self, node: Node, just_one: bool, nodes: list[Node]) -> Union | None:
        """A union of a schema whose members a property tells apart; None if there is no such property."""
        key = node, just_one
        if key not in self._unions:
            self._unions[key] = tagged(self, node, nodes, just_one)
        return self._unions[key]

    def _read(self, node: Node) -> Parts:
        parts = Parts()
        if isinstance(node.content, bool):
            return parts
        self._check_words(node)
        if "$ref" in node and node.draft <= 7:  # what stands beside it does not count
            parts.every.append(self._document.follow(node, "$ref"))
            return parts
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if self.counts(node, keyword):
                parts.every.append(self._document.follow(node, keyword))
        self._in_place(node, parts)
        if "type" in node:
            parts.own.append(_typed(node))
        if "const" in node and self.counts(node, "const"):
            parts.own.append(constant(node.content["const"]))
        if "enum" in node:
            if not isinstance(node.content["enum"], list):
                node.wrong("a list", "enum")
            parts.own.append(one_of(node.content["enum"]))
        parts.own += _number_facts(node)
        parts.own += self._string_facts(node)
        self._array_facts(node, parts)
        self._object_facts(node, parts)
        return parts

    def counts(self, node: Node, keyword: str) -> bool:
        """Is the keyword there, and one of the draft?"""
        lenient = self._document.lenient and keyword not in ("$recursiveRef",)
        return keyword in node and (lenient or SINCE.get(keyword, 0) <= node.draft <= UNTIL.get(keyword, LATEST))

    def _check_words(self, node: Node) -> None:
        for keyword in node.content:
            if keyword in FOREIGN:
                node.refuse(FOREIGN[keyword], keyword)
            if keyword in ANNOTATIONS or (self.counts(node, keyword) and keyword in ASSERTING):
                continue
            near = [] if keyword in KNOWN else get_close_matches(keyword.lower(), SPELLED, 1, SIMILAR)
            if near and not keyword.startswith(("_", "x-")):
                node.refuse(f"the standard has no such keyword; is {SPELLED[near[0]]!r} meant?", keyword)
            self.remarks.append(f"{node.pointer}/{keyword}")

    def _in_place(self, node: Node, parts: Parts) -> None:
        if "allOf" in node:
            parts.every += node.schemas("allOf")
        for keyword in ("anyOf", "oneOf"):
            if keyword in node:
                parts.unions.append((keyword == "oneOf", node.schemas(keyword)))
        if "not" in node:
            parts.unwanted = node.schema("not")
        if self.counts(node, "if"):
            then, otherwise = (node.schema(key) if key in node else None for key in ("then", "else"))
            parts.branch = node.schema("if"), then, otherwise
        if self.counts(node, "dependentSchemas"):
            parts.given.update(node.named_schemas("dependentSchemas"))
        if self.counts(node, "dependencies"):
            if not isinstance(node.content["dependencies"], dict):
                node.wrong("an object", "dependencies")
            for name, value in node.content["dependencies"].items():
                if isinstance(value, list):
                    parts.own.append(_requires(name, node.texts("dependencies", name)))
                else:
                    parts.given[name] = node.schema("dependencies", name)

    def _string_facts(self, node: Node) -> Iterable[Formula]:
        least, most = node.count("minLength"), node.count("maxLength")
        if least or most is not None:
            yield Length(least or 0, most)
        if "pattern" in node:
            _check_pattern(node, node.text("pattern"), "pattern")
            yield Matches("pattern", node.text("pattern"))
        if "format" in node and self._formats:
            name = node.text("format")
            if name in REFUSED:
                node.refuse(
                    f"the format {name!r} is none of {', '.join(FORMATS)}; say it by a pattern, or "
                    'formats="annotations" to constrain nothing by formats',
                    "format",
                )
            if name in FORMATS:
                yield Matches("format", name)
            else:
                self.remarks.append(f"{node.pointer}/format")

    def _array_facts(self, node: Node, parts: Parts) -> None:
        first: list[Node] = []
        rest: Node | None = None
        if self.counts(node, "prefixItems"):
            first = node.schemas("prefixItems")
        if "items" in node:
            if isinstance(node.content["items"], list) and (node.draft < LATEST or self._document.lenient):
                first = node.schemas("items")
                rest = node.schema("additionalItems") if self.counts(node, "additionalItems") else None
            else:
                rest = node.schema("items")
        parts.own += [Items(place, place, Goal(Valid(schema))) for place, schema in enumerate(first)]
        if rest is not None:
            parts.own.append(Items(len(first), None, Goal(Valid(rest))))
        parts.items = len(first) if rest is None else None
        least, most = node.count("minItems"), node.count("maxItems")
        if least or most is not None:
            parts.own.append(ItemCount(least or 0, most))
        if self.counts(node, "contains"):
            goal = Goal(Valid(node.schema("contains")))
            low = node.count("minContains") if self.counts(node, "minContains") else None
            high = node.count("maxContains") if self.counts(node, "maxContains") else None
            low = 1 if low is None else low
            if low or high is not None:
                parts.own.append(Holding(low, high, goal))
            if node.draft >= LATEST:
                parts.held.append(goal)
        if "uniqueItems" in node and node.flag("uniqueItems"):
            parts.own.append(Distinct(node))
        if self.counts(node, "unevaluatedItems"):
            parts.unevaluated_items = node.schema("unevaluatedItems")

    def _object_facts(self, node: Node, parts: Parts) -> None:
        listed, patterned = node.named_schemas("properties"), node.named_schemas("patternProperties")
        for name, schema in listed.items():
            parts.own.append(Member(Names(name), Goal(Valid(schema))))
        for pattern, schema in patterned.items():
            _check_pattern(node, pattern, "patternProperties", pattern)
            parts.own.append(Member(Names(patterns=frozenset({pattern})), Goal(Valid(schema))))
        parts.names, parts.patterns = set(listed), set(patterned)
        if "additionalProperties" in node:
            names = Names(patterns=frozenset(patterned), others=True, but=frozenset(listed))
            parts.own.append(Member(names, Goal(Valid(node.schema("additionalProperties")))))
            parts.all_names = True
        if "required" in node:
            if isinstance(node.content["required"], bool):
                node.wrong("a list of names (true is of draft 3)", "required")
            parts.own += [Has(name) for name in node.texts("required")]
        least, most = node.count("minProperties"), node.count("maxProperties")
        if least or most is not None:
            parts.own.append(Size(least or 0, most))
        if self.counts(node, "propertyNames"):
            parts.own.append(EachName(Goal(Valid(node.schema("propertyNames")))))
        if self.counts(node, "dependentRequired"):
            if not isinstance(node.content["dependentRequired"], dict):
                node.wrong("an object", "dependentRequired")
            for name in node.content["dependentRequired"]:
                parts.own.append(_requires(name, node.texts("dependentRequired", name)))
        if self.counts(node, "unevaluatedProperties"):
            parts.unevaluated_names = node.schema("unevaluatedProperties")
        if self._closed:
            parts.own += self._listed(node, parts)

    def _listed(self, node: Node, parts: Parts) -> Iterable[Formula]:
        """Which names a schema lists, or that it says itself what others may be."""
        values = [*node.content.get("enum", ()), node.content.get("const")]
        if parts.all_names or parts.patterns or parts.unevaluated_names or any(isinstance(const, dict) for const in values):
            yield Listed(None, closes=False)
            return
        names = parts.names.union(node.texts("required") if "required" in node else ())
        if self.counts(node, "dependentRequired"):
            names = names.union(*node.content["dependentRequired"].values())
        if names or "properties" in node:
            yield Listed(frozenset(names), "properties" in node)


def _check_pattern(node: Node, pattern: str, *steps: str) -> None:
    try:
        language_of(parse_ecma(pattern))
    except InvalidConstraint as error:
        raise InvalidConstraint(f"{error} (at {node.place(*steps)})") from error


def mentioned(parts: Parts) -> list[Node]:
    """All schemas that a schema applies, in its own place and to what is inside of a value."""
    nodes = [*parts.every, *(node for _, union in parts.unions for node in union), *parts.given.values()]
    nodes += [node for node in parts.branch or () if node is not None]
    nodes += [node for node in (parts.unwanted, parts.unevaluated_items, parts.unevaluated_names) if node is not None]
    goals = [fact.goal for fact in parts.own if isinstance(fact, Items | Holding | Member | EachName)]
    return nodes + [goal.formula.node for goal in goals if isinstance(goal.formula, Valid)]


def with_(name: str) -> Formula:
    """An object with a property of this name."""
    return All((Kinds(frozenset({"object"})), Has(name)))


def without(name: str) -> Formula:
    """No object with a property of this name."""
    return Has(name, wanted=False)


def _requires(name: str, others: list[str]) -> Formula:
    return Some((without(name), All((with_(name), *map(Has, others)))))


def either(formulas: list[Formula], just_one: bool) -> Formula:
    """One of these, and none of the others if just one."""
    if len(formulas) == 1:
        return formulas[0]
    if not just_one:
        return Some(tuple(formulas))
    ways = []
    for number, formula in enumerate(formulas):
        others = [Negation(other) for place, other in enumerate(formulas) if place != number]
        ways.append(All((formula, *others)))
    return Some(tuple(ways))


def _typed(node: Node) -> Formula:
    value = node.content["type"]
    types = value if isinstance(value, list) else [value]
    if not types or not all(isinstance(name, str) and name in OF_TYPE for name in types):
        node.wrong(f"one of {', '.join(sorted(OF_TYPE))}, or a list of them", "type")
    kinds = frozenset().union(*map(OF_TYPE.__getitem__, types))
    if "integer" in types and "number" not in types:
        return All((Kinds(kinds), Multiple(Fraction(1), digits=node.draft == 4)))
    return Kinds(kinds)


def _number_facts(node: Node) -> Iterable[Formula]:
    for keyword, upper in (("minimum", False), ("maximum", True)):
        strict = "exclusive" + keyword.capitalize()
        both = isinstance(node.content.get(strict), bool)  # as in draft 4
        if both and node.draft > 4 and not node.document.lenient:
            node.wrong("a number", strict)
        for key in (keyword,) if both else (keyword, strict):
            if key in node:
                if not is_number(node.content[key]):
                    node.wrong("a number", key)
                is_open = node.content[strict] if both else key == strict
                yield Bound(fraction(node.content[key]), upper, is_open)
    if "multipleOf" in node:
        value = node.content["multipleOf"]
        if not is_number(value) or value <= 0:
            node.wrong("a number above 0", "multipleOf")
        yield Multiple(fraction(value))
