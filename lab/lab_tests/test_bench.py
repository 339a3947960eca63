"""`locore bench` and `locore reproduce`: every command can be had, small ones run, and what pages name is there."""

from __future__ import annotations

import json
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
from locore_lab.bench import MODULES, terminal
from locore_lab.harness import Measurement, apart, command
from locore_lab.reproduce import EXPERIMENTS

from locore.cli import main
from locore.kernel.errors import InvalidArgument
from tests.effort import THOROUGH

ROOT = Path(__file__).resolve().parents[2]
HISTORY = ROOT / "docs" / "lab" / "history.md"  # names what is gone, too
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "lab").rglob("*.md"), ROOT / "lab/results/README.md"]
PAGES.remove(HISTORY)
COMMANDS = {**MODULES, **EXPERIMENTS}
IN_SECONDS = ["steps", "succinctness", "rewards", "sixteen-bits"]
IN_A_MINUTE = [
    "audit",
    "batch",
    "combinatorial",
    "commongen",
    "long-outputs",
    "paths",
    "spoken",
    "threads",
    "together",
    "verdicts",
]
SMALLER = {"audit": ["--models", "nowhere"], "verdicts": ["--models", "nowhere"]}


def module_of(name: str):
    """The module of a command."""
    return import_module(COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_what_it_takes(name, capsys):
    run = module_of(name).run
    assert main(["bench" if name in MODULES else "reproduce", name, "--help"]) == 0
    said = capsys.readouterr().out
    assert said.count("\n") > 4
    if isinstance(run, Measurement):
        assert "--quick" in said and "--resume" in said
        assert run.quick.keys() <= set(options_of(run.cases))
        assert all(heads.count("|") == line.count("|") for heads, line in run.tables.values())


def options_of(function):
    return function.__code__.co_varnames[: function.__code__.co_argcount]


@pytest.mark.parametrize("name", [*IN_SECONDS, *(pytest.param(name, marks=pytest.mark.slow) for name in IN_A_MINUTE)])
def test_small_ones_run(name, tmp_path, capsys, monkeypatch):
    if not THOROUGH:
        monkeypatch.setattr(module_of("steps"), "REPEATS", 1)
    path = tmp_path / "rows.json"
    assert main(["bench", name, "--quick", "--json", str(path), *SMALLER.get(name, [])]) == 0
    rows = json.loads(path.read_text())["rows"]
    said = capsys.readouterr().out
    assert len(rows) > 0 and said.count("|\n") >= len(rows) and "{" not in said


def test_what_a_file_has_is_not_measured_again(tmp_path, capsys, monkeypatch):
    path, asked = tmp_path / "rows.json", []

    def cases(size: int = 3):
        for number in range(size):
            yield {"number": number}, lambda number=number: asked.append(number) or {"square": number**2}

    def killed(size: int = 3):
        for number, case in enumerate(cases(size)):
            if number == 2:
                raise KeyboardInterrupt
            yield case

    run = Measurement(killed, {"": ("n | n²", "{number} | {square:.1f}")}, {}, {})
    with pytest.raises(KeyboardInterrupt):
        run.measure({"size": 3}, path)
    run = Measurement(cases, run.tables, {}, {})
    with pytest.raises(InvalidArgument, match="size is 3 there and 4 now"):
        run.measure({"size": 4}, path, resume=True)
    run.measure({"size": 3}, path, resume=True)
    assert asked == [0, 1, 2]
    assert [row["square"] for row in json.loads(path.read_text())["rows"]] == [0, 1, 4]
    assert capsys.readouterr().out.endswith("| 0 | 0.0 |\n| 1 | 1.0 |\n| 2 | 4.0 |\n")


def test_a_process_of_its_own_answers_and_fails(tmp_path, monkeypatch):
    assert apart(json.loads, "[1]") == [1]
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\necho no room >&2; exit 1\n")
    failing.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(failing))
    with pytest.raises(Exception, match="failed in a process of its own: no room"):
        apart(json.loads, "[1]")


@pytest.mark.slow
def test_what_is_wrong_in_a_process_of_its_own_is_said():
    with pytest.raises(Exception, match="failed in a process of its own"):
        apart(json.loads, "[")


def named() -> list[tuple[str, str]]:
    """Pages, and the commands of the lab that they name."""
    found = []
    for page in dict.fromkeys(PAGES):
        text = page.read_text().replace("\\\n", " ")
        for line in re.findall(r"\blocore (?:bench|reproduce) [^`\n|)]*", text):
            found.append((str(page.relative_to(ROOT)), line.strip()))
    return found


@pytest.mark.parametrize(("page", "line"), named())
def test_what_pages_name_can_be_parsed(page, line):
    _, group, *words = shlex.split(line.replace("\\", ""), comments=True)
    name = words[0] if words else ""
    if "|" in line or name.upper() == name or name.startswith("-"):  # of all of them
        return
    assert name in (MODULES if group == "bench" else EXPERIMENTS), line
    if len(words) > 1 and "--help" not in words and "…" not in line:
        made = command(name, module_of(name).run)
        made.make_context(name, [*words[1:], *needed(made, words)])


def needed(made, words):
    """What a page need not repeat."""
    return [
        word
        for option in made.params
        if option.required and option.param_type_name == "option" and not set(option.opts) & set(words)
        for word in (option.opts[0], "somewhere")
    ]


@pytest.mark.parametrize(("group", "known"), [("bench", MODULES), ("reproduce", EXPERIMENTS)])
def test_lists_name_them_all(group, known, capsys):
    assert main([group, "--help"]) == 0
    said = capsys.readouterr().out
    assert all(re.search(rf"^  {name} ", said, re.MULTILINE) for name in known)


def test_no_page_names_a_module_to_run():
    for page in PAGES:
        for module in re.findall(r"python -m (locore_lab(?:\.\w+)+)", page.read_text()):
            import_module(module)


@pytest.mark.parametrize("theme", terminal.LOOKS)
def test_the_picture_of_the_terminal_is_that_of_the_committed_text(theme):
    text, look = terminal.TEXT.read_text(), terminal.LOOKS[theme]
    assert (ROOT / terminal.FIGURE.format(theme=theme)).read_text() == terminal.picture(text, look)
    assert terminal.lines(text)[-1].startswith("LM tokens")
    assert "<tspan" in terminal.coloured("verdict   trust", look) and "<tspan" not in terminal.coloured("a < b", look)
