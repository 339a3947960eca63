"""`locore bench tasks`: its problems, its truths, its arithmetic, and that it goes on where it was killed."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from locore_lab.tasks import truth as truths
from locore_lab.tasks.command import QUICK_PROBLEMS, planned, selected
from locore_lab.tasks.drawn import drawn_problems
from locore_lab.tasks.measures import (
    at_cost,
    cell,
    default_against,
    geometric_mean,
    ratio_at_cost,
    ratio_to_peer,
    totals,
    worse_than,
)
from locore_lab.tasks.problem import OTHER, Law, Problem, Task, distance, first_word, laws_of, shortened, whole, words
from locore_lab.tasks.runs import DEFAULT, MAIN, OTHERS, Run, entrants, run_once
from locore_lab.tasks.study import TasksPlan, TasksStudy
from locore_lab.tasks.truth import Batch, Truth, check_model, find_truth, pooled, stored_truth, write_truth
from locore_lab.tasks.written import written_problems

import locore
from locore import choice, contains, ends_with
from locore.cli import main
from locore.io import Journal
from locore.kernel.errors import InvalidArgument, LocoreError
from locore.samplers import BY_NAME
from locore.samplers.twist.ngram import POSITIONS, prepared_table
from locore.testing import enumerate_posterior
from tests.effort import THOROUGH

laws = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0.01, 1.0), min_size=1).map(
    lambda found: {value: weight / sum(found.values()) for value, weight in found.items()}
)
TINY = Problem("tiny-happy", "ending", "The weather is", ends_with(" happy."), 3, (first_word(), words()), model="tiny")


@pytest.fixture(scope="module")
def tiny():
    return locore.load("tiny")


@pytest.fixture(scope="module")
def exact(tiny):
    """The law of the texts of `TINY` and log p(α), walked prefix by prefix, and its truth."""
    task = Task.of(dataclasses.replace(TINY, stop="eos"), tiny)
    found = enumerate_posterior(task.model, task.circuit)
    laws = laws_of(task.problem.features, found.texts(tiny.tokenizer))
    return task, found.log_evidence, laws


# Problems


def test_half_is_written_half_drawn_half_are_chats_and_no_family_is_missing():
    every = written_problems(), drawn_problems(0)
    assert [len(part) for part in every] == [19, 16]
    for part in every:
        assert set(Counter(p.family for p in part).values()) <= {2, 3}
        assert len({p.family for p in part}) == 8
        assert 8 <= sum(p.chat for p in part) <= 11
        assert all(6 <= p.length <= 64 for p in part)
    assert len({p.name for part in every for p in part}) == 35


@given(st.integers(0, 10**6))
def test_a_seed_draws_the_same_problems_always_and_they_survive_json(seed):
    problems = drawn_problems(seed)
    assert [p.key() for p in problems] == [p.key() for p in drawn_problems(seed)]
    for p in problems:
        assert locore.from_json(p.constraint.to_json()) == p.constraint
    assert [p.key() for p in problems] != [p.key() for p in drawn_problems(seed + 1)]


def test_the_key_tells_problems_apart():
    changed = [
        {"prompt": "It is"},
        {"length": 4},
        {"chat": True},
        {"stop": "eos"},
        {"constraint": contains("a")},
        {"features": ()},
    ]
    keys = {TINY.key(), *(dataclasses.replace(TINY, **change).key() for change in changed)}
    assert len(keys) == 1 + len(changed)


# Features


@given(laws, laws, laws)
def test_distance_is_a_metric_that_coarsens_never_increase(p, q, r):
    assert distance(p, p) == pytest.approx(0, abs=1e-12)
    assert 0 <= distance(p, q) <= 1 + 1e-12
    full = {value: q.get(value, 0.0) for value in p | q}
    assert distance(p, full) == pytest.approx(distance(full, {v: p.get(v, 0.0) for v in full}))
    everything = {v: r.get(v, 0.0) for v in p | q | r}
    assert distance(p, full) <= distance(p, everything) + distance(everything, full) + 1e-9
    assert distance(p, shortened(full, 2)) <= distance(p, full) + 1e-12


@given(laws, st.integers(1, 9))
def test_shortening_keeps_the_mass_and_the_likeliest(law, most):
    short = shortened(law, most)
    assert sum(short.values()) == pytest.approx(1)
    kept = {value: p for value, p in short.items() if value != OTHER}
    assert len(kept) == min(most, len(law))
    assert min(kept.values()) >= max([p for value, p in law.items() if value not in kept], default=0)


def test_every_feature_reads_every_text():
    for problem in [*written_problems(), *drawn_problems(3)]:
        for text in ("", " ", "x", '{"a": 1}', "[1]", " Every evening home.", "\n1. a", "The"):
            assert all(isinstance(feature(text), str) for feature in problem.features)


# Truths


def test_every_stored_truth_is_a_law_of_its_problem():
    known = [(p, t) for p in [*written_problems(), *drawn_problems(0)] if (t := stored_truth(p)) is not None]
    assert known
    for problem, truth in known:
        assert set(truth.laws) == {feature.name for feature in problem.features}
        assert truth.log_z <= 0 <= truth.log_z_error
        for law in truth.laws.values():
            assert sum(law.values()) == pytest.approx(1, abs=1e-3)
            assert min(law.values()) >= 0


def test_the_quick_mode_makes_no_truth():
    known = {p.name: stored_truth(p) for p in written_problems()}
    assert all(known[name] for name in QUICK_PROBLEMS)


def test_a_truth_is_read_back_and_not_taken_for_another_problem(tmp_path):
    truth = Truth(TINY.key(), -1.5, 0.1, {"first word": {"a": 0.25, "ü": 0.75}}, 0.01, [([1, 2, 0], -3.5)], "nowhere")
    write_truth(truth, tmp_path / "tiny-happy.json")
    assert stored_truth(TINY, [tmp_path]) == truth
    assert stored_truth(dataclasses.replace(TINY, length=4), [tmp_path]) is None


@pytest.mark.slow
def test_pooling_finds_what_enumeration_finds(exact, tmp_path, monkeypatch):
    """Within 4 standard errors, each as its samplers state them: false alarms in 1 of 10,000 runs if these are right."""
    task, log_z, laws = exact
    enumerated = find_truth(task, Journal(tmp_path / "a.jsonl", {}))
    assert enumerated.log_z == pytest.approx(log_z, abs=1e-4)
    assert enumerated.source.startswith("enumeration")
    monkeypatch.setattr(truths, "ENUMERATED", 0)
    found = find_truth(task, Journal(tmp_path / "b.jsonl", {}))
    assert "smc" in found.source and "twisted" in found.source
    assert abs(found.log_z - log_z) <= 4 * found.log_z_error + 1e-3
    for name, law in laws.items():
        assert distance(found.laws[name], shortened(law, truths.VALUES)) <= 4 * found.laws_error + 0.05
        assert distance(enumerated.laws[name], shortened(law, truths.VALUES)) <= 2e-3  # ties at the cut, and digits


def test_a_truth_that_was_killed_goes_on(exact, tmp_path, monkeypatch):
    task, _, _ = exact
    monkeypatch.setattr(truths, "ENUMERATED", 0)
    if not THOROUGH:
        monkeypatch.setattr(truths, "BATCH_TOKENS", 400)
    path = tmp_path / "batches.jsonl"
    first = find_truth(task, Journal(path, {}), batches=(3,))
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:4]) + "\n")
    assert find_truth(task, Journal(path, {}), batches=(3,)) == first
    assert sorted(path.read_text().splitlines()) == sorted(lines)


def test_samplers_that_disagree_make_no_truth(exact):
    task, _, _ = exact
    features = {"first word": {"a": 1.0}, "number of words": {"1": 1.0}}

    def batches(*values):
        return [Batch(value, features, [([1], -1.0)]) for value in values]

    apart = {"smc": batches(-1.0, -1.01, -1.02), "twisted": batches(-2.0, -2.01, -2.02)}
    with pytest.raises(LocoreError, match="disagree"):
        pooled(task, apart)
    together = pooled(task, {"smc": batches(-1.0, -1.4), "twisted": batches(-1.1, -1.3)})
    assert -1.4 < together.log_z < -1.0
    with pytest.raises(LocoreError, match="found nothing"):
        pooled(task, {"smc": batches(-math.inf, -math.inf), "twisted": batches(-1.0, -1.1)})


def test_where_few_batches_disagree_there_are_more(exact, tmp_path, monkeypatch):
    task, _, _ = exact
    monkeypatch.setattr(truths, "ENUMERATED", 0)
    asked = []

    def pooled_of(task, names, number, journal):
        asked.append(number)
        if number < 5:
            raise LocoreError("they disagree")
        return TRUTH

    monkeypatch.setattr(truths, "_pooled_of", pooled_of)
    assert find_truth(task, Journal(tmp_path / "a.jsonl", {}), batches=(2, 5)) is TRUTH
    assert asked == [2, 5]
    with pytest.raises(LocoreError):
        find_truth(task, Journal(tmp_path / "a.jsonl", {}), batches=(2, 3))


def test_another_model_is_told_apart(exact, tiny, tmp_path):
    task, _, _ = exact
    truth = find_truth(task, Journal(tmp_path / "a.jsonl", {}))
    check_model(task, truth)
    hotter = Task.of(task.problem, locore.models.Tempered(tiny, 1.2))
    with pytest.raises(InvalidArgument, match="another model"):
        check_model(hotter, truth)


# Measures


def run_of(log_z, low=None, high=None, verdict="trust", law: Law | None = None) -> Run:
    law = law or {"a": 1.0}
    return Run("ok", log_z, low, high, verdict, laws={"f": law}, seconds=1.0, model_seconds=0.75)


TRUTH = Truth("", -2.0, 0.0, {"f": {"a": 0.5, "b": 0.5}}, 0.0, [], "by hand")


def test_a_cell_by_hand():
    runs = [run_of(-2.0, -2.1, -1.9), run_of(-3.0, -3.1, -2.9, "trust", {"b": 1.0}), Run("zero weights"), Run("refused")]
    row = cell(TINY, "auto", 250, runs, TRUTH)
    assert row is not None
    assert (row["runs"], row["failed"]) == (3, 1)
    assert row["rmse"] == pytest.approx(math.sqrt((0 + 1 + 4) / 3))  # nothing found counts like Ẑ = 1
    assert row["mean_error"] == pytest.approx((0 - 1 + 2) / 3)
    assert row["tv"] == pytest.approx(1 / 3)  # a third of the draws is nothing at all
    assert row["verdicts"] == {"trust": {"runs": 2, "off": 1, "intervals": 2, "covered": 1}}
    assert cell(TINY, "auto", 250, [Run("refused")], TRUTH) is None
    assert totals([row, row])["auto"]["trust"]["off"] == 2


def test_a_perfect_sampler_is_perfect():
    row = cell(TINY, "exact", 250, [run_of(-2.0, -2.0, -2.0, "trust", {"a": 0.5, "b": 0.5})] * 4, TRUTH)
    assert row is not None
    assert (row["rmse"], row["tv"], row["noise"]) == (0, 0, 0)


def test_worse_only_beyond_two_standard_errors():
    def row(sampler, rmse, error):
        return {"problem": "p", "sampler": sampler, "budget": 1000, "rmse": rmse, "rmse_error": error}

    rows = [row("auto", 1.0, 0.1), row("smc", 0.9, 0.1), row("masked-is", 0.5, 0.1)]
    assert worse_than(rows, "auto", ("smc", "masked-is"), 1000) == [("p", "masked-is", 1.0, 0.5)]
    assert geometric_mean(rows, "rmse") == pytest.approx((1.0 * 0.9 * 0.5) ** (1 / 3))


def test_total_variation_counts_only_where_the_laws_are_known():
    runs = [run_of(-2.0)]
    rough = dataclasses.replace(TRUTH, laws_error=0.3)
    rows = [cell(TINY, "auto", 250, runs, truth) for truth in (TRUTH, rough)]
    assert rows[0] is not None and rows[1] is not None
    assert rows[0]["tv"] == rows[1]["tv"] == 0.5
    assert geometric_mean([rows[1]], "tv") is None
    assert geometric_mean([rows[1]], "rmse") is not None
    assert ratio_to_peer([rows[1], {**rows[1], "sampler": "smc"}], "auto", 250, "tv") is None


# Runs


def test_all_proper_samplers_compete_or_are_named():
    assert {*MAIN, *OTHERS} - {"twisted, learned", "genlm-smc", "genlm-awrs", "transformers-masking"} == BY_NAME.keys() - {
        "twisted",
        "quick",  # for what a server answers soon
        "search",  # which draws nothing
    }
    with pytest.raises(InvalidArgument, match="nonsense"):
        entrants(["nonsense"])


@pytest.mark.parametrize("name", ["auto", "masked-is", "swor", "rejection", "transformers-masking", "exact"])
def test_runs_are_what_generate_gives(tiny, name):
    """The same sampler, budget and seed through the front door."""
    problem = dataclasses.replace(TINY, constraint=contains(" sun"), length=4, features=(whole(),))
    (entrant,) = entrants([name])
    asked = entrant.asked(4, tiny.vocab_size, 60)
    found = run_once(Task.of(problem, tiny), entrant, 60, 5, timed=True)
    if found.outcome != "ok":
        assert name in ("exact", "rejection")  # beyond their budget; none of few draws
        return
    assert set(found.laws) == {"text"}
    assert all(" sun" in text for text, _ in found.texts)
    assert 0 < found.lm_tokens <= 60 or name == "transformers-masking"
    if name == "transformers-masking":
        assert found.log_z is None and found.low is None
        return
    particles = locore.generate(
        tiny, "The weather is", problem.constraint, 4, num_particles=asked, sampler=name, budget=60, seed=5, ending="complete"
    )
    assert found.log_z == pytest.approx(particles.log_evidence, abs=1e-5)
    assert found.verdict == particles.verdict.level


def study(folder, rounds=2):
    return TasksStudy(folder, TasksPlan(rounds={60: rounds}, few={60: 1}), locore.load)


def test_a_study_that_was_killed_goes_on_and_measures_nothing_twice(tmp_path):
    rivals = entrants(["masked-is", "swor", "rejection"])
    easy = dataclasses.replace(TINY, name="easy", constraint=choice([" sunny", " cold"]), features=(whole(),))

    def without_clocks(rows):
        return [{k: v for k, v in row.items() if "seconds" not in k} for row in rows]

    rows, known = study(tmp_path / "whole").run([easy], rivals)
    assert known["easy"].log_z_error == 0
    lines = (tmp_path / "whole" / "runs.jsonl").read_text().splitlines()
    assert len(lines) == 1 + 3 * 2
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / "runs.jsonl").write_text("\n".join(lines[:4]) + "\n" + lines[4][:20])
    again, _ = study(tmp_path / "killed").run([easy], rivals)
    assert without_clocks(again) == without_clocks(rows)
    assert len((tmp_path / "killed" / "runs.jsonl").read_text().splitlines()) == len(lines)


@pytest.mark.slow
def test_remembering_changes_nothing_but_the_clock(tmp_path):
    rivals = entrants(["masked-is", "swor"])
    easy = dataclasses.replace(TINY, name="easy", constraint=choice([" sunny", " cold"]), features=(whole(),))
    plain = study(tmp_path / "plain")
    plain.run([easy], rivals)
    asked = []

    def wrapped(model):
        asked.append(model)
        return model

    other = TasksStudy(tmp_path / "other", plain.plan, locore.load, wrapped)
    other.run([easy], rivals)
    assert asked  # by the second round and the truth
    for rival in rivals:
        first, second = plain.runs(easy, rival, 60), other.runs(easy, rival, 60)
        assert [run.log_z for run in first] == [run.log_z for run in second]
        assert [run.timed for run in second] == [True, False]


# The command


def test_plans_and_selections():
    assert planned(False, 0, [100], 3).rounds == {100: 3}
    assert planned(True, 0, None, None).rounds == {250: 2}
    assert {p.family for p in selected(written_problems(), None, ["json"], False)} == {"json"}
    with pytest.raises(InvalidArgument, match="no problem is left"):
        selected(written_problems(), ["keyword-dog"], ["json"], False)


@pytest.mark.parametrize("wrong", [("--problem", "nonsense"), ("--family", "nonsense"), ("--sampler", "nonsense")])
def test_unknown_names_are_wrong_usage(tmp_path, capsys, wrong):
    assert main(["bench", "tasks", "--quick", "--model", "tiny", "-o", str(tmp_path), *wrong]) == 2
    assert "nonsense" in capsys.readouterr().err


@pytest.mark.parametrize("temperature", ["0", "-1", "inf", "nan"])
def test_a_temperature_is_positive(tmp_path, capsys, temperature):
    assert main(["bench", "tasks", "--tables", "-o", str(tmp_path), f"--temperature={temperature}"]) == 2
    assert "positive number" in capsys.readouterr().err


def test_any_model_has_its_own_truths(tiny, tmp_path, capsys):
    """What the user says in a chat is a plain prompt here, and the packaged truth is of another model."""
    name, asked = "choice-colour", ["--sampler", "smc", "--budget", "100", "--runs", "1", "--quick"]
    assert main(["bench", "tasks", "--model", "tiny", "-o", str(tmp_path), "--problem", name, *asked]) == 0
    problem = next(p for p in written_problems() if p.name == name)
    task = Task.of(dataclasses.replace(problem, chat=False, model="tiny"), tiny)
    exact = enumerate_posterior(task.target(locore.models.Counted(task.model)), task.circuit)
    record = json.loads((tmp_path / "results.json").read_text())
    assert record["problems"][name]["log_z"] == pytest.approx(exact.log_evidence, abs=1e-4)
    assert [row["sampler"] for row in record["rows"]] == ["smc"]
    assert stored_truth(problem, [tmp_path / "truths"]) == stored_truth(problem)


@pytest.mark.slow
def test_a_table_of_the_user_does_not_steer_the_newcomer(tmp_path, monkeypatch):
    """What `locore prepare` left in the cache is not there for a newcomer, and comes back after."""
    from locore_lab.tasks import study as studies
    from locore_lab.tasks.command import _measured

    monkeypatch.setenv("LOCORE_CACHE", str(tmp_path / "user"))
    model = locore.load("tiny")
    small = locore.prepare(model, positions=300).path
    assert small is not None and str(small).endswith("-300.safetensors")
    shutil.copy(small, str(small).replace("-300.", f"-{POSITIONS}."))
    assert prepared_table(model) is not None
    seen, run = [], studies.run_once
    monkeypatch.setattr(
        studies, "run_once", lambda task, *rest, **more: (seen.append(prepared_table(task.model)), run(task, *rest, **more))[1]
    )
    easy = dataclasses.replace(TINY, name="easy", constraint=choice([" sunny", " cold"]), features=(whole(),))
    _measured(study(tmp_path / "out", rounds=1), [easy], ["auto"])
    assert seen == [None]
    assert prepared_table(model) is not None


def test_all_files_are_written(tmp_path):
    from locore_lab.tasks.command import _measured

    easy = dataclasses.replace(TINY, name="easy", constraint=choice([" sunny", " cold"]), features=(whole(),))
    samplers = ["masked-is", "transformers-masking", "auto"]
    rows = _measured(study(tmp_path), [easy], samplers, measure=True)
    assert {row["sampler"] for row in rows} == {"masked-is", "transformers-masking", "auto"}
    record = json.loads((tmp_path / "results.json").read_text())
    assert len(record["rows"]) == len(rows)
    assert "easy" in (tmp_path / "table.md").read_text()
    assert " sunny" in (tmp_path / "texts.md").read_text()
    assert torch.isfinite(torch.tensor([row["tv"] for row in rows])).all()
    written = (tmp_path / "table.md").read_text()
    (tmp_path / "table.md").unlink()
    assert _measured(study(tmp_path, rounds=9), [easy], samplers, measure=False) == rows
    assert (tmp_path / "table.md").read_text() == written


@pytest.mark.parametrize("axis", ["cpu_seconds", "passes"])
@pytest.mark.parametrize("factor", [0.25, 0.5, 1.0, 3.0])
def test_at_equal_cost_a_sampler_is_as_much_better_as_it_was_made(axis, factor):
    """Where errors fall as one over the root of the cost the ratio is that of the constants, whatever each spends."""
    rows = []
    for name, pace, size in (("smc", 0.01, 3.0), ("masked-is", 0.02, 4.0), ("auto", 0.03, 3.0 * factor)):
        for spent in (250, 1_000):
            row = {"sampler": name, "budget": spent, axis: pace * spent, "rmse": size / math.sqrt(pace * spent)}
            rows += [{"problem": problem, **row} for problem in ("one", "other")]
    ratio, problems = ratio_at_cost(rows, "auto", axis, "smc", 1_000)
    assert problems == 2 and ratio == pytest.approx(factor)
    assert ratio_at_cost(rows, "smc", axis, "smc", 250)[0] == pytest.approx(3 / 4)
    assert ratio_at_cost([row for row in rows if row["sampler"] != "smc"], "auto", axis, "smc", 250) is None


def test_between_measurements_values_follow_a_line_and_what_is_not_known_is_left_out():
    rows = [{"cpu_seconds": seconds, "rmse": rmse} for seconds, rmse in ((1.0, 4.0), (4.0, 1.0), (2.0, None), (None, 9.0))]
    assert at_cost(rows, "cpu_seconds", 2.0) == pytest.approx(2.0)
    assert at_cost(rows, "cpu_seconds", 16.0) == pytest.approx(0.5) and at_cost(rows, "cpu_seconds", 0.25) == pytest.approx(8.0)
    assert at_cost(rows[2:], "cpu_seconds", 1.0) is None


@pytest.mark.parametrize(("cost", "expected"), [(20.0, 0.5), (10.0, 0.5 * math.sqrt(2)), (40.0, 0.5 / math.sqrt(2))])
def test_of_runs_that_cost_the_same_the_largest_budget_counts(cost, expected):
    """Passes do not grow with the budget: whichever run is luckier would decide, and on one side of the cost only."""
    rows = [{"passes": 20, "rmse": rmse} for rmse in (0.9, 0.1, 0.5)]
    assert at_cost(rows, "passes", cost) == pytest.approx(expected)


def test_the_default_call_is_compared_with_budgets_that_are_no_larger_than_what_it_spends():
    def row(sampler, budget, spent, rmse):
        return {"problem": "p", "sampler": sampler, "budget": budget, "lm_tokens": spent, "rmse": rmse, "rmse_error": 0.1}

    rows = [row(DEFAULT, 250, 1_800.0, 0.9), row("auto", 1_000, 990.0, 0.4), row("auto", 4_000, 3_990.0, 0.1)]
    assert default_against(rows, DEFAULT, 1_000) == [("p", 0.9, 0.4, pytest.approx(2 * math.sqrt(0.02)))]
    assert default_against(rows, DEFAULT, 4_000) == []


def test_the_default_call_has_one_budget_and_is_asked_for_by_name(tiny):
    (entrant,) = entrants([DEFAULT])
    plan = TasksPlan(rounds={250: 2, 1_000: 2})
    assert plan.wanted(entrant, 250, 1) and not plan.wanted(entrant, 1_000, 0)
    assert DEFAULT not in [each.name for each in entrants(installed=False)]
    run = run_once(Task.of(TINY, tiny), entrant, 250, seed=0, timed=True)
    assert run.outcome == "ok" and run.verdict
