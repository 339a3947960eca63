"""CommonGen: which words count, what a constraint asks, and what a summary says of rows."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from locore_lab.commongen.command import MASKED, PLAIN, Task, constraint_of, measured, order, peers, summary, texts
from locore_lab.commongen.concepts import IRREGULAR, ConceptSet, chosen, possible, read_sets, stored, words
from locore_lab.shared import SHARED

import locore

DATA = SHARED / "data" / "commongen"
SETS = stored()
TINY = locore.load("tiny")
POND = ConceptSet({"rock": ("rock", "rocks"), "throw": ("threw", "throw")}, "He threw a rock.")

needs_data = pytest.mark.skipif(not DATA.exists(), reason="the data of CommonGen is not here")


@pytest.mark.parametrize(
    ("concept", "forms", "others"),
    [
        ("walk", "walks walked walking", "walker"),
        ("dance", "dances danced dancing", "danceing"),
        ("carry", "carries carried carrying", "carrys carryed"),
        ("pet", "pets petted petting", "peted peting"),
        ("car", "cars", "cared caring cares"),
        ("bus", "buses", "buss"),
        ("begin", "begins began begun beginning", ""),
        ("knife", "knives", ""),
        ("dye", "dyes dyed dyeing", "dying"),
        ("play", "plays played playing", "plaied"),
    ],
)
def test_inflections(concept, forms, others):
    made = possible(concept)
    assert {concept, *forms.split()} <= made
    assert not made & set(others.split())


def test_the_list_has_only_what_the_rules_do_not_make(monkeypatch):
    listed = dict(IRREGULAR)
    monkeypatch.setattr("locore_lab.commongen.concepts.IRREGULAR", {})
    for concept, forms in listed.items():
        assert not possible(concept) & set(forms.split()), concept


def test_people_wrote_what_counts():
    assert len(SETS) == len({one.name for one in SETS}) == 200
    assert {len(one.forms) for one in SETS} == {3, 4, 5}
    assert [one.name for one in SETS if one.missing(one.reference)] == []


@needs_data
def test_the_stored_sets_are_those_of_the_data():
    assert chosen(DATA, 200) == SETS


@needs_data
def test_nearly_all_sentences_of_people_are_covered():
    sets = {frozenset(one.forms): one for one in read_sets(DATA)}  # some name a concept twice
    lines = [(DATA / f"dev.{part}.txt").read_text("utf-8").splitlines() for part in ("concepts", "references")]
    pairs = [(sets[frozenset(names.split())], sentence) for names, sentence in zip(*lines, strict=True)]
    missed = [concept for one, sentence in pairs for concept in one.missing(sentence)]
    asked = sum(len(names.split()) for names in lines[0])
    assert asked > 15_000 and len(missed) < asked / 1000


WRITTEN = ["rock", "Rocks", "ROCK", "rocky", "bedrock", "threw", "throw", "thrower", "throw-in", "a", "é", "7"]
PIECES = [*WRITTEN, " ", " ", ".", ",", "\n"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
def test_a_constraint_asks_for_every_concept_as_a_word(text):
    there = {form for form in re.findall("[A-Za-z]+", text)}
    spelled = [{f for form in forms for f in (form, form.capitalize())} for forms in POND.forms.values()]
    expected = all(there & some for some in spelled) and text.endswith(".") and "\n" not in text
    assert locore.holds(constraint_of(POND), text, TINY) == expected
    if expected:
        assert POND.missing(text) == []


def test_what_a_text_lacks():
    assert POND.missing("A rocky throw.") == ["rock"] and POND.missing("ROCKS, threw!") == []
    assert words("Don't re-run") == ["don", "t", "re", "run"]


@pytest.mark.parametrize(("sets", "compared", "known"), [(200, 40, 8), (7, 3, 2), (2, 1, 1), (5, 5, 5)])
def test_sets_with_more_runs_come_first(sets, compared, known):
    found = order(sets, compared, known)
    assert sorted(found) == list(range(sets))
    beside = [k * sets // compared for k in range(compared)]
    assert set(found[:known]) <= set(found[:compared]) == set(beside)


def test_rows_of_a_small_model():
    task = Task(TINY, POND, 12)
    asked = {name: one for name, one in peers(8, 2).items() if "genlm" not in name}
    rows = {row["sampler"]: row for row in measured(task, 0, 0, 120, asked)}
    assert set(rows) == {"auto", PLAIN, *asked} and rows[PLAIN]["log_z"] is None and rows[MASKED]["particles"] <= 8
    for row in rows.values():
        assert row["covered"] and POND.missing(row["draw"]) == POND.missing(row["best"]) == []
        assert row["draw_log_p"] <= row["best_log_p"] < 0
        assert locore.holds(constraint_of(POND), row["draw"], task.model)
    p, _ = task.run("swor", 0, budget=60)
    assert torch.allclose(task.scores(p), TINY.prompted(task.prompt).score(p.tokens), atol=1e-3)
    assert torch.allclose(task.scores(replace(p, token_scores=None)), task.scores(p), atol=1e-3)


def test_a_summary_judges_where_the_truth_is_known():
    def row(name, sampler, log_z, covered=True, beside=True):
        found = {"set": name, "sampler": sampler, "beside": beside, "covered": covered, "log_z": log_z, "particles": 2}
        return found | {"seconds": 1.0, "draw_log_p": -10.0, "best_log_p": -5.0}

    rows = [
        {"part": "truth", "set": "a", "log_z": -3.0, "error": 0.1},
        {"part": "truth", "set": "b", "log_z": -9.0, "error": 2.0},  # hardly known
        {"part": "truth", "set": "c", "source": "two samplers disagree"},
        row("a", "auto", -3.0),
        row("a", "auto", -5.0),
        row("b", "auto", -1.0, covered=False),
        row("c", "auto", -1.0, beside=False),
    ]
    head, _, line = ([part.strip() for part in line.split("|")] for line in summary(rows).splitlines())
    found = dict(zip(head, line, strict=True))
    assert float(found["RMSE of log Ẑ"]) == pytest.approx(math.sqrt(2), abs=0.01) and found["mean error"] == "-1.00"
    assert (found["covered"], found["of sets"], found["sets compared"], found["runs"]) == ("75%", "3", "2", "2")


def test_texts_to_read_are_the_first_draws_of_the_first_sets():
    rows = [{"part": "truth", "set": "a", "log_z": -3.0, "error": 0.1}]
    for name in "abc":
        for run in (0, 1):
            rows += [
                {"set": name, "run": run, "beside": name != "c", "sampler": "auto", "draw": f"{name}{run}|", "draw_log_p": -1.0}
            ]
    _, _, *lines = texts(rows).splitlines()
    assert (
        lines == ["| a | auto | -1.0 | a0\\| |", "| b | auto | -1.0 | b0\\| |"] and texts(rows, 1).splitlines()[2:] == lines[:1]
    )
