"""JSON forms: round trips, and errors that name the place."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given

from locore.constraints import ban, constraint, contains_tokens, count_tokens, from_json, token
from locore.kernel import plugins
from locore.kernel.constraints import serial
from locore.kernel.constraints.serial import register
from locore.kernel.errors import InvalidConstraint, UnsupportedKeyword

from .strategies import constraints


@given(constraints())
def test_round_trip(a):
    assert from_json(json.loads(json.dumps(a.to_json()))) == a


def test_forms_omit_defaults():
    assert ban(["a"]).to_json() == {"type": "ban", "phrases": ["a"]}
    assert ban("a", "tokens").to_json() == {"type": "ban", "phrases": ["a"], "level": "tokens"}
    assert (~token(2, [5, 4])).to_json() == {"type": "not", "of": {"type": "token", "position": 2, "in": [4, 5]}}
    counted = {"type": "count_tokens", "positions": [0, 1], "in": [3], "at_most": 1}
    assert count_tokens(3, [0, 1], at_most=1).to_json() == counted
    phrases = contains_tokens([[1, 2]])
    assert from_json({"type": "contains_tokens", "sequences": [[1, 2]]}) == phrases
    assert from_json(phrases.to_json()) == phrases


WRONG = [
    ({"type": "bann"}, "'bann'.*known types are: .*and, .*ban, .*true"),
    ({"type": "and", "of": [{"type": "true"}, {"type": "x"}]}, r"of\[1\]\.type"),
    ({"type": "and", "of": [{"type": "ban", "phrases": ["a", 3]}]}, r"of\[0\]\.phrases\[1\].*3"),
    ({"type": "not", "of": {"type": "ban", "phrases": [""]}}, r"empty phrase.*at of\)"),
    ({"type": "ban", "phrases": "ab"}, "phrases must be a list"),
    ({"type": "ban"}, "'phrases'"),
    ({"type": "not", "of": [{"type": "true"}]}, "at of there is"),
    ({"type": "token", "position": True, "in": [1]}, "position must be an integer"),
    ({"type": "token", "position": 0, "in": [-1]}, "-1.*the top"),
    ({"type": "contains", "text": 5}, "text must be a string"),
    ([], "the top"),
    ({"of": []}, "the top"),
    ({"type": ["and"]}, "the top"),
    (None, "the top"),
]


@pytest.mark.parametrize(("form", "message"), WRONG)
def test_wrong_values_name_the_place(form, message):
    with pytest.raises(InvalidConstraint, match=message):
        from_json(form)


def test_unknown_fields_are_never_dropped():
    form = {"type": "or", "of": [{"type": "true"}, {"type": "ban", "phrases": ["a"], "word": 1}]}
    with pytest.raises(UnsupportedKeyword, match=r"'ban'.*'word' \(at of\[1\]\.word\).*phrases, level"):
        from_json(form)


def nested(depth):
    form = {"type": "token", "position": 0, "in": [1]}
    for _ in range(depth):
        form = {"type": "not", "of": form}
    return form


def test_depth_is_limited():
    assert from_json(nested(98)) == token(0, 1)
    for depth in (100, 5000):
        with pytest.raises(InvalidConstraint, match="deeper than 100"):
            from_json(nested(depth))
    deep = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(InvalidConstraint):
        from_json({"type": "ban", "phrases": deep})


def test_a_python_function_has_a_form_once_traced():
    @constraint
    def first(tokens):
        return tokens[0] == 1

    with pytest.raises(InvalidConstraint, match=r"`first`.*c\.at\(n\)"):
        (first & ban("a")).to_json()
    assert from_json(first.at(2).to_json()) == token(0, 1)


def test_what_nobody_has_imported_yet_is_found():
    """Puzzles are a part of their own, which is imported when a form names one; so are modules of other distributions."""
    code = (
        "import sys, locore\nfrom locore.constraints import from_json\n"
        "assert not any(name.startswith('locore.puzzles') for name in sys.modules)\n"
        "print(from_json({'type': 'all_different', 'positions': [0, 1]}) == locore.all_different([0, 1]))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "True"


def test_a_distribution_may_bring_constraints_along(monkeypatch):
    """By an entry point, which is loaded once, when a type is not known."""
    loaded = []
    point = SimpleNamespace(load=lambda: loaded.append(1) or register("never_seen", lambda: ban("a")))
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point] if group == plugins.CONSTRAINTS else [])
    monkeypatch.setattr(plugins, "_waiting", {})
    monkeypatch.setattr(serial, "_KINDS", dict(serial._KINDS))
    with pytest.raises(InvalidConstraint, match=r"never_sen.*did you mean 'never_seen'"):
        from_json({"type": "never_sen"})
    assert from_json({"type": "never_seen"}) == ban("a")
    assert loaded == [1]


def test_whoever_asks_waits_until_all_is_registered(tmp_path, monkeypatch):
    """Also a thread that asks while another one imports: it would miss what comes last."""
    (tmp_path / "comes_late.py").write_text("import time\ntime.sleep(0.2)\nCOME = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins.announce("tests.late", "comes_late")
    come = []

    def asked() -> None:
        plugins.load("tests.late")
        come.append(hasattr(sys.modules["comes_late"], "COME"))

    threads = [threading.Thread(target=asked) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert come == [True, True]
