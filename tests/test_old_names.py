"""What worked in 0.1.0 works, be it under another name, which says so once; or the changelog says what to change."""

from __future__ import annotations

import inspect
import re
import warnings
from importlib import import_module
from typing import Any

import pytest
import typer

from locore import samplers
from locore.cli import app, main
from locore.constraints import Automaton, AutomatonLeaf
from locore.kernel import plugins
from locore.kernel.request import Request
from tests.pages import ROOT

# By line: a name with its parameters, "sampler NAME", "$ locore COMMAND OPTION". The names are those of `__all__` of each
# package and of docs/api, the members those of classes that every user holds; read from 0.1.0 as it was installed.
OF_0_1_0 = (ROOT / "tests" / "names_0_1_0.txt").read_text().splitlines()
TO_CHANGE = " ".join((ROOT / "CHANGELOG.md").read_text().split("\n### ")[1].split())
# What does not work any more, by how its line begins: what the changelog says of it.
CHANGED = {
    r"locore\.samplers\.(ASAp|AWRS|IteratedSIR|MarkovChain|ParticleGibbs)\b": "`mcmc`, `isir`, `particle-gibbs`, `asap`",
    r"sampler (asap|awrs|isir|mcmc|particle-gibbs)$": "`mcmc`, `isir`, `particle-gibbs`, `asap` and `awrs`",
    r"\$ locore (bench|reproduce) ": "`locore bench`, `locore reproduce`",
    r"\$ locore serve --worker-memory$": "replaces `--worker-memory`",
    r"locore\.server\.Settings\(": "`max_batch` is `together`",
    r"locore\.Particles\(": "`Particles.of(draws, tokenizer)` makes particles",
    r"locore\.samplers\.(Draws|keep_positive)\(": "`Draws`, `keep_positive`, `Circuit`, `Counted` take other arguments",
    r"locore\.circuits\.Circuit(\(|\.(blocks|class_starts|final|positions|tokens_by_class|width)$)": "`Circuit`",
    r"locore\.models\.Counted\(": "`Counted` take other arguments",
    r"locore\.circuits\.(ConditionedReader|LeftToRight\()": "readings (`TableReader`)",
    r"locore\.(circuits\.check\.check|batch\.tally\.Tally|prepared\.Prepared|diagnosis\.Verdict)\(": "moved (`docs/api`)",
    r"locore\.samplers\.(Enumeration|GreedyMasking|Oversampling)\(": "no `name=`",
}


def is_there(line: str) -> bool:
    """Does what this line says still work?"""
    if line.startswith("sampler "):  # without the lab
        return line.removeprefix("sampler ") in samplers.NAMED.keys() | samplers.RENAMED.keys()
    if line.startswith("$ locore "):
        *path, option = line.removeprefix("$ locore ").split(" ")
        command = typer.main.get_command(app)
        for name in path:
            command = getattr(command, "commands", {}).get(name)
        return command is not None and any(option in [*each.opts, *each.secondary_opts] for each in command.params)
    name, _, parameters = line.partition("(")
    found = object_named(name)
    before = [each for each in parameters.rstrip(")").split(", ") if each and not each.startswith("**")]
    return not before or takes(found, before, by_name=name.rpartition(".")[2][0].isupper())


def object_named(name: str) -> object:
    """Which may be the field of a dataclass."""
    module, _, attribute = name.rpartition(".")
    try:
        home = import_module(module)
    except ModuleNotFoundError:
        home = object_named(module)
    return None if attribute in getattr(home, "__dataclass_fields__", ()) else getattr(home, attribute)


def takes(found: Any, before: list[str], by_name: bool) -> bool:
    """Are all parameters there? Unless they are given by name, they have to be where they were."""
    now = [each for each in inspect.signature(found).parameters if each != "self"]
    placed = [] if by_name else before[: before.index("*")] if "*" in before else before
    return now[: len(placed)] == placed and set(before) - {"*"} <= set(now)


@pytest.mark.parametrize("line", OF_0_1_0)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_was_there_works_or_the_changelog_says_what_to_change(line):
    said = [phrase for beginning, phrase in CHANGED.items() if re.match(beginning, line)]
    if said:
        assert all(phrase in TO_CHANGE for phrase in said)
    else:
        assert is_there(line)


def test_no_more_is_said_to_have_changed_than_has():
    """Each entry names something of 0.1.0 that is not there."""
    for beginning in CHANGED:
        lines = [line for line in OF_0_1_0 if re.match(beginning, line)]
        assert lines and not all(works(line) for line in lines), beginning


def works(line: str) -> bool:
    try:
        return is_there(line)
    except (AttributeError, ImportError):
        return False


def kind_of_reading() -> type[AutomatonLeaf]:
    class Anything(AutomatonLeaf):
        over = "bytes"

        def automaton(self) -> Automaton:
            raise NotImplementedError

    return Anything


# By what is said to be the old name: uses it; what it is to be; the same under the new name.
RENAMED = {
    **{old: (lambda old=old: object_named(old), object_named(new), new) for old, new in plugins.RENAMED.items()},
    **{
        f"sampler={old!r}": (lambda old=old: samplers.sampler_by_name(old), samplers.sampler_by_name(new), f"sampler={new!r}")
        for old, new in samplers.RENAMED.items()
    },
    "stop='eos'": (lambda: Request(stop="eos"), Request(ending="eos"), "ending='eos'"),
    "stop='complete'": (lambda: Request(stop="complete"), Request(ending="complete"), "ending='complete'"),
    "AutomatonLeaf.over": (lambda: kind_of_reading().reads, "bytes", "AutomatonLeaf.reads"),
}


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_works_and_says_once_what_it_is_called_now(old, monkeypatch):
    monkeypatch.setattr(plugins, "_said", set())
    use, meant, new = RENAMED[old]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert [use(), use()] == [meant, meant]
    (one,) = said
    assert one.category is DeprecationWarning and one.filename == __file__  # the caller's line, not ours
    assert str(one.message) == f"{old} is {new} since Locore 0.2.0; the old name still works."


def test_no_name_of_today_is_old():
    """What the packages list, all samplers, stop strings and endings are used without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        for package in ("", ".batch", ".circuits", ".constraints", ".errors", ".hf", ".models", ".samplers", ".testing"):
            module = import_module(f"locore{package}")
            assert all(getattr(module, name) is not None for name in getattr(module, "__all__", ()))
        assert all(samplers.sampler_by_name(name).name == name for name in samplers.NAMED)
        assert Request(stop=["complete"]).stop == ("complete",) and Request(ending="eos").ending == "eos"


def test_the_shell_shows_it(monkeypatch):
    asked = ["generate", "The", "--max-new-tokens", "1", "--sampler", "greedy", "--seed", "0", "--contains", "a"]
    monkeypatch.setattr(plugins, "_said", set())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("ignore", DeprecationWarning)  # as Python does
        assert main(asked) == 0
    assert [str(one.message) for one in said] == [
        "sampler='greedy' is sampler='masked' since Locore 0.2.0; the old name still works."
    ]


def test_a_server_takes_the_old_name_of_a_sampler():
    from locore.server.schema import CompletionRequest

    with pytest.warns(DeprecationWarning, match="sampler='greedy' is sampler='masked'"):
        plugins._said.clear()
        assert CompletionRequest(model="tiny", prompt="a", sampler="greedy").sampler == "masked"
    with pytest.raises(ValueError, match="Input should be"):
        CompletionRequest(model="tiny", prompt="a", sampler=["greedy"])
