"""Causal language models of Hugging Face, with the prompt's keys and values read once."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from locore.chat import Prompt
from locore.ending import live_lengths
from locore.errors import CannotScore
from locore.models.base import LanguageModel, neighbour_arguments
from locore.models.batching import in_batches
from locore.models.causal import CausalLM
from locore.models.cursor import Cursor
from locore.models.info import ModelInfo
from locore.models.keyvalues import KeyValues, Step, Tail, Tails
from locore.models.loading import declared_ends, load_parts
from locore.models.neighbourhood import Neighbourhood
from locore.models.prefix import CachedCursor, SharingCursor, batch_size, gathered_scores, next_step
from locore.models.prompting import joint_prompt
from locore.models.quiet import quiet
from locore.models.validation import log_probabilities, within_context
from locore.tokenizer import Tokenizer


class HuggingFaceModel(LanguageModel):
    """Any causal model of `transformers`, after a prompt.

    Log-probabilities are normalised in 32 bits or more and live on the CPU; the device only
    computes them. Sampling settings in the model's files are ignored: this is the model itself.
    Without a prompt it is the model after the empty one.
    """

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
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        memory_bytes: int | None = None,
        attn_implementation: str | None = None,
    ) -> HuggingFaceModel:
        """A model and its tokenizer from a folder, a GGUF file, or from the Hub.

        Weights in folders are read from safetensors only, and no code of the model's is run. A
        folder is read without the network. A GGUF file is converted once, see docs/models.md.

        Args:
            name: a folder, a GGUF file, or a name on the Hub; or "tiny" or "smollm2".
            device: where to compute.
            dtype: of the weights; in 16 bits a text's score can be off by a nat.
            memory_bytes: what a batch may take beside the weights; 256 MiB on a CPU and 2 GiB
                elsewhere by default.
            attn_implementation: as in `transformers`.

        Raises:
            ModelNotFound: no such model; or no weights, no tokenizer, or it needs its own code.
            MissingExtra: the packages that read GGUF are not installed.
            InvalidArgument: torch cannot compute on this device.
        """
        module, tokenizer, info = load_parts(name, device, dtype, attn_implementation)
        return cls.from_module(module, tokenizer, memory_bytes, info)

    @classmethod
    def from_module(
        cls, module: Any, tokenizer: Any, memory_bytes: int | None = None, info: ModelInfo | None = None
    ) -> HuggingFaceModel:
        """A model that is in memory already.

        Args:
            module: a causal model of `transformers`; it is put in evaluation mode.
            tokenizer: its fast tokenizer, or a `Tokenizer`.
            memory_bytes: as in `load`.
            info: what is known of it, if anything.
        """
        with quiet():
            causal = CausalLM(module, memory_bytes)
        if not isinstance(tokenizer, Tokenizer):
            ends = declared_ends(module)
            tokenizer = Tokenizer.from_huggingface(tokenizer, causal.vocab_size, ends)
        if tokenizer.vocab_size != causal.vocab_size:
            raise CannotScore(
                f"The tokenizer has {tokenizer.vocab_size} tokens, but the model's logits have "
                f"{causal.vocab_size} columns. Make the tokenizer with that vocab_size."
            )
        return cls(causal, tokenizer, info=info)

    def prompted(self, prompt: Prompt) -> HuggingFaceModel:
        """The model after a prompt; after a second one, if it has one already.

        Args:
            prompt: a text, which gets the special tokens that the tokenizer puts at a start (and
                none if there is a prompt already); token ids, which are taken as they are; or the
                messages of a chat, written by the chat template (see `Tokenizer.encode_chat`).

        Raises:
            CannotScore: the prompt is longer than the context, or it is empty and the model has
                no token to start from.
            InvalidArgument: a chat after an earlier prompt, or messages that the template refuses.
            MissingTemplate: messages, for a model without a chat template.
        """
        joint = joint_prompt(self.tokenizer, self._prompt, prompt, self.causal.context)
        return HuggingFaceModel(self.causal, self.tokenizer, joint, self.info)

    def unprompted(self) -> HuggingFaceModel:
        """The model before any prompt."""
        return HuggingFaceModel(self.causal, self.tokenizer, info=self.info)

    def fingerprint(self) -> str:
        """A hash of configuration, vocabulary and weights."""
        return f"{self.causal.fingerprint}-{self.tokenizer.fingerprint()[:16]}"

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """The ids that the model reads before a continuation."""
        return self.prompted("").prompt_ids if self._prompt is None else self._prompt

    @cached_property
    def _start(self) -> tuple[Tensor, KeyValues | None]:
        """Logits Float[vocab] after the prompt, and its keys and values if they can be kept."""
        ids = torch.tensor([self.prompt_ids])
        if not self.causal.caches:
            return self.causal.read(ids)[0, 0], None
        logits, past = self.causal.read_prompt(ids)
        return logits[0, 0], past

    def _require_length(self, length: int) -> None:
        within_context(len(self.prompt_ids), length, self.causal.context)

    def _begin(self, batch: int) -> Cursor:
        logits, past = self._start
        if past is None:
            return super()._begin(batch)
        rows = logits.log_softmax(-1).cpu().expand(batch, -1)
        if self.causal.shares:
            return self.cursor(Tails.empty(batch, self.causal.device), rows)
        return CachedCursor(self.causal, past.repeated(batch), rows)

    def next_step(self, tail: Tail, tokens: Tensor) -> tuple[Tensor, Step]:
        """Feed one token to each row, in batches that fit into memory. Only if `causal.shares`.

        Args:
            tail: what each row has read after the prompt.
            tokens: Long[batch].

        Returns:
            Float[batch, vocab] on the CPU, log p of the token after, and what the rows have read now.
        """
        return next_step(self.causal, self._shared, tail, tokens)

    def cursor(self, tails: Tails, log_probs: Tensor) -> Cursor:
        """Rows that have read these tails after the prompt, and expect `log_probs`. Only if `causal.shares`."""
        return SharingCursor(self.causal, self._shared, tails, log_probs)

    @property
    def _shared(self) -> KeyValues:
        """Of the prompt, for all rows."""
        past = self._start[1]
        assert past is not None
        return past

    def _log_probs(self, tokens: Tensor) -> Tensor:
        def work(rows: slice) -> Tensor:
            part = tokens[rows]
            logits = self._start[0].expand(len(part), 1, -1)
            if tokens.shape[1] > 1:
                logits = torch.cat([logits, self._read_after_prompt(part[:, :-1])], 1)
            return logits.log_softmax(-1).cpu()

        return in_batches(len(tokens), self._batch_size(tokens.shape[1]), work)

    def _next_log_probs(self, tokens: Tensor) -> Tensor:
        if tokens.shape[1] == 0:
            return self._start[0].log_softmax(-1).cpu().expand(len(tokens), -1)
        self._require_length(tokens.shape[1] + 1)
        return in_batches(
            len(tokens),
            self._batch_size(tokens.shape[1]),
            lambda rows: self._read_after_prompt(tokens[rows], 1)[:, 0].log_softmax(-1).cpu(),
        )

    def _token_scores(self, tokens: Tensor) -> Tensor:
        scores = torch.zeros(tokens.shape, dtype=torch.float64)
        scores[:, 0] = gathered_scores(self._start[0], tokens[:, 0])
        lengths = live_lengths(tokens, self.tokenizer.eos_ids)
        # Rows of one length go together, so that no token after an end is ever read.
        for length in sorted(set(lengths.tolist())):
            if length > 1:
                group = (lengths == length).nonzero()[:, 0]
                scores[group, 1:length] = self._scores_after_first(tokens[group, :length])
        return scores

    def _scores_after_first(self, tokens: Tensor) -> Tensor:
        """f64[batch, time−1]: scores of all tokens but the first."""

        def work(rows: slice) -> Tensor:
            part = tokens[rows]
            return gathered_scores(self._read_after_prompt(part[:, :-1]), part[:, 1:, None])[..., 0]

        return in_batches(len(tokens), self._batch_size(tokens.shape[1]), work)

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

    def neighbours(self, tokens: Tensor, candidates: Tensor) -> Tensor:
        """Joint log-probabilities of the sequences at Hamming distance 1; see `LanguageModel`.

        The sequence is read once. A neighbour (i, v) then costs its tail v, y_{i+1}, …: at most
        k·n(n−1)/2 + n tokens altogether. The last position is free, and so is every neighbour
        that ends at i or before.
        """
        logits, past = self._start
        if past is None:
            return super().neighbours(tokens, candidates)
        tokens, candidates = neighbour_arguments(tokens, candidates, self.vocab_size)
        self._require_length(len(tokens))
        eos_ids = self.tokenizer.eos_ids
        return log_probabilities(Neighbourhood(self.causal, logits, past, tokens, eos_ids).scores(candidates))

    def _batch_size(self, length: int) -> int:
        past = 0 if self.causal.shares else len(self.prompt_ids)
        return batch_size(self.causal, past + length, length)
