"""Laws of draws for a trainer: probabilities under the constrained law, and gradients, are the enumerated ones.

Statistical tests: false alarm below 1e-4 each.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

import locore
from locore import json_schema, regex
from locore.kernel.errors import CannotScore, InvalidArgument
from locore.kernel.tokenizer import Tokenizer
from locore.models import MarkovModel
from locore.rollouts import Rollouts, rollouts, trl_rollouts

SIZE, LENGTH, ALLOWED = 6, 6, 2  # letters, tokens, and how many letters α allows
SAMPLERS = {
    "exact": {"sampler": "exact", "num_particles": 64},
    "thinned": {"sampler": "exact", "num_particles": 8},
    "swor": {"sampler": "swor", "budget": 60},
    "smc": {"sampler": "smc", "num_particles": 50},
    "masked-is": {"sampler": "masked-is", "num_particles": 50},
    "auto": {},
}


class Policy:
    """A table of logits, of which α leaves some tenth at each step, and rewards of its texts."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(SIZE + 1, SIZE, dtype=torch.float64, generator=generator) * 1.5
        logits[:, :ALLOWED] -= 2.0
        self.logits = logits.requires_grad_(True)
        self.law = self.logits.log_softmax(-1)
        start, rows = self.law.detach().exp()[SIZE], self.law.detach().exp()[:SIZE]
        letters = tuple(bytes([97 + number]) for number in range(SIZE))
        self.model = MarkovModel(start, rows, tokenizer=Tokenizer(SIZE, letters))
        self.constraint = regex(f"[ab]{{{LENGTH}}}")
        self.texts = torch.tensor(list(itertools.product(range(ALLOWED), repeat=LENGTH)))

    def rows(self, tokens: Tensor, law: Tensor) -> Tensor:
        """Float[num, time]: of a table, the logs of tokens."""
        before = torch.cat([torch.full((len(tokens), 1), SIZE), tokens[:, :-1]], 1)
        return law[before, tokens]

    def scores(self, tokens: Tensor) -> Tensor:
        return self.rows(tokens, self.law).sum(1)

    def rewards(self, tokens: Tensor) -> Tensor:
        return (tokens[:, 1:] != tokens[:, :-1]).double().sum(1) + 2.0 * (tokens[:, -1] == 0)

    def gradient(self, value: Tensor) -> Tensor:
        return torch.autograd.grad(value, self.logits, retain_graph=True)[0]

    def true_gradient(self) -> Tensor:
        return self.gradient(torch.softmax(self.scores(self.texts), 0) @ self.rewards(self.texts))

    def of(self, drawn: Rollouts) -> Tensor:
        tokens = drawn.particles.tokens
        return self.gradient(drawn.expectation(self.rewards(tokens), self.scores(tokens)))

    def draw(self, seed: int = 0, **options: object) -> Rollouts:
        return rollouts(self.model, "", self.constraint, LENGTH, seed=seed, **options)


@pytest.fixture(scope="module")
def policy():
    return Policy()


def off(found: Tensor, true: Tensor) -> float:
    return float((found - true).norm() / true.norm())


@pytest.mark.parametrize("sampler", ["exact", "swor"])
def test_the_gradient_is_that_of_the_constrained_policy(policy, sampler):
    """Within 1 %, in the mean of some runs; that of masked draws, by either log-probability, is off by more than half."""
    true, number = policy.true_gradient(), 1 if sampler == "exact" else 100
    found = [policy.of(policy.draw(seed, **SAMPLERS[sampler])) for seed in range(number)]
    assert off(sum(found) / number, true) < (1e-9 if sampler == "exact" else 0.01)
    texts, masked = policy.texts, policy.law[:, :ALLOWED].log_softmax(-1)
    logs = policy.rows(texts, masked).sum(1)
    worth = policy.rewards(texts)
    weight = logs.detach().exp() * (worth - logs.detach().exp() @ worth)
    for score in (logs, policy.scores(texts)):
        assert off(policy.gradient(weight @ score), true) > 0.5


def test_a_group_with_its_mean_as_baseline_follows_the_same_gradient(policy):
    """What GRPO does with equally weighted draws: false alarm by a normal approximation of 400 groups, 4.5 errors."""
    true, drawn, found = policy.true_gradient(), policy.draw(num_particles=64, sampler="exact"), []
    for seed in range(400):
        group = drawn.resampled(8, seed)
        tokens = group.particles.tokens
        worth = policy.rewards(tokens)
        found.append(policy.gradient((worth - worth.mean()) @ policy.scores(tokens) / (len(tokens) - 1)))
    every = torch.stack(found)
    error = every.std(0) / math.sqrt(len(every))
    assert bool(((every.mean(0) - true).abs() <= 4.5 * error + 1e-9).all())


def test_log_evidence_can_be_differentiated(policy):
    """Its gradient is E[∇ log p(y) | α]; under other parameters it is the evidence of these."""
    drawn = policy.draw(**SAMPLERS["exact"])
    tokens = drawn.particles.tokens
    known = policy.scores(policy.texts).logsumexp(0)
    now = drawn.log_evidence(policy.scores(tokens))
    assert now.item() == pytest.approx(known.item()) == drawn.log_evidence().item()
    assert off(policy.gradient(now), policy.gradient(known)) < 1e-9
    other = (policy.logits.detach() + 0.3 * torch.arange(SIZE)).log_softmax(-1)
    moved = drawn.log_evidence(policy.rows(tokens, other).sum(1))
    assert float(moved) == pytest.approx(float(policy.rows(policy.texts, other).sum(1).logsumexp(0)))


def exact_given(policy: Policy, tokens: Tensor) -> Tensor:
    """f64[num, time]: log p(y_t | y_<t, α) by summing over all texts."""
    joint = torch.softmax(policy.scores(policy.texts).detach(), 0)
    mass = [(policy.texts[:, :k][None] == tokens[:, None, :k]).all(-1).double() @ joint for k in range(LENGTH + 1)]
    return torch.stack(mass, 1).log().diff(dim=1)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_tokens_under_the_constraint_add_up_and_are_never_more_than_certain(policy, sampler):
    drawn = policy.draw(**SAMPLERS[sampler])
    for mine in (drawn, drawn.resampled(5, seed=1)):
        given = torch.stack(mine.log_probs_given)
        assert bool((given <= 1e-9).all())
        assert given.sum(1).tolist() == pytest.approx(mine.log_prob_given.tolist())
        assert torch.stack(mine.log_probs).sum(1).tolist() == pytest.approx(mine.log_prob.tolist())
        assert mine.log_prob.tolist() == pytest.approx(policy.scores(mine.particles.tokens).tolist())
        if sampler == "exact":
            assert given.flatten().tolist() == pytest.approx(exact_given(policy, mine.particles.tokens).flatten().tolist())
    evidence = drawn.log_prob - drawn.log_prob_given
    assert evidence.tolist() == pytest.approx([drawn.found.log_evidence] * len(drawn))


def test_tokens_under_the_constraint_are_told_better_with_more_texts(policy):
    """Mean error over tokens, by weight: it falls as the root of the number of draws."""

    def error(number: int) -> float:
        drawn = policy.draw(sampler="masked-is", num_particles=number)
        away = torch.stack(drawn.log_probs_given) - exact_given(policy, drawn.particles.tokens)
        return float(drawn.weights @ away.abs().mean(1))

    assert error(20_000) < 0.02 and error(20_000) < error(50) / 4


def test_an_end_is_a_token_unless_it_was_free():
    tiny = locore.load("tiny")
    for ending in ("complete", "eos"):
        drawn = rollouts(tiny, "Tom saw a", regex(" (dog|cat)"), 6, ending=ending, seed=0)
        ends = set(tiny.tokenizer.eos_ids)
        assert all(bool(set(ids) & ends) == (ending == "eos") for ids in drawn.token_ids)
        assert [tiny.tokenizer.decode([i for i in ids if i not in ends]) for ids in drawn.token_ids] == drawn.texts
        assert [len(ids) for ids in drawn.token_ids] == [len(each) for each in drawn.log_probs]


def test_what_has_no_law_is_refused(policy):
    with pytest.raises(CannotScore, match="law"):
        policy.draw(sampler="asap")
    with pytest.raises(InvalidArgument, match="temperature"):
        policy.draw(temperature=0)
    with pytest.raises(InvalidArgument, match="potentials"):
        rollouts(
            policy.model,
            "",
            policy.constraint * locore.potential(lambda texts: [-0.1 * len(text) for text in texts]),
            LENGTH,
            seed=0,
        )
    drawn = policy.draw(**SAMPLERS["exact"])
    with pytest.raises(InvalidArgument, match="64 texts"):
        drawn.expectation([1.0])
    with pytest.raises(InvalidArgument, match="64 texts"):
        drawn.log_evidence(torch.zeros(3))


SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2, 3]}}, "required": ["a"], "additionalProperties": False}


def test_a_trainer_gets_texts_of_its_own_model_and_keeps_its_state():
    """Of a stub with what TRL's trainer has: as many texts as prompts, of the law of the weights as they are now."""
    tiny = locore.load("tiny")
    module = tiny.causal.module
    module.train()
    trained = list(module.parameters())
    for each in trained:
        each.requires_grad_(True)
    trainer = SimpleNamespace(
        model=module,
        processing_class=tiny.tokenizer,
        args=SimpleNamespace(max_completion_length=8),
        accelerator=SimpleNamespace(unwrap_model=lambda found: found),
    )
    draw = trl_rollouts(json_schema(SCHEMA, whitespace="compact"), seed=3)
    prompts = ["JSON: "] * 4 + ["Tom: "] * 2
    first = draw(prompts, trainer)
    assert module.training and all(each.requires_grad for each in trained)
    assert {len(values) for values in first.values()} == {6}
    assert first["prompt_ids"][0] == list(tiny.prompted("JSON: ").prompt_ids) != first["prompt_ids"][5]
    evidence = first["log_evidence"][0]
    again = trl_rollouts(json_schema(SCHEMA, whitespace="compact"), seed=3)(prompts, trainer)
    assert again == first
    for ids, logs, prompt in zip(first["completion_ids"], first["logprobs"], first["prompt_ids"], strict=True):
        with torch.no_grad():
            rows = module(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1].double().log_softmax(-1)
        assert logs == pytest.approx(rows[range(len(ids)), ids].tolist(), abs=1e-3)
    with contextlib.ExitStack() as undo, torch.no_grad():
        for each in trained:
            undo.callback(each.data.copy_, each.clone())
            each.mul_(1.01)
        changed = draw(prompts, trainer)["log_evidence"][0]
    module.eval()
    assert abs(changed - evidence) > 1e-3
