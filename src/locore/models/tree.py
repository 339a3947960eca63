"""Contexts that were evaluated behind a prompt, as a tree of tokens with all that reading on from them takes."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from locore.models.keyvalues import Step, Tails
from locore.models.prefix import normalised

if TYPE_CHECKING:
    from locore.models.huggingface import HuggingFaceModel

ROOT = -1  # the node of the prompt itself
_FIRST_CAPACITY = 256
_ROWS_AT_ONCE = 256  # of distributions that are made again

Key = tuple[int, int]  # a node, and a token after it


class Tree:
    """The contexts behind one prompt: each is a token after another context, with its keys and values and what comes next.

    Nodes are numbered as they come and never change, so they may be read while others are added.

    Attributes:
        model: the prompted model.
    """

    def __init__(self, model: HuggingFaceModel, keeps_hidden: bool) -> None:
        """The prompt alone, which is read now; nodes keep their hidden states, or their log-probabilities."""
        self.model = model
        self._size = 0
        self._children: dict[Key, int] = {}
        self._layers: list[Tensor] = []
        self._keeps_hidden = keeps_hidden
        self._root = model.begin(1).log_probs.clone()
        self._next = self._root[:0]  # Float[nodes, …], the kept hidden states or log-probabilities

    def __len__(self) -> int:
        return self._size

    @property
    def bytes(self) -> int:
        """What the prompt and the nodes take."""
        return len(self.model.prompt_ids) * self.model.causal.bytes_per_token + self._size * self.bytes_per_node

    @property
    def bytes_per_node(self) -> int:
        """What one node takes."""
        causal = self.model.causal
        return causal.bytes_per_token + (causal.hidden_bytes if self._keeps_hidden else self._root.nbytes)

    def child(self, key: Key) -> int | None:
        """The node of a token after a node; None if it is not there."""
        return self._children.get(key)

    def nodes(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The contexts along sequences.

        Args:
            tokens: Long[batch, time].
            lengths: Long[batch], at how many positions of each row the context matters, at least one.

        Returns:
            Long[batch, time], the node before each token; and Bool[batch], whether all that matter are there.
        """
        nodes = torch.full(tokens.shape, ROOT)
        found = torch.ones(len(tokens), dtype=torch.bool)
        for row, (ids, length) in enumerate(zip(tokens.tolist(), lengths.tolist(), strict=True)):
            node = ROOT
            for time, token in enumerate(ids[: length - 1], start=1):
                child = self.child((node, token))
                if child is None:
                    found[row] = False
                    break
                nodes[row, time] = node = child
        return nodes, found

    def add(self, keys: list[Key], step: Step, log_probs: Tensor) -> None:
        """New nodes, with what was read of each and Float[new, vocab] after it. Callers take turns."""
        first, size = self._size, self._size + len(keys)
        following = step.hidden if self._keeps_hidden and step.hidden is not None else log_probs
        if not self._layers:
            self._layers = [layer.new_empty(0, *layer.shape[1:]) for layer in step.layers]
            self._next = following[:0]
        for index, layer in enumerate(step.layers):  # one by one: only one is there twice while it grows
            self._layers[index] = _with_room(self._layers[index], size)
            self._layers[index][first:size] = layer
        self._next = _with_room(self._next, size)
        self._next[first:size] = following
        self._size = size
        self._children.update(zip(keys, range(first, size), strict=True))

    def log_probs(self, nodes: Tensor) -> Tensor:
        """Float[…, vocab] after nodes Long[…]."""
        distinct, inverse = torch.unique(nodes, return_inverse=True)
        rows = self._rows(distinct)
        same = torch.equal(inverse, torch.arange(len(rows)))
        return rows if same else rows.index_select(0, inverse.flatten()).view(*nodes.shape, self._root.shape[-1])

    def token_scores(self, nodes: Tensor, tokens: Tensor) -> Tensor:
        """f64[…]: log p of tokens Long[…] after nodes Long[…]."""
        distinct, inverse = torch.unique(nodes, return_inverse=True)
        scores = torch.empty(nodes.shape, dtype=torch.float64)
        for first in range(0, len(distinct), _ROWS_AT_ONCE):
            here = (inverse >= first) & (inverse < first + _ROWS_AT_ONCE)
            rows = self._rows(distinct[first : first + _ROWS_AT_ONCE])
            scores[here] = rows[inverse[here] - first, tokens[here]].double()
        return scores

    def _rows(self, nodes: Tensor) -> Tensor:
        """Float[batch, vocab] after distinct nodes Long[batch], the root first if it is among them."""
        begins = len(nodes) > 0 and int(nodes[0]) == ROOT
        rows = self._next.index_select(0, nodes[int(begins) :].to(self._next.device))
        if self._keeps_hidden and len(rows):
            parts = [normalised(self.model.causal.read_hidden(part)).cpu() for part in torch.split(rows, _ROWS_AT_ONCE)]
            rows = parts[0] if len(parts) == 1 else torch.cat(parts)
        if not begins:
            return rows
        return torch.cat([self._root, rows]) if len(rows) else self._root

    def step(self, nodes: Tensor) -> Step:
        """What nodes Long[batch] leave behind; not their hidden states."""
        return Step(tuple(layer.index_select(0, nodes.to(layer.device)) for layer in self._layers), None)

    def fill(self, layer: int, nodes: Tensor, out: Tensor) -> None:
        """Write keys and values of nodes Long[length, batch] to Float[length, batch, heads, sizes]."""
        torch.index_select(self._layers[layer], 0, nodes.flatten(), out=out.flatten(0, 1))


@dataclass(frozen=True, eq=False)
class Paths:
    """Tails whose tokens are nodes of a tree.

    Attributes:
        tree: of one prompt.
        nodes: Long[length, batch], on the model's device.
    """

    tree: Tree
    nodes: Tensor

    @property
    def length(self) -> int:
        """How many tokens each row has read after the prompt."""
        return len(self.nodes)

    def part(self, rows: slice) -> Paths:
        """Some of the rows."""
        return Paths(self.tree, self.nodes[:, rows])

    def fill(self, layer: int, out: Tensor) -> None:
        """Write keys and values of a layer to Float[length, batch, heads, key size + value size]."""
        self.tree.fill(layer, self.nodes, out)

    def copied(self) -> Tails:
        """The same tails outside of the tree."""
        distinct = [torch.unique(nodes, return_inverse=True) for nodes in self.nodes]
        places = torch.stack([inverse for _, inverse in distinct]) if distinct else self.nodes
        return Tails(tuple(self.tree.step(nodes).layers for nodes, _ in distinct), places)


class Trees:
    """The trees of several prompts, which together take so many bytes at most."""

    def __init__(self, max_bytes: int, keeps_hidden: bool) -> None:
        """Of prompts and nodes; not of what cursors hold."""
        self.max_bytes = max_bytes
        self._keeps_hidden = keeps_hidden
        self._trees: OrderedDict[tuple[int, ...], Tree] = OrderedDict()
        self._lock = RLock()

    def of(self, model: HuggingFaceModel) -> Tree:
        """The tree behind the prompt of a model."""
        with self._lock:
            name = model.prompt_ids
            if name not in self._trees:
                self._trees[name] = Tree(model, self._keeps_hidden)
            self._trees.move_to_end(name)
            self._make_room(self._trees[name], 0)
            return self._trees[name]

    def add(self, tree: Tree, keys: list[Key], step: Step, log_probs: Tensor) -> bool:
        """Add nodes to a tree, if there is room; was there?"""
        with self._lock:
            fits = any(other is tree for other in self._trees.values()) and self._make_room(tree, len(keys))
            if fits:
                tree.add(keys, step, log_probs)
            return fits

    def _make_room(self, tree: Tree, new: int) -> bool:
        """Forget prompts that were not asked for longest, until so many new nodes of a tree fit; do they then?"""
        while self.bytes + new * tree.bytes_per_node > self.max_bytes:
            name, oldest = next(iter(self._trees.items()))
            if oldest is tree:
                return False
            del self._trees[name]
        return True

    @property
    def bytes(self) -> int:
        """What all trees take."""
        return sum(tree.bytes for tree in self._trees.values())

    def __len__(self) -> int:
        """Nodes of all trees."""
        return sum(map(len, self._trees.values()))


def _with_room(table: Tensor, size: int) -> Tensor:
    """A table of at least so many rows: the same, or a longer one that begins with it."""
    if len(table) >= size:
        return table
    longer = table.new_empty(max(size, 2 * len(table), _FIRST_CAPACITY), *table.shape[1:])
    longer[: len(table)] = table
    return longer
