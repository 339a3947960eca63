"""What the official JavaScript client of OpenAI gets, helpers for schemas and tools among it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import locore
from locore import ends_with

MODULES = Path(sys.prefix) / "js"
SCRIPT = Path(__file__).with_name("client.mjs")


@pytest.fixture(scope="module")
def found(server):
    if shutil.which("node") is None or not (MODULES / "node_modules" / "openai").exists():
        assert not os.environ.get("LOCORE_REQUIRE_JS"), "the client for JavaScript is not installed"
        pytest.skip("node or npm is missing here, so make has not installed the client")
    done = subprocess.run(
        ["node", SCRIPT, MODULES, f"{server.url}/v1", server.key], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_answers_are_those_of_the_library(found, tiny):
    assert found["models"] == ["tiny"]
    assert found["completion"].endswith(" happy.")
    assert locore.holds(ends_with(" happy."), found["completion"], tiny.tokenizer)


def test_schemas_of_zod_are_parsed(found):
    assert found["parsed"]["mood"] in ("good", "bad")
    assert found["parsed"]["degrees"] is None or 0 <= found["parsed"]["degrees"] <= 40
    assert found["streamed"] == found["parsed"] == json.loads(found["pieces"])


def test_a_stream_brings_the_text(found):
    assert found["text"] == found["whole"] != ""


def test_tools_of_zod_are_called(found):
    assert found["calls"] and all(name == "wake" and 0 <= given["hour"] <= 23 for name, given in found["calls"])


def test_errors_have_their_classes(found):
    assert found["refused"] == ["BadRequestError", 400, "suffix"]
    assert found["stranger"] == ["AuthenticationError", 401]
