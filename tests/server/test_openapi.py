"""The server keeps what its own OpenAPI says, and its schema of constraints says what `from_json` takes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
from pathlib import Path

import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import positive_data_acceptance

import locore
from locore.evidence import Guarantee
from locore.kernel.constraints import serial
from locore.kernel.errors import InvalidConstraint, UnsupportedKeyword
from locore.samplers import NAMED
from locore.server import Settings, create_app
from locore.server.answers import Diagnostics
from locore.server.app import published_schema
from tests.chatting import talking
from tests.effort import THOROUGH, examples
from tests.server.conftest import PATIENCE, Server

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = published_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_the_published_schema_is_that_of_the_documentation(server):
    assert json.loads((ROOT / "docs" / "constraint.schema.json").read_text()) == SCHEMA
    assert json.loads(server.get("/v1/constraint_schema")[1]) == SCHEMA
    assert json.loads(server.get("/openapi.json")[1]) == create_app(Settings()).openapi()
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_what_is_spelled_again_for_the_process_without_a_model_is_the_same():
    assert Diagnostics.model_fields["guarantee"].annotation == Guarantee


def test_every_type_and_sampler_is_published():
    factors = {"Target", "bonus", "product"}
    assert set(SCHEMA["$defs"]) == {
        "Constraint",
        "Vertex",
        "Pattern",
        *factors,
        *(f"constraint_{name}" for name in serial._KINDS),
    }
    published = create_app(Settings()).openapi()["components"]["schemas"]["CompletionRequest"]["properties"]["sampler"]
    assert set(NAMED) <= set(re.findall(r"[\w-]+", json.dumps(published)))


FORMS = [
    locore.ban(["a", "b"], words=True),
    locore.ban(["a"], level="tokens"),
    locore.contains(["a", "b"], at_least=1),
    locore.contains("a", exactly=2),
    locore.starts_with("a") & ~locore.ends_with("b", ignore_case=True),
    locore.choice(["a", "b"]) | locore.regex("a+"),
    locore.count(["a"], at_most=2),
    locore.ban(["a", locore.pattern("b+", ignore_case=True)]),
    locore.contains(locore.pattern(name="email"), exactly=2),
    locore.count(["a", locore.pattern("b+")], at_most=2),
    locore.ban(["a"]).over("prompt+text"),
    locore.word_count(1, 3) >> locore.char_count(2, None),
    locore.sentence_count(1, 1),
    locore.json_schema({"type": "object", "properties": {"a": {"type": "integer"}}}),
    locore.token(0, [1, 2]),
    locore.count_tokens([1], [0, 1], 1),
    locore.contains_tokens([[1, 2]]),
    locore.all_different([0, 1], values=[[1, 2], 3]),
    locore.all_equal([0, 1]),
    locore.permutation([0, 1], [3, 4]),
    locore.exactly(1, [locore.token(0, 1), locore.token(1, 1)]),
    locore.digit_sum([0, 1], total=5),
    locore.token_sum([0, 1], [[1, 2], [3, 4]], at_least=2),
    locore.sudoku("1..............2", box=2),
    locore.simple_path(locore.grid(2, 2), (0, 0), (1, 1)),
    locore.simple_path([["a", "b"], ["b", 3]], "a", 3, tokens=[[1], [2, 3]]),
    locore.simple_moves(3, 3, (0, 0), (2, 2), blocked=[(1, 1)]),
    locore.bonus(locore.contains("a"), 2.5),
    locore.ban(["b"]) * locore.bonus(locore.contains("a"), -1) * locore.bonus(locore.ends_with("."), 3),
]


@pytest.mark.parametrize("alpha", FORMS, ids=str)
def test_what_constraints_write_is_valid(alpha):
    VALIDATOR.validate(alpha.to_json())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 30) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "type", "of", "source"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.data())
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow])
def test_what_the_schema_refuses_is_refused(data):
    """One field of a good form is changed, added or taken away."""
    form = data.draw(st.sampled_from(FORMS)).to_json()
    field = data.draw(st.sampled_from([*form, "more"]))
    if data.draw(st.booleans()):
        form[field] = data.draw(JSON)
    else:
        form.pop(field, None)
    if not VALIDATOR.is_valid(form):
        with pytest.raises((InvalidConstraint, UnsupportedKeyword)):
            locore.from_json(form)


API = schemathesis.openapi.from_dict(create_app(Settings()).openapi())
API.config.phases.coverage.enabled = False  # hundreds of cases, most of which are sampled
SMALL = ("max_tokens", "max_completion_tokens", "num_particles", "n")


@API.parametrize()
@settings(
    max_examples=6 if THOROUGH else 3, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
def test_the_server_keeps_its_own_description(case, server):
    """Status codes, content types, the form of answers, refusal of what is wrong. Work is kept small."""
    if isinstance(case.body, dict):
        for name in SMALL:
            if isinstance(case.body.get(name), int) and case.body[name] > 2:
                case.body[name] = 2
    # A constraint of the right form may be refused for what it says.
    case.call_and_validate(
        base_url=server.url,
        headers={"Authorization": f"Bearer {server.key}"},
        excluded_checks=[positive_data_acceptance],
        timeout=PATIENCE,
    )


@pytest.mark.slow
def test_the_server_keeps_its_own_description_in_all_phases(tmp_path):
    """Examples, coverage, fuzzing and sequences of requests, as schemathesis itself runs them. Work is kept small."""
    small = ("--max-tokens", "4", "--max-particles", "8", "--max-budget", "64", "--keep-alive", "0.2")
    running = Server(tmp_path, "--model", str(talking(tmp_path / "model")), "--name", "tiny", *small, key=None).wait()
    command = [str(Path(sysconfig.get_path("scripts")) / "schemathesis"), "run", f"{running.url}/openapi.json"]
    command += ["--phases", "examples,coverage,fuzzing,stateful", "--exclude-checks", "positive_data_acceptance"]
    command += ["-n", os.environ.get("LOCORE_OPENAPI_EXAMPLES", "25"), "--seed", "1", "--continue-on-failure", "--no-color"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    finally:
        running.stop()
    print(found.stdout[-2000:])
    assert found.returncode == 0, found.stdout[-10_000:]
    assert "internal error" not in running.log.read_text()
