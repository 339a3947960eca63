"""Other people's samplers, behind our protocol: the same prompted model, counted by the same wrapper, and the same circuit.

They get what they lack: an exact look-ahead to the length, and an end of the text that is part of the model. What is left to
compare is the algorithm and its overhead.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from locore.circuits import Circuit, LeftToRight
from locore.evidence import Blocks, Draws, Record, keep_positive
from locore.kernel.errors import InvalidArgument, MissingExtra
from locore.kernel.numerics import NEG_INF
from locore.kernel.samplers.sampler import affordable, left_to_right
from locore.models import Counted, LanguageModel
from locore.stopping import StopWhenComplete

if TYPE_CHECKING:
    from locore.models import HuggingFaceModel


def missing(package: str) -> str | None:
    """None if a package is installed; otherwise what to do about it."""
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return f"{package} is not installed; install it with: pip install './lab[peers]'"
    return None


@dataclass(frozen=True)
class GenLM:
    """SMC of genlm-control 0.4.1 (Loula et al. 2025; Lipkin et al. 2025) with its default settings.

    Each particle asks the model for one next-token distribution at every position, the prompt's being free: n − 1 LM tokens a
    particle, and no answer is shared between particles or kept between runs. genlm-control's own back end evaluates equal
    contexts once; that number is what `lm_contexts` counts.

    AWRS, unless one token has 2/3 of the mass, gives a particle up (weight zero) once all but 1e-5 of the mass was rejected; it
    is proper only where the mask leaves more than that.
    """

    ess_threshold: float = 0.5  # resample when the effective sample size falls below this share of the particles; 0 for never
    rejection: bool = False  # draw tokens by adaptive weighted rejection (AWRS) instead of from the masked distribution

    @property
    def name(self) -> str:
        """What the report calls it."""
        return "genlm-awrs" if self.rejection else "genlm-smc" if self.ess_threshold else "genlm-sis"

    def __call__(
        self, model: LanguageModel, circuit: Circuit, num_particles: int, budget: int | None, generator: torch.Generator
    ) -> Draws:
        """`num_particles` particles, or as many as the budget pays for; see `Sampler`."""
        reader = left_to_right(circuit)
        num = affordable(num_particles, circuit.length - 1, budget, self.name)
        if problem := missing("genlm-control"):
            raise MissingExtra(problem)
        # The classes in there are subclasses of genlm-control's.
        from locore_lab.fidelity.genlm_potentials import weighted_sequences

        with seeded(generator) as seed:
            tokens, log_weights, dead = weighted_sequences(model, reader, num, self.ess_threshold, self.rejection, seed)
        # Resampled particles depend on each other, and a single population shows no error of its own.
        evidence = float(torch.logsumexp(log_weights, 0)) - float(np.log(num))
        blocks = Blocks((evidence,)) if self.ess_threshold else None
        return keep_positive(tokens, log_weights, drawn=len(tokens) + dead, blocks=blocks)


@dataclass(frozen=True)
class TransformersMasking:
    """`generate` of transformers with a mask over the logits, the same as ours: unweighted, so its law is the myopic one.

    transformers runs the model itself. What it asked for is counted afterwards, by having the counted model score what was
    generated: one distribution for each token but the first, up to the end of the text. The seconds "in the model" are those of
    this scoring, the seconds "outside" those of `generate` with its forward passes.
    """

    name: str = "transformers-masking"

    def __call__(
        self, model: LanguageModel, circuit: Circuit, num_particles: int, budget: int | None, generator: torch.Generator
    ) -> Draws:
        """Independent sequences without weights, n − 1 LM tokens each; see `Sampler`."""
        reader = left_to_right(circuit)
        inner = _huggingface(model)
        num = affordable(num_particles, circuit.length - 1, budget, self.name)
        with seeded(generator):
            tokens = _generate(inner, reader, num)
        scores = model.token_scores(tokens)
        weights = torch.zeros(num, dtype=torch.float64)
        return Draws(tokens, weights, scores, Record(guarantee="biased", weighted=False))


def _huggingface(model: LanguageModel) -> HuggingFaceModel:
    # `transformers` takes seconds to import.
    from locore.models import HuggingFaceModel, Remembered

    inner = model
    while isinstance(
        inner, Counted | StopWhenComplete | Remembered
    ):  # a mask that leaves the end alone makes it certain as well
        inner = inner.base
    if not isinstance(inner, HuggingFaceModel):
        raise InvalidArgument(f"transformers generates from its own models only, and this is a {type(inner).__name__}.")
    if not inner.full_support:
        raise InvalidArgument("this model excludes tokens; transformers cannot mask where nothing that is allowed has mass.")
    return inner


def _generate(model: HuggingFaceModel, reader: LeftToRight, num: int) -> Tensor:
    """Long[num, length], as `generate` draws them from the model itself: no temperature, no top-k, no top-p."""
    from transformers import GenerationConfig

    ends, prompt = model.tokenizer.eos_ids, torch.tensor([model.prompt_ids])
    # A shallow copy: where our settings say nothing, `generate` takes those of the model's files.
    module = copy.copy(model.causal.module)
    module.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        do_sample=True,
        top_k=0,
        top_p=1.0,
        temperature=1.0,
        max_new_tokens=reader.length,
        eos_token_id=list(ends) or None,
        pad_token_id=ends[0] if ends else 0,
    )
    prompts = prompt.repeat(num, 1).to(model.causal.device)
    mask = _Mask(reader, prompt.shape[1])
    found = module.generate(prompts, attention_mask=torch.ones_like(prompts), logits_processor=[mask])
    found = found[:, prompt.shape[1] :].cpu()
    # It stops when all texts have ended.
    rest = torch.full((num, reader.length - found.shape[1]), ends[0] if ends else 0)
    return torch.cat([found, rest], 1)


class _Mask:
    """A processor of logits: −inf where the constraint cannot be completed any more."""

    def __init__(self, reader: LeftToRight, prompt_length: int) -> None:
        self._reader = reader
        self._prompt_length = prompt_length
        self._states: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Float[batch, vocab]; it is called once for each position, in order."""
        position = input_ids.shape[1] - self._prompt_length
        if self._states is None:
            self._states = self._reader.initial(len(input_ids))
        else:
            self._states = self._reader.step(position - 1, self._states, input_ids[:, -1].cpu())
        allowed = self._reader.allowed(position, self._states)[:, self._reader.token_class]
        return scores.masked_fill(~allowed.to(scores.device), NEG_INF)


@contextmanager
def seeded(generator: torch.Generator) -> Iterator[int]:
    """Seed the global random states of torch and numpy, which the peers draw from, and restore them after."""
    seed = int(torch.randint(2**32, (), generator=generator))
    before: Any = np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        np.random.seed(seed)
        try:
            yield seed
        finally:
            np.random.set_state(before)
