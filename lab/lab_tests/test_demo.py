"""The demonstration: it runs, and what it shows as the truth is the truth."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
import typer
from locore_lab.demo import __main__ as command
from locore_lab.demo import enumerated, examples, screen
from locore_lab.demo.examples import Reference
from rich.console import Console

import locore
from locore.kernel.errors import LocoreError, ModelNotFound
from locore.samplers import SequentialMonteCarlo
from locore.testing import total_variation
from tests.effort import THOROUGH
from tests.spelling import spellings, token_ids

EXAMPLE = ("It was", " cold.")
ROWS = ("truth", "weighted", "distance", "LM tokens")


def demonstrate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "locore_lab.demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)


def assert_fits(text: str) -> None:
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    for word in ROWS:
        assert word in text


@pytest.fixture(scope="module")
def tiny() -> locore.models.LanguageModel:
    return locore.load("tiny")


def test_the_small_model_fits_on_one_screen_and_shows_all_ways(capsys, monkeypatch):
    if not THOROUGH:
        monkeypatch.setattr(enumerated, "LCR_DRAWS", 24)
    command.main(model="tiny")
    shown, complaints = capsys.readouterr()
    assert complaints == ""
    assert_fits(shown)
    assert "paper's" in shown and "log p(constraint)" in shown
    assert re.search(r"Masking alone writes .* in [\d.]+%", shown.replace("\n", " "))


def test_the_enumerated_truth_is_that_of_a_direct_sum(tiny):
    """The probability of a text, added up over its tokenisations instead of by the walk over prefixes."""
    model = tiny.prompted(EXAMPLE[0])
    truth = enumerated.enumerate_truth(model, locore.compile(locore.ends_with(EXAMPLE[1]), model, enumerated.LENGTH))
    end = model.tokenizer.eos_ids[0]
    for text in list(truth.posterior)[:5]:
        rows = spellings(text.encode(), token_ids(model), enumerated.LENGTH)
        padded = torch.tensor([row + [end] * (enumerated.LENGTH - len(row)) for row in rows])
        direct = model.score(padded).logsumexp(0).item() - truth.log_evidence
        assert direct == pytest.approx(math.log(truth.posterior[text]), abs=1e-4)


def test_the_pooled_truth_is_the_enumerated_one(tiny, monkeypatch):
    """Where both can be had. Texts that were found have their own probability, over an evidence that is about right."""
    monkeypatch.setattr(examples, "BATCH_TOKENS", 400)
    # Of four so small ones the spread is often far below the error.
    monkeypatch.setattr(examples, "BATCHES", 16 if THOROUGH else 10)
    constraint = locore.ends_with(EXAMPLE[1])
    found = examples.pooled_truth(tiny, EXAMPLE[0], constraint, 3, seed=0)
    exact = locore.generate(tiny, EXAMPLE[0], constraint, 3, num_particles=5000, sampler="exact", ending="complete")
    assert abs(found.log_evidence - exact.log_evidence) < 5 * found.error + 1e-3
    truth = exact.posterior()
    shift = math.exp(found.log_evidence - exact.log_evidence)
    for text, probability in found.posterior.items():
        assert probability * shift <= truth[text] * (1 + 1e-3)  # a spelling may be missing, none is counted twice
    for text in list(truth)[:3]:
        assert found.posterior[text] * shift == pytest.approx(truth[text], rel=0.01)
    assert all(a >= b for a, b in pairwise(found.posterior.values()))


@dataclass(frozen=True)
class Doubling:
    """A sampler whose weights are wrong by a factor."""

    name: str = "doubling"

    def __call__(self, *asked):
        draws = SequentialMonteCarlo(blocks=1)(*asked)
        return replace(draws, log_weights=draws.log_weights + math.log(50))


def test_samplers_that_disagree_give_no_truth(tiny, monkeypatch):
    monkeypatch.setattr(examples, "BATCH_TOKENS", 400)
    monkeypatch.setitem(examples.SAMPLERS, "SMC", Doubling())
    with pytest.raises(LocoreError, match="two unbiased samplers disagree"):
        examples.pooled_truth(tiny, EXAMPLE[0], locore.ends_with("."), 3, seed=0)


def test_distance_is_total_variation():
    law, other = {"a": 0.5, "b": 0.3, "c": 0.2}, {"b": 0.6, "d": 0.4}
    whole = Reference(law, -1.0, 0.0, 3, 0, 0.0)
    assert whole.distance(other) == pytest.approx(total_variation(law, other))
    # What is not known of the truth, and what the answer has beyond it, is one text.
    part = Reference({"a": 0.5, "b": 0.3}, -1.0, 0.1, 0, 0, 0.0)
    assert part.distance(other) == pytest.approx(total_variation({"a": 0.5, "b": 0.3, "?": 0.2}, {"b": 0.6, "?": 0.4}))
    assert part.rest(["a"]) == pytest.approx(0.5)
    # Chance goes away with many draws, and a single one is as far off as its text is improbable.
    for reference in (whole, part):
        assert reference.distance_by_chance(50_000) < 0.01
        # One draw of probability p is 1 − p off.
        assert 0.5 <= reference.distance_by_chance(1) <= 0.8


@pytest.mark.slow
def test_the_truth_of_the_question_is_that_of_a_direct_sum(smollm2, tiny, monkeypatch, capsys):
    """On the real model; and its screen, with the open text of the small model, is a screen."""
    monkeypatch.setattr(examples, "BATCH_TOKENS", 400)
    chat, example = examples.chat_example(), examples.text_example(tiny, *EXAMPLE)
    first = examples.run_chat(smollm2, 0, command.progress)
    second = examples.run_text(tiny, example, 0, command.progress)
    truth, prompted = first[0], smollm2.prompted(chat.prompt)
    for answer in examples.CHOICES[:3]:
        rows = spellings(answer.encode(), token_ids(smollm2), examples.ANSWER_TOKENS)
        scores = [prompted.score(torch.tensor([row])).item() for row in rows]
        direct = torch.tensor(scores).logsumexp(0).item() - truth.log_evidence
        assert direct == pytest.approx(math.log(truth.posterior[answer]), abs=1e-3)
    console = Console(width=screen.WIDTH)
    for line in screen.whole(first, example, EXAMPLE[1], second):
        console.print(line)
    printed = capsys.readouterr().out
    assert_fits(f"{printed}the last line")
    for text, probability in truth.posterior.items():
        assert re.search(rf"^{re.escape(text)} +{probability:.1%}", printed, re.MULTILINE)


@pytest.mark.slow
def test_the_real_model_fits_on_one_screen(smollm2):
    done = demonstrate()
    assert done.returncode == 0, done.stderr
    assert_fits(done.stdout)
    assert "SmolLM2" in done.stdout


def test_without_the_real_model_the_small_one_is_shown(monkeypatch, capsys):
    def missing(name):
        raise ModelNotFound(f"no {name}")

    shown = []
    monkeypatch.setattr(locore, "load", missing)
    monkeypatch.setattr(enumerated, "show", lambda *arguments: shown.append(arguments))
    command.main()
    assert shown == [("The weather is", " happy.", 0)]
    assert re.fullmatch(r"SmolLM2 is not installed.*\n", capsys.readouterr().out)
    with pytest.raises(typer.Exit) as stopped:
        command.main(model="smollm2")
    assert stopped.value.exit_code == 2
    assert "error: no smollm2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--ending", "an ending that needs more tokens than there are"], "no sequence of 3 tokens"),
        (["--ending", ""], "empty phrase"),
        (["--model", "tony"], "not 'tony'"),
    ],
)
def test_errors_are_one_line(arguments, complaint, capsys):
    options = dict(zip((name.removeprefix("--") for name in arguments[::2]), arguments[1::2], strict=True))
    with pytest.raises(typer.Exit) as stopped:
        command.main(**{"model": "tiny", **options})
    assert stopped.value.exit_code == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and complaint in err and err.count("\n") == 1
