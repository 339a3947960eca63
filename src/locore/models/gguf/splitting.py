"""How a byte-level tokenizer of a GGUF file splits texts before it merges bytes.

A file only names the rule. `transformers` knows some names, and splits as GPT-2 for all others.
"""

from __future__ import annotations

from typing import Any

from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

from locore.models.gguf.header import Header

# Names of llama.cpp. First each digit by itself, then as GPT-2:
_SINGLE_DIGITS = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}
_AS_GPT2 = {"gpt-2", "phi-2", "roberta-bpe", "gigachat", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4"}


def mend_splitting(tokenizer: Any, header: Header) -> str | None:
    """Set the rule that the file names, where `transformers` does not know it.

    Returns:
        A caution if nobody here knows it; None if all is well.
    """
    backend = tokenizer.backend_tokenizer
    if header.text("tokenizer.ggml.model") != "gpt2" or not isinstance(backend.pre_tokenizer, ByteLevel):
        return None
    rule = header.text("tokenizer.ggml.pre")
    if rule in _AS_GPT2:
        return None
    if rule in _SINGLE_DIGITS:
        backend.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)])
        return None
    said = "the file names no rule" if rule is None else f"the file's rule {rule!r} is unknown here"
    return f"texts are split as GPT-2 splits them ({said}), so prompts may be cut into other tokens than in training"
