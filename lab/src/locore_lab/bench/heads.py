"""How much of the variance of a selection step do look-aheads leave: n-grams, and heads on hidden states?

A sampler that keeps prefixes by q feels of it χ² = E[p*² / q] · E[q] / E[p*]² − 1: the variance of one selection step,
relative to the square of what is estimated, where p* is how probable the event still is after a prefix, and prefixes are drawn
by the model. The event is that a token comes within the next 8; p* is found by rollouts, along which the probabilities of the
next token are summed. Shown is the share of the χ² without look-ahead (q the same for all) that is left by

- an n-gram table of the model's own text (`locore.samplers.twist.ngram`), as `locore prepare` makes it;
- an n-gram table of as much of the prompt's own text as a call of 1,000 LM tokens learns from;
- one bag-of-future head for all tokens (`locore_lab.bags`), from the hidden state before the last token and that token, which
  is what a sampler has for free; made of the same texts as the first table;
- the head and the table of the call: what the head says beyond its own mean after the last token, times what the table says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import torch
from torch import Tensor

import locore
from locore.circuits import LeftToRight
from locore.constraints import Count
from locore.kernel.chat import Prompt
from locore.models import HuggingFaceModel
from locore.samplers.twist.lookahead import look_ahead
from locore.samplers.twist.ngram import NGramCounts
from locore_lab.bags import Bags, learned
from locore_lab.harness import Case, Row, measurement, say

TIME, BATCH, WINDOW = 96, 16, 8
ROLLOUTS = 24  # of each prefix, in two halves
IN_A_CALL = 250  # positions
FREQUENT = (".", "\n", " and", " the", "?", " people", " I", ",")
RARE = (
    *(" dog", " happy", " ship", " home", " water", " city", " children", " music", " money", " love", " soon", " school"),
    *(" book", " friend"),
)
PROMPTS: dict[str, Prompt] = {
    "none": "",
    "hobby": [{"role": "user", "content": "Suggest a hobby for a rainy day in one sentence."}],
    "Lily": "Once upon a time, there was a little girl named Lily.",
    "sea": [{"role": "user", "content": "Write one sentence about the sea."}],
}


@dataclass(frozen=True)
class Texts:
    """What a prompted model writes.

    Attributes:
        tokens: Long[num, time + 1], with the last token of the prompt before them.
        hidden: f32[num, time + 1, size], after each.
        counts: for a table.
    """

    tokens: Tensor
    hidden: Tensor
    counts: NGramCounts

    @classmethod
    def of(cls, model: HuggingFaceModel, num: int, time: int, seed: int) -> Texts:
        """So many."""
        generator, counts = torch.Generator().manual_seed(seed), NGramCounts(model.vocab_size, model.tokenizer.eos_ids)
        prompt, tokens, hidden = torch.tensor(model.prompt_ids), [], []
        for first in range(0, num, BATCH):
            texts = counts.draft(model, min(BATCH, num - first), time, generator)
            ids = torch.cat([prompt.expand(len(texts), -1), texts], 1)
            with torch.inference_mode():
                states = model.causal.module.base_model(ids).last_hidden_state[:, -time - 1 :]
            tokens.append(ids[:, -time - 1 :])
            hidden.append(states.clone().float())
        return cls(torch.cat(tokens), torch.cat(hidden), counts)


@torch.inference_mode()
def rolled_out(model: HuggingFaceModel, ids: Tensor, tokens: Tensor, generator: torch.Generator) -> Tensor:
    """f64[2, tokens]: how probable each is within the window after Long[time] ids, by each half of the rollouts."""
    logits, past = model.causal.read_on(ids[None])
    probs, past = logits[:, 0].softmax(-1).expand(ROLLOUTS, -1), past.repeated(ROLLOUTS)
    chance = torch.zeros(ROLLOUTS, len(tokens), dtype=torch.float64)
    missing = torch.ones(ROLLOUTS, len(tokens), dtype=torch.bool)
    for step in range(WINDOW):
        chance += probs[:, tokens].double() * missing
        if step + 1 < WINDOW:
            drawn = torch.multinomial(probs, 1, generator=generator)
            missing &= drawn != tokens
            missing &= ~torch.isin(drawn, torch.tensor(model.tokenizer.eos_ids))
            logits, past = model.causal.read_on(drawn, past)
            probs = logits[:, 0].softmax(-1)
    return chance.view(2, -1, len(tokens)).mean(1)


def chi2(truth: Tensor, guess: Tensor) -> float:
    """χ² of f64[prefixes] guesses, by two independent estimates f64[2, prefixes] of the truth."""
    return float((truth[0] * truth[1] / guess).mean() * guess.mean() / (truth[0].mean() * truth[1].mean())) - 1


def by_table(counts: NGramCounts, readers: list[LeftToRight], first: Tensor, second: Tensor) -> Tensor:
    """f64[contexts, readers]: that each token comes within the window, by the table, after two tokens."""
    table, found = counts.table(), []
    for reader in readers:
        found.append(look_ahead(table, reader).of_states(0, reader.initial(len(first)), first, second).double().exp())
    return torch.stack(found, 1)


def by_both(bags: Bags, texts: Texts, places: Tensor, last: Tensor, tokens: Tensor, table: Tensor) -> Tensor:
    """f64[prefixes, tokens]: the table's, times what the head says beyond its mean after the same last token."""
    mean = bags.place(texts.hidden.flatten(0, 1).mean(0, keepdim=True).expand(len(last), -1), last)
    return table * bags.within(places, tokens, WINDOW) / bags.within(mean, tokens, WINDOW)


def readers_of(model: HuggingFaceModel, tokens: Tensor) -> list[LeftToRight]:
    """Of each token: that it comes within the window."""
    found = []
    for token in tokens.tolist():
        reader = locore.compile(Count(tuple(range(WINDOW)), frozenset({token}), 1, WINDOW), model, WINDOW).reader
        assert reader is not None
        found.append(reader)
    return found


def some_places(model: HuggingFaceModel, texts: Texts, num: int) -> tuple[Tensor, Tensor]:
    """Long[places] texts, and Long[places] where in them the last but one of a prefix's tokens is; none behind an end."""
    ended = torch.isin(texts.tokens[:, 1:], torch.tensor(model.tokenizer.eos_ids)).cumsum(1) > 0
    going = (~ended[:, 1:]).nonzero()
    text, time = going[torch.randperm(len(going), generator=torch.Generator().manual_seed(1))[:num]].unbind(1)
    return text, time + 1


def truth_of(model: HuggingFaceModel, texts: Texts, text: Tensor, time: Tensor, tokens: Tensor) -> Tensor:
    """f64[2, places, tokens], by rollouts."""
    prompt, generator = torch.tensor(model.prompt_ids), torch.Generator().manual_seed(1)
    places = zip(text.tolist(), time.tolist(), strict=True)
    prefixes = [torch.cat([prompt, texts.tokens[row, 1 : place + 2]]) for row, place in places]
    return torch.stack([rolled_out(model, prefix, tokens, generator) for prefix in prefixes], 1)


def left(bare: HuggingFaceModel, bags: Bags, general: NGramCounts, name: str, positions: int) -> list[Row]:
    """Shares that are left behind one prompt: medians over frequent and over rare tokens."""
    model, length = bare.prompted(PROMPTS[name]), TIME // (4 if PROMPTS[name] else 2)
    ids = torch.tensor([model.tokenizer.encode(event)[-1] for event in (*FREQUENT, *RARE)])
    readers, texts = readers_of(model, ids), Texts.of(model, max(1, positions // 6), length, seed=2)
    call = Texts.of(model, 1 + IN_A_CALL // length, length, seed=3).counts
    text, time = some_places(model, texts, positions)
    truth = truth_of(model, texts, text, time, ids)
    first, last = texts.tokens[text, time], texts.tokens[text, time + 1]
    places = bags.place(texts.hidden[text, time], last)
    of_call = by_table(call, readers, first, last)
    guesses = {
        "general": by_table(general, readers, first, last),
        "call": of_call,
        "head": bags.within(places, ids, WINDOW),
        "both": by_both(bags, texts, places, last, ids, of_call),
    }
    rows = []
    for kind, numbers in (("frequent", range(len(FREQUENT))), ("rare", range(len(FREQUENT), len(ids)))):
        plain = torch.tensor([chi2(truth[:, :, k], torch.ones(len(text)).double()) for k in numbers])
        shares = {}
        for key, guess in guesses.items():
            some = torch.tensor([chi2(truth[:, :, k], guess[:, k]) for k in numbers])
            shares[key] = float((some / plain).median())
        rows.append({"tokens": kind, "positions": len(text), "chi2": float(plain.median()), **shares})
    return rows


@measurement(
    "prompt | tokens | χ² without | table | table of the call | head | head and table of the call",
    "{prompt} | {tokens} | {chi2:.1f} | {general:.2f} | {call:.2f} | {head:.2f} | {both:.2f}",
    quick={"texts": 8, "positions": 6},
)
def run(
    texts: Annotated[int, "of 96 tokens, from which head and table are made"] = 128,
    positions: Annotated[int, "whose future is rolled out"] = 96,
) -> Iterator[Case]:
    model = locore.load("smollm2")
    assert isinstance(model, HuggingFaceModel)
    bare = model.prompted("")
    made = Texts.of(bare, texts, TIME, seed=0)
    say(f"{made.counts.positions:,} positions")
    bags = learned(bare, made.hidden, made.tokens)
    for name in PROMPTS:
        yield {"prompt": name}, partial(left, model, bags, made.counts, name, positions)
