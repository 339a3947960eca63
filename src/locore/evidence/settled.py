"""Fields of JSON texts, weighed as soon as their value is settled rather than when the text has ended.

A round without replacement draws at every position. What it draws after a field is complete says nothing of that field's value
v, and only adds noise to the share of the weight that has it. So the weight of each prefix is counted where it settles the
field: the sum A(v) is an unbiased estimate of the probability of all prefixes that settle v, those that were dropped later
included. What is left is how much of it satisfies the constraint in the end: R(v) = Σ w / Σ (w / Π Z) over the complete texts
with v, where Z are the masses that the constraint left behind each later prefix. Numerator and denominator estimate
p(v, α) and the probability of the same prefixes, with the same noise of later draws (a ratio estimator: Cochran, "Sampling
Techniques", chapter 6). p(v | α) is estimated by A(v) · R(v), normalised; values of which no text is complete have the
R of all others. Where Π Z differs much from text to text, as where the model knows nothing of JSON, the ratio is noisier than
the weights of complete texts, and these are taken.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from locore.kernel.evidence.blocks import Kept
from locore.kernel.evidence.record import Draws
from locore.kernel.tokenizer import Tokenizer

UNEVEN = 0.5  # relative standard deviation of 1 / Π Z from which ratios are noisy
Found = tuple[bool, Any]  # is a value there, and which
_SPACE, _BEHIND_NUMBERS = " \t\r\n", ",]} \t\r\n"
_read = json.JSONDecoder().raw_decode


def settled_shares(draws: Draws, tokenizer: Tokenizer, steps: Sequence[str]) -> list[tuple[Found, float]] | None:
    """Values at a pointer with their probabilities given α; None where it is not known what was kept on the way."""
    record = draws.record
    if record.blocks is None or not record.blocks.members or record.factors is not None or record.resampled_from is not None:
        return None
    tallies = _Tallies()
    for block in record.blocks.members:
        if not block.is_whole or block.lineage is None or block.lineage.prefixes is None:
            return None
        tallies.add(block.lineage.parent, block.lineage.prefixes, tokenizer, steps)
    return None if tallies.unevenness > UNEVEN else tallies.shares()


class _Tallies:
    """Sums over all blocks, by the text of a value."""

    def __init__(self) -> None:
        self._values: dict[str, Found] = {}
        self._keys: dict[bytes, str] = {}  # of prefixes: blocks have many in common
        self._settled: dict[str, float] = defaultdict(float)
        self._complete: dict[str, float] = defaultdict(float)
        self._unmasked: dict[str, float] = defaultdict(float)  # as if the constraint had left everything since
        self._squares = 0.0

    def add(self, parents: Sequence[Tensor], prefixes: Sequence[Kept], tokenizer: Tokenizer, steps: Sequence[str]) -> None:
        """All prefixes of a block."""
        texts, keys, masses = [b""], [""], [0.0]
        for parent, here in zip(parents, prefixes, strict=True):
            mass = here.log_masses.tolist()
            rows = zip(parent.tolist(), here.tokens.tolist(), here.log_weights.exp().tolist(), strict=True)
            before = (texts, keys, masses)
            texts, keys, masses = [], [], []
            for row, token, weight in rows:
                text, key, log_mass = before[0][row] + (tokenizer.token_bytes[token] or b""), before[1][row], before[2][row]
                if key:
                    log_mass += mass[row]
                elif key := self._key(text, steps):
                    self._settled[key] += weight
                texts.append(text)
                keys.append(key)
                masses.append(log_mass)
        for text, key, log_mass, weight in zip(texts, keys, masses, prefixes[-1].log_weights.exp().tolist(), strict=True):
            if not key:  # a number is settled by the end of the text alone
                key = self._key(text + b" ", steps)
                self._settled[key] += weight
            self._complete[key] += weight
            self._unmasked[key] += weight * _exp(-log_mass)
            self._squares += weight * _exp(-2 * log_mass)

    def _key(self, text: bytes, steps: Sequence[str]) -> str:
        if text not in self._keys:
            json_value = settled(text.decode("utf-8", "replace"), steps)
            self._keys[text] = "" if json_value is None else json.dumps(json_value, sort_keys=True)
            if json_value is not None:
                self._values.setdefault(self._keys[text], json_value)
        return self._keys[text]

    @property
    def unevenness(self) -> float:
        """Relative standard deviation of 1 / Π Z over complete texts; infinite where numbers overflow or weights vanish."""
        weight, mean = sum(self._complete.values()), sum(self._unmasked.values())
        variance = self._squares * weight / mean**2 - 1 if 0 < mean < math.inf and self._squares < math.inf else math.inf
        return math.sqrt(max(0.0, variance))

    def shares(self) -> list[tuple[Found, float]]:
        """Normalised."""
        of_all = sum(self._complete.values()) / sum(self._unmasked.values())
        left = {key: self._complete[key] / self._unmasked[key] if key in self._complete else of_all for key in self._settled}
        joint = {key: weight * left[key] for key, weight in self._settled.items()}
        total = sum(joint.values())
        return [(self._values[key], weight / total) for key, weight in joint.items()]


def _exp(nats: float) -> float:
    return math.exp(nats) if nats < 300 else math.inf


def settled(text: str, steps: Sequence[str]) -> Found | None:
    """What stands at a pointer in every JSON text that begins like this; None where that is still open."""
    place = 0
    for step in steps:
        place = _skipped(text, place)
        if place == len(text):
            return None
        if text[place] not in "{[":
            return False, None
        inside = _inside(text, place + 1, step)
        if inside is None or isinstance(inside, tuple):
            return inside
        place = inside
    whole = _value(text, _skipped(text, place))
    return None if whole is None else (True, whole[0])


def _skipped(text: str, place: int) -> int:
    return len(text) - len(text[place:].lstrip(_SPACE))


def _value(text: str, place: int) -> tuple[Any, int] | None:
    """A complete value and where it ends; None where more of it may come."""
    try:
        value, end = _read(text, place)
    except ValueError:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    open_ended = is_number and (end == len(text) or text[end] not in _BEHIND_NUMBERS)
    return None if open_ended else (value, end)


def _inside(text: str, place: int, step: str) -> int | Found | None:
    """Where the value of a name or number begins in the rest of an object or array; nothing if it closes before; None: open."""
    is_object, number = text[place - 1] == "{", 0
    if not is_object and not step.isdecimal():
        return False, None
    wanted = step if is_object else int(step)
    while (place := _skipped(text, place)) < len(text):
        if text[place] in "}]":
            return False, None
        if text[place] == ",":
            place, number = place + 1, number + 1
            continue
        key = _value(text, place) if is_object else (number, place)
        if is_object:
            place = len(text) if key is None else _skipped(text, key[1]) + 1  # behind the colon
        if key is None or place > len(text):
            return None
        if key[0] == wanted:
            return place
        value = _value(text, _skipped(text, place))
        if value is None:
            return None
        place = value[1]
    return None
