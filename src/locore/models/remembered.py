"""A model that evaluates no context twice."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from locore.chat import Prompt
from locore.ending import live_lengths
from locore.errors import InvalidArgument
from locore.models.base import LanguageModel
from locore.models.cursor import Cursor
from locore.models.huggingface import HuggingFaceModel
from locore.models.keyvalues import Step
from locore.models.tree import ROOT, Key, Paths, Tree, Trees
from locore.models.validation import positive, row_indices, within_context


class Remembered(LanguageModel):
    """A model that keeps what it evaluated step by step, for all who ask again behind the same prompt.

    The numbers are those of the model itself, up to rounding in another batch. Cursors evaluate only contexts that are new;
    `log_probs` and `token_scores` look up sequences of which all contexts are there, and leave the others to the model, as
    `neighbours` does. Prompted forms share one memory. When it is full, prompts that were not asked for longest are forgotten
    first; then nothing new is kept.

    Attributes:
        base: the model.
    """

    def __init__(
        self,
        base: HuggingFaceModel,
        max_bytes: int = 2**31,
        keeps: Literal["log_probs", "hidden"] = "log_probs",
        trees: Trees | None = None,
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
        self.base = base
        self.tokenizer = base.tokenizer
        self.full_support = base.full_support
        self._trees = Trees(positive(max_bytes, "max_bytes"), keeps == "hidden") if trees is None else trees

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

    def fingerprint(self) -> str:
        """That of the base."""
        return self.base.fingerprint()

    def neighbours(self, tokens: Tensor, candidates: Tensor) -> Tensor:
        """As the base."""
        return self._tree.model.neighbours(tokens, candidates)

    def _require_length(self, length: int) -> None:
        self.base._require_length(length)

    @property
    def _tree(self) -> Tree:
        return self._trees.of(self.base)

    def _begin(self, batch: int) -> Cursor:
        return RememberedCursor(self._trees, self._tree, torch.empty(0, batch, dtype=torch.int64))

    def _log_probs(self, tokens: Tensor) -> Tensor:
        return self._looked_up(tokens, lambda tree, nodes, _: tree.log_probs(nodes), lambda model, rows: model._log_probs(rows))

    def _token_scores(self, tokens: Tensor) -> Tensor:
        return self._looked_up(tokens, Tree.token_scores, lambda model, rows: model._token_scores(rows))

    def _looked_up(
        self,
        tokens: Tensor,
        known: Callable[[Tree, Tensor, Tensor], Tensor],
        unknown: Callable[[HuggingFaceModel, Tensor], Tensor],
    ) -> Tensor:
        """One result for each row: by the tree where all its contexts are there, else by the model."""
        tree = self._tree
        nodes, found = tree.nodes(tokens, live_lengths(tokens, self.tokenizer.eos_ids))
        if bool(found.all()):
            return known(tree, nodes, tokens)
        others = unknown(tree.model, tokens[~found])
        result = others.new_empty(len(tokens), *others.shape[1:])
        result[found], result[~found] = known(tree, nodes[found], tokens[found]), others
        return result


class RememberedCursor(Cursor):
    """A cursor whose rows are nodes of a tree; rows with equal histories are one node."""

    def __init__(self, trees: Trees, tree: Tree, paths: Tensor, log_probs: Tensor | None = None) -> None:
        """Rows that have read the tokens of `paths`, Long[length, batch] nodes of the tree; what comes next, if it is there."""
        self._trees = trees
        self._tree = tree
        self._paths = paths
        self._given = log_probs

    @cached_property
    def log_probs(self) -> Tensor:
        """Float[batch, vocab]: log p of the next token after the tokens fed so far."""
        return self._tree.log_probs(_last(self._paths)) if self._given is None else self._given

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> Cursor:
        """Feed one token to each row that goes on; see `Cursor.advance`. Once memory is full, one that remembers nothing."""
        paths = self._paths[:, row_indices(parents, len(tokens), self._paths.shape[1])]
        within_context(len(self._tree.model.prompt_ids) + len(paths), 1, self._tree.model.causal.context)
        keys = list(zip(_last(paths).tolist(), tokens.tolist(), strict=True))
        new = {key: row for row, key in enumerate(keys) if self._tree.child(key) is None}
        log_probs = None
        if new:
            rows = torch.tensor(list(new.values()))
            log_probs, step = self._tree.model.next_step(self._tail(paths[:, rows]), tokens[rows])
            if not self._trees.add(self._tree, list(new), step, log_probs):
                return self._forgetful(paths, keys, list(new), step, log_probs)
        nodes = torch.tensor([self._tree.child(key) for key in keys])
        all_new = log_probs if len(new) == len(keys) else None
        return RememberedCursor(self._trees, self._tree, torch.cat([paths, nodes[None]]), all_new)

    def _tail(self, paths: Tensor) -> Paths:
        return Paths(self._tree, paths.to(self._tree.model.causal.device))

    def _forgetful(self, paths: Tensor, keys: list[Key], new: list[Key], step: Step, log_probs: Tensor) -> Cursor:
        """A cursor of the model itself, over rows of which some are new."""
        known = [key for key in dict.fromkeys(keys) if self._tree.child(key) is not None]
        if known:
            nodes = torch.tensor([self._tree.child(key) for key in known])
            step = Step.joined([step, self._tree.step(nodes)])
            log_probs = torch.cat([log_probs, self._tree.log_probs(nodes)])
        place = {key: index for index, key in enumerate([*new, *known])}
        places = torch.tensor([place[key] for key in keys])
        return self._tree.model.cursor(self._tail(paths).copied().then(step, places), log_probs[places])


def _last(paths: Tensor) -> Tensor:
    """Long[batch], the node of each row."""
    return paths[-1] if len(paths) else torch.full((paths.shape[1],), ROOT)
