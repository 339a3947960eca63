"""`classify`: the exact probability of each of some labels after each of many prompts.

What is conditioned on: that the continuation *is* one of the labels, in the tokenizer's own tokens. That is the law of
`choice(labels)` with canonical="only" and ending="complete", and here it costs one pass over the labels behind each prompt:

- a label is its canonical tokens after the prompt. Other ways to spell it are left out, as by everybody who scores labels by
  hand (how unusual they are is what `generate` with `choice(labels)` finds out);
- a label that no other label begins with is complete without an end: its probability is that of its tokens;
- a label that another one begins with ("good", "goodness") is only complete where the text ends: its probability is that of
  its tokens and of the end, and the longer label's is what the model gives to going on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from locore.chat import Prompt, is_chat
from locore.errors import InvalidArgument, ZeroWeights
from locore.lists import items_of
from locore.models import LanguageModel, load, prompt_ids
from locore.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class Classification:
    """The probability of each label after one prompt.

    Attributes:
        labels: in the order in which they were given.
        log_probs: f64[labels], log p(label | prompt, the text is one of the labels).
        log_evidence: log p(the text is one of the labels | prompt). Where it is far below 0 the model would rather write
            something else, and what it says of the labels is worth less.
    """

    labels: tuple[str, ...]
    log_probs: Tensor
    log_evidence: float

    @property
    def probabilities(self) -> dict[str, float]:
        """By label, the most probable first."""
        found = zip(self.labels, self.log_probs.exp().tolist(), strict=True)
        return dict(sorted(found, key=lambda item: -item[1]))

    @property
    def label(self) -> str:
        """The most probable."""
        return self.labels[int(self.log_probs.argmax())]

    def __repr__(self) -> str:
        shown = ", ".join(f"{label!r}: {value:.3f}" for label, value in self.probabilities.items())
        return f"<{shown}; one of them: e^{self.log_evidence:.1f}>"


def classify(model: LanguageModel | str | Path, prompts: Sequence[Prompt], labels: Sequence[str]) -> list[Classification]:
    """How probable each label is after each prompt, exactly.

    Args:
        model: a language model, or what `locore.load` accepts.
        prompts: texts, chats or token ids, any number of them; each is read once, whatever the number of labels.
        labels: different texts. A space that stands before a label belongs to it: after "Sentiment:" it is " good".

    Returns:
        One for each prompt, in their order.

    Raises:
        InvalidArgument: no list of prompts or labels; labels that are empty, equal, or not spelled by this tokenizer; or one
            that begins another, where the model has no end of a text to tell them apart.
        ZeroWeights: after some prompt the model gives no label any probability.
        CannotScore, MissingTemplate: as those of `model.prompted`.
    """
    if isinstance(prompts, str) or is_chat(prompts):
        raise InvalidArgument("classify takes a list of prompts; for a single one write [prompt].")
    listed = items_of(prompts, "classify", "a list of prompts", ordered=True, error=InvalidArgument)
    asked = _checked(labels)
    base = model if isinstance(model, LanguageModel) else load(model)
    begins = [any(other != label and other.startswith(label) for other in asked) for label in asked]
    if any(begins) and not base.tokenizer.eos_ids:
        first = asked[begins.index(True)]
        raise InvalidArgument(
            f"the label {first!r} begins another one, and this model has no end of a text to tell them apart; change it."
        )
    return [_classified(base, prompt, number, asked, begins) for number, prompt in enumerate(listed)]


def _checked(labels: Sequence[str]) -> tuple[str, ...]:
    listed = items_of(labels, "classify", "a list of texts as labels", ordered=True, error=InvalidArgument)
    if not listed or not all(isinstance(label, str) for label in listed):
        raise InvalidArgument(f"labels must be a list of texts, at least one, got {labels!r}.")
    for label in listed:
        if not label:
            raise InvalidArgument("a label is empty; give each at least a character.")
        if listed.count(label) > 1:
            raise InvalidArgument(f"the label {label!r} is given twice; give each once.")
    return tuple(listed)


def _classified(
    base: LanguageModel, prompt: Prompt, number: int, labels: tuple[str, ...], begins: Sequence[bool]
) -> Classification:
    """One prompt: all labels are rows of one batch behind it."""
    tokenizer = base.tokenizer
    before = prompt_ids(tokenizer, prompt)
    rows = [_spelled(tokenizer, label, before) for label in labels]
    rows = [[*row, tokenizer.eos_ids[0]] if end else row for row, end in zip(rows, begins, strict=True)]
    lengths = torch.tensor([len(row) for row in rows])
    width = int(
        lengths.max()
    )  # rows are filled up by their own last token, so that one pass reads all; the rest is not counted
    tokens = torch.tensor([[*row, *[row[-1]] * (width - len(row))] for row in rows])
    scores = base.prompted(prompt).token_scores(tokens)
    counted = torch.arange(width) < lengths[:, None]
    joint = torch.where(counted, scores, 0.0).sum(-1)
    evidence = float(torch.logsumexp(joint, 0))
    if evidence == -math.inf:
        raise ZeroWeights(f"the model gives none of the labels any probability after prompt {number}.")
    return Classification(labels, joint - evidence, evidence)


def _spelled(tokenizer: Tokenizer, label: str, before: list[int]) -> list[int]:
    """The canonical ids of a label after a prompt."""
    ids = list(tokenizer.canonize(tokenizer.encode(label), before))
    if tokenizer.text_bytes(ids) != label.encode():
        raise InvalidArgument(f"this tokenizer cannot spell the label {label!r}: it makes {tokenizer.decode(ids)!r} of it.")
    return ids
