"""What a reader should know of texts that satisfy the constraint all the same: a missing space, a cut end."""

from __future__ import annotations

import math
from collections.abc import Sequence

from locore.circuits import Circuit
from locore.constraints import Constraint
from locore.ending import is_end
from locore.evidence import Particles
from locore.tokenizer import Tokenizer

RARE = math.log(0.01)  # a likely text goes on with a word that the prompt begins
MOST_ROWS = 256  # the heaviest, of those that are looked at
SHOWN = 40  # characters


def share_cut_off(particles: Particles, constraint: Constraint) -> float | None:
    """Share of the weight on texts that go on to the last token without need: one token shorter they would satisfy α as well.

    So they are cut where the horizon happens to be. A text whose last token the constraint needs ends as it was asked to.

    Returns:
        None for a vocabulary without texts or without an end.
    """
    tokenizer, tokens = particles.tokenizer, particles.tokens
    if not (tokenizer.eos_ids and tokenizer.has_text):
        return None
    weights = particles.weights
    going = ~is_end(tokens, tokenizer.eos_ids).any(-1)
    rows = going.nonzero()[:, 0]
    rows = rows[weights[rows].argsort(descending=True)][:MOST_ROWS]
    seen = float(weights[rows].sum())
    if seen == 0.0:
        return 0.0
    bound = constraint.bind(tokenizer)
    cut = sum(
        weight
        for y, weight in zip(tokens[rows].tolist(), weights[rows].tolist(), strict=True)
        if bound.evaluate([*y[:-1], tokenizer.eos_ids[0]], tokenizer)
    )
    return float(weights[going].sum() * cut / seen)


def missing_space(particles: Particles, circuit: Circuit, before: Sequence[int]) -> str | None:
    """A sentence where a space between prompt and text seems to be missing; None where nothing says so.

    The prompt ends in a letter or a digit, no allowed text begins with white space, and what is left is rare.
    """
    tokenizer = particles.tokenizer
    if not before or circuit.reader is None or not particles.log_evidence < RARE or not _is_word(tokenizer, before[-1]):
        return None
    best = particles.texts[int(particles.weights.argmax())]
    if not best[:1].isalnum():
        return None
    allowed = circuit.reader.allowed_tokens(0, circuit.reader.initial(1))[0].nonzero()[:, 0].tolist()
    beginnings = (tokenizer.token_bytes[token] for token in allowed)
    if any(each[:1].isspace() for each in beginnings if each):
        return None
    meant = f" {best[:SHOWN]}{'…' * (len(best) > SHOWN)}"
    return f"the prompt ends in a word and no allowed text begins with a space; did you mean {meant!r}?"


def _is_word(tokenizer: Tokenizer, token: int) -> bool:
    """Does a token end in a letter or a digit?"""
    return (tokenizer.token_bytes[token] or b"").decode("utf-8", errors="ignore")[-1:].isalnum()
