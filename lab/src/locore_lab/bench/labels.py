"""What `locore.classify` costs beside scoring labels by hand: CPU seconds of both, in turns, and how far the numbers lie apart.

By hand: one row of prompt and label for each pair, padded to the longest, all of them in one batch of transformers (or as few
as fit), and the scores of the labels' tokens summed.
"""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

import locore
from locore.models import HuggingFaceModel, prompt_ids
from locore_lab.harness import Case, Row, measurement
from locore_lab.measuring import least_seconds

TURNS, ROWS = 3, 32
THINGS = ["soup", "waiter", "weather", "film", "hotel room", "train", "concert", "phone", "garden", "book", "coat", "beach"]
SHORT = [f"The {thing} was" for thing in THINGS]
LONG = [f"Review: The {thing} was not what I had hoped for, but the people were kind.\nSentiment:" for thing in THINGS]
CHATS = [[{"role": "user", "content": f"Is a {thing} alive? Answer yes or no."}] for thing in THINGS]
LABELS = {
    "two of one token": [" good", " bad"],
    "ten, of one to four tokens": [
        *(" good", " bad", " too hot", " delicious", " utterly disappointing", " fine", " far too expensive", " cold"),
        *(" wonderful", " not bad at all"),
    ],
}
CASES = {
    "short prompts, two labels": (SHORT, LABELS["two of one token"]),
    "short prompts, ten labels": (SHORT, LABELS["ten, of one to four tokens"]),
    "long prompts, two labels": (LONG, LABELS["two of one token"]),
    "long prompts, ten labels": (LONG, LABELS["ten, of one to four tokens"]),
    "chats, two labels": (CHATS, ["Yes", "No"]),
}


def by_hand(model: HuggingFaceModel, prompts: list, labels: list[str]) -> Tensor:
    """f64[prompts, labels]: log of the share of each label."""
    pairs = []
    for prompt in prompts:
        before = prompt_ids(model.tokenizer, prompt)
        pairs += [(before, model.tokenizer.encode(label)) for label in labels]
    scores = torch.cat([scored(model, pairs[first : first + ROWS]) for first in range(0, len(pairs), ROWS)])
    return scores.view(len(prompts), len(labels)).log_softmax(-1)


def scored(model: HuggingFaceModel, pairs: list[tuple[list[int], list[int]]]) -> Tensor:
    """f64[pairs]: log p(label | prompt), from one forward pass over padded rows."""
    rows = [before + label for before, label in pairs]
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    with torch.inference_mode():
        log_probs = model.causal.module(input_ids=ids, attention_mask=mask).logits.log_softmax(-1)
    total = []
    for row, (before, label) in enumerate(pairs):
        at = torch.arange(len(before) - 1, len(before) + len(label) - 1)
        total.append(log_probs[row, at, torch.tensor(label)].double().sum())
    return torch.stack(total)


def classified(model: HuggingFaceModel, prompts: list, labels: list[str]) -> Tensor:
    """f64[prompts, labels]: the same by `locore.classify`."""
    return torch.stack([answer.log_probs for answer in locore.classify(model, prompts, labels)])


def measured(model: HuggingFaceModel, prompts: list, labels: list[str]) -> Row:
    """The least seconds of each road, and the largest difference of their logs."""
    apart = float((by_hand(model, prompts, labels) - classified(model, prompts, labels)).abs().max())
    hand, own = partial(by_hand, model, prompts, labels), lambda: classified(model.unprompted(), prompts, labels)
    seconds = least_seconds({"by_hand": hand, "classify": own}, TURNS)
    ratio = seconds["classify"] / seconds["by_hand"]
    return {"prompts": len(prompts), "labels": len(labels), **seconds, "ratio": ratio, "apart": apart}


@measurement(
    "case | by hand, CPU s | classify, CPU s | ratio | largest difference, nats",
    "{case} | {by_hand:.2f} | {classify:.2f} | {ratio:.2f} | {apart:.1e}",
    quick={"prompts": 2},
)
def run(model: str = "smollm2", prompts: int = len(THINGS)) -> Iterator[Case]:
    opened = locore.load(model)
    for name, (asked, labels) in CASES.items():
        yield {"case": name}, partial(measured, opened, asked[:prompts], labels)
