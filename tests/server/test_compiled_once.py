"""A constraint is compiled once for each request, and once for all where its reading may be shared."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

import locore
from locore.cache import Kept
from locore.compilers import stored
from locore.compilers.compile import compile_and_tell
from locore.kernel.limits import Limits
from locore.server.compare import Comparison
from locore.server.comparison_schema import CompareRequest
from locore.server.compute import Computer, Run
from locore.server.schema import CompletionRequest
from tests.effort import THOROUGH, some

LENGTH = 12
FIELDS = {
    f"field_{i}": {"enum": [f"value {i} {j}" for j in range(40)]} if i % 2 else {"type": "string", "maxLength": 30}
    for i in range(30)
}
LARGE = locore.json_schema({"type": "object", "properties": FIELDS})
CONSTRAINTS = {
    "large schema": LARGE,
    "grammar": locore.grammar('start: "a" start "b" | "c"'),
    "large schema and ban": LARGE & locore.ban(["xyz"]),
    "small": locore.ends_with(" happy."),
    "bonus": locore.ends_with(" happy.") * locore.bonus(locore.contains(" cat"), 2.0),
}


@pytest.fixture(scope="module")
def computer():
    return Computer(locore.load("tiny"), Limits())


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """What was compiled, and how often; nothing is found in a folder."""
    problems = []
    module = __import__("locore.compilers.compile", fromlist=["_explained"])
    plain = module._explained
    monkeypatch.setattr(module, "_explained", lambda problem: problems.append(problem) or plain(problem))
    monkeypatch.setenv("LOCORE_CACHE", str(tmp_path))
    stored.forget()
    yield problems
    stored.forget()


def answer(computer, constraint, seed=0, **fields):
    asked = {"max_tokens": LENGTH, "num_particles": 2, "sampler": "smc", "seed": seed, **fields}
    (task,) = CompletionRequest(model="tiny", prompt="It", constraint=constraint.to_json(), **asked).tasks(16)
    run = Run(computer, task, computer.model)
    assert run.circuit is run.circuit
    return run.result()


@pytest.mark.parametrize("name", some(CONSTRAINTS, every=2))
def test_a_request_compiles_nothing_twice(computer, compiled, name):
    answer(computer, CONSTRAINTS[name])
    assert compiled
    assert len(set(compiled)) == len(compiled)


def test_the_answer_says_what_compiling_took(computer, compiled, monkeypatch):
    """Where it is done, not where the circuit is asked for again."""
    module = __import__("locore.compilers.compile", fromlist=["_explained"])
    plain, now = module._explained, [0.0]

    def slow(problem):
        now[0] += 7.0
        return plain(problem)

    monkeypatch.setattr(module, "_explained", slow)
    monkeypatch.setattr(stored, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    told = [answer(computer, LARGE, seed=seed).to_json()["diagnostics"]["compile_seconds"] for seed in range(2)]
    assert told == [7.0, 0.0]


def test_a_comparison_compiles_once(computer, compiled):
    asked = {"max_tokens": LENGTH, "num_particles": 2, "seed": 1}
    (task,) = CompareRequest(model="tiny", prompt="It", constraint=LARGE.to_json(), **asked).tasks(16)
    size = Comparison(Run(computer, task, computer.model)).result()["circuit"]
    assert len(compiled) == 1
    assert (size["nodes"], size["trellis"]) == (None, None)  # it has no nodes, and is compared all the same


def test_a_large_schema_is_compiled_once_for_all_requests(computer, compiled):
    answer(computer, LARGE)
    answer(computer, LARGE, seed=1)
    assert len(compiled) == 1


def test_it_is_compiled_again_where_it_has_grown_beyond_what_is_kept(computer, compiled, monkeypatch):
    monkeypatch.setattr(stored, "_growing", Kept(1_000_001, stored._growing._size))  # what one counts as when it is made
    answer(computer, LARGE)
    answer(computer, locore.json_schema({"type": "object", "properties": {**FIELDS, "other": True}}))
    answer(computer, LARGE)
    assert len(compiled) == 3


def test_what_others_have_asked_before_changes_no_answer(computer, compiled):
    """States are numbered as they are reached; no answer may depend on the numbers."""
    rng = random.Random(0)
    samplers = ["smc", "swor", "masked", "twisted", None] if THOROUGH else ["swor", None]
    cases = [(sampler, rng.randrange(1000)) for sampler in samplers for _ in range(4 if THOROUGH else 1)]
    rng.shuffle(cases)

    def texts(sampler, seed):
        try:
            return answer(computer, LARGE, seed=seed, sampler=sampler, budget=100).to_json()["texts"]
        except locore.kernel.errors.ZeroWeights:
            return None

    together = [texts(*case) for case in cases]
    assert len(compiled) == 1
    for case, before in zip(cases, together, strict=True):
        stored.forget()
        assert texts(*case) == before


def test_sizes_are_asked_for_anew():
    sizes = {"a": 1.0, "b": 1.0, "c": 1.0}
    kept = Kept(5, sizes.__getitem__)
    for name in sizes:
        kept.put(name, name)
    sizes["b"] = 3.0
    kept.weigh()
    assert [kept.get(name) for name in "abc"] == ["a", "b", "c"]
    sizes["c"] = 4.0
    kept.weigh()  # c was used last
    assert [kept.get(name) for name in "abc"] == [None, None, "c"]
    sizes["c"] = 6.0
    kept.weigh()
    assert kept.get("c") is None
    assert kept.total == 0


def test_a_reading_says_what_it_has_come_to(compiled):
    model = locore.load("tiny")
    reader = compile_and_tell(LARGE, model, LENGTH).circuit.reader
    sizes = [reader.num_bytes]
    for seed in range(3):
        locore.generate(model, "It", LARGE, LENGTH, num_particles=4, sampler="smc", seed=seed)
        sizes.append(reader.num_bytes)
    assert sizes == sorted(sizes)
    assert sizes[-1] > 2 * sizes[0]
