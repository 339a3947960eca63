"""Many requests at once give what each gives alone."""

import pytest
import torch

import locore
from locore.constraints import Count
from locore.kernel.errors import InvalidArgument, ZeroWeights
from locore.models import HuggingFaceModel, TableModel
from tests.effort import some
from tests.models import zoo

VOCAB, LENGTH = 11, 6
PROMPTS = [(1, 2, 3), (4,), (5, 6), (7, 8, 9, 1), (2, 2)]
ALPHAS = [Count(tuple(range(LENGTH)), frozenset({number}), 1, 2) for number in range(len(PROMPTS))]
NEVER = Count(tuple(range(LENGTH)), frozenset({3}), 6)


@pytest.fixture(scope="module")
def model() -> HuggingFaceModel:
    return zoo.double_llama(VOCAB, (0,))


@pytest.mark.parametrize("together", some([2, 1, 16], 3))
@pytest.mark.parametrize("sampler", some(["auto", "swor", "smc", "lcr", "rejection"], 2))
def test_each_answer_is_that_of_its_seed(model, sampler, together):
    options = {"max_new_tokens": LENGTH, "num_particles": 8, "sampler": sampler, "budget": 400}
    found = locore.generate_many(model, PROMPTS, ALPHAS, seed=3, together=together, **options)
    assert len(found) == len(PROMPTS)
    for number, (prompt, alpha, one) in enumerate(zip(PROMPTS, ALPHAS, found, strict=True)):
        alone = locore.generate(model, prompt, alpha, seed=3 + number, **options)
        assert one.tokens.tolist() == alone.tokens.tolist()
        torch.testing.assert_close(one.log_weights, alone.log_weights)
        assert (one.info["lm_tokens"], one.info["seed"]) == (alone.info["lm_tokens"], alone.info["seed"])


def test_one_constraint_serves_all(model):
    found = locore.generate_many(model, PROMPTS, ALPHAS[0], max_new_tokens=LENGTH, num_particles=4, seed=0)
    assert all(0 in row for one in found for row in one.tokens.tolist())


def test_a_model_without_a_forward_pass_is_asked_one_by_one():
    table = TableModel.random(3, 3, seed=1)
    alpha = Count((0, 1, 2), frozenset({1}), 1, 2)
    found = locore.generate_many(table, ["", ""], alpha, max_new_tokens=3, seed=0)
    assert found[1].log_evidence == locore.generate(table, "", alpha, max_new_tokens=3, seed=1).log_evidence


def test_nothing_gives_nothing(model):
    assert locore.generate_many(model, [], ALPHAS[0], max_new_tokens=LENGTH) == []


def test_an_error_stops_all_or_stands_in_its_place(model):
    alphas = [*ALPHAS[:2], NEVER, *ALPHAS[3:]]
    options = {"max_new_tokens": LENGTH, "num_particles": 4, "sampler": "rejection", "budget": 12, "seed": 0}
    with pytest.raises(ZeroWeights):
        locore.generate_many(model, PROMPTS, [NEVER] * len(PROMPTS), **options)
    found = locore.generate_many(model, PROMPTS, alphas, errors="return", **options)
    assert isinstance(found[2], ZeroWeights)
    assert len(found) == len(PROMPTS)


@pytest.mark.parametrize(
    ("prompts", "alphas", "options", "said"),
    [
        (PROMPTS, ALPHAS[:2], {}, "5 prompts and 2 constraints"),
        ("a prompt", ALPHAS[0], {}, "list of prompts"),
        ([{"role": "user", "content": "hello"}], ALPHAS[0], {}, "list of prompts"),
        (PROMPTS, ALPHAS, {"together": 0}, "together"),
        (PROMPTS, ALPHAS, {"together": True}, "together"),
        (PROMPTS, ALPHAS, {"errors": "ignore"}, "errors"),
        (PROMPTS, ALPHAS, {"num_particles": 0}, "num_particles"),
        (PROMPTS, ALPHAS, {"seed": -1}, "seed"),
    ],
)
def test_bad_input_is_refused(model, prompts, alphas, options, said):
    with pytest.raises(InvalidArgument, match=said):
        locore.generate_many(model, prompts, alphas, max_new_tokens=LENGTH, **options)
