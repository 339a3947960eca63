"""`locore bench dyck`: the laws that it knows are right, and a sampler that is wrong is seen."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from locore_lab.bench import dyck
from locore_lab.shared import RESULTS

from locore.testing import total_variation

LENGTH = 6
CHAINS = {1: dyck.ONE_KIND, 2: dyck.TWO_KINDS}
CLOSES = {"(": ")", "[": "]"}


def problem(kinds):
    return dyck.Problem("short", kinds, LENGTH, lambda: dyck.chain(CHAINS[kinds]), 2)


def can_be_completed(text):
    """Within the length, by a stack."""
    stack = []
    for sign in text:
        if sign in CLOSES:
            stack.append(CLOSES[sign])
        elif not stack or stack.pop() != sign:
            return False
    return len(stack) <= LENGTH - len(text)


def step(rows, text, sign):
    """p(sign | text)."""
    signs = "()[]"
    return rows[signs.index(text[-1]) if text else 0][signs.index(sign)]


def by_hand(rows, weight):
    """The law of drawing sign after sign in proportion to p(sign | text) times a weight of what comes then."""
    law = {"": 1.0}
    for _ in range(LENGTH):
        longer = {}
        for text, probability in law.items():
            found = {s: step(rows, text, s) * weight(text + s) for s in "()[]"[: len(rows)] if can_be_completed(text + s)}
            longer |= {text + s: probability * one / sum(found.values()) for s, one in found.items()}
        law = longer
    return law


@pytest.mark.parametrize("kinds", [1, 2])
def test_what_is_known_is_so(kinds):
    one, rows = problem(kinds), CHAINS[kinds]
    model = one.opened()
    found = dyck.known(model, one.circuit(model))

    def next_mass(text):
        if len(text) == LENGTH:
            return 1.0
        return sum(step(rows, text, s) for s in "()[]"[: len(rows)] if can_be_completed(text + s))

    words = ["".join(word) for word in itertools.product("()[]"[: len(rows)], repeat=LENGTH)]
    joint = {word: math.prod(step(rows, word[:i], s) for i, s in enumerate(word)) for word in words if can_be_completed(word)}
    joint = {word: p for word, p in joint.items() if word.count("(") + word.count("[") == LENGTH // 2}
    total = sum(joint.values())
    assert len(joint) == 5 * kinds**3 and found.log_z == pytest.approx(math.log(total))
    assert found.truth == pytest.approx({word: p / total for word, p in joint.items()})
    assert found.masking == pytest.approx(by_hand(rows, lambda text: 1.0))
    assert found.one_step == pytest.approx(by_hand(rows, next_mass))
    prefixes = {word[:i] for word in joint for i in range(1, LENGTH)}
    assert found.prefixes == len(prefixes)


def test_a_sampler_is_judged():
    """Exact weights have no distance but that of rounding; without weights masking keeps its own."""
    one = problem(2)
    model = one.opened()
    circuit = one.circuit(model)
    found = dyck.known(model, circuit)
    exact = dyck.sampled(model, circuit, found, "exact", 200, 20)
    assert exact["tv"] < 1e-9 and exact["rmse"] < 1e-9 and exact["failed"] == 0
    biased = dyck.sampled(model, circuit, found, "masking, unweighted", 500, 200)
    far = total_variation(found.masking, found.truth)
    assert far > 0.5 and biased["tv"] == pytest.approx(far, abs=0.05)


def test_where_nothing_is_found():
    one = problem(1)
    model = one.opened()
    circuit = one.circuit(model)
    row = dyck.sampled(model, circuit, dyck.known(model, circuit), "rejection", 10, 20)
    assert row["failed"] == row["runs"] == 2 and row["tv"] == pytest.approx(1) and row["rmse"] is None


def test_committed_results():
    record = json.loads((RESULTS / "dyck.json").read_text())
    assert {row["problem"] for row in record["rows"]} == {one.name for one in dyck.PROBLEMS}
    found = {(row["problem"], row["sampler"], row.get("budget")): row for row in record["rows"]}
    for one in dyck.PROBLEMS:
        row = found[one.name, "auto", 1000]
        assert row["tv"] - row["noise"] < 0.03 < found[one.name, "one step ahead", None]["tv"]
