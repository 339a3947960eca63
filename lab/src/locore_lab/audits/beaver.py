"""BEAVER's bounds: read the most probable prefix that has not offended, over and over (arXiv 2512.05439, own code).

What has offended is a lower bound of p(offence); with all that was not read, an upper one. Nothing is drawn.
"""

from __future__ import annotations

import torch
from torch import Tensor

import locore
from locore import ban
from locore.kernel.circuits.reading import LeftToRight
from locore_lab.audits.problems import Known

AT_ONCE = 32  # prefixes that are read in one pass


@torch.no_grad()
def bounds(known: Known, lm_tokens: int) -> tuple[float, float]:
    """What p(any of the phrases) lies between, for so many LM tokens; the empty prefix is free."""
    circuit = locore.compile(ban(known.phrases), known.model, known.length)
    reader = circuit.reader
    assert reader is not None
    tokens = torch.zeros(1, known.length, dtype=torch.long)
    size, states = torch.zeros(1, dtype=torch.long), reader.initial(1)
    mass, offended, spent = torch.ones(1, dtype=torch.float64), 0.0, 0
    while len(mass) and spent < lm_tokens:
        best = mass.topk(min(AT_ONCE, len(mass), lm_tokens - spent)).indices
        rest = torch.ones(len(mass), dtype=torch.bool)
        rest[best] = False
        spent += int((size[best] > 0).sum())
        found, new = _children(known, reader, tokens[best], size[best], states[best], mass[best])
        offended += found
        kept = (tokens[rest], size[rest], states[rest], mass[rest])
        tokens, size, states, mass = (torch.cat(pair) for pair in zip(kept, new, strict=True))
    return offended, min(1.0, offended + float(mass.sum()))


def _children(
    known: Known, reader: LeftToRight, tokens: Tensor, size: Tensor, states: Tensor, mass: Tensor
) -> tuple[float, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """The mass that offends with one token more, and the prefixes that go on."""
    offended, parts, every = 0.0, [], torch.arange(known.model.vocab_size)
    ends = torch.isin(every, torch.tensor(known.model.tokenizer.eos_ids, dtype=torch.long))
    for position in sorted(set(size.tolist())):
        rows = (size == position).nonzero().flatten()
        text = torch.cat([tokens[rows, :position], torch.zeros(len(rows), 1, dtype=torch.long)], 1)
        joint = mass[rows, None] * known.model.log_probs(text)[:, position].double().exp()
        allowed = reader.allowed_tokens(position, states[rows])
        offended += float(joint[~allowed].sum())
        if position + 1 < known.length:
            row, token = (allowed & ~ends & (joint > 0)).nonzero(as_tuple=True)
            longer = tokens[rows][row]
            longer[:, position] = token
            after = reader.step(position, states[rows][row], token)
            parts.append((longer, torch.full_like(token, position + 1), after, joint[row, token]))
    empty = (tokens[:0], size[:0], states[:0], mass[:0])
    a, b, c, d = (torch.cat(each) for each in zip(empty, *parts, strict=True))
    return offended, (a, b, c, d)
