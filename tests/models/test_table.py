"""Models made of written-out probabilities, and what they refuse."""

import itertools

import pytest
import torch

from locore.kernel.errors import CannotScore, InvalidArgument
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel, TableModel


def test_a_table_model_says_what_its_tables_say():
    model = TableModel([[0.25, 0.75], [[0.5, 0.5], [0.1, 0.9]]])
    pairs = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    expected = torch.tensor([0.125, 0.125, 0.075, 0.675], dtype=torch.float64)
    torch.testing.assert_close(model.score(pairs).exp(), expected)
    assert model.full_support


def test_a_chain_agrees_with_its_product():
    transition = torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3], [0.3, 0.3, 0.4]])
    initial = torch.tensor([0.2, 0.3, 0.5])
    model = MarkovModel(initial, transition)
    for a, b, c in itertools.product(range(3), repeat=3):
        probability = initial[a].double() * transition[a, b].double() * transition[b, c].double()
        score = model.score(torch.tensor([[a, b, c]]))[0]
        assert float(score.exp()) == pytest.approx(float(probability), rel=1e-12)


def test_a_prompted_chain_starts_after_the_last_token():
    transition = torch.tensor([[0.1, 0.9], [0.6, 0.4]])
    model = MarkovModel([0.5, 0.5], transition)
    torch.testing.assert_close(model.prompted([0, 1]).log_probs(torch.tensor([[0]])).exp()[0, 0].float(), transition[1])
    assert model.prompted(()) is model


def test_a_chain_reads_a_text():
    tokenizer = Tokenizer.from_tokens([b"a", b"b"])
    model = MarkovModel([0.5, 0.5], [[0.1, 0.9], [0.6, 0.4]], tokenizer=tokenizer)
    same = model.prompted("ab").score(torch.tensor([[0]]))
    torch.testing.assert_close(same, model.prompted([1]).score(torch.tensor([[0]])))


def test_rows_after_an_end_are_not_read():
    nothing = [0.0, 0.0]
    model = TableModel([[0.4, 0.6], [[0.5, 0.5], nothing]], eos_ids=(1,))
    assert float(model.score(torch.tensor([[1, 1]])).exp()) == pytest.approx(0.6)
    assert model.full_support
    chain = MarkovModel([0.4, 0.6], [[0.5, 0.5], nothing], eos_ids=(1,))
    assert chain.full_support


@pytest.mark.parametrize("eos", [True, False])
def test_random_tables_reproduce(eos):
    one, same = (TableModel.random(3, 4, seed=1, eos=eos) for _ in range(2))
    other = TableModel.random(3, 4, seed=2, eos=eos)
    tokens = torch.tensor([[0, 1, 0, 1]])
    assert torch.equal(one.score(tokens), same.score(tokens))
    assert not torch.equal(one.score(tokens), other.score(tokens))
    assert one.tokenizer.eos_ids == ((2,) if eos else ())


@pytest.mark.parametrize(
    "tables",
    [
        [],
        [0.5],
        [[0.5, 0.6]],
        [[1.5, -0.5]],
        [[float("nan"), 1.0]],
        [[0.5, 0.5], [0.5, 0.5]],
        [[0.5, 0.5], [[0.5, 0.5], [0.0, 0.0]]],
    ],
)
def test_no_distributions(tables):
    with pytest.raises(InvalidArgument):
        TableModel(tables)


def test_no_chain():
    with pytest.raises(InvalidArgument, match="shape"):
        MarkovModel([0.5, 0.5], [0.5, 0.5])
    with pytest.raises(InvalidArgument, match="transition"):
        MarkovModel([0.5, 0.5], [[0.5, 0.5], [0.5, 0.4]])
    with pytest.raises(InvalidArgument, match="tokenizer"):
        MarkovModel([0.5, 0.5], [[0.5, 0.5]] * 2, tokenizer=Tokenizer.integers(3))
    with pytest.raises(InvalidArgument, match="contradict"):
        MarkovModel([0.5, 0.5], [[0.5, 0.5]] * 2, (1,), Tokenizer.integers(2))


def test_zero_probability_is_no_full_support():
    assert not TableModel([[1.0, 0.0]]).full_support
    assert not MarkovModel([0.5, 0.5], [[1.0, 0.0], [0.5, 0.5]]).full_support


def test_what_a_table_model_cannot_do():
    model = TableModel.random(2, 3, seed=0, eos=True)
    assert model.prompted("") is model
    with pytest.raises(CannotScore, match="prompt"):
        model.prompted([0])
    for length in (4, 5):
        with pytest.raises(CannotScore, match="3 positions"):
            model.score(torch.zeros(1, length, dtype=torch.int64))
    with pytest.raises(CannotScore, match="3 positions"):
        model.sample(1, 4, seed=0)
    with pytest.raises(CannotScore, match="follow"):
        MarkovModel([0.5, 0.5], [[0.5, 0.5]] * 2, (1,)).prompted([1])


@pytest.mark.parametrize("wrong", [{"num": 0}, {"length": 0}, {"num": True}, {"length": -3}])
def test_nothing_to_sample(wrong):
    with pytest.raises(InvalidArgument, match="at least 1"):
        TableModel.random(2, 3, seed=0).sample(**{"num": 1, "length": 1, "seed": 0, **wrong})


@pytest.mark.parametrize("eos", [False, True])
def test_no_rows_have_distributions_of_the_right_shape(eos):
    assert TableModel.random(3, 2, seed=0, eos=eos).begin(1).advance(
        torch.zeros(0).long(), torch.zeros(0).long()
    ).log_probs.shape == (0, 3)


def test_wrong_neighbours_and_cursors():
    model = TableModel.random(2, 3, seed=0)
    with pytest.raises(InvalidArgument, match="candidates for 2"):
        model.neighbours(torch.zeros(3).long(), torch.zeros(2, 1).long())
    with pytest.raises(InvalidArgument, match="parents"):
        model.begin(2).advance(torch.tensor([0]))
    with pytest.raises(InvalidArgument, match="Parents"):
        model.begin(2).advance(torch.tensor([0]), torch.tensor([2]))
    with pytest.raises(InvalidArgument, match="out of range"):
        model.begin(1).advance(torch.tensor([2]))
