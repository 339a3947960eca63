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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from locore.kernel.chat import Prompt, is_chat
from locore.kernel.errors import InvalidArgument, ZeroWeights
from locore.kernel.lists import items_of
from locore.kernel.request import Law, require_known
from locore.kernel.tokenizer import Tokenizer
from locore.models import LanguageModel, load, prompt_ids
from locore.shaping import shaped

Score = Literal["log_probs", "per_token", "per_byte", "over_prior"]


@dataclass(frozen=True, eq=False)
class Classification:
    """The probability of each label after one prompt, and the scores that others go by.

    `probabilities` are the only ones of these numbers that are probabilities of something that the model may write. The other
    scores say which label to take where the labels differ in length or in how common they are; `by` takes the best.

    Attributes:
        labels: in the order in which they were given; of groups their names.
        log_probs: f64[labels], log p(label | prompt, the text is one of the labels); of a group that of any of its texts.
        log_evidence: log p(the text is one of the labels | prompt). Where it is far below 0 the model would rather write
            something else, and what it says of the labels is worth less.
        per_token: f64[labels], log p(label | prompt) over the number of its tokens; of a group the largest.
        per_byte: f64[labels], the same over the number of its bytes, "acc_norm" of EleutherAI's evaluation harness.
        over_prior: f64[labels], log p(label | prompt) − log p(label | the prompt of `prior`), how much likelier the prompt
            makes the label (Holtzman et al., "Surface form competition", 2021); None without a prior.
    """

    labels: tuple[str, ...]
    log_probs: Tensor
    log_evidence: float
    per_token: Tensor
    per_byte: Tensor
    over_prior: Tensor | None = None

    @property
    def probabilities(self) -> dict[str, float]:
        """By label, the most probable first."""
        pairs = zip(self.labels, self.log_probs.exp().tolist(), strict=True)
        return dict(sorted(pairs, key=lambda item: -item[1]))

    @property
    def label(self) -> str:
        """The most probable."""
        return self.labels[int(self.log_probs.argmax())]

    def by(self, score: Score) -> str:
        """The label with the largest of these scores: "log_probs", "per_token", "per_byte" or "over_prior".

        Raises:
            InvalidArgument: no such score, or no prior was given.
        """
        if score not in get_args(Score):
            raise InvalidArgument(f"there is no score {score!r}; there are {', '.join(get_args(Score))}.")
        values: Tensor | None = getattr(self, score)
        if values is None:
            raise InvalidArgument('over_prior needs a prior; give classify(…, prior="a prompt that says nothing").')
        return self.labels[int(values.argmax())]

    def __repr__(self) -> str:
        shown = ", ".join(f"{label!r}: {value:.3f}" for label, value in self.probabilities.items())
        return f"<{shown}; one of them: e^{self.log_evidence:.1f}>"


def classify(
    model: LanguageModel | str | Path,
    prompts: Sequence[Prompt],
    labels: Sequence[str] | Mapping[str, Sequence[str]],
    prior: Prompt | None = None,
    **law: Any,
) -> list[Classification]:
    """How probable each label is after each prompt, exactly.

    Args:
        model: a language model, or what `locore.load` accepts.
        prompts: texts, chats or token ids, any number of them; each is read once, whatever the number of labels.
        labels: different texts. A space that stands before a label belongs to it: after "Sentiment:" it is " good". Or groups,
            {"good": [" good", " great"], "bad": [" bad"]}: texts that mean the same, whose probabilities are added.
        prior: a prompt that says nothing of the matter, such as "Review: N/A\\nSentiment:"; what labels are worth after it is
            taken off in `over_prior`.
        law: temperature, top_p, top_k, min_p, penalties and logit_bias, as in `locore.generate`.

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
    require_known(law, [option.name for option in fields(Law)], "classify")
    asked_law = Law(**law)
    if asked_law.most_probable:
        raise InvalidArgument("classify gives probabilities, which temperature=0 has none of; use a temperature above 0.")
    listed = items_of(prompts, "classify", "a list of prompts", ordered=True, error=InvalidArgument)
    groups = _grouped(labels)
    asked = _checked([text for texts in groups.values() for text in texts])
    loaded = model if isinstance(model, LanguageModel) else load(model)
    base = shaped(loaded, asked_law.suggested({} if loaded.info is None else loaded.info.sampling))
    begins = [any(other != label and other.startswith(label) for other in asked) for label in asked]
    if any(begins) and not base.tokenizer.eos_ids:
        first = asked[begins.index(True)]
        raise InvalidArgument(
            f"the label {first!r} begins another one, and this model has no end of a text to tell them apart; change it."
        )
    before = None if prior is None else _scored(base, prior, "the prior", asked, begins)
    return [_classified(_scored(base, prompt, f"prompt {i}", asked, begins), before, groups) for i, prompt in enumerate(listed)]


def _grouped(labels: Any) -> dict[str, list[str]]:
    """The texts of each label."""
    if not isinstance(labels, Mapping):
        listed = items_of(labels, "classify", "a list of texts as labels", ordered=True, error=InvalidArgument)
        return {label: [label] for label in _checked(listed)}
    groups = {
        str(name): items_of(texts, f"the group {name!r}", "a list of texts", ordered=True, error=InvalidArgument)
        for name, texts in labels.items()
    }
    if not groups or not all(groups.values()):
        raise InvalidArgument("each group of labels needs at least one text.")
    return groups


def _checked(listed: list[Any]) -> tuple[str, ...]:
    if not listed or not all(isinstance(label, str) for label in listed):
        raise InvalidArgument(f"labels must be a list of texts, at least one, got {listed!r}.")
    for label in listed:
        if not label:
            raise InvalidArgument("a label is empty; give each at least a character.")
        if listed.count(label) > 1:
            raise InvalidArgument(f"the label {label!r} is given twice; give each once.")
    return tuple(listed)


@dataclass(frozen=True, eq=False)
class _Scores:
    """Of texts after one prompt: f64[texts], log p, and how many tokens and bytes each has."""

    texts: tuple[str, ...]
    joint: Tensor
    tokens: Tensor
    bytes: Tensor


def _scored(base: LanguageModel, prompt: Prompt, what: str, labels: tuple[str, ...], begins: Sequence[bool]) -> _Scores:
    """One prompt: all labels are rows of one batch behind it."""
    tokenizer = base.tokenizer
    before = prompt_ids(tokenizer, prompt)
    rows = [_spelled(tokenizer, label, before) for label in labels]
    rows = [[*row, tokenizer.eos_ids[0]] if end else row for row, end in zip(rows, begins, strict=True)]
    lengths = torch.tensor([len(row) for row in rows])
    width = int(lengths.max())
    # Rows are filled up by their own last token, so that one pass reads all; the rest is not counted.
    tokens = torch.tensor([[*row, *[row[-1]] * (width - len(row))] for row in rows])
    scores = base.prompted(prompt).token_scores(tokens)
    joint = torch.where(torch.arange(width) < lengths[:, None], scores, 0.0).sum(-1)
    if float(torch.logsumexp(joint, 0)) == -math.inf:
        raise ZeroWeights(f"the model gives none of the labels any probability after {what}.")
    return _Scores(labels, joint, lengths, torch.tensor([len(label.encode()) for label in labels]))


def _classified(scores: _Scores, before: _Scores | None, groups: Mapping[str, list[str]]) -> Classification:
    """Texts put together to groups."""
    members = [[scores.texts.index(text) for text in texts] for texts in groups.values()]
    evidence = float(torch.logsumexp(scores.joint, 0))

    def summed(values: Tensor) -> Tensor:
        return torch.stack([torch.logsumexp(values[group], 0) for group in members])

    def best(values: Tensor) -> Tensor:
        return torch.stack([values[group].max() for group in members])

    joint = summed(scores.joint)
    return Classification(
        tuple(groups),
        joint - evidence,
        evidence,
        best(scores.joint / scores.tokens),
        best(scores.joint / scores.bytes),
        None if before is None else torch.where(joint > -math.inf, joint - summed(before.joint), -math.inf),
    )


def _spelled(tokenizer: Tokenizer, label: str, before: list[int]) -> list[int]:
    """The canonical ids of a label after a prompt."""
    ids = list(tokenizer.canonize(tokenizer.encode(label), before))
    if tokenizer.text_bytes(ids) != label.encode():
        raise InvalidArgument(f"this tokenizer cannot spell the label {label!r}: it makes {tokenizer.decode(ids)!r} of it.")
    return ids
