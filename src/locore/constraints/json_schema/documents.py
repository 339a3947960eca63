"""Where the parts of a JSON schema are: references, drafts, and places in messages, as JSON pointers (RFC 6901).

References are followed by the library `referencing`, which `jsonschema` itself uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from reprlib import repr as shortened
from typing import Any, NoReturn

from locore.kernel.errors import InvalidConstraint, UnsupportedKeyword

LATEST = 2020
REMEDY = "give the document by its URI in documents=, or copy the part into $defs"
DRAFTS = {"draft-04": 4, "draft-06": 6, "draft-07": 7, "2019-09": 2019, "2020-12": LATEST}


@dataclass(frozen=True, eq=False)
class Node:
    """A part of a schema and its place.

    Attributes:
        content: what stands there.
        pointer: how it was reached, a JSON pointer from the top, or a reference.
        document: whose part it is.
        resolver: of `referencing`, where references from here lead.
    """

    content: Any
    pointer: str
    document: Document
    resolver: Any

    def __contains__(self, keyword: str) -> bool:
        return isinstance(self.content, dict) and keyword in self.content

    @property
    def draft(self) -> int:
        """4, 6, 7, 2019 or 2020."""
        return self.document.draft

    def schema(self, *steps: str | int) -> Node:
        """The schema at a key, or at a key of what stands there."""
        content, pointer = self._inside(steps)
        if not isinstance(content, dict | bool):
            self.wrong("a schema: an object, true or false", *steps)
        return self.document.node(content, pointer, self.resolver)

    def schemas(self, keyword: str) -> list[Node]:
        """The schemas of a list."""
        if not isinstance(self.content[keyword], list):
            self.wrong("a list of schemas", keyword)
        return [self.schema(keyword, index) for index in range(len(self.content[keyword]))]

    def named_schemas(self, keyword: str) -> dict[str, Node]:
        """The schemas of an object."""
        if keyword not in self:
            return {}
        if not isinstance(self.content[keyword], dict):
            self.wrong("an object of schemas", keyword)
        return {name: self.schema(keyword, name) for name in self.content[keyword]}

    def _inside(self, steps: tuple[str | int, ...]) -> tuple[Any, str]:
        content, pointer = self.content, self.pointer
        for step in steps:
            content = content[step]
            pointer += "/" + str(step).replace("~", "~0").replace("/", "~1")
        return content, pointer

    def place(self, *steps: str | int) -> str:
        """The JSON pointer of what stands at a key."""
        return self._inside(steps)[1]

    # Complaints.

    def refuse(self, why: str, *steps: str | int) -> NoReturn:
        """Raise `UnsupportedKeyword` for what stands at a key."""
        _, pointer = self._inside(steps)
        keyword = f"{steps[0]!r} (at {pointer})" if steps else f"the schema at {pointer or 'the top'}"
        raise UnsupportedKeyword(f"json_schema does not support {keyword}: {why}")

    def wrong(self, wanted: str, *steps: str | int) -> NoReturn:
        """Raise `InvalidConstraint` for what stands at a key."""
        content, pointer = self._inside(steps)
        raise InvalidConstraint(f"in a JSON schema {pointer or 'the top'} must be {wanted}, got {shortened(content)}")

    # Values of keywords.

    def count(self, keyword: str) -> int | None:
        """A number of things; None if the keyword is not there."""
        if keyword not in self:
            return None
        value = self.content[keyword]
        if not is_number(value) or value < 0 or value != int(value):
            self.wrong("a whole number of at least 0", keyword)
        return int(value)

    def flag(self, keyword: str) -> bool:
        """True or False; False if the keyword is not there."""
        value = self.content.get(keyword, False)
        if not isinstance(value, bool):
            self.wrong("true or false", keyword)
        return bool(value)

    def text(self, keyword: str) -> str:
        """A string."""
        value = self.content[keyword]
        if not isinstance(value, str):
            self.wrong("a string", keyword)
        return str(value)

    def texts(self, *steps: str) -> list[str]:
        """A list of strings."""
        content, _ = self._inside(steps)
        if not isinstance(content, list) or not all(isinstance(text, str) for text in content):
            self.wrong("a list of strings", *steps)
        return list(content)


def is_number(value: Any) -> bool:
    """A number of JSON."""
    return isinstance(value, int | float) and not isinstance(value, bool)


class Document:
    """A whole schema, with the other documents that it refers to.

    Attributes:
        root: its top.
        draft: that which `$schema` names; the latest where there is none.
        lenient: no draft is named, so that keywords of older ones keep their meaning.
        registry: of `referencing`, with the other documents.
    """

    def __init__(self, schema: Any, others: Mapping[str, Any]) -> None:
        """Of schemas as `json.loads` gives them, the others by URI.

        Raises:
            InvalidConstraint: `$schema` is unknown.
            UnsupportedKeyword: it names draft 3, or a dialect of somebody's own.
        """
        self._nodes: dict[tuple[object, ...], Node] = {}
        self.draft, self.lenient = LATEST, True
        if isinstance(schema, dict) and "$schema" in schema:
            self.draft, self.lenient = _draft_of(schema["$schema"]), False
        self._specification = _specification(self.draft)
        self._is_dynamic = any(key in ("$dynamicRef", "$recursiveRef") for key, _ in members([schema, *others.values()]))
        create = self._specification.create_resource
        resource: Any = create(schema)
        try:
            self.registry = _registry().with_resources((uri, create(content)) for uri, content in others.items())
            resolver = self.registry.with_resource("", resource).resolver_with_root(resource)
            self.root = self.node(schema, "", resolver, at_root=True)
        except (ValueError, AttributeError, TypeError) as error:
            raise InvalidConstraint(f"the $id of a JSON schema, or a URI of its documents, cannot be read: {error}") from error

    def node(self, content: Any, pointer: str, resolver: Any, at_root: bool = False) -> Node:
        """The node of a part; always the same one."""
        names = isinstance(content, dict) and any(isinstance(content.get(key), str) for key in ("$id", "id"))
        if names and not at_root and not (self.draft <= 7 and "$ref" in content):  # beside it nothing counts there
            resolver = resolver.in_subresource(self._specification.create_resource(content))
        scope = tuple(dict.fromkeys(uri for uri, _ in resolver.dynamic_scope())) if self._is_dynamic else ()
        key = (content if isinstance(content, bool) else id(content), *scope, *((resolver._base_uri,) if scope else ()))
        if key not in self._nodes:
            node = Node(content, pointer, self, resolver)
            names_draft = isinstance(content, dict) and "$schema" in content and not self.lenient
            if names_draft and _draft_of(content["$schema"], pointer) != self.draft:
                node.refuse("it names another draft than the schema around it; write all parts in one", "$schema")
            self._nodes[key] = node
        return self._nodes[key]

    def follow(self, node: Node, keyword: str) -> Node:
        """Where a reference leads.

        Raises:
            UnsupportedKeyword: to another document.
            InvalidConstraint: nothing is there.
        """
        from referencing.exceptions import Unresolvable, Unretrievable
        from referencing.jsonschema import lookup_recursive_ref

        reference = node.text(keyword)
        try:
            resolved = lookup_recursive_ref(node.resolver) if keyword == "$recursiveRef" else node.resolver.lookup(reference)
        except Unretrievable:
            node.refuse(f"{reference!r} is in another document, and none is fetched; {REMEDY}", keyword)
        except (Unresolvable, ValueError, AttributeError, TypeError, KeyError, IndexError):
            if reference.startswith("#"):
                node.wrong("a reference to a part of the schema that exists", keyword)
            node.refuse(f"{reference!r} is not a part of this schema, and nothing is fetched; {REMEDY}", keyword)
        if not isinstance(resolved.contents, dict | bool):
            node.wrong("a reference to a schema: an object, true or false", keyword)
        pointer = reference[1:] if reference.startswith("#") else reference
        return self.node(resolved.contents, pointer, resolved.resolver, at_root=True)


def members(content: Any) -> Iterator[tuple[str, Any]]:
    """Of all objects, at any depth."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield key, value
            yield from members(value)
    elif isinstance(content, list):
        for value in content:
            yield from members(value)


def _draft_of(uri: Any, pointer: str = "") -> int:
    if isinstance(uri, str):
        plain = uri.rstrip("#").replace("draft/", "")
        for name, draft in DRAFTS.items():
            if plain.endswith(f"json-schema.org/{name}/schema"):
                return draft
        if plain.endswith("json-schema.org/schema"):
            return LATEST
    raise UnsupportedKeyword(
        f"json_schema does not support '$schema' (at {pointer}/$schema): {shortened(uri)} is none of the drafts 4, 6, 7, "
        "2019-09 and 2020-12; name one of them, or leave it out"
    )


def _specification(draft: int) -> Any:
    from referencing import jsonschema

    return getattr(jsonschema, {2019: "DRAFT201909", LATEST: "DRAFT202012"}.get(draft, f"DRAFT{draft}"))


@cache
def _registry() -> Any:
    from jsonschema_specifications import REGISTRY

    return REGISTRY
