"""Kept circuits are the compiled ones, under keys that no two constraints share, whatever happens to their files."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from locore.cache import Kept, keep_within, read_tensors, write_tensors
from locore.cli import main
from locore.compilers import compile, stored
from locore.compilers.circuit_files import from_tensors, to_tensors
from locore.compilers.compile import compile_and_tell
from locore.constraints import Constant, TokenPhrases, ban, contains, json_schema, regex, token
from locore.kernel.compilers.problem import Problem
from locore.kernel.errors import InvalidArgument, Unsatisfiable
from locore.kernel.limits import Limits
from locore.kernel.tokenizer import Tokenizer
from tests.effort import THOROUGH, examples

from ..constraints import strategies

TOKENIZER = Tokenizer.from_tokens([b"a", b"b", b"ab", None, None, None], eos_ids=(4, 5))
ALPHA = ban(["aba", "bb"])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache that keeps everything."""
    monkeypatch.setenv("LOCORE_CACHE", str(tmp_path))
    monkeypatch.setattr(stored, "WORTH_SECONDS", 0.0)
    stored.forget()
    yield tmp_path / "circuits"
    stored.forget()


def origin(alpha=ALPHA, length=6, **options):
    return compile_and_tell(alpha, TOKENIZER, length, **options).origin


def assert_same(first, second):
    """Equal tensor by tensor, type by type, and shared where the other shares."""
    for name in ("length", "num_classes", "structured", "relaxed", "limits"):
        assert getattr(first, name) == getattr(second, name)
    assert first.chain.positions == second.chain.positions
    ours, theirs = parts_of(first), parts_of(second)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    assert sharing(first) == sharing(second)
    assert [b.num_inputs for b in first.chain.blocks] == [b.num_inputs for b in second.chain.blocks]
    assert (first.reader is None) == (second.reader is None)
    if first.reader is not None:
        assert first.reader.start == second.reader.start
        assert (first.reader.coaccessible is None) == (second.reader.coaccessible is None)


def parts_of(circuit):
    tensors = [circuit.token_class, circuit.chain.final]
    for block in circuit.chain.blocks:
        tensors += [block.leaves, block.outputs, *block.levels]
    reader = circuit.reader
    if reader is not None:
        tensors += [reader.token_class, *reader.rows, *reader.live]
        tensors += [] if reader.coaccessible is None else [reader.coaccessible]
    return tensors


def sharing(circuit):
    """Which positions have the same block, and the same rows, as which before."""
    objects = [*circuit.chain.blocks, *(circuit.reader.rows if circuit.reader is not None else ())]
    first: dict[int, int] = {}
    return [first.setdefault(id(thing), i) for i, thing in enumerate(objects)]


def problem(alpha, length=strategies.LENGTH, tokenizer=strategies.WORDS, min_length=0, states=1000):
    return Problem(alpha.at(length).bind(tokenizer), tokenizer, length, min_length, Limits(states=states))


# What is stored.


@settings(max_examples=examples(80))
@given(strategies.constraints(), st.integers(0, 2))
def test_a_stored_circuit_is_the_same(alpha, min_length):
    try:
        circuit = compile(alpha, strategies.WORDS, strategies.LENGTH, min_length=min_length, use_cache=False)
    except Unsatisfiable:
        return
    assert_same(from_tensors(*to_tensors(circuit)), circuit)


def test_a_circuit_of_a_vtree_is_the_same():
    pytest.importorskip("pysdd")
    circuit = compile(token(0, 1) | token(2, 1), 3, 4, vtree=((0, 2), (1, 3)), use_cache=False)
    assert circuit.reader is None
    assert_same(from_tensors(*to_tensors(circuit)), circuit)


def test_a_file_gives_the_same_circuit_and_the_same_answers(folder):
    circuit = compile(ALPHA, TOKENIZER, 30, min_length=2)
    stored.forget()
    loaded = compile(ALPHA, TOKENIZER, 30, min_length=2)
    assert loaded is not circuit
    assert_same(loaded, circuit)
    assert loaded.count() == circuit.count()


# Keys.


@settings(max_examples=examples(300))
@given(strategies.constraints(), strategies.constraints())
def test_constraints_share_a_key_only_if_they_are_equal(first, second):
    ours, theirs = problem(first), problem(second)
    assert (stored.key_of(ours) == stored.key_of(theirs)) == (ours.constraint == theirs.constraint)
    assert stored.key_of(ours) == stored.key_of(problem(first))


def test_everything_else_counts_too():
    keys = [
        stored.key_of(problem(ALPHA)),
        stored.key_of(problem(ALPHA, length=4)),
        stored.key_of(problem(ALPHA, min_length=1)),
        stored.key_of(problem(ALPHA, states=5)),
        stored.key_of(problem(ALPHA, tokenizer=TOKENIZER)),
        stored.key_of(replace(problem(ALPHA), vtree=((0, 1), 2))),
        stored.key_of(replace(problem(ALPHA), vtree=(0, (1, 2)))),
        stored.key_of(problem(~ALPHA)),
        stored.key_of(problem(regex("ab"))),
        stored.key_of(problem(regex("ab", ignore_case=True))),
    ]
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_the_order_of_a_schema_counts():
    """Sorted fields would make these two one constraint."""
    pytest.importorskip("jsonschema")
    names = ("b", "a")
    properties = {name: {"type": "boolean"} for name in names}
    turned = {name: properties[name] for name in reversed(names)}
    assert properties == turned
    keys = {
        stored.key_of(problem(json_schema({"type": "object", "properties": p}, order="schema"), tokenizer=TOKENIZER))
        for p in (properties, turned)
    }
    assert len(keys) == 2


def test_shared_parts_are_read_once():
    """Written out, this formula has 2**200 parts and no JSON form."""
    alpha = Constant(False)
    for position in range(200):
        alpha = alpha ^ token(position, 1)
    start = problem(alpha, 200)
    assert stored.key_of(start) == stored.key_of(problem(alpha, 200))
    assert stored.key_of(start) != stored.key_of(problem(~alpha, 200))


class Home(TokenPhrases):
    """A kind of constraint from outside: its code may change, and no version says so."""


def test_kinds_from_elsewhere_are_not_kept(folder):
    alpha = ALPHA & Home(((0, 1),))
    assert stored.key_of(problem(alpha)) is None
    assert origin(alpha) == origin(alpha) == "compiled"
    assert not folder.exists()


# Where circuits come from.


def test_memory_then_disk_then_the_compiler(folder):
    assert origin() == "compiled"
    assert origin() == "memory"
    stored.forget()
    assert origin() == "disk"
    assert origin() == "memory"
    stored.forget()
    for path in folder.iterdir():
        path.unlink()
    assert origin() == "compiled"


def test_what_is_quickly_compiled_is_not_kept(folder, monkeypatch):
    monkeypatch.setattr(stored, "WORTH_SECONDS", 3600.0)
    assert origin() == origin() == "compiled"
    assert not folder.exists()


def test_the_cache_can_be_left_alone(folder, monkeypatch):
    assert origin(use_cache=False) == "compiled"
    assert not folder.exists()
    assert origin() == "compiled"
    assert origin(use_cache=False) == "compiled"
    monkeypatch.setenv(stored.SETTING, "0")
    assert origin() == "compiled"
    monkeypatch.setenv(stored.SETTING, "1 GB")
    with pytest.raises(InvalidArgument, match=stored.SETTING):
        origin()


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch, folder):
    obstacle = tmp_path / "file"
    obstacle.write_text("not a folder")
    monkeypatch.setenv("LOCORE_CACHE", str(obstacle))
    assert origin() == "compiled"
    stored.forget()
    assert origin() == "compiled"


def test_the_command_says_where_the_circuit_came_from(folder, capsys):
    arguments = ["compile", "--constraint", json.dumps(token(0, 2).to_json()), "--vocab-size", "5", "--length", "4"]

    def told(*more):
        assert main([*arguments, *more]) == 0
        return dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())

    first, second = told(), told()
    assert (first["origin"], second["origin"]) == ("compiled", "cache (memory)")
    stored.forget()
    assert told()["origin"] == "cache (disk)"
    assert told("--no-cache")["origin"] == "compiled"
    assert {k: v for k, v in first.items() if k not in ("origin", "seconds")} == {
        k: v for k, v in second.items() if k not in ("origin", "seconds")
    }


# Bounds.


def test_the_memory_forgets_what_was_not_used_for_longest(folder):
    circuits = {name: compile(ban([name]), TOKENIZER, 6, use_cache=False) for name in ("a", "b", "ab")}
    sizes = [stored._bytes_of(circuit) for circuit in circuits.values()]
    memory = Kept(sum(sizes) - 1, stored._bytes_of)
    for name in ("a", "b"):
        memory.put(name, circuits[name])
    assert memory.get("a") is circuits["a"]
    memory.put("ab", circuits["ab"])
    assert memory.get("b") is None
    assert memory.get("a") is circuits["a"]
    assert memory.get("ab") is circuits["ab"]
    small = Kept(sizes[0], stored._bytes_of)
    small.put("a", circuits["a"])
    big = compile(ban(["abababab", "bbbb"]), TOKENIZER, 9, use_cache=False)
    small.put("big", big)
    assert small.get("big") is None
    assert small.get("a") is circuits["a"]


def test_the_disk_forgets_what_was_not_used_for_longest(tmp_path):
    content = {"x": torch.arange(1000)}
    paths = [tmp_path / f"{i}.safetensors" for i in range(4)]
    for age, path in enumerate(paths):
        assert write_tensors(path, content, {})
        os.utime(path, (1e9 - age, 1e9 - age))
    assert read_tensors(paths[3]) is not None  # used now
    size = paths[0].stat().st_size
    keep_within(tmp_path, 3 * size)
    assert [path.exists() for path in paths] == [True, True, False, True]
    keep_within(tmp_path, 3 * size)
    assert len(list(tmp_path.iterdir())) == 3
    keep_within(tmp_path, 2 * size - 1)
    assert [path.exists() for path in paths] == [False, False, False, True]


def test_what_killed_writers_left_is_removed(tmp_path):
    old, new = tmp_path / ".a.1.tmp", tmp_path / ".b.2.tmp"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 86400,) * 2)
    keep_within(tmp_path, 10**9)
    assert not old.exists()
    assert new.exists()


def test_the_setting_bounds_the_folder(folder, monkeypatch):
    compile(ALPHA, TOKENIZER, 6)
    size = sum(path.stat().st_size for path in folder.iterdir())
    monkeypatch.setenv(stored.SETTING, str(int(2.5 * size)))
    for length in range(7, 12):
        compile(ALPHA, TOKENIZER, length)
        assert sum(path.stat().st_size for path in folder.iterdir()) <= 2.5 * size
    stored.forget()
    assert origin(length=11) == "disk"
    assert origin(length=6) == "compiled"


# Damage.


@settings(max_examples=examples(150))
@given(st.data())
def test_damage_is_noticed(tmp_path_factory, data):
    """A cut, one changed bit, garbage: never a circuit, and the file is gone."""
    circuit = compile(contains("ab"), TOKENIZER, 3, use_cache=False)
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    tensors, notes = to_tensors(circuit)
    assert write_tensors(path, tensors, notes)
    whole = path.read_bytes()
    kind = data.draw(st.sampled_from(["cut", "bit", "garbage"]))
    if kind == "cut":
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    elif kind == "bit":
        changed = bytearray(whole)
        changed[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(changed)
    else:
        path.write_bytes(data.draw(st.binary()))
    found = read_tensors(path)
    if found is not None:  # a changed bit in the spelling of the header may mean nothing, such as a space for a tab
        assert kind == "bit"
        assert_same(from_tensors(*found), circuit)
    else:
        assert not path.exists()


@pytest.mark.parametrize("spoil", [lambda b: b[: len(b) // 2], lambda b: b"garbage", lambda b: b""])
def test_a_damaged_entry_is_rebuilt(folder, spoil):
    circuit = compile(ALPHA, TOKENIZER, 6)
    (path,) = folder.iterdir()
    path.write_bytes(spoil(path.read_bytes()))
    stored.forget()
    rebuilt = compile_and_tell(ALPHA, TOKENIZER, 6)
    assert rebuilt.origin == "compiled"
    assert_same(rebuilt.circuit, circuit)
    stored.forget()
    assert origin() == "disk"


def test_a_file_under_a_wrong_name_is_not_taken(folder):
    compile(ALPHA, TOKENIZER, 6)
    (path,) = folder.iterdir()
    other = compile(contains("ab"), TOKENIZER, 6)
    (wrong,) = set(folder.iterdir()) - {path}
    path.replace(wrong)
    stored.forget()
    again = compile_and_tell(contains("ab"), TOKENIZER, 6)
    assert again.origin == "compiled"
    assert_same(again.circuit, other)


# Several processes.

ROUNDS, PROCESSES = 150 if THOROUGH else 40, 3


def busy(folder: str, marks: str, number: int) -> str:
    """Write one of two contents under one name, read it, and crowd the folder; returns what went wrong."""
    shared, mark = Path(folder) / "shared.safetensors", Path(marks) / str(number)
    for turn in range(ROUNDS):
        value = (number + turn) % 2
        write_tensors(shared, {"x": torch.full((20_000,), value)}, {"value": str(value)})
        found = read_tensors(shared)
        if found is not None and not bool((found[0]["x"] == int(found[1]["value"])).all()):
            mark.touch()  # nobody waits for this one
            return f"half of one and half of another in turn {turn}"
        if found is None and turn < ROUNDS // 2:
            mark.touch()
            return f"nothing could be read in turn {turn}"
        write_tensors(Path(folder) / f"{number}-{turn}.safetensors", {"x": torch.zeros(100)}, {})
        if turn == ROUNDS // 2 - 1:  # nobody removes anything before all have come so far
            mark.touch()
            while len(list(Path(marks).iterdir())) < PROCESSES:
                time.sleep(0.01)
        if turn >= ROUNDS // 2:
            keep_within(Path(folder), 400_000)
    return ""


def test_writers_and_readers_do_not_disturb_each_other(tmp_path, tmp_path_factory):
    """Whatever is read is whole; while nothing is removed, something is always read."""
    marks = tmp_path_factory.mktemp("marks")
    with multiprocessing.get_context("fork").Pool(PROCESSES) as pool:
        told = pool.starmap(busy, [(str(tmp_path), str(marks), number) for number in range(PROCESSES)])
    assert told == [""] * PROCESSES
    keep_within(tmp_path, 400_000)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 400_000
    assert not list(tmp_path.glob(".*"))
