"""The official JSON-Schema-Test-Suite: all that is taken is judged rightly, by the automaton and by the check."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from locore.constraints import json_schema
from locore.kernel.errors import BudgetExceeded, InvalidConstraint, UnsupportedKeyword
from tests.effort import THOROUGH

from .bytewise import holds
from .schemas import LOOSE

SUITE = Path(__file__).resolve().parents[3] / "shared" / "data" / "json" / "test-suite" / "tests"
# The groups that are not taken: other documents, uniqueness without end, \p{...}, dialects of somebody's own, and two by size.
NOT_TAKEN = {"draft2020-12": 30, "draft7": 16, "draft4": 13}
URIS = {"draft7": "http://json-schema.org/draft-07/schema#", "draft4": "http://json-schema.org/draft-04/schema#"}


def written(value):
    """Compactly, numbers in decimal notation."""
    if isinstance(value, float):
        return f"{value:.400f}".rstrip("0").rstrip(".") if abs(value) > 1e15 else repr(value)
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{written(name)}:{written(item)}" for name, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def groups(draft):
    for file in sorted((SUITE / draft).glob("*.json")):
        yield from json.loads(file.read_text())


@pytest.mark.skipif(not SUITE.exists(), reason="the JSON Schema test-suite is not there")
@pytest.mark.parametrize(
    "draft", [name if name not in URIS else pytest.param(name, marks=pytest.mark.slow) for name in NOT_TAKEN]
)
def test_required(draft):
    refused = 0
    for group in itertools.islice(groups(draft), 0, None, 1 if THOROUGH else 3):
        try:
            schema = group["schema"]
            if draft in URIS and isinstance(schema, dict):
                schema = {"$schema": URIS[draft], **schema}
            leaf = json_schema(schema, formats="annotations", **LOOSE)
        except (UnsupportedKeyword, InvalidConstraint, BudgetExceeded):
            refused += 1
            continue
        for test in group["tests"]:
            text = written(test["data"])
            if "e" in text.replace("true", "").replace("false", "") and isinstance(test["data"], float):
                continue
            wanted = (group["description"], test["description"], test["valid"])
            assert (*wanted[:2], leaf.accepts(text.encode())) == wanted
            assert (*wanted[:2], holds(leaf, text)) == wanted
    assert refused <= NOT_TAKEN[draft]  # in `make test`, of every third group
