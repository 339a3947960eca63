"""The Sudoku experiment: its model, its rows, the comparison with the model's conditional, and the command."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from locore_lab.shared import CHECKPOINT
from locore_lab.sudoku import command, methods
from locore_lab.sudoku import train as training
from locore_lab.sudoku.conditional import SAMPLERS, Truth, compare, place_of, total_variation, uniform_p_value
from locore_lab.sudoku.dataset import generated_split, several_solutions
from locore_lab.sudoku.methods import (
    METHODS,
    REQUEST,
    Effort,
    answer_constraint,
    grid_in,
    is_consistent,
    joins_digits,
    prompt_of,
    request_to,
)
from locore_lab.sudoku.puzzles import Puzzle, generate_puzzles, opened, pattern, random_grid
from locore_lab.sudoku.train import Size, encode, make_network, make_tokenizer
from scipy import stats
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import locore
from locore.cli import main
from locore.kernel.errors import BudgetExceeded, InvalidArgument, InvalidConstraint
from locore.models import HuggingFaceModel

FALSE_ALARM = 1e-4  # of each statistical test here
SMALL = "1234341221434321"


def small_model(seed: int = 0, box: int = 2) -> HuggingFaceModel:
    """An untrained network whose weights are large enough for its distributions to differ from place to place."""
    tokenizer = make_tokenizer(box)
    network = make_network(Size(box=box, width=16, layers=1, heads=2), len(tokenizer), seed)
    with torch.no_grad():
        network.transformer.wte.weight.mul_(10.0)
    return HuggingFaceModel.from_module(network, tokenizer)


def model_with_pieces(merges: list[tuple[str, str]], digits: str = "1234", template: str | None = None) -> HuggingFaceModel:
    """An untrained network over bytes that a byte-level tokenizer joins."""
    pieces = ["<end>", *sorted(set(pre_tokenizers.ByteLevel.alphabet()) - set("56789") - (set("1234") - set(digits)))]
    pieces += [left + right for left, right in merges]
    fast = FastTokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=merges))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens(["<end>"])
    config = GPT2Config(vocab_size=len(pieces), n_positions=256, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = GPT2LMHeadModel(config)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="<end>", chat_template=template)
    return HuggingFaceModel.from_module(network, tokenizer)


# Model and training


def test_prompt_and_answer_are_read_as_in_training():
    tokenizer = make_tokenizer(3)
    rng = np.random.default_rng(0)
    puzzle = opened(random_grid(rng), 10, rng)
    row = encode([puzzle], tokenizer)[0].tolist()
    prompted = HuggingFaceModel.from_module(make_network(Size(width=16, layers=1, heads=2), len(tokenizer), 0), tokenizer)
    known = prompted.tokenizer
    prompt = known.encode_prompt(prompt_of(puzzle.givens))
    assert row == [*prompt, *known.encode(puzzle.solution), known.eos_ids[0]]
    assert known.decode(prompt) == f"{REQUEST}{puzzle.givens}\n"
    assert known.decode(row[len(prompt) :]) == puzzle.solution
    assert len(prompt) == 83


def test_a_model_that_chats_is_asked_by_its_template():
    """And one that does not, by the plain text; the rows and the truths read the same."""
    model = model_with_pieces([])
    puzzle = opened(random_grid(np.random.default_rng(0), 2), 4, np.random.default_rng(0))
    assert request_to(model, puzzle.givens) == prompt_of(puzzle.givens)
    chatting = model_with_pieces([], template="user: {{ messages[0].content }} assistant:")
    request = request_to(chatting, puzzle.givens)
    assert request == [{"role": "user", "content": REQUEST + puzzle.givens}]
    written = chatting.tokenizer.decode(chatting.tokenizer.encode_chat(request))
    assert written.startswith("user: Give me") and written.endswith(f"{puzzle.givens} assistant:")


QUICK_SETTINGS = training.Settings(size=Size(box=2, width=16, layers=1, heads=2), steps=6, batch=4, every=2, bfloat16=False)


def small_split() -> dict[str, list[Puzzle]]:
    return generated_split(0, {"validation": 3, "train": 10}, 6, 2)


def test_training_goes_on_where_it_stopped(tmp_path):
    split = small_split()
    at_once = training.train(QUICK_SETTINGS, split["train"], split["validation"])
    first = training.Trainer(QUICK_SETTINGS, split["train"], split["validation"])
    first.look()
    first.save(tmp_path / CHECKPOINT)
    second = training.train(QUICK_SETTINGS, split["train"], split["validation"], tmp_path)
    pairs = zip(at_once.network.parameters(), second.network.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert [r["nats"] for r in at_once.history] == [r["nats"] for r in second.history]
    with pytest.raises(InvalidArgument, match="other settings"):
        training.train(replace(QUICK_SETTINGS, seed=1), split["train"], split["validation"], tmp_path)
    with pytest.raises(InvalidArgument, match="boxes of 3"):
        training.Trainer(training.Settings(), split["train"], split["validation"])


def test_every_puzzle_comes_once_in_an_epoch():
    puzzles = small_split()["train"]
    seen = [pattern(p.solution) for step in range(5) for p in training._batch(puzzles, replace(QUICK_SETTINGS, batch=2), step)]
    assert sorted(seen) == sorted(pattern(p.solution) for p in puzzles)


def test_saved_model_is_the_model(tmp_path):
    split = small_split()
    trainer = training.train(QUICK_SETTINGS, split["train"], split["validation"])
    training.save_model(trainer, tmp_path)
    loaded = locore.load(tmp_path, dtype=torch.float32)
    puzzle = split["train"][0]
    row = encode([puzzle], trainer.tokenizer)
    with torch.no_grad():
        expected = trainer.network(row[:, :-1]).logits.log_softmax(-1)[0, 17:]
    tokens = row[:, 18:]
    scores = loaded.prompted(prompt_of(puzzle.givens)).token_scores(tokens)[0]
    wanted = expected.gather(1, tokens[0, :, None])[:, 0].double()
    torch.testing.assert_close(scores, wanted, rtol=0, atol=0.05)  # weights of 16 bits


def test_model_that_comes_with_locore_knows_the_task():
    trained = locore.load(training.WEIGHTS, dtype=torch.float32)
    assert sum(path.stat().st_size for path in training.WEIGHTS.iterdir()) < 2**20
    for puzzle in generated_split(0, {"test": 5})["test"]:
        tokens = torch.tensor([trained.tokenizer.encode(puzzle.solution)])
        scores = trained.prompted(prompt_of(puzzle.givens)).token_scores(tokens)[0]
        cells = torch.tensor([cell == "." for cell in puzzle.givens])
        assert float(scores[cells].mean()) > math.log(1 / 2)  # guessing gives log 1/9


# Rows


@pytest.mark.parametrize("row", list(METHODS))
def test_every_row_answers_in_its_way(row):
    puzzle = generate_puzzles(1, 6, np.random.default_rng(1), box=2)[0]
    answer = METHODS[row](small_model(), puzzle, Effort(samples=3), 0)
    assert answer == replace(METHODS[row](small_model(), puzzle, Effort(samples=3), 0), seconds=answer.seconds)
    assert answer.lm_tokens > 0
    if "Locore" in row or "masking" in row:
        assert answer.text == puzzle.solution


def test_best_of_takes_a_consistent_sample():
    split = generated_split(0, {"test": 1, "validation": 10, "train": 500}, 4, 2)
    settings = replace(training.TOY, steps=120)
    trainer = training.train(settings, split["train"], split["validation"])
    trained = HuggingFaceModel.from_module(trainer.network, trainer.tokenizer)
    (puzzle,) = split["test"]
    num = 64
    drafts = trained.prompted(prompt_of(puzzle.givens)).sample(num, 17, torch.Generator().manual_seed(3)).tokens.tolist()
    good = [is_consistent(grid_in(trained.tokenizer.decode(y), 2), puzzle) for y in drafts]
    answer = METHODS["best of S samples"](trained, puzzle, Effort(samples=num), 3)
    assert is_consistent(grid_in(answer.text or "", 2), puzzle) == any(good)


def test_tokens_that_join_digits_are_handled():
    joined = model_with_pieces([("1", "2"), ("3", "4"), ("12", "34")])
    assert joins_digits(joined)
    assert not joins_digits(small_model())
    puzzle = Puzzle("." + SMALL[1:], SMALL)
    texts, sizes = set(), set()
    for seed in range(20):
        alpha, length = answer_constraint(puzzle, joined)
        found = locore.generate(
            joined, prompt_of(puzzle.givens), alpha, length, num_particles=1, sampler="masked", seed=seed, ending="complete"
        )
        texts.add(found.texts[0])
        sizes.add(sum(1 for y in found.tokens[0].tolist() if y not in joined.tokenizer.eos_ids))
    assert texts == {SMALL}
    assert len(sizes) > 1  # one text, several tokenisations


def test_what_cannot_be_handled_is_refused(monkeypatch):
    joined = model_with_pieces([("1", "2")])
    monkeypatch.setattr(methods, "MOST_SOLUTIONS", 5)
    with pytest.raises(BudgetExceeded, match="tokens join digits"):
        answer_constraint(Puzzle("." * 16, SMALL), joined)
    with pytest.raises(InvalidConstraint, match="no solution"):
        answer_constraint(Puzzle("11" + "." * 14, SMALL), joined)
    lacking = model_with_pieces([], digits="123")
    with pytest.raises(InvalidConstraint, match="spells exactly 4"):
        METHODS["greedy masking"](lacking, Puzzle("." + SMALL[1:], SMALL), Effort(), 0)


# Several solutions


@cache
def several() -> list[tuple[HuggingFaceModel, Puzzle, Truth]]:
    puzzles = several_solutions(4, 10, 0, 2, 40)
    made = [small_model(seed) for seed in range(len(puzzles))]
    return [(m, p, Truth.of(m.prompted(prompt_of(p.givens)), p)) for m, p in zip(made, puzzles, strict=True)]


def test_truth_is_the_models_conditional():
    for language_model, puzzle, truth in several():
        tokens = torch.tensor([language_model.tokenizer.encode(grid) for grid in truth.grids])
        scores = language_model.prompted(prompt_of(puzzle.givens)).score(tokens)
        torch.testing.assert_close(truth.posterior, scores.softmax(0), rtol=0, atol=1e-4)
        assert truth.log_evidence == pytest.approx(float(scores.logsumexp(0)), abs=1e-4)
        assert total_variation(truth.posterior, torch.full_like(truth.posterior, 1 / len(scores))) > 0.01  # the model matters


def test_masked_law_is_what_greedy_masking_samples_from():
    """Its weight is Π Z, so p(y) / Π Z of each particle is the probability with which it was drawn."""
    for language_model, puzzle, truth in several():
        assert float(truth.masked.sum()) == pytest.approx(1, abs=1e-5)
        alpha = locore.sudoku(puzzle.givens, 2)
        found = locore.generate(language_model, prompt_of(puzzle.givens), alpha, 16, num_particles=20, sampler="masked", seed=0)
        for text, weight, scores in zip(found.texts, found.log_weights, found.token_scores, strict=True):
            law = float((scores.sum() - weight).exp())
            assert law == pytest.approx(float(truth.masked[truth.grids.index(text)]), rel=1e-3)


@pytest.mark.parametrize("row", ["Locore, default (auto)", "Locore, without replacement (swor)"])
def test_exact_rows_give_the_conditional(row):
    for language_model, puzzle, truth in several():
        found = compare(language_model, puzzle, truth, row, 0)
        assert found.distance < 1e-4
        assert found.evidence_error == pytest.approx(0, abs=1e-3)


def test_draws_follow_the_conditional():
    """Chi-square of 2,000 draws from one run's particles, which are exact; false alarm 1e-4 for each of four puzzles."""
    for language_model, puzzle, truth in several():
        alpha = locore.sudoku(puzzle.givens, 2)
        found = locore.generate(language_model, prompt_of(puzzle.givens), alpha, 16, num_particles=64, sampler="auto", seed=0)
        drawn = found.resample(2000, seed=1).texts
        counts = np.array([drawn.count(grid) for grid in truth.grids])
        assert counts.sum() == 2000
        expected = 2000 * truth.posterior.numpy()
        likely = expected >= 5
        pooled = np.append(expected[likely], expected[~likely].sum()), np.append(counts[likely], counts[~likely].sum())
        keep = pooled[0] > 0
        scaled = pooled[0][keep] * (2000 / pooled[0][keep].sum())
        assert stats.chisquare(pooled[1][keep], scaled).pvalue > FALSE_ALARM


@pytest.mark.slow
def test_places_tell_the_conditional_from_another_law():
    """3,000 draws from each of four laws pass (false alarm 1e-4); as many of equally probable solutions do not."""
    rng = np.random.default_rng(0)
    right, wrong = [], []
    for _, _, truth in several():
        law = truth.posterior.numpy()
        for seed in range(3000):
            right.append(place_of(truth.posterior, int(rng.choice(len(law), p=law / law.sum())), seed))
            wrong.append(place_of(truth.posterior, int(rng.integers(len(law))), seed))
    assert uniform_p_value(right) > FALSE_ALARM
    assert uniform_p_value(wrong) < FALSE_ALARM


@given(st.lists(st.floats(0, 1), min_size=5, max_size=200))
def test_p_value_is_that_of_scipy(places):
    distance = stats.kstest(places, "uniform").statistic
    num = len(places)
    expected = stats.kstwobign.sf((math.sqrt(num) + 0.12 + 0.11 / math.sqrt(num)) * distance)
    assert uniform_p_value(places) == pytest.approx(expected, abs=1e-6)


def test_wrong_number_of_solutions_is_noticed():
    language_model, puzzle, _ = several()[0]
    with pytest.raises(InvalidArgument, match="solutions, not 1"):
        Truth.of(language_model.prompted(prompt_of(puzzle.givens)), replace(puzzle, solutions=1))


# The command


@pytest.fixture
def small_run(monkeypatch):
    """The quick run, smaller still, without the bundled model."""
    monkeypatch.setattr(training, "TOY", replace(QUICK_SETTINGS, size=Size(box=2, width=16, layers=1, heads=2)))
    sizes = (("test", 2), ("validation", 3), ("train", 10))
    plan = replace(command.QUICK, sizes=sizes, puzzles=2, costly=1, samples=2, sampled=1, several=2)
    monkeypatch.setattr(command, "QUICK", plan)


def test_quick_run_has_every_row_and_goes_on_after_a_kill(tmp_path, small_run):
    answers = tmp_path / "answers.jsonl"
    puzzles = generated_split(0, {"test": 2, "validation": 3, "train": 10}, 6, 2)["test"]
    texts = [f"Sure!\n{puzzles[0].solution}", "I do not know."]
    lines = [json.dumps({"puzzle": p.givens, "answer": text}) + "\n" for p, text in zip(puzzles, texts, strict=True)]
    answers.write_text("".join(lines))
    options = {"quick": True, "models": ["trained"], "answers": [f"an API={answers}"]}
    tables = command.run(tmp_path / "out", **options)
    rows = [row["row"] for row in tables["test"] if row["model"] == "trained"]
    assert rows == list(METHODS)
    assert {row["row"] for row in tables["several"]} == set(SAMPLERS)
    constrained_rows = [row for row in tables["test"] if "Locore" in row["row"] and row["model"] == "trained"]
    assert constrained_rows and all(row["exact %"] == 100 for row in constrained_rows)
    (api,) = [row for row in tables["test"] if row["model"] == "an API"]
    assert api["exact %"] == 50
    asked = [json.loads(line) for line in (tmp_path / "out" / "prompts.jsonl").read_text().splitlines()]
    assert asked == [{"puzzle": p.givens, "prompt": prompt_of(p.givens)} for p in puzzles]
    record = json.loads((tmp_path / "out" / "results.json").read_text())
    assert record["rows"] == tables["test"]
    table = (tmp_path / "out" / "table.md").read_text()
    assert "44.90" in table and "## Puzzles with several solutions" in table

    journal = tmp_path / "out" / "rows.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole[: len(whole) // 2])  # as kill -9 leaves it: half a line at the end
    half = command.run(tmp_path / "out", only_tables=True, **options)
    there = [tuple(json.loads(line)["key"]) for line in journal.read_text().splitlines()[1:]]
    assert 0 < len(there) < len(whole.splitlines()) - 1  # nothing was measured
    asked = sum(row["puzzles"] for rows in half.values() for row in rows if row["puzzles of"] != "paper")
    assert asked == len(there)
    again = command.run(tmp_path / "out", **options)
    keys = [tuple(json.loads(line)["key"]) for line in journal.read_text().splitlines()[1:]]
    assert len(keys) == len(set(keys)) == len(whole.splitlines()) - 1
    costs = ("seconds", "slowest")

    def without_costs(found):
        return {name: [{k: v for k, v in row.items() if k not in costs} for row in table] for name, table in found.items()}

    assert without_costs(again) == without_costs(tables)
    with pytest.raises(InvalidArgument, match="other settings"):
        command.run(tmp_path / "out", seed=1, **options)


def test_answers_must_be_whole(tmp_path, small_run):
    answers = tmp_path / "answers.jsonl"
    answers.write_text("")
    with pytest.raises(InvalidArgument, match="no answer for the puzzle"):
        command.run(tmp_path / "out", quick=True, models=["trained"], answers=[f"an API={answers}"])
    assert not (tmp_path / "out" / "table.md").exists()
    with pytest.raises(InvalidArgument, match="two models are called"):
        command.run(tmp_path / "other", quick=True, models=["trained"], answers=[f"trained={answers}"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--quick", "--data", "."], "reads no data"),
        (["--quick", "--puzzles", "0"], "puzzles must be at least 1"),
        (["--quick", "--answers", "file"], "NAME=FILE"),
        (["--quick", "--answers", "name=no-such-file"], "cannot be read"),
        (["--quick", "--model", "no/such/model"], "no/such/model is not a folder"),
        (["--quick", "--model", "tiny", "--model", "tiny"], "named twice"),
        (["--data", "no-such-folder"], "no folder"),
    ],
)
def test_wrong_usage(tmp_path, capsys, monkeypatch, small_run, arguments, message):
    monkeypatch.setattr(command, "gather", _gather_little(command.gather))
    assert main(["reproduce", "sudoku", "-o", str(tmp_path / "out"), *arguments]) == 2
    assert message in capsys.readouterr().err


def _gather_little(gather):
    def gathered(plan, data):
        return gather(replace(plan, sizes=(("test", 2), ("validation", 3), ("train", 10))), data)

    return gathered
