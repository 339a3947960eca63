"""`make demo` and `make test` say what they do, and in one sentence what they stopped at."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.pages import ROOT

# A Python whose environments are copies of itself, and whose pip installs nothing but torch, if anything.
PYTHON = """#!/bin/sh
case "$*" in
    "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    *"pip install"*"{reached}"*) echo "ERROR: no index" >&2; exit 1 ;;
esac
"""


def make(folder, target: str, reached: str) -> subprocess.CompletedProcess[str]:
    """What a target says where pip stops at this."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "lab/pyproject.toml"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    python = folder / "python"
    python.write_text(PYTHON.format(reached=reached))
    python.chmod(0o755)
    return subprocess.run(
        ["make", target, f"PYTHON={python}", "TORCH=torch==9", "SMOLLM2=weights==1"], cwd=folder, capture_output=True, text=True
    )


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize(
    ("target", "reached", "said"),
    [
        ("demo", "torch==", ["Making the environment .venv …", "Installing torch==9: 200 MB and a minute or two …"]),
        ("demo", "-e . -e", ["Installing Locore and what it stands on: a minute …"]),
        (
            "test",
            "dev,sdd",
            ["Installing Locore and what it stands on: a minute …", "Installing the development tools: a minute or two …"],
        ),
    ],
)
def test_a_step_says_what_it_does_and_where_it_stopped(tmp_path, target, reached, said):
    done = make(tmp_path, target, reached)
    lines = done.stderr.splitlines()
    assert done.returncode != 0 and set(said) <= set(lines)
    (stopped,) = (line for line in lines if line.startswith("Stopped at: "))
    assert stopped.startswith(f"Stopped at: {said[-1].removesuffix(' …')}. ")
    assert lines[-3:-1] == ["ERROR: no index", stopped]  # the last is make's own


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_weights_that_cannot_be_had_stop_nothing(tmp_path):
    done = make(tmp_path, "demo", "weights==1")
    assert done.returncode == 0
    assert "weights==1 cannot be installed; going on without the model smollm2" in done.stderr
