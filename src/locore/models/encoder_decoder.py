"""Encoder–decoders of `transformers`: what the encoder was given stays, and the decoder is read like any causal model."""

from __future__ import annotations

import copy
import inspect
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache

from locore.kernel.errors import CannotScore, InvalidArgument
from locore.kernel.models.language_model import ModelInfo
from locore.kernel.tokenizer import Tokenizer
from locore.models.attention import KeyValues
from locore.models.causal import CausalLM
from locore.models.huggingface import HuggingFaceModel
from locore.models.loading import described


class EncoderDecoder(HuggingFaceModel):
    """p(text | input) of an encoder–decoder: of speech (Whisper), of a text in another language (Marian, T5).

    It stands behind the token that its decoder starts from. A prompt follows that: Whisper's language and task, say, or the
    beginning of a translation.
    """

    @classmethod
    def of(cls, module: Any, tokenizer: Any, **inputs: Tensor) -> EncoderDecoder:
        """A module of `transformers` that has been given one input.

        Args:
            module: such as a `WhisperForConditionalGeneration`; it is put in evaluation mode.
            tokenizer: its fast tokenizer, or a `Tokenizer`.
            inputs: what its encoder takes, of one row, such as `input_features`, or `input_ids`.

        Raises:
            InvalidArgument: the module has no encoder, or the input is not of one row.
            CannotScore: no token is named that the decoder starts from.
        """
        if not getattr(module.config, "is_encoder_decoder", False):
            raise InvalidArgument(f"{type(module).__name__} is no encoder–decoder. Give it to HuggingFaceModel.from_module.")
        decoder = _Decoder(module.eval(), inputs)
        model = cls.from_module(decoder, tokenizer, info=replace(described(module), context=decoder.context))
        assert isinstance(model, cls)
        model.causal.context = decoder.context  # under the name that this decoder has for it
        return model

    def __init__(
        self, causal: CausalLM, tokenizer: Tokenizer, prompt: tuple[int, ...] | None = None, info: ModelInfo | None = None
    ) -> None:
        """Most users want `of`."""
        super().__init__(causal, tokenizer, causal.module.start if prompt is None else prompt, info)

    def given(self, **inputs: Tensor) -> EncoderDecoder:
        """The same model, given another input, before any prompt."""
        causal = copy.copy(self.causal)
        causal.module = _Decoder(causal.module.whole, inputs)
        causal.__dict__.pop("fingerprint", None)
        return EncoderDecoder(causal, self.tokenizer, None, self.info)

    def _after(self, prompt: tuple[int, ...] | None) -> EncoderDecoder:
        return EncoderDecoder(self.causal, self.tokenizer, prompt, self.info)


class _Decoder(nn.Module):
    """A decoder as a causal module: its rows all attend to the same output of the encoder, which is kept.

    Attributes:
        whole: encoder and decoder.
        start: what the decoder starts from.
        context: how many tokens the decoder can read; None if it has no limit.
    """

    hidden: Tensor

    def __init__(self, module: Any, inputs: dict[str, Tensor]) -> None:
        """Runs the encoder."""
        super().__init__()
        self.whole, self.config, self.device, self.dtype = module, module.config, module.device, module.dtype
        self.generation_config = getattr(module, "generation_config", None)
        text = self.config.get_text_config()
        starts = (getattr(config, "decoder_start_token_id", None) for config in (self.generation_config, self.config, text))
        start = next((token for token in starts if token is not None), None)
        if start is None:
            raise CannotScore("The module names no token that its decoder starts from: set config.decoder_start_token_id.")
        self.start = (int(start),)
        limits = (getattr(text, name, None) for name in ("max_target_positions", "max_position_embeddings"))
        self.context: int | None = next((limit for limit in limits if limit is not None), None)
        inputs = {name: value.to(self.device) for name, value in inputs.items()}
        if not inputs or any(len(value) != 1 for value in inputs.values()):
            raise InvalidArgument(
                "give what the encoder takes, of one row: input_features=Tensor[1, …], or input_ids=Tensor[1, …]."
            )
        with torch.no_grad():
            self.register_buffer("hidden", module.get_encoder()(**inputs, return_dict=True)[0])
        self._mask = inputs.get("attention_mask")
        self._cache_name = "cache" if "cache" in inspect.signature(module.forward).parameters else "past_key_values"
        self._seen: KeyValues | None = None  # of the encoder's output, when first wanted

    def forward(self, input_ids: Tensor, use_cache: bool = False, past_key_values: DynamicCache | None = None) -> Any:
        """Logits; the cache keeps the decoder's own keys and values, and those of the encoder's output are here."""
        if past_key_values is None:
            return self._read(input_ids, None)
        if self._seen is None:
            both = EncoderDecoderCache(DynamicCache(), DynamicCache())
            self._read(input_ids[:1], both)
            self._seen = KeyValues.from_cache(both.cross_attention_cache)
        return self._read(input_ids, EncoderDecoderCache(past_key_values, self._seen.repeated(len(input_ids)).to_cache()))

    def _read(self, tokens: Tensor, cache: EncoderDecoderCache | None) -> Any:
        rows = len(tokens)
        options: dict[str, Any] = {"encoder_outputs": (self.hidden.expand(rows, -1, -1),), "use_cache": cache is not None}
        if cache is not None:
            options[self._cache_name] = cache
        if self._mask is not None:
            options["attention_mask"] = self._mask.expand(rows, -1)
        return self.whole(decoder_input_ids=tokens, **options)

    def set_attn_implementation(self, _: str) -> None:
        """Asked for by what shares a prompt among rows."""
        raise CannotScore("its decoder attends to an encoder too")
