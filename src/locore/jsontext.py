"""JSON from anybody, read strictly: what the standard library would let pass in silence is an error."""

from __future__ import annotations

import json
import math
import re
from typing import Any

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"?')


class NotJson(ValueError):
    """A text that cannot be read; the message goes on after its name: "is no JSON: ..." or "is nested ..."."""


def parse(text: str, max_depth: int | None = None) -> Any:
    """The value of a JSON text.

    Args:
        text: one value.
        max_depth: how deeply objects and lists may be nested; as deeply as Python allows if None.

    Raises:
        NotJson: no JSON, nested too deeply, a name twice in one object, or a number that JSON does not have.
    """
    if max_depth is not None and _depth(text) > max_depth:
        raise NotJson(f"is nested deeper than {max_depth}; make it flatter")
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    except NotJson:
        raise
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if "\n" in text else ""  # one of many rows is not the first line to whoever reads this
        raise NotJson(f"is no JSON: {error.msg} at {line}column {error.colno}") from None
    except RecursionError:
        raise NotJson("is nested too deeply; make it flatter") from None
    except ValueError:
        raise NotJson("holds a number with too many digits; shorten it") from None


def _depth(text: str) -> int:
    """How deeply brackets are nested, those in strings left out; linear in the length."""
    depth = deepest = 0
    for character in _STRING.sub("", text):
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise NotJson(f"is ambiguous: the field {name!r} stands twice in one object; keep one of them")
        found[name] = value
    return found


def _no_constant(name: str) -> Any:
    raise NotJson(f"holds {name}, which is no number of JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise NotJson(f"holds the number {digits}, which is too large")
    return value
