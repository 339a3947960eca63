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
OTHERS = SUITE.parent / "remotes"
DRAFTS = ("draft2020-12", "draft2020-12/optional", "draft7", "draft4")
# The groups that are not taken: uniqueness without end, dialects of somebody's own, and one by size.
NOT_TAKEN = {
    "validate definition against metaschema",
    "remote ref, containing refs itself",
    "uniqueItems validation",
    "uniqueItems with an array of items",
    "float division = inf",
    "schema that uses custom metaschema with with no validation vocabulary",
    "ignore unrecognized optional vocabulary",
    "refs to historic drafts are processed as historic drafts",
    "schema that uses custom metaschema with format-assertion: false",
    "schema that uses custom metaschema with format-assertion: true",
}
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


def others(draft):
    """What the suite wants to be known beforehand, by URI: what lies in no folder of a draft is for all of them."""
    for path in sorted(OTHERS.rglob("*.json")):
        name = path.relative_to(OTHERS).as_posix()
        if not name.startswith(("draft", "v1/")) or name.startswith(f"{draft}/"):
            yield f"http://localhost:1234/{name}", json.loads(path.read_text())


@pytest.mark.skipif(not SUITE.exists(), reason="the JSON Schema test-suite is not there")
@pytest.mark.parametrize("draft", [name if name not in URIS else pytest.param(name, marks=pytest.mark.slow) for name in DRAFTS])
def test_required(draft):
    documents = dict(others(draft.removesuffix("/optional")))
    for group in itertools.islice(groups(draft), 0, None, 1 if THOROUGH else 3):
        try:
            schema = group["schema"]
            if draft in URIS and isinstance(schema, dict):
                schema = {"$schema": URIS[draft], **schema}
            leaf = json_schema(schema, formats="annotations", documents=documents, **LOOSE)
        except (UnsupportedKeyword, InvalidConstraint, BudgetExceeded) as error:
            assert group["description"] in NOT_TAKEN, error
            continue
        for test in group["tests"]:
            text = written(test["data"])
            if "e" in text.replace("true", "").replace("false", "") and isinstance(test["data"], float):
                continue
            wanted = (group["description"], test["description"], test["valid"])
            assert (*wanted[:2], leaf.accepts(text.encode())) == wanted
            assert (*wanted[:2], holds(leaf, text)) == wanted
