"""The laws of a language model, for every kind there is."""

import pytest
import torch
from scipy import stats

from locore.kernel.models.language_model import LanguageModel
from tests.effort import THOROUGH

from . import zoo

# A false alarm of one of these tests has this probability.
FALSE_ALARM = 1e-6
# Nats by which two ways of computing a joint log-probability in float32 may differ.
TOLERANCE = 1e-4


# What a server that cannot be made to follow a text says is tried in `test_engines`; the rest of it is the first one's.
ASKED = [pytest.param(name, marks=[pytest.mark.slow] * (name == "vllm server, nothing forced")) for name in zoo.MODELS]


@pytest.fixture(scope="module", params=ASKED)
def model(request) -> LanguageModel:
    return zoo.MODELS[request.param]()


@pytest.fixture(scope="module")
def sequences(model) -> torch.Tensor:
    return zoo.ending_sequences(model, num=12, length=zoo.LENGTH)


def same(a: torch.Tensor, b: torch.Tensor, tolerance: float = TOLERANCE) -> bool:
    """Equal within the tolerance, with the same zeros."""
    return torch.allclose(a.double().cpu(), b.double().cpu(), rtol=0, atol=tolerance)  # what is read may be on a device


def test_distributions_are_normalised(model, sequences):
    total = model.log_probs(sequences).double().logsumexp(-1)
    assert same(total, torch.zeros_like(total), 1e-5)


def test_scores_are_gathered_log_probs(model, sequences):
    gathered = model.log_probs(sequences).gather(2, sequences[..., None])[..., 0]
    assert same(model.token_scores(sequences), gathered)
    assert same(model.score(sequences), gathered.double().sum(-1))
    assert model.score(sequences).dtype == torch.float64


def test_full_support_is_what_it_says(model, sequences):
    rows = model.log_probs(sequences)
    before_end = rows.isfinite().sum(-1) != 1
    if model.full_support:
        assert bool(rows[before_end].isfinite().all())


def test_end_is_absorbing(model, sequences):
    eos_ids = model.tokenizer.eos_ids
    if not eos_ids:  # then every continuation of every sequence is possible
        assert bool(model.log_probs(sequences).isfinite().any(-1).all())
        return
    ended = sequences.clone()
    ended[:, 2] = eos_ids[-1]
    rows = model.log_probs(ended)[:, 3:].exp()
    certain = torch.nn.functional.one_hot(torch.tensor(eos_ids[0]), model.vocab_size)
    assert bool((rows == certain).all())
    ended[:, 3:] = eos_ids[0]
    assert same(model.score(ended), model.score(ended[:, :3]))
    ended[:, -1] = (eos_ids[0] + 1) % model.vocab_size
    assert bool((model.score(ended) == float("-inf")).all())


def test_cursor_walks_along_log_probs(model, sequences):
    rows = model.log_probs(sequences)
    cursor = model.begin(len(sequences))
    for step in range(zoo.LENGTH):
        assert same(cursor.log_probs, rows[:, step])
        if step + 1 < zoo.LENGTH:
            cursor = cursor.advance(sequences[:, step])


def test_cursor_follows_parents_and_stays_valid(model, sequences):
    rows = model.log_probs(sequences)
    first = model.begin(len(sequences)).advance(sequences[:, 0])
    parents = torch.tensor([3, 0, 0, 11, 7, 7])
    second = first.advance(sequences[parents, 1], parents)
    again = torch.tensor([5, 0, 1])
    third = second.advance(sequences[parents[again], 2], again)
    assert same(second.log_probs, rows[parents, 2])
    assert same(third.log_probs, rows[parents[again], 3])
    assert same(first.log_probs, rows[:, 1])


def test_batch_size_and_order_change_nothing(model, sequences):
    together = model.token_scores(sequences)
    order = torch.randperm(len(sequences), generator=torch.Generator().manual_seed(0))
    assert same(model.token_scores(sequences[order]), together[order])
    alone = torch.cat([model.token_scores(row[None]) for row in sequences])
    assert same(alone, together)


def test_neighbours_are_separately_scored_sequences(model, sequences):
    generator = torch.Generator().manual_seed(1)
    for tokens in (sequences[0], sequences[-1], sequences[-2])[: 3 if THOROUGH else 1]:
        candidates = torch.randint(0, model.vocab_size, (zoo.LENGTH, 5), generator=generator)
        candidates[:, 0] = tokens
        if model.tokenizer.eos_ids:
            candidates[:, 1] = model.tokenizer.eos_ids[0]
            candidates[:, 2] = model.tokenizer.eos_ids[-1]
        every = tokens.repeat(candidates.numel(), 1)
        every[torch.arange(len(every)), torch.arange(zoo.LENGTH).repeat_interleave(5)] = candidates.flatten()
        # In what batches changes nothing, by the law above.
        expected = torch.cat([model.score(part) for part in every.split(1 if THOROUGH else len(every))])
        assert same(model.neighbours(tokens, candidates), expected.view(candidates.shape))


def test_seed_reproduces_and_differs(model):
    first = model.sample(16, zoo.LENGTH, seed=1, keep_log_probs=True)
    again = model.sample(16, zoo.LENGTH, seed=1)
    other = model.sample(16, zoo.LENGTH, seed=2)
    assert torch.equal(first.tokens, again.tokens)
    assert torch.equal(first.token_scores, again.token_scores)
    assert not torch.equal(first.tokens, other.tokens)
    assert torch.equal(model.sample(5, zoo.LENGTH, seed=1).tokens, first.tokens[:5])


def test_sample_does_not_touch_the_global_generator(model):
    before = torch.get_rng_state()
    model.sample(2, 3, seed=None)
    assert torch.equal(torch.get_rng_state(), before)


def test_sample_reports_its_scores(model):
    drafts = model.sample(16, zoo.LENGTH, seed=torch.Generator().manual_seed(3), keep_log_probs=True)
    assert same(drafts.token_scores, model.token_scores(drafts.tokens))
    assert same(drafts.log_probs, model.log_probs(drafts.tokens))
    assert bool(drafts.token_scores.isfinite().all())


@pytest.mark.parametrize("name", zoo.SMALL)
def test_sample_has_the_law_of_the_model(name):
    model = zoo.MODELS[name]()
    length, num = 4, 20_000 if THOROUGH else 2_000
    every = zoo.all_sequences(model.vocab_size, length)
    probability = model.score(every).exp()
    assert float(probability.sum()) == pytest.approx(1, abs=1e-5)

    tokens = model.sample(num, length, seed=8).tokens
    weights = model.vocab_size ** torch.arange(length - 1, -1, -1)
    counts = torch.bincount((tokens * weights).sum(1), minlength=len(every)).double()
    assert counts[probability == 0].sum() == 0

    # Cells with few expected draws are put together, as the chi-square test asks.
    expected = probability / probability.sum() * num
    rare = expected < 10
    observed = torch.cat([counts[~rare], counts[rare].sum()[None]])
    expected = torch.cat([expected[~rare], expected[rare].sum()[None]])
    kept = expected > 0
    result = stats.chisquare(observed[kept].numpy(), expected[kept].numpy())
    assert result.pvalue > FALSE_ALARM
