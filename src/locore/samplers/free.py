"""Free states: from there on every text satisfies the constraint, so that nothing is learned of p(α) by reading on.

After " dog" and a blank, `(?s) dog(?:\\W.*)?` holds whatever comes; so does `contains` once the phrase is there. Text
constraints hold of whole characters only, and so it is texts that are followed: a state is free if every sequence of tokens, of
the length that is left, is accepted that makes up whole characters. What a model gives to broken ones is little and not known;
it is left to the weights of texts that are drawn with the constraint as their mask, so a state that is wrongly called free
costs accuracy, never the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locore.kernel.automata.lift import lift_bytes
from locore.kernel.automata.tables import utf8
from locore.kernel.circuits.reading import DEAD, LeftToRight
from locore.kernel.numerics import NEG_INF
from locore.kernel.samplers.sampler import Prefixes
from locore.kernel.samplers.selection import select
from locore.kernel.tokenizer import Tokenizer

PASS_NUMBERS = 2**25  # entries of tables that a pass reads
KEPT = 2**14  # free prefixes that stand for all
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Characters:
    """Tokens as moves between the places within a character.

    Attributes:
        move: Int64[vocab], which move a token is; −1 for one that is no text.
        after: Int64[moves, places], the place that each leads to; −1 where no character goes on like this.
        start: the place between two characters, where a text may end.
    """

    move: Ints
    after: Ints
    start: int


@lru_cache(maxsize=4)
def _characters(token_bytes: tuple[bytes | None, ...]) -> Characters:
    """Of a vocabulary with text."""
    automaton = lift_bytes(utf8(), token_bytes)
    table, accepting = automaton.functions.astype(np.int64), automaton.accepting
    alive = accepting.copy()
    while (more := alive | alive[table].any(0)).sum() > alive.sum():
        alive = more
    return Characters(automaton.function, np.where(alive[table], table, -1), automaton.start)


def free_states(reader: LeftToRight, tokenizer: Tokenizer) -> tuple[Tensor, ...] | None:
    """For each position 0..n Bool[states]: which are free. None where none is before the end, or the start is."""
    if not reader.tabulated or sum(len(rows) for rows in reader.rows) * reader.rows[0].shape[1] > PASS_NUMBERS:
        return None
    moves = _moves(reader.token_class.numpy(), tokenizer)
    if 0 not in moves[0]:
        return None
    free = _free(reader, moves, [int(reader.token_class[token]) for token in tokenizer.eos_ids])
    if free[0][reader.start] or not any(flags.any() for flags in free[:-1]):
        return None
    return tuple(map(torch.from_numpy, free))


def _moves(token_class: Ints, tokenizer: Tokenizer) -> dict[int, dict[int, Ints]]:
    """By place, and by place after it, the classes of the tokens that lead there; the place between characters is the first."""
    if not tokenizer.has_text:
        return {0: {0: np.unique(np.delete(token_class, list(tokenizer.eos_ids)))}}
    characters = _characters(tokenizer.token_bytes)
    text = characters.move >= 0
    text[list(tokenizer.eos_ids)] = False
    pairs = np.divmod(np.unique(token_class[text] * len(characters.after) + characters.move[text]), len(characters.after))
    places = [characters.start, *(place for place in range(characters.after.shape[1]) if place != characters.start)]
    moves: dict[int, dict[int, Ints]] = {}
    for number, place in enumerate(places):
        after = characters.after[pairs[1], place]
        moves[number] = {to: np.unique(pairs[0][after == end]) for to, end in enumerate(places) if bool((after == end).any())}
    return moves


def _free(reader: LeftToRight, moves: dict[int, dict[int, Ints]], ends: list[int]) -> list[Flags]:
    """As `free_states`, for what `_moves` says and the classes of the ends."""
    live = [flags.numpy() for flags in reader.live]
    # Free within a character: by place, None where no text of the length that is left goes on from there.
    inside: dict[int, Flags | None] = dict.fromkeys(moves)
    inside[0] = live[-1]
    result = [live[-1].copy()]
    cached: dict[object, tuple[dict[int, Flags | None], Flags]] = {}
    for position in reversed(range(reader.length)):
        rows = reader.rows[position]
        said = [None if flags is None else flags.tobytes() for flags in inside.values()]
        key = (id(rows), live[position + 1].tobytes(), *said)
        if key not in cached:
            cached[key] = _before(rows.numpy(), live[position + 1], inside, moves, ends)
        inside, flags = cached[key]
        result.append(flags)
    return result[::-1]


def _before(
    rows: NDArray[np.integer], live: Flags, after: dict[int, Flags | None], moves: dict[int, dict[int, Ints]], ends: list[int]
) -> tuple[dict[int, Flags | None], Flags]:
    """A position earlier: what is free at each place, and what is free at the place where it stands."""
    free: dict[int, Flags | None] = {}
    for place, leads in moves.items():
        flags: Flags | None = None
        for to, classes in leads.items():
            following = after[to]
            if following is not None:
                flags = _all_lead(rows, classes, following, flags)
        if place == 0 and flags is not None:
            flags = _all_lead(rows, np.array(ends, dtype=np.int64), live, flags)
        free[place] = flags
    between = free[0]
    assert between is not None  # tokens that are whole characters lead from there to there
    # Of texts alone none goes on like two places: where whole characters may follow, it is no place within one.
    candidates = np.nonzero(np.any([flags for flags in free.values() if flags is not None], axis=0) & ~between)[0]
    plain = (rows[np.ix_(candidates, moves[0][0])] != DEAD).any(1) if len(candidates) else np.zeros(0, dtype=np.bool_)
    result = between.copy()
    result[candidates[~plain]] = True
    return free, result


def _all_lead(rows: NDArray[np.integer], classes: Ints, following: Flags, among: Flags | None) -> Flags:
    """Bool[states]: from which of some all these classes lead to states that are flagged."""
    flags = np.ones(len(rows), dtype=np.bool_) if among is None else among.copy()
    for part in np.array_split(classes, -(-len(classes) // 64)) if len(classes) else []:
        states = np.nonzero(flags)[0]
        if not len(states):
            break
        targets = rows[np.ix_(states, part)]
        flags[states] = ((targets != DEAD) & following[targets]).all(1)
    return flags


@dataclass(frozen=True, eq=False)
class Beginnings:
    """Sequences of which all from a position on is still to be drawn.

    Attributes:
        tokens: Long[num, length]; what is to be drawn is arbitrary.
        cuts: Long[num], the first position that is.
        log_weights: f64[num], before that.
        owner: Long[num], the round that each belongs to.
    """

    tokens: Tensor
    cuts: Tensor
    log_weights: Tensor
    owner: Tensor

    @classmethod
    def joined(cls, parts: Sequence[Beginnings]) -> Beginnings:
        """One after the other."""
        fields = [(part.tokens, part.cuts, part.log_weights, part.owner) for part in parts]
        return cls(*map(torch.cat, zip(*fields, strict=True)))


class Begun:
    """Free prefixes that were reached, none of which begins another; of many some stand for all, without bias.

    Attributes:
        log_mass: log of the probability of all.
    """

    def __init__(self, free: tuple[Tensor, ...], length: int, generator: torch.Generator, most: int = KEPT) -> None:
        """None yet, of sequences of this length; `free` as in `free_states`; at most so many are kept."""
        self.log_mass = NEG_INF
        self._free, self._length, self._generator, self._most = free, length, generator, most
        self._parts: list[Beginnings] = []

    def __bool__(self) -> bool:
        return self.log_mass > NEG_INF

    def take(self, prefixes: Prefixes, joint: Tensor) -> None:
        """The free children of prefixes; of f64[prefixes, vocab], log of their probability, nothing is left."""
        following, reader = prefixes.position + 1, prefixes.reader
        if following >= self._length:  # whole sequences, which are weighed one by one
            return
        states, which = torch.unique(prefixes.states, return_inverse=True)
        targets = reader.rows[prefixes.position][states].long()
        by_class = self._free[following][targets.clamp_min(0)] & (targets != DEAD)
        if not bool(by_class.any()):
            return
        free = by_class[:, reader.token_class][which]
        mass = joint.masked_fill(~free, NEG_INF)
        joint.masked_fill_(free, NEG_INF)
        chosen, weights = select(mass.flatten(), self._most, self._uniform())
        row, token = chosen // mass.shape[1], chosen % mass.shape[1]
        tokens = torch.zeros(len(chosen), self._length, dtype=torch.long)
        tokens[:, :following] = torch.cat([prefixes.tokens[row], token[:, None]], 1)
        self._add(Beginnings(tokens, torch.full_like(token, following), weights, torch.zeros_like(token)))

    def _add(self, more: Beginnings) -> None:
        self._parts.append(more)
        weights = torch.cat([part.log_weights for part in self._parts])
        self.log_mass = float(torch.logsumexp(weights, 0)) if len(weights) else NEG_INF
        if len(weights) > self._most:
            joined = Beginnings.joined(self._parts)
            chosen, weights = select(weights, self._most, self._uniform())
            self._parts = [Beginnings(joined.tokens[chosen], joined.cuts[chosen], weights, joined.owner[chosen])]

    def drawn(self, num: int, owner: int, generator: torch.Generator) -> Beginnings:
        """So many for a round, which together weigh what all weigh: a heavy one several times, others by chance."""
        joined = Beginnings.joined(self._parts)
        ends = torch.softmax(joined.log_weights, 0).cumsum(0)
        points = (torch.arange(num, dtype=torch.float64) + torch.rand((), generator=generator, dtype=torch.float64)) / num
        chosen = torch.searchsorted(ends, points * ends[-1], right=True).clamp_max(len(ends) - 1)
        weights = torch.full((num,), self.log_mass, dtype=torch.float64) - torch.tensor(float(num)).log()
        return Beginnings(joined.tokens[chosen], joined.cuts[chosen], weights, torch.full_like(chosen, owner))

    def _uniform(self) -> float:
        return float(torch.rand((), generator=self._generator, dtype=torch.float64))
