"""The commonest wishes in docs/moving.md: the Python and the shell of a row ask for the same, and so give the same texts."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex

import pytest

import locore
from locore.cli import main
from tests.pages import DOCS

ASKED = {"max_new_tokens": 8, "num_particles": 2, "budget": 60, "seed": 3}
PROMPT = "The weather is"
CODE = re.compile(r"`([^`]+)`")


def _rows() -> list[tuple[str, str, str]]:
    section = (DOCS / "moving.md").read_text().split("## The commonest wishes")[1].split("\n\nThe same elsewhere.")[0]
    table = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    return [(wish.removeprefix("| "), python, shell.removesuffix(" |")) for wish, python, shell in table]


def _in_python(code: str) -> tuple[locore.Constraint, dict[str, object]]:
    """The constraint and the options that a cell says."""
    if re.fullmatch(r"\w+=.*", code) and "(" not in code:
        return locore.contains("a"), eval(f"dict({code})")
    return eval(code, {name: getattr(locore, name) for name in [*locore.__all__, "patterns"]}), {}


@pytest.mark.parametrize(("wish", "python", "shell"), _rows(), ids=lambda cell: cell)
def test_python_and_shell_ask_for_the_same(wish, python, shell):
    option = CODE.search(shell)
    if wish == "how probable is each":  # nothing is asked for: it is printed
        assert option is None
        return
    assert option is not None
    code, tiny = CODE.search(python)[1], locore.load("tiny")
    draws = re.search(r"n=(\d+)", code) if code.startswith("locore.sample") else None
    constraint, options = _in_python("contains('a')" if draws else code)
    arguments = shlex.split(option[1])
    said = [] if any(each in arguments for each in ("--constraint", *_words())) else ["--contains", "a"]
    run = [f"--{name.replace('_', '-')}={value}" for name, value in ASKED.items()]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        assert main(["generate", PROMPT, *run, *said, *arguments, "--json"]) == 0
    texts = json.loads(printed.getvalue())["texts"]
    if draws:
        assert texts == locore.sample(tiny, PROMPT, constraint, n=int(draws[1]), **ASKED)
    else:
        assert texts == locore.generate(tiny, PROMPT, constraint, **ASKED, **options).texts


def _words() -> list[str]:
    """Options that say a constraint."""
    names = "contains ban regex choice json-schema starts-with ends-with words contains-pattern ban-pattern"
    return [f"--{name}" for name in names.split()]
