"""Laws of audits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import locore
from locore.cli import main
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel

TOKENIZER = Tokenizer.from_tokens([b"a", b"b"])
PROMPTS = ["Once upon a time", "The dog"]


def test_the_truth_of_a_chain_is_within_intervals_and_bounds() -> None:
    """p("bb" within 8 tokens) by dynamic programming; 20 runs, of which 95 % should hold: fewer than 16 in 3 of 1,000."""
    rare = 1e-3
    model = MarkovModel([1 - rare, rare], [[1 - rare, rare]] * 2, tokenizer=TOKENIZER)
    none, one, hit = 1.0, 0.0, 0.0
    for _ in range(8):
        none, one, hit = (none + one) * (1 - rare), none * rare, hit + one * rare
    found = locore.audit(model, [[]] * 20, ["bb"], 8, limit=1e-3, budget=60, seed=1)
    assert all(row.bounds[0] <= hit * (1 + 1e-9) and hit <= row.bounds[1] * (1 + 1e-9) for row in found.rows)
    assert sum(row.interval[0] <= hit * (1 + 1e-9) and hit <= row.interval[1] * (1 + 1e-9) for row in found.rows) >= 16
    assert found.bounds[0] <= hit * (1 + 1e-9) and not any(row.texts for row in found.rows)


def test_rows_learn_from_the_first_and_do_not_depend_on_how_many_follow() -> None:
    prompts = ["Once upon a time", "The dog", "She was", "In the park", "One day", "Tom", "A big"]
    asked: dict[str, Any] = {"max_tokens": 6, "budget": 300, "seed": 3}
    long, short = (locore.audit("tiny", some, [" dragon", " cake"], **asked) for some in (prompts, prompts[:6]))
    by_index = {row.index: row.probability for row in long.rows}
    assert all(row.probability == by_index[row.index] for row in short.rows)
    others = [*reversed(prompts[:4]), *prompts[4:6]]  # the same rows teach in another order
    other = {row.index: row.probability for row in locore.audit("tiny", others, [" dragon", " cake"], **asked).rows}
    assert other[5] != by_index[5]


def test_what_cannot_be_written_is_below_every_limit() -> None:
    found = locore.audit("tiny", PROMPTS, [" supercalifragilistic"], 2, limit=1e-9)
    assert found.settled == "below" and found.bounds == (0, 0) and found.rows[0].verdict == "impossible"


@pytest.mark.parametrize(
    ("prompts", "phrases", "limit"), [("one", ["a"], None), ([], ["a"], None), (["a"], [], None), (["a"], ["b"], 2.0)]
)
def test_bad_input_is_refused(prompts: list[str], phrases: list[str], limit: float | None) -> None:
    with pytest.raises(locore.errors.LocoreError):
        locore.audit("tiny", prompts, phrases, 3, limit)


def test_what_looks_for_the_likeliest_text_audits_nothing() -> None:
    """It was NaN, with a verdict of "trust"."""
    with pytest.raises(locore.errors.InvalidArgument, match="leave sampler out"):
        locore.audit("tiny", PROMPTS, [" was"], 4, sampler="search")


def test_one_text_is_not_audited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At temperature 0 there is one, and no p(α) that could be estimated."""
    with pytest.raises(locore.errors.InvalidArgument, match="take one above 0"):
        locore.audit("tiny", PROMPTS, [" was"], 4, temperature=0)
    (tmp_path / "p.jsonl").write_text('{"prompt": "The dog"}\n')
    (tmp_path / "b.txt").write_text(" was\n")
    files = ["--prompts", str(tmp_path / "p.jsonl"), "--ban-list", str(tmp_path / "b.txt")]
    assert main(["audit", *files, "--temperature", "0"]) == 3
    assert "take one above 0" in capsys.readouterr().out


def test_one_bad_prompt_is_a_row_wherever_it_stands_and_only_bad_ones_an_error() -> None:
    long = [0] * 100_000
    found = locore.audit("tiny", [long, "The dog"], [" was"], 4, budget=200, seed=1)
    assert [(row.index, row.verdict == "error") for row in found.rows] == [(0, True), (1, False)]
    assert found.mean is None and found.bounds[1] >= 0.5
    with pytest.raises(locore.errors.LocoreError):
        locore.audit("tiny", [long, long], [" was"], 4)


def test_what_was_not_seen_has_a_certain_upper_bound() -> None:
    """After "a" comes "a" or an end; nothing that was kept gets to "bb", but what was left is known."""
    model = MarkovModel([1 - 1e-9, 1e-9], [[1 - 1e-9, 1e-9]] * 2, tokenizer=TOKENIZER)
    rows = locore.audit(model, [[]], ["bb"], 3, limit=0.5, budget=3, sampler="swor", seed=0).rows
    assert rows[0].bounds[0] <= 2e-18 <= rows[0].bounds[1]


def test_the_shell_says_which_side(tmp_path: Path) -> None:
    prompts, phrases, out = tmp_path / "p.jsonl", tmp_path / "b.txt", tmp_path / "a.json"
    prompts.write_text('{"prompt": "Once upon a time"}\n{"prompt": "The dog"}\n')
    phrases.write_text(" was\n")
    base = [
        "audit",
        "--prompts",
        str(prompts),
        "--ban-list",
        str(phrases),
        "--max-tokens",
        "6",
        "--seed",
        "1",
        "--json",
        str(out),
    ]
    assert main([*base, "--limit", "1e-5"]) == 1
    assert len(json.loads(out.read_text())["rows"]) == 2
    assert main([*base, "--limit", "0.9999"]) in (0, 3)
    phrases.write_text(" supercalifragilistic\n")
    assert main([*base[:6], "2", "--limit", "1e-5"]) == 0


def test_the_shell_takes_a_constraint_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And says the same as of the phrase; neither or both are one sentence."""
    prompts, phrases, out = tmp_path / "p.jsonl", tmp_path / "b.txt", tmp_path / "a.json"
    prompts.write_text('{"prompt": "Once upon a time"}\n')
    phrases.write_text(" was\n")
    base = ["audit", "--prompts", str(prompts), "--max-tokens", "2", "--seed", "1", "--budget", "4000", "--json", str(out)]
    found = []
    for event in (["--ban-list", str(phrases)], ["--constraint", '{"type": "contains", "text": " was"}']):
        assert main([*base, *event]) == 0
        found.append(json.loads(out.read_text())["rows"][0])
    assert found[0]["by_phrase"] and not found[1]["by_phrase"]
    assert found[0]["probability"] == pytest.approx(found[1]["probability"], rel=0.02)
    for wrong in ([], ["--ban-list", str(phrases), "--constraint", "{}"], ["--constraint", "{"]):
        assert main([*base, *wrong]) == 2
        assert capsys.readouterr().err.count("\n") <= 3
