"""Causal language models of Hugging Face, with the prompt's keys and values read once."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from locore.kernel.errors import CannotScore, LocoreWarning
from locore.kernel.models.cursor import Cursor
from locore.kernel.models.language_model import ModelInfo, TokenModel
from locore.kernel.models.validation import positive, row_indices, within_context
from locore.kernel.numerics import live_lengths
from locore.kernel.plugins import cached_property
from locore.kernel.tokenizer import Tokenizer
from locore.models.abilities import NO_CACHE, remedy_of
from locore.models.attention import KeyValues, Tails
from locore.models.causal import CausalLM, NextStep, gathered_scores
from locore.models.hardware import CHOOSER, in_batches
from locore.models.loading import declared_ends, described, load_parts
from locore.models.neighbourhood import Neighbourhood
from locore.models.precision import SteerDtype, check_steering, copied
from locore.models.quiet import quiet


class HuggingFaceModel(TokenModel):
    """Any causal model of `transformers`, after a prompt.

    Log-probabilities are normalised in 32 bits or more. Sampling settings in the model's files are ignored: this is the model
    itself. Without a prompt it is the model after the empty one.

    Attributes:
        copied: the same in 16 bits, by which draws are made; None for none.
    """

    copied: CausalLM | None = None

    def __init__(
        self, causal: CausalLM, tokenizer: Tokenizer, prompt: tuple[int, ...] | None = None, info: ModelInfo | None = None
    ) -> None:
        """Most users want `load` or `from_module`."""
        self.causal = causal
        self.info = info
        self.tokenizer = tokenizer
        self.full_support = causal.full_support
        self._prompt = prompt

    @classmethod
    def load(
        cls,
        name: str | Path,
        device: str | torch.device | None = None,
        dtype: torch.dtype = torch.float32,
        memory_bytes: int | None = None,
        attn_implementation: str | None = None,
        threads: int | None = None,
        steer_dtype: SteerDtype = None,
    ) -> HuggingFaceModel:
        """A model and its tokenizer from a folder, a GGUF file, or from the Hub.

        Weights in folders are read from safetensors only, and no code of the model's is run. A folder is read without the
        network. A GGUF file is converted once, see docs/models.md.

        Args:
            name: a folder, a GGUF file, or a name on the Hub; or "tiny" or "smollm2".
            device: where to compute; by default what the environment variable LOCORE_DEVICE names, and else the CPU.
            dtype: of the weights; in 16 bits a text's score can be off by a nat.
            memory_bytes: what a batch may take beside the weights; 256 MiB on a CPU and 2 GiB elsewhere by default.
            attn_implementation: as in `transformers`.
            threads: of the arithmetic on the CPU, for the whole process as `torch.set_num_threads` says it; by default as many
                as pay, measured here, unless it was called before or the environment says.
            steer_dtype: of a copy by which draws are made, while the model itself weighs them, so that they have its law:
                "bfloat16", "float16" (or torch's), or "auto" for bfloat16 where it pays, measured here; None for no copy.

        Raises:
            ModelNotFound: no such model; or no weights, no tokenizer, or it needs its own code.
            MissingExtra: the packages that read GGUF are not installed.
            InvalidArgument: torch cannot compute on this device, or there is no such number of threads; or `steer_dtype` is no
                type of 16 bits.
        """
        device = os.environ.get("LOCORE_DEVICE") or "cpu" if device is None else device
        if threads is not None:
            positive(threads, "threads")  # before gigabytes are read
        check_steering(steer_dtype, dtype)
        module, tokenizer, info = load_parts(name, device, dtype, attn_implementation)
        with quiet():
            chosen = CHOOSER.settle(module, threads)
        info = replace(info, threads=None if chosen is None else str(chosen))
        return cls.from_module(module, tokenizer, memory_bytes, info, steer_dtype)

    @classmethod
    def from_module(
        cls,
        module: Any,
        tokenizer: Any,
        memory_bytes: int | None = None,
        info: ModelInfo | None = None,
        steer_dtype: SteerDtype = None,
    ) -> HuggingFaceModel:
        """A model that is in memory already.

        Args:
            module: a causal model of `transformers`; it is put in evaluation mode.
            tokenizer: its fast tokenizer, or a `Tokenizer`.
            memory_bytes: as in `load`.
            info: what is known of it beside what the module tells.
            steer_dtype: as in `load`.
        """
        with quiet():
            causal = CausalLM(module, memory_bytes)
            copy = copied(causal, steer_dtype)
        for hindrance in causal.hindrances:
            if hindrance.is_worth_a_warning:
                warnings.warn(f"{hindrance}. {remedy_of(hindrance)}", LocoreWarning, stacklevel=2)
        info = replace(info or described(module), hindrances=tuple(map(str, causal.hindrances)))
        info = info if copy is None else replace(info, dtype=f"{info.dtype}; a copy in {described(copy.module).dtype} draws")
        if not isinstance(tokenizer, Tokenizer):
            ends = declared_ends(module)
            tokenizer = Tokenizer.from_huggingface(tokenizer, causal.vocab_size, ends)
        if tokenizer.vocab_size != causal.vocab_size:
            raise CannotScore(
                f"The tokenizer has {tokenizer.vocab_size} tokens, but the model's logits have "
                f"{causal.vocab_size} columns. Make the tokenizer with that vocab_size."
            )
        model = cls(causal, tokenizer, info=info)
        model.copied = copy
        return model

    @property
    def device(self) -> torch.device:
        """Where the module is."""
        return self.causal.device

    @property
    def slow_because(self) -> str | None:
        """Why it has no cache, if it has none."""
        reasons = (str(hindrance) for hindrance in self.causal.hindrances if hindrance.what == NO_CACHE)
        return None if self.causal.caches else next(reasons, NO_CACHE)

    @property
    def context(self) -> int | None:
        """How many tokens it can read; None if it has no limit."""
        return self.causal.context

    @cached_property
    def near(self) -> HuggingFaceModel | None:
        """The same in 16 bits, where it was made."""
        return None if self.copied is None else HuggingFaceModel(self.copied, self.tokenizer, self._prompt, self.info)

    def _after(self, prompt: tuple[int, ...] | None) -> HuggingFaceModel:
        after = HuggingFaceModel(self.causal, self.tokenizer, prompt, self.info)
        after.copied = self.copied
        return after

    def stepping(self, elsewhere: Callable[[CausalLM], NextStep]) -> HuggingFaceModel:
        """The same model, whose steps, and its copy's, are made by somebody else; see `locore.models.meeting`."""
        other = HuggingFaceModel(self.causal.stepping(elsewhere(self.causal)), self.tokenizer, self._prompt, self.info)
        if self.copied is not None and self.copied.joins:
            other.copied = self.copied.stepping(elsewhere(self.copied))
        return other

    def fingerprint(self) -> str:
        """A hash of configuration, vocabulary and weights."""
        return f"{self.causal.fingerprint}-{self.tokenizer.fingerprint()[:16]}"

    @cached_property
    def _start(self) -> tuple[Tensor, KeyValues | None]:
        """Logits Float[vocab] after the prompt, and its keys and values if they can be kept."""
        self.causal.notice_changes()
        ids = torch.tensor([self.prompt_ids])
        if not self.causal.caches:
            return self.causal.read(ids)[0, 0], None
        logits, past = self.causal.read_prompt(ids)
        return logits[0, 0], past

    def _begin(self, batch: int) -> Cursor:
        logits, past = self._start
        if past is None:
            return super()._begin(batch)
        rows = logits.log_softmax(-1).expand(batch, -1)
        if self.causal.shares:
            return PrefixCursor(self.causal, past, Tails.empty(batch, self.causal.device), rows)
        return PrefixCursor(self.causal, None, past.repeated(batch), rows)

    @property
    def prompt_keys(self) -> KeyValues:
        """Keys and values of the prompt. Only if `causal.caches`."""
        past = self._start[1]
        assert past is not None
        return past

    def _log_probs(self, tokens: Tensor) -> Tensor:
        def work(part: Tensor) -> Tensor:
            logits = self._start[0].expand(len(part), 1, -1)
            if part.shape[1] > 1:
                logits = torch.cat([logits, self._read_after_prompt(part[:, :-1])], 1)
            return logits.log_softmax(-1).cpu()

        return self._in_batches(tokens, work)

    def _next_log_probs(self, tokens: Tensor) -> Tensor:
        if tokens.shape[1] == 0:
            return self._start[0].log_softmax(-1).expand(len(tokens), -1)
        self.require_length(tokens.shape[1] + 1)
        return self._in_batches(tokens, lambda part: self._read_after_prompt(part, 1)[:, 0].log_softmax(-1))

    def _token_scores(self, tokens: Tensor) -> Tensor:
        def after_first(part: Tensor) -> Tensor:
            return gathered_scores(self._read_after_prompt(part[:, :-1]), part[:, 1:, None])[..., 0]

        scores = torch.zeros(tokens.shape, dtype=torch.float64)
        scores[:, 0] = gathered_scores(self._start[0], tokens[:, 0])
        lengths = live_lengths(tokens, self.tokenizer.eos_ids)
        # Rows of one length go together, so that no token after an end is ever read.
        for length in sorted(set(lengths.tolist()) - {1}):
            group = (lengths == length).nonzero()[:, 0]
            scores[group, 1:length] = self._in_batches(tokens[group, :length], after_first)
        return scores

    def _in_batches(self, tokens: Tensor, work: Callable[[Tensor], Tensor]) -> Tensor:
        """What `work` makes of rows Long[batch, time], in parts that fit into memory."""
        past, length = 0 if self.causal.shares else len(self.prompt_ids), tokens.shape[1]
        return in_batches(len(tokens), self.causal.batch_size(past + length, length), lambda rows: work(tokens[rows]))

    def _read_after_prompt(self, tokens: Tensor, keep: int | None = None) -> Tensor:
        """Logits after the last `keep` (by default all) of the tokens Long[batch, time]."""
        keep = tokens.shape[1] if keep is None else keep
        past = self._start[1]
        if past is not None and self.causal.shares:
            return self.causal.read_shared(tokens, past, keep=keep)[0]
        if past is not None:
            return self.causal.read(tokens, past.repeated(len(tokens)), keep)
        prompt = torch.tensor(self.prompt_ids).expand(len(tokens), -1)
        return self.causal.read(torch.cat([prompt, tokens], 1), None, keep)

    def _neighbours(self, tokens: Tensor, candidates: Tensor) -> Tensor:
        logits, past = self._start
        if past is None:
            return super()._neighbours(tokens, candidates)
        return Neighbourhood(self.causal, logits, past, tokens, self.tokenizer.eos_ids).scores(candidates)


class PrefixCursor(Cursor):
    """A cursor that keeps keys and values: those of the prompt once and what each row has read since, or all of every row."""

    def __init__(self, causal: CausalLM, prompt: KeyValues | None, read: Tails | KeyValues, log_probs: Tensor) -> None:
        """Rows that have read the prompt, if it is shared, and `read`, and expect `log_probs` next."""
        self._causal = causal
        self._prompt = prompt
        self._read = read
        self._log_probs = log_probs

    @property
    def log_probs(self) -> Tensor:
        """Float[batch, vocab]: log p of the next token after the tokens fed so far."""
        return self._log_probs

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> PrefixCursor:
        """Feed one token to each row that goes on; see `Cursor.advance`."""
        past = self._read.rows(row_indices(parents, len(tokens), len(self._log_probs)))
        shared = 0 if self._prompt is None else self._prompt.length
        within_context(shared + past.length, 1, self._causal.context)
        after: Tails | KeyValues
        if isinstance(past, Tails):
            assert self._prompt is not None
            log_probs, step = self._causal.next_step(self._prompt, past, tokens)
            after = past.then(step)
        else:
            log_probs, after = self._causal.next_step_each(past, tokens)
        return PrefixCursor(self._causal, self._prompt, after, log_probs)


@contextmanager
def reading(model: Any, tokenizer: Any) -> Iterator[HuggingFaceModel]:
    """A module as a language model for a while.

    Reading freezes it and turns its training off; both come back, so that this can run inside of a training.
    """
    modes = [(module, module.training) for module in model.modules()]
    trained = [part for part in model.parameters() if part.requires_grad]
    try:
        yield HuggingFaceModel.from_module(model, tokenizer)
    finally:
        for module, training in modes:
            module.training = training
        for part in trained:
            part.requires_grad_(True)
