"""What is said of draws is so: of those that are a part of all, of those in another order, of what a law leaves out."""

from __future__ import annotations

import math

import pytest
import torch

import locore
from locore import ban, bonus, contains, generate
from locore.constraints import Literal
from locore.io import Journal
from locore.kernel.errors import BrokenPotential, InvalidArgument, InvalidConstraint, Unsatisfiable
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel


def markov(tokens=(b"a", b"b", b"c"), seed=0):
    """A random chain with an end."""
    number = len(tokens) + 1
    rows = torch.rand(number + 1, number, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    rows /= rows.sum(-1, keepdim=True)
    return MarkovModel(rows[0], rows[1:], tokenizer=Tokenizer.from_tokens([*tokens, None], eos_ids=(number - 1,)))


MODEL = markov()


def exactly(constraint, length=4, **options):
    return generate(MODEL, "", constraint, length, sampler="exact", num_particles=10_000, ending="eos", **options)


def test_what_is_a_part_of_all_is_not_called_exact():
    whole = exactly(ban("cc"))
    assert whole.is_whole and whole.posterior().error("a") == 0.0 and "which are exact" in whole.report()
    for few in (generate(MODEL, "", ban("cc"), 4, num_particles=8, seed=0, ending="eos"), whole.resample(8, seed=0)):
        assert len(few) < len(whole) and not few.is_whole
        assert few.log_evidence == pytest.approx(whole.log_evidence)  # which is exact
        assert not any(few.posterior().error(text) == 0.0 for text in set(few.texts))
        assert "which are exact" not in few.report()


def test_blocks_are_in_the_order_of_the_texts():
    found = generate(MODEL, "", ban("cc"), 6, sampler="swor", num_particles=1000, seed=0, budget=400, ending="eos")
    assert torch.equal(found.blocks.tokens, found.tokens)
    torch.testing.assert_close(torch.softmax(found.blocks.log_weights(), 0), found.weights)
    without = found.where(torch.tensor(["a" not in text for text in found.texts]), "it has an a")
    assert all("a" not in text for text in without.every.texts)
    mean = torch.tensor(without.blocks.log_evidence).logsumexp(0) - math.log(len(without.blocks.log_evidence))
    assert float(mean) == pytest.approx(without.log_evidence)


def test_resampling_does_not_go_on_with_the_numbers_of_the_sampler():
    """With one seed for both: what a draw chose would decide which is chosen again."""
    uniform = exactly(Literal(0, frozenset({0, 1, 2})), 1).resample(1000, seed=0)
    seeds = range(200)
    firsts = [float(torch.rand((), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)) for seed in seeds]
    chosen = [uniform.resample(1, seed=seed).tokens[0].tolist() for seed in seeds]
    by_number = [uniform.tokens[int(first * len(uniform))].tolist() for first in firsts]
    law = torch.bincount(uniform.tokens[:, 0]).double() / len(uniform)
    mean = float(law.square().sum())  # agree by chance
    agree = sum(ours == theirs for ours, theirs in zip(chosen, by_number, strict=True))
    assert abs(agree - 200 * mean) < 5 * math.sqrt(200 * mean * (1 - mean))  # false alarm: 1e-6


@pytest.mark.parametrize("options", [{"finished": True}, {"min_new_tokens": 3}, {"canonical": "only"}, {}], ids=str)
def test_opposites_need_not_have_probability_1_together(options):
    a, b = exactly(contains("a"), **options), exactly(~contains("a"), **options)
    odds = locore.log_odds(
        MODEL, "", contains("a"), ~contains("a"), 4, sampler="exact", num_particles=1000, ending="eos", **options
    )
    assert odds.value == pytest.approx(a.log_evidence - b.log_evidence)
    assert odds.interval[0] <= odds.value + 1e-9 and odds.value <= odds.interval[1] + 1e-9


@pytest.mark.parametrize("phrases", [lambda: ["ab"], lambda: "ab", lambda: iter(["ab"])], ids=["list", "text", "iterator"])
@pytest.mark.parametrize("options", [{}, {"finished": True}, {"min_new_tokens": 4}], ids=str)
def test_an_audit_asks_for_what_follows_a_phrase_where_that_counts(options, phrases):
    truth = generate(MODEL, "a", contains("ab"), 4, sampler="exact", num_particles=1000, ending="eos", **options)
    (row,) = locore.audit(MODEL, ["a"], phrases(), 4, seed=0, sampler="exact", **options).rows
    assert row.probability == pytest.approx(math.exp(truth.log_evidence))


@pytest.mark.parametrize("sampler", ["exact", "smc", "swor", "masked", "rejection"])
def test_an_expert_without_weight_says_nothing(sampler):
    other = MarkovModel([1.0, 0, 0, 0], [[0.5, 0.5, 0, 0]] * 4, tokenizer=MODEL.tokenizer)
    options = {"sampler": sampler, "seed": 0, "ending": "eos", "num_particles": 64}
    plain = generate(MODEL, "", contains("a"), 2, **options)
    product = generate(MODEL, "", contains("a") * locore.expert(other, weight=0), 2, **options)
    assert product.log_evidence == pytest.approx(plain.log_evidence, abs=0 if sampler == "exact" else 1.0)
    assert set(product.texts) <= set(exactly(contains("a"), 2).texts)


@pytest.mark.parametrize("content", ['{"my":"data"}', "notes", '{"my":"data"}\n{"more":1}\n'])
def test_a_file_that_is_no_journal_is_left_alone(tmp_path, content):
    path = tmp_path / "file.jsonl"
    path.write_text(content)
    with pytest.raises(InvalidArgument, match="no journal"):
        Journal(path, {"a": 1})
    assert path.read_text() == content


def test_what_was_cut_at_once_is_begun_anew(tmp_path):
    path = tmp_path / "file.jsonl"
    for cut in ("", "{", '{"settings"', '{"settings":{"a"'):
        path.write_text(cut)
        assert list(Journal(path, {"a": 1}).items()) == []


def test_bonuses_of_texts_where_there_are_none():
    half = markov((b"a", b"b", b"\xc3"))
    with pytest.raises(Unsatisfiable, match="whole characters"):
        generate(half, "", Literal(0, frozenset({2})) * bonus(contains("a"), 1.0), 1, seed=0, ending="eos")


def test_numbers_beyond_a_float_are_refused():
    for make in (
        lambda: bonus(contains("a"), 10**400),
        lambda: locore.potential(lambda texts: [0.0] * len(texts), weight=10**400),
        lambda: locore.from_json({"type": "bonus", "constraint": contains("a").to_json(), "nats": 10**400}),
    ):
        with pytest.raises((InvalidArgument, InvalidConstraint), match="finite number"):
            make()


@pytest.mark.parametrize("canonical", [None, "only", "alpha"])
def test_one_token_is_drafted_as_one(canonical):
    model = markov((b"a", b" ", b"a b", b"b"))
    found = generate(model, "", contains("a"), 1, sampler="twisted", budget=50, canonical=canonical, seed=0)
    assert set(found.texts) <= {"a", "a b"}


@pytest.mark.parametrize("call", [locore.generate_many, locore.audit])
@pytest.mark.parametrize("seed", ["3", 1.5, True, -1])
def test_a_seed_is_a_whole_number(call, seed):
    with pytest.raises(InvalidArgument, match="seed"):
        call(MODEL, ["", ""], contains("a"), 3, seed=seed)


@pytest.mark.parametrize("prompt", [None, 5])
def test_a_prompt_that_is_none_is_a_row_with_an_error(prompt):
    rows = locore.audit(MODEL, ["a", prompt], ["ab"], 3, seed=0).rows
    assert {row.index: row.verdict == "error" for row in rows} == {0: False, 1: True}


def test_what_potentials_answer_may_be_any_numbers():
    def sampled(answer, **options):
        return generate(MODEL, "", contains("a") * locore.potential(answer, **options), 2, seed=0)

    plain = sampled(lambda texts: [0.5] * len(texts)).log_evidence
    for dtype in (torch.bfloat16, torch.float16):
        assert sampled(lambda texts, dtype=dtype: torch.full((len(texts),), 0.5, dtype=dtype)).log_evidence == plain
    with pytest.raises(BrokenPotential, match="no list of numbers"):
        sampled(lambda texts: [torch.tensor(0.5, requires_grad=True) for _ in texts])
    with pytest.raises(BrokenPotential, match="infinite"):
        sampled(lambda texts: [1e200] * len(texts), weight=1e200)


def test_a_bonus_that_forbids_is_explained_as_a_constraint():
    told = locore.explain(contains("a") * bonus(contains("b"), -math.inf), "ab", MODEL)
    assert not told.holds


def test_a_label_without_probability_is_not_the_best_over_its_prior():
    model = MarkovModel(
        [0.25] * 4,
        [[0.5, 0.5, 0, 0], [0.5, 0.4, 0.1, 0], [0.25] * 4, [0.6, 0.4, 0, 0]],
        tokenizer=Tokenizer.from_tokens([b"a", b"b", b"c", b" "]),
    )
    (label,) = locore.classify(model, ["a"], ["a", "b", "c"], prior=" ")
    assert label.by("over_prior") in ("a", "b")


@pytest.mark.parametrize("sampler", ["auto", "best-first"])
@pytest.mark.parametrize("seed", range(3))
def test_a_search_that_may_have_missed_most_is_not_trusted(sampler, seed):
    """After "a" the model nearly always writes half a character, which no text may end with, and seldom the other half."""
    rare = 1e-4
    rows = torch.full((5, 5), rare, dtype=torch.float64)
    rows[[0, 1, 2], 2], rows[3, 4] = 1.0, 1.0
    first = torch.tensor([0.5, 0.5 - 3 * rare, rare, rare, rare], dtype=torch.float64)
    tokenizer = Tokenizer.from_tokens([b"a", b"b", b"\xc3", b"\xa9", None], eos_ids=(4,))
    model = MarkovModel(first / first.sum(), rows / rows.sum(1, keepdim=True), tokenizer=tokenizer)
    options = {"ending": "eos", "seed": seed}
    truth = generate(model, "", locore.regex("(?s)a.*"), 8, sampler="exact", num_particles=10, **options).log_evidence
    found = generate(model, "", locore.regex("(?s)a.*"), 8, sampler=sampler, num_particles=8, **options)
    assert found.verdict.level != "trust" or abs(found.log_evidence - truth) < 0.1
