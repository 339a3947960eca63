"""What the page shows of its own examples may be shown to anybody: the bundled model has read all kinds of stories."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from shutil import which

import pytest

from locore.kernel.limits import Limits
from locore.server.compare import Comparison
from locore.server.compute import Computer, Run
from locore.server.task import Task

PAGE = Path(__file__).parents[2] / "src" / "locore" / "server" / "page" / "examples.js"
MORE_SEEDS = 4 if os.environ.get("LOCORE_THOROUGH") else 0
RUDE = re.compile(
    r"cunt|bitch|fuck|shit|nigg|\bfag|whore|slut|retard|\brap(e|ist)|\bdick|cock\b|puss[yi]|bastard|\bass(hole)?\b|\btit|penis|vagin"
    r"|porn|\bsex|nazi|\bjew|\bgay|suicid|moron|damn",
    re.IGNORECASE,
)


def examples():
    if which("node") is None:
        return []
    script = f"import({json.dumps(PAGE.as_uri())}).then(page => console.log(JSON.stringify(page.EXAMPLES)))"
    read = subprocess.run(["node", "--input-type=module", "-e", script], capture_output=True, text=True, check=True)
    return [example for example in json.loads(read.stdout) if example.get("prompt")]


def test_the_check_would_have_seen_it():
    assert RUDE.search(" is a cunt.") and RUDE.search('"Fucking') and not RUDE.search("The class was assured.")


@pytest.mark.skipif(which("node") is None, reason="needs node to read the page's examples")
def test_no_row_of_an_example_is_rude(tiny):
    computer, found = Computer(tiny, Limits()), {}
    assert len(examples()) >= 7
    for example in examples():
        wanted = {"constraint": example["constraint"], "num_particles": example["num_particles"], "compares": True}
        for seed in range(example["seed"], example["seed"] + 1 + MORE_SEEDS * (example["name"] != "A given ending")):
            run = Run(computer, Task(example["prompt"], example["max_tokens"], seed=seed, **wanted), tiny)
            answer = Comparison(run, lambda phase: None).result()
            shown = [text["text"] for text in answer["texts"]]
            shown += [one["text"] for side in answer["sides"].values() for one in side["sequences"]]
            assert len(shown) > 2
            found |= {(example["name"], seed, text): None for text in shown if RUDE.search(text)}
    assert not found
