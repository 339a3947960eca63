"""What do hidden states know of later tokens, and two tokens of context?

A look-ahead asks how likely a token is to come within the next k. For texts of SmolLM2 itself: the log-loss of that event, in
nats below that of its frequency, as foretold by

- an n-gram table (`locore.samplers.twist.ngram`) from the last two tokens, the last of which was just chosen;
- linear future heads: the hidden state j tokens later as a linear function (ridge) of the one before the last token was
  chosen, which is all that a sampler has for free, and the model's own head on that; tokens taken as independent, as in
  Gloeckle et al. 2024;
- the same heads on the hidden state after it, which costs an LM token;
- both of the first two, joined by a logistic regression on the texts that the others learned from.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

import locore
from locore.circuits import LeftToRight
from locore.constraints import Count
from locore.models import HuggingFaceModel
from locore.samplers.twist.lookahead import look_ahead
from locore.samplers.twist.ngram import NGramCounts
from locore_lab.harness import Case, Row, measurement, say

TIME, BATCH, RIDGE = 96, 16, 10.0
TRAINED = 0.75  # share of the texts
EVENTS = (".", "?", "\n", " and", " dog", " book", " soon", " home", " day", " people")
LEAST = 20  # occurrences in the held-out texts


def texts_of(model: HuggingFaceModel, num: int) -> tuple[Tensor, Tensor, NGramCounts]:
    """Long[num, TIME] texts, Float[num, TIME, size] hidden states after each token, what the first texts teach a table."""
    generator, counts = torch.Generator().manual_seed(0), NGramCounts(model.vocab_size, model.tokenizer.eos_ids)
    tokens, hidden = [], []
    for first in range(0, num, BATCH):
        teaches = counts if first < TRAINED * num else NGramCounts(model.vocab_size, model.tokenizer.eos_ids)
        texts = teaches.draft(model, min(BATCH, num - first), TIME, generator)
        ids = torch.cat([torch.tensor(model.prompt_ids).expand(len(texts), -1), texts], 1)
        with torch.inference_mode():
            states = model.causal.module.base_model(ids).last_hidden_state[:, -TIME:]
        tokens.append(texts)
        hidden.append(states.clone().float())
    return torch.cat(tokens), torch.cat(hidden), counts


def heads_of(hidden: Tensor, most: int) -> list[Tensor]:
    """For j = 1…most Float[size + 1, size]: the hidden state j tokens later from this one and a constant."""
    found = []
    for ahead in range(1, most + 1):
        before = _with_one(hidden[:, :-ahead].flatten(0, 1)).double()
        later = hidden[:, ahead:].flatten(0, 1).double()
        gram = before.T @ before + RIDGE * torch.eye(before.shape[1], dtype=torch.float64)
        found.append(torch.linalg.solve(gram, before.T @ later).float())
    return found


def _with_one(states: Tensor) -> Tensor:
    return torch.cat([states, torch.ones(len(states), 1)], 1)


def foretold(model: HuggingFaceModel, states: Tensor, heads: list[Tensor], tokens: Tensor) -> Tensor:
    """f64[states, tokens]: that each token comes within as many tokens as there are heads, by these heads."""
    states, missed = _with_one(states), torch.zeros(len(states), len(tokens), dtype=torch.float64)
    for head in heads:
        for part in torch.split(torch.arange(len(states)), 512):
            with torch.inference_mode():
                logits = model.causal.read_hidden(states[part] @ head)
            missed[part] += torch.log1p(-logits.softmax(-1)[:, tokens].double().clamp_max(1 - 1e-9))
    return -torch.expm1(missed)


def by_table(counts: NGramCounts, readers: list[LeftToRight], first: Tensor, second: Tensor) -> Tensor:
    """f64[contexts, readers]: the same by the table, after two tokens."""
    table, found = counts.table(), []
    for reader in readers:
        states = reader.initial(len(first))
        found.append(look_ahead(table, reader).of_states(0, states, first, second).double().exp())
    return torch.stack(found, 1)


def loss(happens: np.ndarray, chance: np.ndarray) -> float:
    """Mean log-loss, nats."""
    chance = chance.clip(1e-6, 1 - 1e-6)
    return float(-np.where(happens, np.log(chance), np.log1p(-chance)).mean())


def joined(logits: np.ndarray, happens: np.ndarray) -> np.ndarray:
    """Coefficients of a logistic regression, the constant last."""
    inputs = np.concatenate([logits, np.ones((len(logits), 1))], 1)

    def mean_loss(weights: np.ndarray) -> float:
        return float(np.logaddexp(0, np.where(happens, -1, 1) * (inputs @ weights)).mean())

    weights: np.ndarray = minimize(mean_loss, np.array([0.5, 0.5, 0.0])).x
    return weights


def below(truth: np.ndarray, learned: np.ndarray, chances: list[np.ndarray], is_learned: np.ndarray) -> Row:
    """Nats below the loss of the frequency, of the chances and of the first two of them joined; on held-out positions."""
    rate = float(learned.mean())
    base = loss(truth, np.full(len(truth), rate))
    clipped = [chance.clip(1e-6, 1 - 1e-6) for chance in chances[:2]]
    logits = np.stack([np.log(chance / (1 - chance)) for chance in clipped], 1)
    weights = joined(logits[is_learned], learned)
    both = logits[~is_learned] @ weights[:2] + weights[2]
    found = [loss(truth, chance) for chance in (*(chance[~is_learned] for chance in chances), 1 / (1 + np.exp(-both)))]
    gains = dict(zip(("table", "before", "after", "both"), (base - value for value in found), strict=True))
    return {"frequency": float(truth.mean()), "loss": base, **gains}


@measurement(
    "token | frequency | loss of it | table | heads before | heads after | table and heads before",
    "{token!r} | {frequency:.3f} | {loss:.3f} | {table:+.3f} | {before:+.3f} | {after:+.3f} | {both:+.3f}",
)
def run(texts: int = 160, window: int = 8) -> Iterator[Case]:
    model = locore.load("smollm2").prompted("")
    assert isinstance(model, HuggingFaceModel)
    ids = torch.tensor([model.tokenizer.encode(event)[-1] for event in EVENTS])
    tokens, hidden, counts = texts_of(model, texts)
    trained = int(TRAINED * texts)
    heads = heads_of(hidden[:trained], window)
    readers = []
    for token in ids.tolist():
        circuit = locore.compile(Count(tuple(range(window)), frozenset({token}), 1, window), model, window)
        assert circuit.reader is not None
        readers.append(circuit.reader)
    # Of each position t: chosen is y[t], known are y[t − 1] and the hidden state after it; does the event come after t?
    last = TIME - window
    places = torch.arange(2, last)
    happens = torch.stack([(tokens[:, places + ahead, None] == ids) for ahead in range(1, window + 1)]).any(0)
    before = foretold(model, hidden[:, places - 1].flatten(0, 1), heads, ids)
    itself = torch.cat([torch.eye(hidden.shape[2]), torch.zeros(1, hidden.shape[2])])
    after = foretold(model, hidden[:, places].flatten(0, 1), [itself, *heads[:-1]], ids)
    table = by_table(counts, readers, tokens[:, places - 1].flatten(), tokens[:, places].flatten())
    is_learned = (torch.arange(texts) < trained).repeat_interleave(len(places)).numpy()
    happened = happens.flatten(0, 1).numpy()
    say(f"{(~is_learned).sum():,} held-out positions, the next {window} tokens, nats below the frequency's loss")
    for number, event in enumerate(EVENTS):
        truth, learned = (happened[which, number] for which in (~is_learned, is_learned))
        if min(truth.sum(), learned.sum()) >= LEAST:
            chances = [chance[:, number].numpy() for chance in (table, before, after)]
            yield {"token": event}, partial(below, truth, learned, chances, is_learned)
