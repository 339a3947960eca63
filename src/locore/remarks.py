"""What a reader should know of texts that satisfy the constraint all the same: a missing space, a cut end."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from locore.circuits import Circuit
from locore.constraints import Constraint
from locore.evidence import Particles
from locore.kernel.ending import is_end
from locore.kernel.errors import LocoreError
from locore.kernel.tokenizer import Tokenizer
from locore.models import LanguageModel

RARE = math.log(0.01)  # a likely text goes on with a word that the prompt begins
MOST_ROWS = 256  # the heaviest, of those that are looked at
LIKELIER = math.log(10)  # nats by which two words have to be likelier with a space between them
CONTEXT, LONGEST = 32, 8  # tokens before the last word of a prompt, and of that word, which are read again
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


def missing_space(particles: Particles, circuit: Circuit, before: Sequence[int], model: LanguageModel) -> str | None:
    """A sentence where a space between prompt and text seems to be missing; None where nothing says so.

    The prompt ends in a letter or a digit, no allowed text begins with white space, what is left is rare, and the model finds
    the two words likelier with a space between them: a prompt that ends inside a word, as "The elep", needs none.

    Args:
        particles: what was found.
        circuit: of the constraint.
        before: the ids of the prompt.
        model: before the prompt; it reads two rows of a few tokens, only where all the rest says that a space is missing.
    """
    tokenizer = particles.tokenizer
    if not before or circuit.reader is None or not particles.log_evidence < RARE or not _is_word(tokenizer, before[-1]):
        return None
    best = particles.texts[int(particles.weights.argmax())]
    if not best[:1].isalnum():
        return None
    allowed = circuit.reader.allowed_tokens(0, circuit.reader.initial(1))[0].nonzero()[:, 0].tolist()
    beginnings = (tokenizer.token_bytes[token] for token in allowed)
    if any(each[:1].isspace() for each in beginnings if each) or not _expects_space(model, before, best.split()[0][:SHOWN]):
        return None
    meant = f" {best[:SHOWN]}{'…' * (len(best) > SHOWN)}"
    return f"the prompt ends in a word and no allowed text begins with a space; did you mean {meant!r}?"


def _expects_space(model: LanguageModel, before: Sequence[int], word: str) -> bool:
    """Is the last word of the prompt likelier with a space before the next word than without, each in its own tokens?

    The last word is spelled anew, as the tokens of its first half are not those of the whole word.
    """
    tokenizer = model.tokenizer
    first = len(before) - 1
    while first and len(before) - first < LONGEST and not (tokenizer.token_bytes[before[first]] or b" ")[:1].isspace():
        first -= 1
    head, last = list(before[max(0, first - CONTEXT) : first]), tokenizer.decode(before[first:])
    rows = [list(tokenizer.canonize(tokenizer.encode(last + between + word), head)) for between in ("", " ")]
    width = max(map(len, rows))
    tokens = torch.tensor([[*row, *[row[-1]] * (width - len(row))] for row in rows])
    counted = torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None]
    try:
        scores = model.prompted(head or "").token_scores(tokens)
    except LocoreError:  # a model that cannot read so few tokens says nothing of them, and the answer stands without
        return False
    together, apart = torch.where(counted, scores, 0.0).sum(-1).tolist()
    return bool(apart > together + LIKELIER)


def _is_word(tokenizer: Tokenizer, token: int) -> bool:
    """Does a token end in a letter or a digit?"""
    return (tokenizer.token_bytes[token] or b"").decode("utf-8", errors="ignore")[-1:].isalnum()
