"""`rollouts`: draws for reinforcement learning under a constraint α, with the law that they have and its gradient.

The policy is p_θ(y | α) = p_θ(y) 1[y ⊨ α] / Z_θ. Engines that mask draw from another law, and neither its token
log-probabilities nor the model's own are those of the policy. Weighted draws have what is needed: with weights w_i and scores
s_i = log p(y_i),

- log Z_θ' is estimated by log (1/N) Σ w_i exp(s_i(θ') − s_i), whose gradient at θ is E[∇ log p_θ(y) | α];
- E_θ'[R | α] by the mean of R under these weights, normalised, whose gradient at θ is that of the policy,
  Σ w̄_i (R_i − R̄) ∇ s_i. So equally weighted draws with the group's mean as baseline, which is what GRPO does, follow the right
  gradient with the model's own token log-probabilities, and every importance ratio is 1.

Of single tokens, log p(y_t | y_<t, α) = log p(y_t | y_<t) + log Z(y_≤t) − log Z(y_<t), where Z(y_≤t) is the probability that
the model satisfies α after a prefix. It is estimated by the weight of all texts found with that prefix, and is never below the
probability of these texts nor above 1; so no token is said to be more than certain, and tokens add up to the text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from locore.constraints import Constraint
from locore.evidence import Particles
from locore.generate import generate
from locore.kernel.chat import Prompt
from locore.kernel.errors import CannotScore, InvalidArgument
from locore.kernel.numerics import distinct, is_end, live_lengths, segment_logsumexp
from locore.kernel.plugins import cached_property
from locore.models import LanguageModel


@dataclass(frozen=True, eq=False)
class Rollouts:
    """Texts drawn from p(y | α), and what a trainer needs to know of them. All logs are natural.

    Attributes:
        particles: the texts that were drawn, with weights.
        found: all that were found on the way, which estimates rest on.
    """

    particles: Particles
    found: Particles

    def __len__(self) -> int:
        return len(self.particles)

    @property
    def texts(self) -> list[str]:
        """As strings."""
        return self.particles.texts

    @property
    def weights(self) -> Tensor:
        """f64[num], normalised."""
        return self.particles.weights

    @cached_property
    def token_ids(self) -> list[list[int]]:
        """The tokens of each text, with its end, unless that was free (`ending="complete"`)."""
        rows = zip(self.particles.tokens.tolist(), self._lengths.tolist(), strict=True)
        return [row[:length] for row, length in rows]

    @property
    def log_probs(self) -> list[Tensor]:
        """f64[tokens] of each text, log p(y_t | y_<t): the model's own."""
        return self._cut(_scores(self.particles))

    @property
    def log_prob(self) -> Tensor:
        """f64[num], log p(y)."""
        return _scores(self.particles).sum(-1)

    @property
    def log_prob_given(self) -> Tensor:
        """f64[num], log p(y | α), by the estimate of p(α)."""
        return torch.stack([tokens.sum() for tokens in self.log_probs_given])

    @cached_property
    def log_probs_given(self) -> list[Tensor]:
        """f64[tokens] of each text, log p(y_t | y_<t, α), estimated; they add up to `log_prob_given`."""
        scores = _scores(self.particles)
        return self._cut(scores + _log_ahead(self.found, self.particles).diff(dim=1))

    def log_evidence(self, scores: Tensor | None = None) -> Tensor:
        """f64[]: log p_θ'(α), differentiable in the parameters that the scores depend on.

        Args:
            scores: Float[num], log p_θ'(y) of each text under the parameters θ' as they are now; None: as they were drawn.
        """
        return torch.logsumexp(self.particles.log_weights + self._change(scores), 0) - math.log(len(self))

    def expectation(self, rewards: Sequence[float] | Tensor, scores: Tensor | None = None) -> Tensor:
        """f64[]: E_θ'[reward | α], differentiable: its gradient where the texts were drawn is the policy gradient.

        Args:
            rewards: Float[num], of each text.
            scores: as in `log_evidence`.
        """
        worth = torch.as_tensor(rewards, dtype=torch.float64)
        if worth.shape != (len(self),):
            raise InvalidArgument(f"expectation needs one reward for each of the {len(self)} texts, got {tuple(worth.shape)}.")
        return torch.softmax(self.particles.log_weights + self._change(scores), 0) @ worth

    def resampled(self, num: int, seed: int | None = None) -> Rollouts:
        """`num` equally weighted texts, drawn in proportion to the weights: a group for GRPO."""
        return replace(self, particles=self.particles.resample(num, seed))

    def _change(self, scores: Tensor | None) -> Tensor:
        if scores is None:
            return torch.zeros(len(self), dtype=torch.float64)
        if scores.shape != (len(self),):
            raise InvalidArgument(f"scores must be log p(y) of each of the {len(self)} texts, got {tuple(scores.shape)}.")
        return scores.double().cpu() - self.log_prob

    @cached_property
    def _lengths(self) -> Tensor:
        tokens, ends = self.particles.tokens, self.particles.tokenizer.eos_ids
        lengths = live_lengths(tokens, ends) if ends else torch.full((len(tokens),), tokens.shape[1])
        last = lengths[:, None] - 1
        free = is_end(tokens.gather(1, last), ends) & (_scores(self.particles).gather(1, last) == 0) if ends else last < 0
        return lengths - free[:, 0].long()

    def _cut(self, values: Tensor) -> list[Tensor]:
        return [row[:length] for row, length in zip(values, self._lengths.tolist(), strict=True)]


def rollouts(
    model: LanguageModel | str | Path, prompt: Prompt, constraint: Constraint, max_new_tokens: int = 20, **options: Any
) -> Rollouts:
    """Draw texts from p(y | constraint) for a trainer, with their probabilities under the model and under the constrained law.

    Args:
        model: see `locore.generate`; of a module that is being trained `HuggingFaceModel.from_module(module, tokenizer)`.
        prompt: see `locore.generate`.
        constraint: what each text must satisfy.
        max_new_tokens: the horizon.
        options: the others of `locore.generate`. With `ending="eos"` the model's own end is a part of each text, and trained.

    Raises:
        InvalidArgument: temperature 0, which draws nothing.
        CannotScore: the sampler does not know how probable its texts are, or the weights are not proper.
        LocoreError: as `locore.generate`.
    """
    if options.get("temperature") == 0:
        raise InvalidArgument("rollouts are draws; temperature 0 gives the most probable text instead.")
    particles = generate(model, prompt, constraint, max_new_tokens, **options)
    record = particles.record
    if record.factors is not None:
        raise InvalidArgument("rollouts takes a constraint without potentials; give what they say as rewards.")
    if record.guarantee != "proper" or particles.token_scores is None:
        raise CannotScore(
            f"the sampler {particles.info['sampler']!r} gives texts whose law under the constraint is not known; leave out "
            'sampler, or take "smc" or "swor".'
        )
    return Rollouts(particles, particles.every)


def trl_rollouts(constraint: Constraint, max_new_tokens: int | None = None, **options: Any) -> Callable[..., dict[str, Any]]:
    """A `rollout_func` for TRL's `GRPOTrainer`: equally weighted draws from p_θ(y | constraint) of the model being trained.

    For the policy gradient itself set `loss_type="dr_grpo"`, `scale_rewards="none"` and `beta=0` in `GRPOConfig`.

    Args:
        constraint: what each text must satisfy.
        max_new_tokens: the horizon; None: `max_completion_length` of the trainer.
        options: as in `rollouts`; `seed` is that of the first step.

    Returns:
        A function of the prompts (each as often as texts are wanted, in a row) and the trainer. It returns `prompt_ids`,
        `completion_ids`, `logprobs` (the model's own), and for rewards `log_prob_given` and `log_evidence` of each text.
    """
    seeds, tokenizer = count(options.pop("seed", 0)), None

    def rollout_func(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        from locore.models.huggingface import reading  # transformers is not needed elsewhere here

        length = trainer.args.max_completion_length if max_new_tokens is None else max_new_tokens
        columns: dict[str, list[Any]] = {name: [] for name in ("prompt_ids", "completion_ids", "logprobs")}
        columns |= {"log_prob_given": [], "log_evidence": []}
        nonlocal tokenizer
        module = trainer.accelerator.unwrap_model(trainer.model)
        with reading(module, tokenizer or trainer.processing_class) as model:
            tokenizer = model.tokenizer
            for prompt, copies in groupby(prompts):
                seed, number = next(seeds), len(list(copies))
                group = rollouts(model, prompt, constraint, length, seed=seed, **options).resampled(number, seed)
                columns["prompt_ids"] += [list(model.prompted(prompt).prompt_ids)] * number
                columns["completion_ids"] += group.token_ids
                columns["logprobs"] += [each.tolist() for each in group.log_probs]
                columns["log_prob_given"] += group.log_prob_given.tolist()
                columns["log_evidence"] += [group.found.log_evidence] * number
        return columns

    return rollout_func


def _scores(particles: Particles) -> Tensor:
    """f64[num, time], known of all that `rollouts` returns."""
    assert particles.token_scores is not None
    return particles.token_scores


def _log_ahead(drawn: Particles, particles: Particles) -> Tensor:
    """f64[num, time + 1]: log Z after each prefix of the particles, by the weights of all texts found; 0 after the last.

    The weight of all texts with a prefix is at least what these texts are probable, and at most what the prefix is.
    """
    number, time = particles.tokens.shape
    tokens = torch.cat([drawn.tokens, particles.tokens])
    log_prefix = torch.nn.functional.pad(_scores(particles).cumsum(1), (1, 0))
    log_weights = drawn.log_weights - math.log(len(drawn))
    each = distinct(drawn.tokens)[0]  # texts once, whatever draws they have
    log_each = _scores(drawn)[each].sum(1)
    ahead, prefix = torch.zeros_like(log_prefix), torch.zeros(len(tokens), dtype=torch.long)
    for place in range(time):
        inside, count = prefix[: len(drawn)], int(prefix.max()) + 1
        weight, least = (segment_logsumexp(*some, count) for some in ((log_weights, inside), (log_each, inside[each])))
        log_mass = torch.maximum(weight, least)[prefix[-number:]]
        ahead[:, place] = torch.minimum(log_mass, log_prefix[:, place]) - log_prefix[:, place]
        prefix = torch.unique(torch.stack([prefix, tokens[:, place]]), dim=1, return_inverse=True)[1]
    return ahead
