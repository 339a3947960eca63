"""The site: its reference names all that is public, and its first picture shows what is true."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from importlib import import_module

import pytest
import torch
from locore_lab.demo.examples import ANSWER_TOKENS, CHOICES

from tests.pages import DOCS, ROOT
from tests.spelling import spellings, token_ids

REFERENCE = "".join(page.read_text() for page in sorted((DOCS / "api").glob("*.md")))
PARTS = ("batch", "circuits", "errors", "hf", "local", "models", "samplers", "server", "testing")
MODULES = ["locore", *(f"locore.{part}" for part in PARTS)]
# Constants, and modules that have pages of their own.
LEFT_OUT = {"locore.samplers": {"BY_NAME"}, "locore.circuits": {"DEAD"}, "locore": {"samplers", "errors"}}


def public(module: str) -> set[str]:
    found = import_module(module)
    own = {name for name, value in vars(found).items() if getattr(value, "__module__", "") == module and name[0] != "_"}
    return set(getattr(found, "__all__", own)) - LEFT_OUT.get(module, set())


@pytest.mark.parametrize("module", MODULES)
def test_the_reference_names_all_that_is_public(module):
    assert public(module) - set(re.findall(r"^      toc_label: (\w+)$", REFERENCE, re.MULTILINE)) == set()


def test_what_the_reference_names_can_be_reached():
    names = re.findall(r"^      heading: ([\w.]+)$", REFERENCE, re.MULTILINE)
    assert len(names) > 80
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert hasattr(import_module(module), attribute), name


@pytest.mark.slow
def test_the_parts_need_no_import_of_their_own():
    code = f"import locore; print(*(getattr(locore, part).__name__ for part in {PARTS}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == MODULES[1:]


@pytest.mark.slow
def test_the_truth_of_the_picture_is_the_truth(smollm2):
    """Each short answer, added up over its spellings, instead of by enumeration of all answers."""
    found = json.loads((ROOT / "lab" / "results" / "greedy_exact.json").read_text())
    model = smollm2.prompted([{"role": "user", "content": found["question"]}])
    for text in CHOICES[:3]:
        rows = spellings(text.encode(), token_ids(model), ANSWER_TOKENS)
        direct = sum(math.exp(model.score(torch.tensor([row])).item()) for row in rows)
        assert found["texts"][text]["truth"] == pytest.approx(direct / math.exp(found["log_evidence"]), abs=1e-4)
    for law in ("truth", "masking", "locore"):
        assert sum(shares[law] for shares in found["texts"].values()) == pytest.approx(1, abs=1e-4)


def test_the_picture_and_the_table_of_the_demo_are_of_one_run():
    """The table has what the picture shows, to the digits of the table: shares, distances, LM tokens."""
    found = json.loads((ROOT / "lab" / "results" / "greedy_exact.json").read_text())
    table = {}
    for line in (DOCS / "lab" / "demo.md").read_text().split("| | truth, by enumeration")[1].split("\n\n")[0].splitlines():
        name, *cells = (cell.strip(" *") for cell in line.strip("|").split("|"))
        table[name.partition(" (")[0].strip('"')] = cells
    columns = {"truth": 0, "masking": 1, "locore": 3}
    for law, column in columns.items():
        assert table["LM tokens"][column] == f"{found['lm_tokens'][law]:,}"
        assert law == "truth" or float(table["distance from the truth"][column]) == pytest.approx(
            found["distance"][law], abs=0.006
        )
        shares = {text: laws[law] for text, laws in found["texts"].items() if text in table}
        assert len(shares) == 3
        for text, share in shares.items():
            assert float(table[text][column].removesuffix(" %")) == pytest.approx(100 * share, abs=0.06)
    for theme in ("light", "dark"):
        picture = (DOCS / "figures" / f"greedy_exact_{theme}.svg").read_text()
        assert f"<!-- Locore: {found['lm_tokens']['locore']:,} LM tokens, " in picture


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_picture_is_small(theme):
    assert (DOCS / "figures" / f"greedy_exact_{theme}.svg").stat().st_size < 150_000
