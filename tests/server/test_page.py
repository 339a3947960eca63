"""The page on the server: its examples run against a real one, and its tables name what there is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import typer.main

import locore.server
from locore.cli import app, main
from locore.server import answers, api_errors, chats, comparison_schema, schema, settings
from locore.server.access import Metrics
from locore.server.settings import Settings
from tests.pages import blocks, run_page

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "server.md").read_text()


def test_the_examples_run(server):
    def adapt(code: str) -> str:
        return code.replace("http://127.0.0.1:8000", server.url).replace('api_key="none"', f'api_key="{server.key}"')

    assert sum(block.language == "python" and block.runs for block in blocks(ROOT / "docs" / "server.md")) == 8
    run_page(ROOT / "docs" / "server.md", adapt)


def test_the_command_is_one():
    line, _ = re.findall(r"^```sh\n(.*?)\n```", PAGE, re.DOTALL | re.MULTILINE)
    command = typer.main.get_command(app).commands["serve"]
    options = {name for option in command.params for name in option.opts}
    assert set(re.findall(r"--[a-z-]+", line)) <= options
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= options


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_what_the_shell_asks_is_answered(server):
    _, asked = re.findall(r"^```sh\n(.*?)\n```", PAGE, re.DOTALL | re.MULTILINE)
    asked = asked.replace("http://127.0.0.1:8000", server.url) + f" -H 'Authorization: Bearer {server.key}'"
    done = subprocess.run(["sh", "-c", asked], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["choices"][0]["text"].endswith(" happy.")


def test_memory_that_is_not_named_is_that_of_the_machine(monkeypatch):
    """The command hands over what was said, and leaves the rest to the settings."""
    started: list[Settings] = []
    monkeypatch.setattr(locore.server, "serve", started.append, raising=False)
    monkeypatch.setattr(settings, "usual_memory", lambda: 12_345_678)
    for said in ([], ["--memory", "87654321"]):
        main(["serve", "--model", "tiny", *said])
    assert started == [Settings(memory=12_345_678), Settings(memory=87_654_321)]


def test_every_field_is_described():
    requests = (schema.CompletionRequest, chats.ChatRequest, comparison_schema.CompareRequest, answers.Diagnostics)
    fields = {field for request in requests for field in request.model_fields}
    assert not [field for field in fields if f"`{field}`" not in PAGE]


def test_every_error_code_is_described():
    source = "".join(path.read_text() for path in (ROOT / "src" / "locore" / "server").glob("*.py"))
    codes = {code for _, code in api_errors.FROM_LIBRARY.values()}
    codes |= {"unknown_field", "missing_field", "invalid_body", "invalid_json"}
    codes |= {"queue_full", "timeout", "worker_died", "loading", "out_of_memory"}
    assert all(f'"{code}"' in source and f"`{code}`" in PAGE for code in codes)


def test_what_is_deployed_is_a_command():
    """The options of the image and of the unit are the command's own."""
    command = typer.main.get_command(app).commands["serve"]
    options = {name for option in command.params for name in option.opts}
    image = (ROOT / "deploy" / "Dockerfile").read_text()
    unit = (ROOT / "deploy" / "locore.service").read_text()
    guide = (ROOT / "docs" / "operating.md").read_text()
    lines = [re.search(r"^CMD (.*)$", image, re.MULTILINE)[1], re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1]]
    used = set(re.findall(r"--[a-z-]+", " ".join(lines))) | set(re.findall(r"`(--[a-z-]+)", guide))
    assert len(used) > 8 and used <= options
    metrics = Metrics().text().decode()
    assert all(name.removesuffix("_total") in metrics for name in re.findall(r"`(locore_[a-z_]+)`", guide))
