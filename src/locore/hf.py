"""Plugs for `transformers`: sampling under a constraint inside `model.generate`, and the masking baseline.

```python
model.generate(**inputs, custom_generate=locore.hf.custom_generate, constraint=ban(["awful"]), fast_tokenizer=tokenizer)
```
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.generation.logits_process import (
    LogitsProcessor,
    MinLengthLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria
from transformers.utils.generic import ModelOutput

import locore
from locore.constraints import Constraint
from locore.evidence import Particles
from locore.kernel.errors import InvalidArgument
from locore.kernel.limits import Limits
from locore.kernel.numerics import NEG_INF, ended_before, is_end
from locore.kernel.request import Seconds
from locore.kernel.tokenizer import Tokenizer
from locore.models.huggingface import reading
from locore.samplers import Sampler

# What `generate` hands on for its own loop; none of it says what to sample.
OWN_ARGUMENTS = {
    *("attention_mask", "position_ids", "cache_position", "logits_to_keep", "use_cache"),
    *("cache", "past_key_values"),  # since transformers 5.24, and before
}
OWN_PROCESSORS = (MinLengthLogitsProcessor, MinNewTokensLengthLogitsProcessor)  # both are `min_new_tokens`
# What a model's files may suggest: the processor, its setting in a generation_config, and where the processor keeps it.
SUGGESTED: tuple[tuple[type, str, str], ...] = (
    (TemperatureLogitsWarper, "temperature", "temperature"),
    (TopKLogitsWarper, "top_k", "top_k"),
    (TopPLogitsWarper, "top_p", "top_p"),
    (MinPLogitsWarper, "min_p", "min_p"),
    (TypicalLogitsWarper, "typical_p", "mass"),
    (RepetitionPenaltyLogitsProcessor, "repetition_penalty", "penalty"),
    (NoRepeatNGramLogitsProcessor, "no_repeat_ngram_size", "ngram_size"),
)
OWN_CRITERIA = (MaxLengthCriteria, EosTokenCriteria)
OUTPUTS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")  # of that loop; here there are none


@dataclass
class ConstrainedOutput(ModelOutput):
    """What `generate(..., return_dict_in_generate=True)` returns.

    Attributes:
        sequences: Long[batch × num_return_sequences, time]: prompts and texts, padded on the right.
        particles: for each prompt, the weighted texts that the sequences were drawn from.
    """

    sequences: Tensor | None = None
    particles: list[Particles] | None = None


def custom_generate(
    model: Any,
    input_ids: Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    constraint: Constraint | None = None,
    fast_tokenizer: Any = None,
    num_particles: int = 32,
    sampler: str | Sampler | None = None,
    budget: int | str | Seconds | None = None,
    seed: int | None = None,
    canonical: Any = None,
    ending: Any = None,
    limits: Limits | None = None,
    **model_kwargs: Any,
) -> Tensor | ConstrainedOutput:
    """For `model.generate(custom_generate=...)`: sample p(text | constraint) of the model itself.

    Each prompt has one set of particles, and its `num_return_sequences` texts are drawn from that in proportion to the weights.
    Whatever else would change the model's distribution (temperature, top-p, penalties, bans, beams) is refused. What the
    `generation_config` in the model's files suggests of it, without being asked for, is ignored with a warning that names it.

    Args:
        model: this and the next four are what `generate` hands over.
        input_ids: from `generate`.
        logits_processor: from `generate`.
        stopping_criteria: from `generate`.
        generation_config: from `generate`.
        constraint: what each text must satisfy; required.
        fast_tokenizer: of the model, fast, or a `locore.Tokenizer`, which is quicker; required. (What is called `tokenizer`,
            `generate` keeps for itself.)
        num_particles: this and all that follow are as in `locore.generate`.
        sampler: name or object.
        budget: in LM tokens or seconds, for each prompt.
        seed: prompt i has the seed `seed + i`.
        canonical: "alpha", "only" or None.
        ending: None, the default, ends a text once no longer one can satisfy the constraint.
        limits: of compiling.
        **model_kwargs: from `generate`.

    Returns:
        What `generate` returns: Long[batch × num_return_sequences, time], or a `ConstrainedOutput`.

    Raises:
        InvalidArgument: something is missing, or asked for that cannot be kept.
        LocoreError: as `locore.generate`.
    """
    if constraint is None or fast_tokenizer is None:
        raise InvalidArgument("custom_generate needs constraint=... and fast_tokenizer=..., among the arguments of generate.")
    asked = _without_suggestions(logits_processor or (), model.generation_config)
    _refuse_what_would_be_dropped(asked, stopping_criteria, generation_config, model_kwargs)
    copies = generation_config.num_return_sequences or 1
    length = generation_config.max_length - input_ids.shape[1]
    least = max(generation_config.min_new_tokens or 0, (generation_config.min_length or 0) - input_ids.shape[1])
    mask = model_kwargs.get("attention_mask")
    mask = torch.ones_like(input_ids) if mask is None else mask
    drawn, rows = [], []
    with reading(model, fast_tokenizer) as language_model:
        _check_ends(language_model.tokenizer, generation_config.eos_token_id)
        for number, (ids, is_text) in enumerate(zip(input_ids[::copies], mask[::copies], strict=True)):
            particles = locore.generate(
                language_model,
                ids[is_text.bool()].tolist(),
                constraint,
                max_new_tokens=length,
                min_new_tokens=least,
                num_particles=num_particles,
                sampler=sampler,
                budget=budget,
                seed=None if seed is None else seed + number,
                canonical=canonical,
                ending=ending,
                limits=limits,
            )
            drawn.append(particles)
            rows.append(particles.resample(copies, seed=particles.info["seed"] + 1).tokens)
    texts = _padded(torch.cat(rows), language_model.tokenizer.eos_ids, generation_config.pad_token_id)
    sequences = torch.cat([input_ids, texts.to(input_ids.device)], 1)
    return ConstrainedOutput(sequences, drawn) if generation_config.return_dict_in_generate else sequences


class MaskingLogitsProcessor(LogitsProcessor):
    """The baseline that engines ship: at each step only tokens that can still be completed, renormalised, without weights.

    Every text satisfies the constraint, and the texts come from the wrong distribution. One object serves one call of
    `generate`, with prompts of one length, `max_new_tokens` as here, and sampling or greedy decoding.
    """

    def __init__(
        self, constraint: Constraint, tokenizer: Any, prompt_length: int, max_new_tokens: int, min_new_tokens: int = 0
    ) -> None:
        """Compile the constraint.

        Args:
            constraint: what each text must satisfy.
            tokenizer: a `locore.Tokenizer`, such as that of a `HuggingFaceModel`; its size must be that of the logits.
            prompt_length: tokens of the prompt, padding included.
            max_new_tokens: as given to `generate`.
            min_new_tokens: a text may not end before.
        """
        own_tokenizer = tokenizer if isinstance(tokenizer, Tokenizer) else Tokenizer.from_huggingface(tokenizer)
        self.circuit = locore.compile(constraint, own_tokenizer, max_new_tokens, min_length=min_new_tokens)
        self.eos_ids = own_tokenizer.eos_ids
        self.prompt_length = prompt_length

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Float[batch, vocab] with −inf for tokens that lead nowhere; rows that have ended are left alone."""
        if scores.shape[1] != self.circuit.vocab_size:
            raise InvalidArgument(
                f"the logits have {scores.shape[1]} columns, the tokenizer {self.circuit.vocab_size} tokens; give the "
                "tokenizer of locore.models.HuggingFaceModel.from_module(model, tokenizer)."
            )
        prefix = input_ids[:, self.prompt_length :].cpu()
        ended = is_end(prefix, self.eos_ids).any(1)
        allowed = torch.ones_like(scores, dtype=torch.bool)
        if not bool(ended.all()):
            allowed[~ended] = self.circuit.allowed(prefix[~ended]).to(scores.device)
        return scores.masked_fill(~allowed, NEG_INF)


def _without_suggestions(processors: Any, saved: Any) -> list[Any]:
    """The processors without those that only say what the saved configuration suggests, which a warning names.

    With `do_sample=True` saved, what transformers adds to it by itself (top_k=50) is part of the suggestion.
    """
    defaults = saved._get_default_generation_params() if saved.do_sample else {}
    asked, ignored = [], []
    for part in processors:
        name, value = next(((name, getattr(part, at)) for kind, name, at in SUGGESTED if type(part) is kind), ("", None))
        suggested = getattr(saved, name, None)
        if value is not None and value == (defaults.get(name) if suggested is None else suggested):
            ignored.append(f"{name}={value}")
        else:
            asked.append(part)
    if ignored:
        warnings.warn(
            f"the model's generation_config suggests {', '.join(ignored)}; custom_generate ignores that and samples the "
            "model's own distribution. For another one wrap the model (Tempered, TopP and TopK of locore.models) and call "
            "locore.generate.",
            stacklevel=3,
        )
    return asked


def _refuse_what_would_be_dropped(processors: Any, criteria: Any, config: Any, model_kwargs: dict[str, Any]) -> None:
    """InvalidArgument for all that asks for another distribution, or for another end of the text."""
    unknown = sorted(name for name, value in model_kwargs.items() if name not in OWN_ARGUMENTS and value is not None)
    if unknown:
        raise InvalidArgument(f"custom_generate does not know {', '.join(unknown)}; leave them out of generate.")
    for what, given, own in (("logits processor", processors, OWN_PROCESSORS), ("stopping criterion", criteria, OWN_CRITERIA)):
        strange = [type(part).__name__ for part in given or () if not isinstance(part, own)]
        if strange:
            raise InvalidArgument(
                f"the {what} {strange[0]} would change what is sampled; Locore samples the model itself. Leave out what asks "
                "for it (with do_sample=True transformers adds top_k=50 by itself, and a pipeline do_sample=True and "
                "temperature=0.7: pass top_k=0, or do_sample=False, which changes nothing else here)."
            )
    if (config.num_beams or 1) != 1:
        raise InvalidArgument(
            f"num_beams={config.num_beams} searches, it does not sample; leave it out, or give sampler='search'."
        )
    unanswered = [name for name in OUTPUTS if getattr(config, name, None)]
    if unanswered:
        raise InvalidArgument(
            f"custom_generate does not return {', '.join(unanswered)}; leave them out, `particles` has scores."
        )


def _check_ends(tokenizer: Tokenizer, ends: Any) -> None:
    """The texts must end where `generate` was told that they do."""
    given = set(ends if isinstance(ends, list) else [] if ends is None else [ends])
    if not given <= set(tokenizer.eos_ids):
        raise InvalidArgument(
            f"eos_token_id {sorted(given - set(tokenizer.eos_ids))} is no end that the model's files declare; declare it "
            "there, or give a locore.Tokenizer with these eos_ids."
        )


def _padded(tokens: Tensor, eos_ids: tuple[int, ...], pad: int | None) -> Tensor:
    """Long[rows, time]: after the first end come pads, and no column has nothing else."""
    if not eos_ids:
        return tokens
    after = ended_before(tokens, eos_ids)
    filled = tokens.masked_fill(after, eos_ids[0] if pad is None else pad)
    return filled[:, : int((~after).sum(1).max())]


__all__ = ["ConstrainedOutput", "MaskingLogitsProcessor", "custom_generate"]
