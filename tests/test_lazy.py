"""Properties that are computed once: objects of a class do not wait for each other."""

from __future__ import annotations

import importlib
import re
import threading
from pathlib import Path

import pytest

from locore.kernel import plugins
from locore.kernel.plugins import cached_property
from tests.pages import ROOT


def test_what_failed_to_register_is_looked_for_again(monkeypatch, tmp_path):
    """After Ctrl-C or an error in between, nobody is left with half of it."""
    group = "locore.tests.none"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(plugins._waiting, group, [])
    plugins.announce(group, "registers_late")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="registers_late"):
            plugins.load(group)
    (tmp_path / "registers_late.py").write_text("")
    importlib.invalidate_caches()
    plugins.load(group)
    assert plugins._waiting[group] == []


class Thing:
    def __init__(self, gate: threading.Event | None = None) -> None:
        self.gate, self.asked = gate, threading.Event()

    @cached_property
    def value(self) -> object:
        self.asked.set()
        if self.gate is not None:
            self.gate.wait(60)
        return object()


def test_one_object_does_not_wait_for_another():
    gate = threading.Event()
    slow = Thing(gate)
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    assert slow.asked.wait(60)
    quick = threading.Thread(target=lambda: Thing().value)
    quick.start()
    quick.join(60)
    assert not quick.is_alive() and thread.is_alive()
    gate.set()
    thread.join(60)


def test_a_value_is_computed_once_and_the_same_for_all():
    gate = threading.Event()
    thing, found = Thing(gate), []
    threads = [threading.Thread(target=lambda: found.append(thing.value)) for _ in range(4)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(60)
    assert len(found) == 4 and set(found) == {thing.value}


def test_there_is_one_kind():
    """That of `functools` would bring its lock back."""
    files = [path for path in (Path(ROOT) / "src").rglob("*.py") if path.name != "plugins.py"]
    assert not [
        path for path in files if re.search(r"functools import .*cached_property|functools\.cached_property", path.read_text())
    ]
