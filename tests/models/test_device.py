"""Models of transformers on a pretended device, which is as strict as a GPU: they find out the same and say the same."""

import copy
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import locore
from locore import token
from locore.kernel.tokenizer import Tokenizer
from locore.models import HuggingFaceModel, Remembered
from locore.samplers import BY_NAME, WithoutReplacement
from tests.effort import some
from tests.models import zoo
from tests.pretend_device import DEVICE, pretended

ROUNDING = {"atol": 1e-5, "rtol": 1e-5}  # other kernels of attention, other batches
PROMPT, LENGTH, PARTICLES = [1, 2, 3], 5, 8
ALPHA = ~token(0, [4, 5]) & token(2, range(3, 12))


def moved(module: Any) -> Any:
    """A copy on the pretended device; `Module.to` cannot make parameters of such tensors."""
    made = copy.deepcopy(module)
    for part in made.modules():
        for name, value in list(part._parameters.items()):
            part._parameters[name] = None if value is None else nn.Parameter(value.data.to(DEVICE), requires_grad=False)
        for name, value in list(part._buffers.items()):
            part._buffers[name] = None if value is None else value.to(DEVICE)
    return made


@pytest.fixture(params=["llama", pytest.param("gpt2", marks=pytest.mark.slow), "sliding"])
def module(request) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.AutoModelForCausalLM.from_config(zoo.ARCHITECTURES[request.param][0]()).eval()


def of(module: Any) -> HuggingFaceModel:
    return HuggingFaceModel.from_module(module, Tokenizer.integers(zoo.VOCAB, (zoo.VOCAB - 1,)))


def answers(model: locore.models.LanguageModel) -> list[torch.Tensor]:
    """Everything that can be asked of a prompted model, on the CPU."""
    drafts = model.sample(3, LENGTH, 0, keep_log_probs=True)
    assert drafts.log_probs is not None
    y, candidates = drafts.tokens[0], torch.arange(2 * LENGTH).view(LENGTH, 2)
    cursor = model.begin(2).advance(torch.tensor([1, 2])).advance(torch.tensor([3, 4, 5]), torch.tensor([1, 0, 1]))
    asked = [model.log_probs(drafts.tokens), model.token_scores(drafts.tokens), model.neighbours(y, candidates)]
    assert all(one.device.type == "cpu" for one in (drafts.tokens, drafts.token_scores, *asked))
    return [drafts.tokens, drafts.log_probs.cpu(), cursor.log_probs.cpu(), *asked]


def test_a_model_finds_out_and_says_the_same_on_any_device(module):
    here = of(module)
    expected = answers(here.prompted(PROMPT))
    with pretended():
        there = of(moved(module))
        assert there.device == DEVICE
        assert there.prompted(PROMPT).begin(1).log_probs.device == DEVICE
        for what in ("caches", "packs", "shares", "joins"):
            assert getattr(there.causal, what) == getattr(here.causal, what)
        found = answers(there.prompted(PROMPT))
        again = answers(Remembered(there).prompted(PROMPT)) if there.causal.shares else found
    for one, other, third in zip(expected, found, again, strict=True):
        torch.testing.assert_close(one, other, **ROUNDING)
        torch.testing.assert_close(one, third, **ROUNDING)


@pytest.mark.parametrize("module", some(["llama", "gpt2", "sliding"]), indirect=True)
def test_samplers_let_no_distribution_cross_over(module):
    sampler, seed = WithoutReplacement(blocks=1), 2
    expected = locore.generate(of(module), PROMPT, ALPHA, LENGTH, num_particles=PARTICLES, sampler=sampler, seed=seed)
    with pretended() as traffic:
        there = of(moved(module))
        traffic.copies.clear()
        found = locore.generate(there, PROMPT, ALPHA, LENGTH, num_particles=PARTICLES, sampler=sampler, seed=seed)
    assert torch.equal(found.tokens, expected.tokens)
    torch.testing.assert_close(found.log_weights, expected.log_weights, **ROUNDING)
    assert max(traffic.copies) < zoo.VOCAB


@pytest.mark.parametrize("module", ["llama"], indirect=True)
def test_requests_beside_each_other_on_a_device(module):
    options = {"max_new_tokens": LENGTH, "num_particles": PARTICLES, "seed": 5, "sampler": BY_NAME["smc"]}
    prompts = [[1, 2], [3, 4, 5]]
    alone = locore.generate_many(of(module), prompts, ALPHA, together=1, **options)
    with pretended():
        there = of(moved(module))
        # One thread: a mode of torch belongs to the thread that entered it.
        found = locore.generate_many(there, prompts, ALPHA, together=1, **options)
    for one, other in zip(alone, found, strict=True):
        assert torch.equal(one.tokens, other.tokens)
