"""`locore bench cars`: what it reads, what a run is worth, and a task from beginning to end."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter

import pytest
from locore_lab.bench import cars
from locore_lab.shared import RESULTS

import locore
from locore.kernel.errors import InvalidArgument

LAW = {"a": 0.5, "b": 0.3, "c": 0.15, "(other)": 0.05}


def sha256(content):
    return hashlib.sha256(content.encode()).hexdigest()


@pytest.fixture
def clone(tmp_path):
    grammar, prompt = 'root ::= "s" | "#x" [08] | "(bvneg " root ")"', "Solution: s\nSolution: #x0\nSolution: "
    (tmp_path / "some.ebnf").write_text(grammar)
    (tmp_path / "some.txt").write_text(prompt)
    return tmp_path, cars.Listed("BV4", "some", 10, "some.ebnf", sha256(grammar), "some.txt", sha256(prompt))


@pytest.mark.parametrize("draws", [5, 40])
def test_exact_draws_are_worth_their_number(draws):
    rng = random.Random(draws)
    counts = [Counter(rng.choices([*"abc", "d"], [*list(LAW.values())[:3], 0.05], k=draws)) for _ in range(4000)]
    laws = [{text: number / draws for text, number in count.items()} for count in counts]
    assert cars.worth(laws, LAW) == pytest.approx(draws, rel=0.1)


def test_what_is_biased_is_worth_little_however_often_it_draws():
    exact = {"a": 0.5, "b": 0.3, "c": 0.15, "d": 0.05}
    assert cars.worth([exact], LAW) > 1e9
    far = {"a": 0.0, "b": 0.8, "c": 0.15, "d": 0.05}
    assert cars.worth([far] * 50, LAW) == pytest.approx((0.25 + 0.21 + 0.1275 + 0.0475) / 0.5)
    assert cars.worth([{}], LAW) < 2  # nothing was found


def test_calls_up_to_the_hundredth_draw():
    assert cars.calls_of([True, False] * 150) == (100, 199)
    assert cars.calls_of([False, False, True]) == (1, 3)


def test_their_logs_are_those_that_were_measured(tmp_path):
    texts = [json.dumps({"successes": found}) for found in ([True, False], [False, False])]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.json").write_text(text)
    row = cars.theirs(tmp_path, "*.json", sha256("".join(texts)))
    assert row == {"runs": 2, "accepted": 1, "calls": 4, "acceptance": 0.25}
    with pytest.raises(InvalidArgument, match="what is read of 2 files is another version"):
        cars.theirs(tmp_path, "*.json", sha256("other"))
    with pytest.raises(InvalidArgument, match=r"are not there; get them: .*git checkout"):
        cars.theirs(tmp_path, "*.txt", sha256("".join(texts)))


def test_a_task(clone, monkeypatch):
    monkeypatch.setattr(cars, "SIZES", (2, 4))
    folder, listed = clone
    model, names = locore.load("tiny"), ["auto", "cars", "masking, unweighted", "rejection"]
    said, *rows = cars.measured(listed, folder, model, names, {"timed": 1, "further": 3, "most": 3000})
    assert said["left"] <= cars.LEFT and set(said["texts"]) & {"s", "#x0", "#x8"}
    found = {row["sampler"]: row for row in rows}
    assert list(found) == names and all(row["runs"] == 4 for row in rows)
    assert found["auto"]["rmse"] < 0.1 and found["auto"]["tv"] < 0.1
    assert 0 < found["cars"]["acceptance"] <= 1 and found["cars"]["rmse"] < 2
    assert "rmse" not in found["masking, unweighted"]
    for row in rows:
        assert row["tokens_each"] == pytest.approx(row["lm_tokens"] / row["worth"])
    assert "BV4: some | auto" in cars.run.table([{"suite": "BV4", "task": "some", **rows[0]}])


def test_where_exact_draws_are_out_of_reach(clone):
    folder, listed = clone
    rows = cars.scarce(listed, folder, locore.load("tiny"), ["auto", "rejection"])
    assert rows[0]["texts"] >= 1 and max(rows[0]["log_z"]) < 0 and rows[0]["runs"] == len(rows[0]["log_z"])
    assert rows[1]["lm_tokens"] <= rows[1]["budget"]


def test_what_is_listed():
    record = cars.sources()
    assert re.fullmatch("[0-9a-f]{40}", record["commit"])
    listed = [cars.Listed(**one) for one in record["tasks"]]
    assert [one.name for one in listed if one.is_scarce] == ["sql"]
    assert {one.syntax for one in listed} == {"lark", "gbnf"}
    hashes = [text for one in listed for text in (one.grammar_sha256, one.prompt_sha256)]
    hashes += [log["sha256"] for log in record["logs"]]
    assert all(re.fullmatch("[0-9a-f]{64}", one) for one in hashes)


def test_committed_results():
    record = json.loads((RESULTS / "cars.json").read_text())
    assert "/" not in record["settings"]["clone"]
    theirs = {(row["suite"], row["sampler"]): row["acceptance"] for row in record["rows"] if row.get("part") == "theirs"}
    assert round(theirs["BV4", "cars"], 3) == 0.556
    measured = {row["task"] for row in record["rows"] if "task" in row}
    assert "bvsge_bvneg" in measured <= {one["name"] for one in cars.sources()["tasks"]}
