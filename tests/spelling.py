"""All spellings of a text by tokens: an independent road to the probability of a text."""

from __future__ import annotations

from locore.models import LanguageModel


def spellings(content: bytes, tokens: dict[bytes, int], most: int) -> list[list[int]]:
    """All ways to write `content` with at most `most` tokens."""
    if not content:
        return [[]]
    cuts = range(1, len(content) + 1) if most else ()
    heads = [cut for cut in cuts if content[:cut] in tokens]
    return [[tokens[content[:cut]], *rest] for cut in heads for rest in spellings(content[cut:], tokens, most - 1)]


def token_ids(model: LanguageModel) -> dict[bytes, int]:
    """Each token by what it spells; no two spell the same."""
    known = model.tokenizer.token_bytes
    tokens = {content: token for token, content in enumerate(known) if content}
    assert len(tokens) == sum(bool(content) for content in known)
    return tokens
