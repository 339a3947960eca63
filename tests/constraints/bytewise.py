"""A vocabulary of single bytes: what the automaton of a text constraint says, and what its plain reading says."""

from __future__ import annotations

from locore.kernel.tokenizer import Tokenizer

BYTES = Tokenizer.from_tokens([bytes([value]) for value in range(256)] + [None], eos_ids=[256])


def as_bytes(text):
    return text.encode() if isinstance(text, str) else text


def holds(leaf, text):
    """The plain reading."""
    return leaf.evaluate([*as_bytes(text), 256], BYTES)


def accepts(leaf, text):
    """The automaton."""
    return leaf.accepts(as_bytes(text)) if hasattr(leaf, "accepts") else leaf.automaton().accepts(as_bytes(text))
