"""Counts agree with counting by hand."""

import pytest
import torch

from locore.models import Counted, Tempered

from . import zoo


def asked_by_hand(tokens, eos_ids) -> list[tuple[int, ...]]:
    """Contexts of at least one token and without an end, of every row."""
    return [tuple(row[:step]) for row in tokens.tolist() for step in range(1, len(row)) if not set(row[:step]) & set(eos_ids)]


@pytest.fixture
def tokens():
    return zoo.ending_sequences(zoo.table(), num=40, length=5)


@pytest.mark.parametrize("ask", ["log_probs", "token_scores", "score"])
def test_along_sequences(tokens, ask):
    model = Counted(zoo.table())
    getattr(model, ask)(tokens)
    asked = asked_by_hand(tokens, model.tokenizer.eos_ids)
    assert (model.lm_tokens, model.lm_contexts) == (len(asked), len(set(asked)))
    getattr(model, ask)(tokens)
    assert (model.lm_tokens, model.lm_contexts) == (2 * len(asked), len(set(asked)))
    assert model.model_seconds > 0


def test_sample():
    model = Counted(zoo.table())
    drafts = model.sample(30, 5, seed=0)
    asked = asked_by_hand(drafts.tokens, model.tokenizer.eos_ids)
    assert (model.lm_tokens, model.lm_contexts) == (len(asked), len(set(asked)))


def test_cursor_counts_what_sampling_counts():
    by_cursor, at_once = Counted(zoo.table()), Counted(zoo.table())
    tokens = at_once.sample(30, 5, seed=0).tokens
    cursor = by_cursor.begin(30)
    for step in range(4):
        cursor = cursor.advance(tokens[:, step])
    assert by_cursor.lm_tokens == at_once.lm_tokens
    assert by_cursor.lm_contexts == at_once.lm_contexts


def test_passes_are_steps_one_after_the_other():
    """As many as a model's cursor is advanced with rows that go on; a sequence that is read at once is one."""
    model = Counted(zoo.table())
    tokens = model.sample(30, 5, seed=0).tokens
    assert model.passes == 4
    model.token_scores(tokens)
    assert model.passes == 5
    cursor = model.begin(2)
    for step in range(2):
        cursor = cursor.advance(torch.tensor([step, step]))
    cursor.advance(torch.full((2,), model.tokenizer.eos_ids[0]))  # nothing is read behind an end
    assert model.passes == 7
    assert model.account()["passes"] == 7


def test_cursor_counts_the_rows_that_go_on():
    model = Counted(zoo.table())
    second = model.begin(2).advance(torch.tensor([0, 1]))
    second.advance(torch.tensor([0, 0, 1]), torch.tensor([1, 1, 0]))
    second.advance(torch.tensor([3]), torch.tensor([0]))  # an end
    assert (model.lm_tokens, model.lm_contexts) == (2 + 3, 2 + 2)


def test_neighbours_without_ends_meet_the_bound():
    n, k = 5, 3
    model = Counted(zoo.table(eos=False))
    tokens = torch.zeros(n, dtype=torch.int64)
    candidates = torch.arange(1, k + 1).expand(n, k)
    model.neighbours(tokens, candidates)
    assert model.lm_tokens == k * n * (n - 1) // 2 + n - 1
    assert model.lm_contexts == model.lm_tokens
    model.neighbours(tokens, tokens[:, None])
    assert model.lm_tokens == k * n * (n - 1) // 2 + 2 * (n - 1)


def test_neighbours_with_ends():
    model = Counted(zoo.table())
    end = model.tokenizer.eos_ids[0]
    tokens = torch.tensor([0, 1, end, end])
    candidates = torch.tensor([[1, end, 0], [2, end, 1], [0, end, 1], [0, end, 1]])
    model.neighbours(tokens, candidates)
    sequence = asked_by_hand(tokens[None], (end,))
    tails = [(1,), (1, 1), (0, 2), (0, 1, 0), (0, 1, 1)]
    assert model.lm_tokens == len(sequence) + len(tails)
    assert model.lm_contexts == len(set(sequence + tails))


def test_prompted_models_share_the_count_but_not_the_contexts():
    model = Counted(zoo.markov())
    tokens = torch.tensor([[0, 1, 2]])
    for prompt in ([0], [1], [0]):
        model.prompted(prompt).score(tokens)
    model.prompted([0]).prompted([1]).score(tokens)
    assert (model.lm_tokens, model.lm_contexts) == (8, 6)


def test_only_what_the_outermost_is_asked_counts():
    model = Counted(Tempered(zoo.table(), 0.5))
    model.sample(4, 3, seed=0)
    once = model.lm_tokens
    inner = Counted(zoo.table())
    Tempered(inner, 0.5).sample(4, 3, seed=0)
    assert once <= 8
    assert inner.lm_tokens == once


def test_counting_changes_no_number(tokens):
    plain, counted = zoo.table(), Counted(zoo.table())
    assert torch.equal(plain.log_probs(tokens), counted.log_probs(tokens))
    assert torch.equal(plain.sample(9, 5, seed=3).tokens, counted.sample(9, 5, seed=3).tokens)
