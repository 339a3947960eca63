"""What a model gives to each record, by reading all its probable texts, without Locore's constraints and samplers.

The model writes freely after the prompt. Prefixes that are less probable than a floor are dropped, and what they weigh is
known, so each probability is known up to that. Texts are read by `json.loads` and checked by the `jsonschema` library.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jsonschema import Draft202012Validator

from locore.models import LanguageModel

MISSING = "missing"  # no JSON text


@dataclass
class Truth:
    """The model's own posterior.

    Attributes:
        records: p(record | prompt, schema) by its JSON text with sorted keys.
        valid: p(schema | prompt), of the texts that were read.
        dropped: p of the texts that were not.
    """

    records: dict[str, float] = field(default_factory=dict)
    valid: float = 0.0
    dropped: float = 0.0

    @property
    def off(self) -> float:
        """By how much a probability may be wrong at most, as nobody knows what was dropped."""
        return self.dropped / (self.valid + self.dropped) if self.valid + self.dropped else 1.0

    def marginal(self, pointer: str) -> dict[str, float]:
        """p(value) at a pointer, by its JSON text; `MISSING` where nothing is there."""
        found: dict[str, float] = defaultdict(float)
        for text, chance in self.records.items():
            found[value_at(json.loads(text), pointer)] += chance
        return dict(found)


def plain(value: Any) -> str:
    """A JSON value as text that is the same for all its spellings."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)


def value_at(record: Any, pointer: str) -> str:
    """What stands at a pointer of an object, as `plain`."""
    for name in pointer.split("/")[1:]:
        if not isinstance(record, dict) or name not in record:
            return MISSING
        record = record[name]
    return plain(record)


@torch.inference_mode()
def enumerated(model: LanguageModel, prompt: str, schema: Mapping[str, Any], length: int, floor: float = 3e-5) -> Truth:
    """Of texts of at most so many tokens, and the end behind them."""
    cursor = model.prompted(prompt).begin(1)
    ends, least = torch.tensor(model.tokenizer.eos_ids), math.log(floor)
    prefixes, log_probs = torch.zeros(1, 0, dtype=torch.long), torch.zeros(1, dtype=torch.float64)
    texts: dict[str, float] = defaultdict(float)
    for step in range(length + 1):
        joint = log_probs[:, None] + cursor.log_probs.double()
        for number, chance in enumerate(torch.logsumexp(joint[:, ends], 1).tolist()):
            if chance > least:
                texts[model.tokenizer.decode(prefixes[number].tolist())] += math.exp(chance)
        joint[:, ends] = -math.inf
        row, token = (joint > least).nonzero(as_tuple=True)
        if not len(row) or step == length:
            break
        prefixes, log_probs = torch.cat([prefixes[row], token[:, None]], 1), joint[row, token]
        cursor = cursor.advance(token, row)
    return _judged(texts, schema)


def _judged(texts: Mapping[str, float], schema: Mapping[str, Any]) -> Truth:
    validator, found = Draft202012Validator(schema), Truth()
    known: dict[str, float] = defaultdict(float)
    for text, chance in texts.items():
        try:
            record = json.loads(text)
        except ValueError:
            continue
        if validator.is_valid(record):
            known[plain(record)] += chance
    found.valid, found.dropped = sum(known.values()), max(0.0, 1 - sum(texts.values()))
    found.records = {record: chance / found.valid for record, chance in known.items()}
    return found
