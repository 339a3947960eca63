"""The bench of certificates: its beam search is transformers' own, under the law that is searched."""

import pytest
import torch
from locore_lab.bench import certificates
from locore_lab.tasks.problem import Problem, Task, whole

import locore


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_search_finds_what_a_wide_beam_finds_and_says_what_it_is_worth(temperature):
    texts = [" there was a dog", " there was a cat", " a big dog ran", " the sun was hot"]
    problem = Problem(
        "labels", "choice", "Once upon a time", locore.choice(texts), 10, (whole(),), model="tiny", temperature=temperature
    )
    row = certificates.measured(problem, 1_000, 8)
    assert row["proven"] and row["text"] in texts and row["beam_text"] in texts
    assert row["log_p"] == pytest.approx(row["beam_log_p"], abs=certificates.SAME)
    assert row["lm_tokens"] <= 1_000
    model = locore.load("tiny")
    task = Task.of(problem, model)
    with torch.no_grad():
        narrow, spent = certificates.by_beams(model, task, 1)
    assert certificates.log_p(task, narrow) <= row["log_p"] + certificates.SAME and 0 < spent < 10


def test_the_summary_counts_what_beams_missed():
    rows = [
        {"temperature": 1.0, "proven": True, "log_p": -3.0, "beam_log_p": -5.0},
        {"temperature": 1.0, "proven": False, "log_p": -4.0, "beam_log_p": -3.0},
        {"temperature": 0.7, "proven": True, "log_p": -1.0, "beam_log_p": -1.0},
    ]
    said = certificates.summary(rows)
    assert (
        "Temperature 1: 1 of 2 proved; the beams missed a better text in 1, by up to 2.0 nats, and found a better one in 1."
        in said
    )
    assert "Temperature 0.7: 1 of 1 proved" in said
