"""A model that evaluates no context twice: contexts behind a prompt as a tree of tokens, with all that reading on takes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import RLock
from typing import Literal

import torch
from torch import Tensor

from locore.kernel.chat import Prompt
from locore.kernel.errors import InvalidArgument
from locore.kernel.models.cursor import Cursor, scores_of
from locore.kernel.models.language_model import Wrapper
from locore.kernel.models.validation import positive, row_indices, within_context
from locore.kernel.numerics import live_lengths
from locore.kernel.plugins import cached_property
from locore.models.attention import Step, Tails
from locore.models.causal import normalised
from locore.models.huggingface import HuggingFaceModel, PrefixCursor

ROOT = -1  # the node of the prompt itself
_FIRST_CAPACITY = 256
_ROWS_AT_ONCE = 256  # of distributions that are made again

Key = tuple[int, int]  # a node, and a token after it


class PrefixTree:
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
        complete = torch.ones(len(tokens), dtype=torch.bool)
        for row, (ids, length) in enumerate(zip(tokens.tolist(), lengths.tolist(), strict=True)):
            node = ROOT
            for time, token in enumerate(ids[: length - 1], start=1):
                child = self.child((node, token))
                if child is None:
                    complete[row] = False
                    break
                nodes[row, time] = node = child
        return nodes, complete

    def add(self, keys: list[Key], step: Step, log_probs: Tensor) -> None:
        """New nodes, with what was read of each and Float[new, vocab] after it. Callers take turns."""
        first, size = self._size, self._size + len(keys)
        following = step.hidden if self._keeps_hidden and step.hidden is not None else log_probs
        if not self._layers:
            self._layers = [layer.new_empty(0, *layer.shape[1:]) for layer in step.layers]
            self._next = following[:0]
        for index, layer in enumerate(step.layers):  # one by one: only one is there twice while it grows
            self._layers[index] = _grown(self._layers[index], size)
            self._layers[index][first:size] = layer
        self._next = _grown(self._next, size)
        self._next[first:size] = following
        self._size = size
        self._children.update(zip(keys, range(first, size), strict=True))

    def log_probs(self, nodes: Tensor) -> Tensor:
        """Float[…, vocab] after nodes Long[…]."""
        distinct, inverse = torch.unique(nodes, return_inverse=True)
        rows = self._rows(distinct)
        same = torch.equal(inverse, torch.arange(len(rows)))
        if same:
            return rows
        return rows.index_select(0, inverse.flatten().to(rows.device)).view(*nodes.shape, self._root.shape[-1])

    def token_scores(self, nodes: Tensor, tokens: Tensor) -> Tensor:
        """f64[…]: log p of tokens Long[…] after nodes Long[…]."""
        distinct, inverse = torch.unique(nodes, return_inverse=True)
        scores = torch.empty(nodes.shape, dtype=torch.float64)
        for first in range(0, len(distinct), _ROWS_AT_ONCE):
            here = (inverse >= first) & (inverse < first + _ROWS_AT_ONCE)
            rows = self._rows(distinct[first : first + _ROWS_AT_ONCE])
            scores[here] = scores_of(rows, tokens[here], inverse[here] - first)
        return scores

    def _rows(self, nodes: Tensor) -> Tensor:
        """Float[batch, vocab] after distinct nodes Long[batch], the root first if it is among them."""
        begins = len(nodes) > 0 and int(nodes[0]) == ROOT
        rows = self._next.index_select(0, nodes[int(begins) :].to(self._next.device))
        if self._keeps_hidden and len(rows):
            parts = [normalised(self.model.causal.read_hidden(part)) for part in torch.split(rows, _ROWS_AT_ONCE)]
            rows = parts[0] if len(parts) == 1 else torch.cat(parts)
        if not begins:
            return rows
        return torch.cat([self._root, rows]) if len(rows) else self._root

    def tails(self, paths: Tensor) -> Tails:
        """What rows have read that are paths Long[length, batch] of nodes, not copied."""
        return Tails.of_steps(tuple(self._layers), paths.to(self.model.causal.device))


class PrefixTrees:
    """The trees of several prompts, which together take so many bytes at most."""

    def __init__(self, max_bytes: int, keeps_hidden: bool) -> None:
        """Of prompts and nodes; not of what cursors hold."""
        self.max_bytes = max_bytes
        self.keeps_hidden = keeps_hidden
        self._trees: OrderedDict[tuple[int, tuple[int, ...]], PrefixTree] = OrderedDict()
        self._lock = RLock()

    def of(self, model: HuggingFaceModel) -> PrefixTree:
        """The tree behind the prompt of a model."""
        with self._lock:
            name = id(model.causal), model.prompt_ids  # the tree keeps the model, so nothing else gets its number
            if name not in self._trees:
                self._trees[name] = PrefixTree(model, self.keeps_hidden)
            self._trees.move_to_end(name)
            self.make_room(self._trees[name], 0)
            return self._trees[name]

    def make_room(self, tree: PrefixTree, new: int) -> bool:
        """Forget prompts that were not asked for longest, until so many new nodes of a tree fit; do they then?

        A tree that was itself forgotten grows no more.
        """
        with self._lock:
            if not any(other is tree for other in self._trees.values()):
                return False
            while self.bytes + new * tree.bytes_per_node > self.max_bytes:
                name, oldest = next(iter(self._trees.items()))
                if oldest is tree:
                    return False
                del self._trees[name]
            return True

    def add(self, tree: PrefixTree, keys: list[Key], step: Step, log_probs: Tensor) -> bool:
        """Add nodes to a tree, if there is room; was there?"""
        with self._lock:
            possible = self.make_room(tree, len(keys))
            if possible:
                tree.add(keys, step, log_probs)
            return possible

    @property
    def bytes(self) -> int:
        """What all trees take."""
        return sum(tree.bytes for tree in self._trees.values())

    def __len__(self) -> int:
        """Nodes of all trees."""
        return sum(map(len, self._trees.values()))


def _grown(table: Tensor, size: int) -> Tensor:
    """A table of at least so many rows: the same, or a longer one that begins with it."""
    if len(table) >= size:
        return table
    longer = table.new_empty(max(size, 2 * len(table), _FIRST_CAPACITY), *table.shape[1:])
    longer[: len(table)] = table
    return longer


class Remembered(Wrapper):
    """A model that keeps what it evaluated step by step, for all who ask again behind the same prompt.

    The numbers are those of the model itself, up to rounding in another batch. Cursors evaluate only contexts that are new;
    `log_probs` and `token_scores` look up sequences of which all contexts are there, and leave the others to the model, as
    `neighbours` does. Prompted forms share one memory. When it is full, prompts that were not asked for longest are forgotten
    first; then nothing new is kept.

    Attributes:
        base: the model.
    """

    base: HuggingFaceModel

    def __init__(
        self,
        base: HuggingFaceModel,
        max_bytes: int = 2**31,
        keeps: Literal["log_probs", "hidden"] = "log_probs",
        trees: PrefixTrees | None = None,
    ) -> None:
        """Remember in so many bytes.

        Args:
            base: a model that can share a prompt (`base.causal.shares`).
            max_bytes: for all prompts.
            keeps: what a context takes beside its keys and values: its log-probabilities, or its last hidden state, which is
                small, but the head of the model reads it again at each look-up.
            trees: a memory that is shared with other forms of the model; its settings count then.

        Raises:
            InvalidArgument: the model has other attention, or is none of Hugging Face; or its logits are not what its last
                layer alone makes of hidden states.
        """
        if not isinstance(base, HuggingFaceModel) or not base.causal.shares:
            raise InvalidArgument(
                "only a Hugging Face model with plain attention, whose rows can share a prompt, can be remembered; "
                "use the model as it is, it gives the same numbers."
            )
        if keeps not in ("log_probs", "hidden"):
            raise InvalidArgument(f"keeps is {keeps!r}; give 'log_probs' or 'hidden'.")
        if keeps == "hidden" and not base.causal.recomputes:
            raise InvalidArgument("the logits of this model are not made by its last layer alone; give keeps='log_probs'.")
        super().__init__(base)
        self._trees = PrefixTrees(positive(max_bytes, "max_bytes"), keeps == "hidden") if trees is None else trees

    @property
    def contexts(self) -> int:
        """How many contexts are remembered, of all prompts."""
        return len(self._trees)

    @property
    def bytes(self) -> int:
        """What they take, prompts included."""
        return self._trees.bytes

    def prompted(self, prompt: Prompt) -> Remembered:
        """The prompted model, with the same memory."""
        return Remembered(self.base.prompted(prompt), trees=self._trees)

    def unprompted(self) -> Remembered:
        """The model before any prompt, with the same memory."""
        return Remembered(self.base.unprompted(), trees=self._trees)

    @property
    def near(self) -> Remembered | None:
        """The base's, with the same memory, if it can be remembered too."""
        near = self.base.near
        if near is None or not near.causal.shares or (self._trees.keeps_hidden and not near.causal.recomputes):
            return None
        return Remembered(near, trees=self._trees)

    @property
    def _tree(self) -> PrefixTree:
        return self._trees.of(self.base)

    def _begin(self, batch: int) -> Cursor:
        return _RememberedCursor(self._trees, self._tree, torch.empty(0, batch, dtype=torch.int64))

    def _log_probs(self, tokens: Tensor) -> Tensor:
        return self._looked_up(
            tokens, lambda tree, nodes, _: tree.log_probs(nodes).cpu(), lambda model, rows: model._log_probs(rows)
        )

    def _token_scores(self, tokens: Tensor) -> Tensor:
        return self._looked_up(tokens, PrefixTree.token_scores, lambda model, rows: model._token_scores(rows))

    def _neighbours(self, tokens: Tensor, candidates: Tensor) -> Tensor:
        return self._tree.model.neighbours(tokens, candidates)

    def _looked_up(
        self,
        tokens: Tensor,
        by_tree: Callable[[PrefixTree, Tensor, Tensor], Tensor],
        by_model: Callable[[HuggingFaceModel, Tensor], Tensor],
    ) -> Tensor:
        """One result for each row: by the tree where all its contexts are there, else by the model."""
        tree = self._tree
        nodes, complete = tree.nodes(tokens, live_lengths(tokens, self.tokenizer.eos_ids))
        if bool(complete.all()):
            return by_tree(tree, nodes, tokens)
        others = by_model(tree.model, tokens[~complete])
        result = others.new_empty(len(tokens), *others.shape[1:])
        result[complete], result[~complete] = by_tree(tree, nodes[complete], tokens[complete]), others
        return result


class _RememberedCursor(Cursor):
    """A cursor whose rows are nodes of a tree; rows with equal histories are one node."""

    def __init__(self, trees: PrefixTrees, tree: PrefixTree, paths: Tensor, log_probs: Tensor | None = None) -> None:
        """Rows that have read the tokens of `paths`, Long[length, batch] nodes of the tree; what comes next, if it is there."""
        self._trees = trees
        self._tree = tree
        self._paths = paths
        self._given = log_probs

    @cached_property
    def log_probs(self) -> Tensor:
        return self._tree.log_probs(_last(self._paths)) if self._given is None else self._given

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> Cursor:
        """Feed one token to each row that goes on; see `Cursor.advance`. Once memory is full, one that remembers nothing."""
        paths = self._paths[:, row_indices(parents, len(tokens), self._paths.shape[1])]
        within_context(len(self._tree.model.prompt_ids) + len(paths), 1, self._tree.model.causal.context)
        keys = list(zip(_last(paths).tolist(), tokens.tolist(), strict=True))
        new = {key: row for row, key in enumerate(keys) if self._tree.child(key) is None}
        log_probs = None
        if new:
            if not self._trees.make_room(self._tree, len(new)):
                return self._forgetful(paths).advance(tokens)
            rows = torch.tensor(list(new.values()))
            model = self._tree.model
            log_probs, step = model.causal.next_step(model.prompt_keys, self._tree.tails(paths[:, rows]), tokens[rows])
            if not self._trees.add(self._tree, list(new), step, log_probs):  # others were quicker
                return self._forgetful(paths).advance(tokens)
        nodes = torch.tensor([self._tree.child(key) for key in keys])
        all_new = log_probs if len(new) == len(keys) else None
        return _RememberedCursor(self._trees, self._tree, torch.cat([paths, nodes[None]]), all_new)

    def _forgetful(self, paths: Tensor) -> Cursor:
        """A cursor of the model itself over rows with these paths, which is only good for reading on."""
        model = self._tree.model
        return PrefixCursor(
            model.causal, model.prompt_keys, self._tree.tails(paths).compacted(), paths.new_empty(paths.shape[1], 0)
        )


def _last(paths: Tensor) -> Tensor:
    """Long[batch], the node of each row."""
    return paths[-1] if len(paths) else torch.full((paths.shape[1],), ROOT)
