"""The Circuit: a constraint in a form where mass, sampling, maxima, marginals and counts are one pass each.

Mostly it is a left-to-right reading, and has nodes when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from locore.kernel import plugins
from locore.kernel.circuits.nodes import MAX_NODES, Nodes, Weights
from locore.kernel.circuits.reading import LeftToRight
from locore.kernel.errors import InvalidArgument
from locore.kernel.limits import Limits
from locore.kernel.numerics import NEG_INF, make_generator
from locore.kernel.plugins import cached_property
from locore.kernel.tokenizer import Tokenizer

SMALL_VOCABULARY = 64  # up to it weights are always read in double precision, which costs next to nothing
Distributions = Tensor | Callable[[int], Tensor]


@dataclass(frozen=True, eq=False, repr=False)
class Circuit(plugins.Pictured):
    """A smooth, deterministic, decomposable circuit over `length` categorical positions.

    Distributions come as `log_probs`: Float[batch, length, vocab], natural logs; they may be unnormalised, and −inf is
    impossible. A function from a position to Float[batch, vocab] serves as well, so that a large vocabulary need not be held
    for all positions at once; it is called again for the same position and must then say the same. Sums are in float64.

    What needs its nodes (mass, count, samples, maxima, marginals, drawings, sizes) raises `BudgetExceeded` where they are too
    many: of a grammar or a large schema, say, whose states are made only when a text reaches them.

    Attributes:
        reader: the left-to-right reading, where there is one (samplers that go token by token need it).
        written: the nodes, where a compiler has written them; otherwise they are derived from the reading when asked for.
        structured: whether nodes of equal scope split it in the same way (structured decomposability).
        relaxed: whether sequences that violate the constraint may count as satisfying it. Mass, count and look-ahead are then
            upper bounds, and what is drawn has to be checked by `constraint.evaluate`.
        limits: what deriving the nodes may use.
    """

    reader: LeftToRight | None = None
    written: Nodes | None = None
    structured: bool = True
    relaxed: bool = False
    limits: Limits = field(default_factory=Limits)
    write: ClassVar[staticmethod[[LeftToRight], Nodes]]  # set by who can write the nodes of a reading down

    @cached_property
    def chain(self) -> Nodes:
        """The nodes.

        Raises:
            BudgetExceeded: the reading has too many states, or they more nodes than the limits allow.
        """
        if self.written is not None:
            return self.written
        assert self.reader is not None
        plugins.load(plugins.NODES)
        with self.limits.enforced():
            own = self.reader.nodes()
            return Circuit.write(self.reader) if own is None else own

    @property
    def _form(self) -> Nodes | LeftToRight:
        """Whichever form it has without any work."""
        form = self.reader if self.written is None else self.written
        assert form is not None
        return form

    @property
    def length(self) -> int:
        """Number of positions, n."""
        return self._form.length

    @property
    def token_class(self) -> Tensor:
        """Long[vocab], the class of each token: of a partition at least as fine as what the constraint can see."""
        return self._form.token_class

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return self._form.num_classes

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return len(self.token_class)

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.token_class.device

    def __repr__(self) -> str:
        return f"Circuit(length={self.length}, vocab_size={self.vocab_size}, num_classes={self.num_classes})"

    @cached_property
    def num_nodes(self) -> int:
        """Or nodes and leaves, unrolled over positions, reachable and satisfiable."""
        return self.chain.size()[0]

    @cached_property
    def num_edges(self) -> int:
        """Arcs into Or nodes (And nodes with their two factors), counted like the nodes."""
        return self.chain.size()[1]

    def dot(self, tokenizer: Tokenizer | None = None, max_nodes: int = MAX_NODES) -> str:
        """The circuit in Graphviz's language, for `dot -Tsvg`; a notebook shows a picture of a small circuit by itself.

        Args:
            tokenizer: spells the tokens; without it, or if it has no text, leaves name token ids.
            max_nodes: a larger circuit is not drawn, as nobody reads such drawings.

        Raises:
            BudgetExceeded: it has more nodes.
            InvalidArgument: the tokenizer is of another vocabulary.
        """
        drawn = self.picture(tokenizer, max_nodes)
        assert drawn is not None
        return drawn.dot()

    def count(self) -> int:
        """Exact number of sequences that satisfy the constraint, of any size; of those that a relaxed circuit lets through."""
        return self.chain.count()

    def log_mass(self, log_probs: Distributions) -> Tensor:
        """log Σ_y Π_i exp(log_probs[i, y_i]) over all y that satisfy the constraint: f64[batch]."""
        return self.chain.log_mass(self._checked(log_probs))

    def sample(self, log_probs: Distributions, seed: int | torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw one y ~ p̃(· | α) for each distribution, exactly (top-down, a coin at each Or).

        Returns:
            tokens Long[batch, length] and log p̃(tokens | α), f64[batch].

        Raises:
            ZeroWeights: a distribution gives the constraint no mass.
        """
        tokens, log_prob, _ = self.sample_with_mass(log_probs, seed)
        return tokens, log_prob

    def sample_with_mass(
        self, log_probs: Distributions, seed: int | torch.Generator | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `sample`, and from the same upward pass `log_mass`."""
        weights = self._checked(log_probs)
        tokens, weight, log_mass = self.chain.draw(weights, make_generator(seed, self.device))
        return tokens, weight - log_mass, log_mass

    def most_probable(self, log_probs: Distributions) -> tuple[Tensor, Tensor]:
        """The most probable y that satisfies the constraint, and its log p̃(y | α); shapes as in `sample`."""
        tokens, weight, log_mass = self.chain.best(self._checked(log_probs))
        return tokens, weight - log_mass

    def marginals(self, log_probs: Tensor) -> Tensor:
        """log p̃(y_i = v | α): f64[batch, length, vocab].

        Raises:
            ZeroWeights: a distribution gives the constraint no mass.
        """
        weights = self._checked(log_probs)
        factors = self.chain.log_factors(weights)
        return torch.stack([weights(i).double() for i in range(self.length)], 1).add_(factors)

    def accepts(self, tokens: Tensor) -> Tensor:
        """Bool[batch]: which of Long[batch, length] satisfy the constraint."""
        tokens = self._token_ids(tokens)
        if tokens.ndim != 2 or tokens.shape[1] != self.length:
            raise InvalidArgument(f"accepts: tokens must have shape (batch, {self.length}); got {tuple(tokens.shape)}.")
        if self.reader is not None:
            return self.reader.accepting(self.reader.read(tokens))
        shape = (*tokens.shape, self.vocab_size)
        single = torch.full(shape, NEG_INF, dtype=torch.float64, device=self.device)
        return self.log_mass(single.scatter_(-1, tokens[..., None], 0.0)) > NEG_INF

    def allowed(self, prefix: Tensor) -> Tensor:
        """Tokens that may come after a prefix so that the whole can still be completed.

        For a text that grows token by token, `circuit.reader` does not read the prefix again.

        Args:
            prefix: Long[time] or Long[batch, time], time < length.

        Returns:
            Bool[vocab] or Bool[batch, vocab].
        """
        prefix = self._token_ids(prefix)
        rows = prefix[None] if prefix.ndim == 1 else prefix
        if rows.shape[1] >= self.length:
            raise InvalidArgument(
                f"allowed: the prefix has {rows.shape[1]} tokens, the circuit speaks about {self.length}; "
                "give a shorter prefix or compile for a greater length."
            )
        if self.reader is None:
            result = self.chain.allowed(rows)
        else:
            result = self.reader.allowed_tokens(rows.shape[1], self.reader.read(rows))
        return result[0] if prefix.ndim == 1 else result

    def to(self, device: torch.device | str) -> Circuit:
        """The same circuit on a device."""
        reader = None if self.reader is None else self.reader.to(device)
        return replace(self, reader=reader, written=None if self.written is None else self.written.to(device))

    def _token_ids(self, tokens: Tensor) -> Tensor:
        ids = torch.as_tensor(tokens, device=self.device)
        if ids.numel() and (ids.is_floating_point() or not bool(((ids >= 0) & (ids < self.vocab_size)).all())):
            raise InvalidArgument(f"token ids must be whole numbers in 0..{self.vocab_size - 1} for this circuit.")
        return ids.long()

    def _checked(self, log_probs: Distributions) -> Weights:
        """The checked weights of a position, Float[batch, vocab] on this device."""
        if not isinstance(log_probs, Tensor):
            if callable(log_probs):
                return lambda position: self._weights(log_probs(position), f" of position {position}", (self.vocab_size,))
            raise InvalidArgument(
                f"log_probs must be a tensor (batch, {self.length}, {self.vocab_size}), or a function from a position to a "
                f"tensor (batch, {self.vocab_size}); got {type(log_probs).__name__}."
            )
        weights = self._weights(log_probs, "", (self.length, self.vocab_size))
        return lambda position: weights[:, position]

    def _weights(self, weights: Tensor, where: str, expected: tuple[int, ...]) -> Tensor:
        """Checked: Float[batch, *expected]."""
        if weights.ndim != 1 + len(expected) or tuple(weights.shape[1:]) != expected:
            shape = ", ".join(map(str, expected))
            raise InvalidArgument(f"log_probs{where} must have shape (batch, {shape}); got {tuple(weights.shape)}.")
        if not weights.is_floating_point() or self.vocab_size <= SMALL_VOCABULARY:
            weights = weights.double()
        top = weights.max() if weights.numel() else weights.new_zeros(())
        if not bool(top < float("inf")):  # also catches NaN
            raise InvalidArgument("log_probs holds NaN or +inf; give natural logs of finite weights, −inf for zero.")
        return weights.to(self.device)
