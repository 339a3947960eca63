"""What texts of a `Pushdown` need at least behind each token of a vocabulary.

What comes behind a token depends on the stack only as far as the token reads. So what the top symbol needs is found for it
*alone*, with where in the vocabulary's trie it ends; to this comes the cost of what is below, which reads on from there. Of
strings, that is found once for all schemas. A symbol that goes on like such a one, but for some texts, as a name where names
are listed, is followed only where it differs. What is left are literals, numbers and brackets, which few tokens spell.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from locore.automata.pushdown import Cell, Kind, Pushdown, State, Symbol, Texts
from locore.automata.walking import Branch, Int32, Nodes, Walk
from locore.cache import Kept

MEMORY_BYTES = 64_000_000  # of what is known of the stacks of a schema
KNOWN_BYTES = 32_000_000  # of what is known of symbols for all schemas, for each of the last few vocabularies
NEVER = np.uint16(np.iinfo(np.uint16).max)
BACKSLASH = 0x5C
FEW = 16  # bytes that may come first: such symbols are followed one by one
Costs = NDArray[np.uint16]


class Relative(NamedTuple):
    """What a symbol alone needs.

    Attributes:
        costs: UInt16[vocab], behind each token, without what is below; NEVER where it cannot come.
        ends: where the symbol has come to its end, before tokens do or as they do.
    """

    costs: Costs
    ends: Branch

    @property
    def nbytes(self) -> int:
        """Of its arrays."""
        return self.costs.nbytes + self.ends.nodes.nbytes


@dataclass(frozen=True)
class _Counted:
    """Of symbols without bounds.

    Attributes:
        costs: as of `Relative`, but for tokens that read all of the symbol.
        characters: Int64[vocab], how many each token reads, one that is not complete among them.
        ends: Int64[places] in the trie; before: how many characters come before each.
    """

    costs: Costs
    characters: Nodes
    ends: Nodes
    before: Nodes

    @property
    def nbytes(self) -> int:
        """Of its arrays."""
        return self.costs.nbytes + self.characters.nbytes + self.ends.nbytes + self.before.nbytes


class Needs:
    """Of an automaton and a vocabulary."""

    def __init__(self, automaton: Pushdown, walk: Walk) -> None:
        self._automaton, self._walk = automaton, walk
        self._texts: dict[Texts, _Spelled] = {}
        self._cached: Kept[Cell, Costs] = Kept(MEMORY_BYTES, lambda costs: costs.nbytes)

    @property
    def num_bytes(self) -> int:
        """Of what is known of stacks."""
        return int(self._cached.total)

    def behind(self, state: int) -> Costs:
        """UInt16[vocab]: what a text needs behind each token, at most; NEVER where it cannot be completed."""
        return self._least(self._automaton.cells(state))

    def _least(self, cells: State) -> Costs:
        costs = [self._of(cell) for cell in cells if cell is not None]
        least = reduce(np.minimum, costs) if costs else self._nothing()
        return least.copy() if len(costs) == 1 else least

    def _of(self, cell: Cell) -> Costs:
        costs = self._cached.get(cell)
        return self._cached.put(cell, self._written(cell)) if costs is None else costs

    def _written(self, cell: Cell) -> Costs:
        writing = _Writing()
        own_bytes, kind = cell.symbol.own_bytes, cell.symbol.kind
        if kind is not None and (own_bytes is None or len(own_bytes) > FEW):
            costs = self._above(self._relative(cell.symbol, kind), cell.below, writing)
        elif (listed := cell.symbol.listed) is not None:
            costs = self._listed(cell, self._spelled(listed[0]), np.array(listed[1]), writing)
        elif usual := self._usual(cell):
            costs = self._least(usual)
            self._differ(cell, usual, self._walk.root, writing)
        else:
            costs = self._nothing()
            self._follow((cell,), self._walk.root, writing)
        writing.write(costs)
        return costs

    def _listed(self, cell: Cell, spelled: _Spelled, behind: NDArray[np.float64], writing: _Writing) -> Costs:
        """What is needed where some texts are told apart from what is usual."""
        usual = self._usual(cell)
        costs = self._least(usual)
        words = spelled.words[costs[spelled.words] != NEVER]
        costs[words] += np.uint16(spelled.more)
        below = 0.0 if cell.below is None else cell.below.cost
        writing.least(spelled.tokens, np.minimum.reduceat(spelled.rest + behind[spelled.text], spelled.first) + below)
        for number, branch in spelled.ends:
            writing.unwritten.append(branch.through)
            cells = tuple(self._automaton.pushed(way, cell.below) for way in cell.symbol.ways_behind(number))
            writing.come(branch, cells)
            self._follow(cells, branch, writing)
        for before, branch in spelled.escapes:
            own_cells: State = (cell,)
            other = usual
            for byte in before:
                own_cells, other = self._after(own_cells, byte), self._after(other, byte)
            self._differ_at(own_cells, other, BACKSLASH, branch, writing)
        return costs

    def _spelled(self, texts: Texts) -> _Spelled:
        if texts not in self._texts:
            self._texts[texts] = _Spelled.of(texts, self._walk.root)
        return self._texts[texts]

    def _after(self, cells: State, byte: int) -> State:
        return tuple(next_cell for cell in cells if cell is not None for next_cell in self._automaton.cells_after(cell, byte))

    def _nothing(self) -> Costs:
        return np.full(self._walk.size, NEVER)

    def _relative(self, symbol: Symbol, kind: Kind) -> Relative:
        """What a symbol alone needs, which is known from any other one of its kind."""
        walk, cache, is_free = self._walk, known_of(self._walk), kind.unbounded is not None
        most = None if is_free and kind.most is not None and kind.most >= walk.longest else kind.most
        key = kind.key, kind.least, most  # and nothing that belongs to a schema
        relative: Relative | None = cache.get(key)
        if relative is None:
            relative = _within(kind, self._counted(kind), walk) if is_free else self._alone(symbol)[0]
            cache.put(key, relative)
        return relative

    def _counted(self, kind: Kind) -> _Counted:
        assert kind.unbounded is not None
        walk, cache, key = self._walk, known_of(self._walk), ("counted", kind.key)
        counted: _Counted | None = cache.get(key)
        if counted is None:
            far = walk.longest + 1
            alone, needed, states = self._alone(kind.unbounded(0))
            _, bounded, others = self._alone(kind.unbounded(far))
            needed, bounded = needed[states], bounded[others]
            is_read = np.isfinite(bounded)  # the symbol has not come to its end
            characters = np.where(is_read, far + np.where(is_read, needed, 0) - np.where(is_read, bounded, 0), 0)
            costs = alone.costs.copy()
            costs[alone.ends.tokens] = NEVER
            read = np.zeros(walk.size, dtype=np.int64)
            read[walk.tokens] = walk.ends(characters)
            parents = walk.parents[alone.ends.nodes]
            counted = cache.put(key, _Counted(costs, read, alone.ends.nodes, characters[parents].astype(np.int64)))
        return counted

    def _alone(self, symbol: Symbol) -> tuple[Relative, NDArray[np.float64], Int32]:
        """What a symbol needs with nothing below; and in each state, Int32[nodes] of which beginnings of tokens lead to."""
        automaton, walk = self._automaton, self._walk

        def step(states: Int32, symbols: Nodes) -> Int32:
            is_met = np.zeros(automaton.num_states, dtype=np.bool_)
            is_met[states] = True
            for state in np.flatnonzero(is_met).tolist():
                automaton.read(state)
            after: Int32 = automaton.table[states, symbols]
            return after

        states = walk.states(automaton.state_of(symbol), step)
        needed = np.append(automaton.costs[: automaton.num_states], np.inf)  # DEAD is the last one
        is_met = np.zeros(automaton.num_states + 1, dtype=np.bool_)
        is_met[states] = True
        may_end = np.zeros_like(is_met)
        may_end[[state for state in np.flatnonzero(is_met[:-1]).tolist() if automaton.accepts_at(state)]] = True
        costs = np.full(walk.size, NEVER)
        costs[walk.tokens] = np.minimum(needed, float(NEVER)).astype(np.uint16)[walk.ends(states)]
        return Relative(costs, Branch(walk, np.flatnonzero(may_end[states]))), needed, states

    def _above(self, alone: Relative, below: Cell | None, writing: _Writing) -> Costs:
        """What a symbol needs on top of a cell."""
        if below is None:
            return alone.costs.copy()
        self._follow((below,), alone.ends, writing)
        costs: Costs = np.minimum(alone.costs.astype(np.uint32) + int(below.cost), NEVER).astype(np.uint16)
        return costs

    def _follow(self, cells: State, branch: Branch, writing: _Writing) -> None:
        """Write what is needed behind the bytes that some cells read."""
        pending = [(cell, branch) for cell in cells if cell is not None]
        while pending:
            cell, branch = pending.pop()
            children, own_bytes = branch.children, cell.symbol.own_bytes
            if own_bytes is None or cell.symbol.usual:
                own_bytes = children if cell.symbol.is_broad else self._automaton.row_of(cell)
            for byte in own_bytes:
                if (child := children.get(byte)) is not None:
                    after = self._automaton.cells_after(cell, byte)
                    writing.come(child, after)
                    pending += [(next_cell, child) for next_cell in after if next_cell is not None]

    def _differ(self, cell: Cell, usual: State, branch: Branch, writing: _Writing) -> None:
        """Write what is needed behind the bytes where a cell does not go on as usual; for what does, all is written."""
        own_bytes = cell.symbol.own_bytes or ()
        for byte in own_bytes if len(own_bytes) < len(branch.children) else branch.children:
            if byte in own_bytes:
                self._differ_at((cell,), usual, byte, branch, writing)

    def _differ_at(self, cells: State, usual: State, byte: int, branch: Branch, writing: _Writing) -> None:
        """The same behind one byte."""
        if (child := branch.children.get(byte)) is None:
            return
        after, usually = self._after(cells, byte), self._after(usual, byte)
        if after == usually:
            return
        if usually and len(after) == 1 and after[0] is not None and self._usual(after[0]) == usually:
            writing.unwritten.append(child.tokens)
            self._differ(after[0], usually, child, writing)
        else:
            writing.unwritten.append(child.through)
            self._follow(after, child, writing)
        writing.come(child, after)

    def _usual(self, cell: Cell) -> State:
        return tuple(self._automaton.pushed(way, cell.below) for way in cell.symbol.usual)


class _Writing:
    """What is to be written: tokens, and what is needed behind them. The least counts.

    Attributes:
        unwritten: tokens of which what is there does not hold.
    """

    def __init__(self) -> None:
        self.unwritten: list[Nodes] = []
        self._tokens: list[Nodes] = []
        self._costs: list[float] = []

    def come(self, branch: Branch, cells: State) -> None:
        """The tokens that end at a branch lead to some cells."""
        if cells and len(branch.tokens):
            self._tokens.append(branch.tokens)
            self._costs.append(min(0.0 if cell is None else cell.cost for cell in cells))

    def least(self, tokens: list[Nodes], costs: NDArray[np.float64]) -> None:
        """Some tokens need so much."""
        self._tokens += tokens
        self._costs += costs.tolist()

    def write(self, costs: Costs) -> None:
        """Into costs."""
        if self.unwritten:
            costs[np.concatenate(self.unwritten)] = NEVER
        if self._tokens:
            least = np.minimum(self._costs, float(NEVER)).astype(np.uint16)
            np.minimum.at(costs, np.concatenate(self._tokens), np.repeat(least, [len(tokens) for tokens in self._tokens]))


@dataclass(frozen=True)
class _Spelled:
    """How tokens spell texts.

    Attributes:
        tokens: that spell beginnings, those of one beginning together, `first` of which is a number in `text` and `rest`.
        text, rest: which texts begin so, and what the rest of each costs.
        words: the tokens that spell whole texts but for their ends; more: what others cost there.
        ends: the texts that tokens spell, or go on from.
        escapes: beginnings behind which an escape may come.
    """

    tokens: list[Nodes]
    first: Nodes
    text: Nodes
    rest: NDArray[np.float64]
    words: Nodes
    more: float
    ends: list[tuple[int, Branch]]
    escapes: list[tuple[bytes, Branch]]

    @classmethod
    def of(cls, texts: Texts, root: Branch) -> _Spelled:
        """Of some texts, and the trie of a vocabulary."""
        branches: dict[bytes, Branch] = {b"": root}
        behind: dict[bytes, list[tuple[int, float]]] = {}
        ends = []
        for number, text in enumerate(texts.texts):
            for place in range(1, len(text) + 1):
                child = branches[text[: place - 1]].children.get(text[place - 1])
                if child is None:
                    break
                branches[text[:place]] = child
                if place == len(text):
                    ends.append((number, child))
                else:
                    behind.setdefault(text[:place], []).append((number, texts.measure(text[place:])))
        spelled = [before for before in behind if len(branches[before].tokens)]
        pairs = np.array([pair for before in spelled for pair in behind[before]]).reshape(-1, 2)
        lengths = [len(behind[before]) for before in spelled]
        inside = branches.keys() - set(texts.texts)
        words = [branches[text[:-1]].tokens for text in texts.texts if text[:-1] in behind]
        return cls(
            [branches[before].tokens for before in spelled],
            np.cumsum([0, *lengths])[:-1],
            pairs[:, 0].astype(np.int64),
            pairs[:, 1],
            np.concatenate([np.zeros(0, dtype=np.int64), *words]),
            texts.more,
            ends,
            [(before, branches[before]) for before in inside if BACKSLASH in branches[before].children],
        )


@lru_cache(maxsize=4)
def known_of(walk: Walk) -> Kept[Hashable, Any]:
    """What is known of symbols alone, whatever the schema."""
    return Kept(KNOWN_BYTES, lambda value: value.nbytes)


def _within(kind: Kind, counted: _Counted, walk: Walk) -> Relative:
    """The same with bounds."""
    most = walk.longest if kind.most is None else kind.most
    ends = Branch(walk, counted.ends[(counted.before >= kind.least) & (counted.before <= most)])
    costs = np.minimum(counted.costs + np.maximum(kind.least - counted.characters, 0), NEVER).astype(np.uint16)
    costs[(counted.costs == NEVER) | (counted.characters > most)] = NEVER
    costs[ends.tokens] = 0
    return Relative(costs, ends)
