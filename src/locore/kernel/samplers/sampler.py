"""What samplers share: their call, how a budget buys particles, and the loop "mask, draw, step, advance" over prefixes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor

from locore.kernel.certain import can_only_return
from locore.kernel.circuits.circuit import Circuit
from locore.kernel.circuits.reading import LeftToRight
from locore.kernel.errors import BudgetExceeded, InvalidArgument
from locore.kernel.evidence.record import Bounds, Draws, Guarantee
from locore.kernel.models.cursor import Cursor, SharedRows, advance_together, scores_of
from locore.kernel.models.language_model import LanguageModel
from locore.kernel.numerics import NEG_INF, exp_, is_end, row_slices


class Promises:
    """What is true of all objects of a class of samplers. A sampler that does not say so is taken to promise what stands here.

    Attributes:
        guarantee: of its draws; only proper weights can be multiplied by potentials.
        reads_prefixes: does it weigh prefixes by what the model says of them, normalised or not, so that a product of models
            can stand in the model's place?
        remedy: what to do where its draws are not to be trusted; "" for more particles.
    """

    guarantee: ClassVar[Guarantee] = "proper"
    reads_prefixes: ClassVar[bool] = False
    remedy: ClassVar[str] = ""

    def most_prefixes(self, num_particles: int) -> float | None:
        """At each position, that it reads where no budget is set; None where nothing limits them beforehand."""
        return None

    def times_through(self, model: LanguageModel) -> int:
        """How often it goes through the positions of a text of this model, which takes a pass for each."""
        return 1


def promised(sampler: Sampler, what: Literal["guarantee", "reads_prefixes", "remedy", "most_prefixes", "times_through"]) -> Any:
    """What a sampler promises, also one of somebody who has never heard of `Promises`."""
    return getattr(sampler, what, getattr(Promises(), what))


class Sampler(Protocol):
    """An algorithm with its settings: a frozen dataclass, which may be a `Promises`."""

    @property
    def name(self) -> str:
        """What the report calls it."""

    def __call__(
        self, model: LanguageModel, circuit: Circuit, num_particles: int, budget: int | None, generator: torch.Generator
    ) -> Draws:
        """Sample p(y | α).

        Args:
            model: the prompted model p.
            circuit: the constraint α, compiled over the length wanted.
            num_particles: how many weighted sequences are asked for.
            budget: LM tokens that may be spent; None for the sampler's own limit.
            generator: source of all randomness.

        Raises:
            ZeroWeights: no sequence of positive weight was found.
            BudgetExceeded: the budget does not pay for a single particle.
        """


class Ahead(Protocol):
    """Log of the mass to go, up to a constant: what a sampler may be steered by; weights do not depend on it."""

    def of(self, prefixes: Prefixes) -> Tensor:
        """f64[num]: of each prefix. −inf is a promise that nothing is to come; such prefixes are dropped."""


class Lessons(Ahead, Protocol):
    """What finished texts teach of prefixes."""

    def add(self, tokens: Tensor, log_weights: Tensor) -> None:
        """Finished sequences Long[num, length] with their log weights f64[num]."""


class Worth(Protocol):
    """What finished texts are worth beyond α, φ(y), for samplers whose field `worth` it is; `locore.potentials.Scorer` is one.

    A sampler that is given one may keep more than it was asked for, so that what is worth little can be thinned out afterwards.
    Its draws still have the weights of p(y | α): they are multiplied by φ where the run ends.
    """

    @property
    def log_most(self) -> float:
        """Log of what φ cannot exceed; infinite where that is not known."""

    @property
    def ahead(self) -> Ahead | None:
        """What is known of beginnings."""

    def of(self, tokens: Tensor) -> Tensor:
        """f64[num]: log φ of finished sequences Long[num, length]."""

    def lessons(self) -> Lessons:
        """Of a run in which no text has been finished yet, on top of what is known of beginnings."""


def affordable(num_particles: int, price: int, budget: int | None, what: str) -> int:
    """How many particles at `price` LM tokens each the budget pays for, at most the number asked for.

    Raises:
        BudgetExceeded: not even one.
    """
    if num_particles < 1:
        raise InvalidArgument(f"num_particles must be at least 1, got {num_particles}.")
    if budget is None or price == 0:
        return num_particles
    if price > budget:
        raise BudgetExceeded(
            f"one particle of {what} costs up to {price:,} LM tokens, the budget is {budget:,}; raise the budget, ask for "
            "fewer tokens, or use a cheaper kernel or sampler."
        )
    return min(num_particles, budget // price)


class HasReading(Protocol):
    """A circuit, as far as samplers go that read it from left to right."""

    @property
    def reader(self) -> LeftToRight | None:
        """See `Circuit`."""

    @property
    def length(self) -> int:
        """Number of positions, n."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""


def left_to_right(circuit: HasReading) -> LeftToRight:
    """The circuit's left-to-right reading, which samplers that go token by token need."""
    if circuit.reader is None:
        raise InvalidArgument(
            "this circuit has no left-to-right reading (it was compiled for a vtree); leave vtree out, or use "
            "sampler='lcr' or 'rejection'."
        )
    return circuit.reader


class PlainPrefixes:
    """Prefixes of one length, whatever the constraint. The model reads them when it is first asked.

    Attributes:
        model: p.
        tokens: Long[num, time].
        token_scores: f64[num, time], log p(y_t | y_<t).
    """

    def __init__(
        self,
        model: LanguageModel,
        tokens: Tensor,
        token_scores: Tensor,
        before: Cursor | None = None,
        rows: Tensor | None = None,
    ) -> None:
        """Not read yet: Long[num] rows of a cursor before their last token, None for row by row."""
        self.model, self.tokens, self.token_scores = model, tokens, token_scores
        self._before, self._rows = before, rows
        self._cursor: Cursor | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def position(self) -> int:
        """Of the next token: how many there are."""
        return self.tokens.shape[1]

    @property
    def log_mass(self) -> Tensor:
        """f64[num]: log p(prefix)."""
        return self.token_scores.sum(-1)

    @property
    def cursor(self) -> Cursor:
        """The model's memory of them."""
        if self._cursor is None and self._before is not None:
            self._cursor = self._before.advance(self.tokens[:, -1], self._rows)
            self._before = None  # nobody needs it any more, and it may be large
        elif self._cursor is None:
            self._cursor = self.model.begin(len(self))
            for token in self.tokens.T:  # forgotten, and read again
                self._cursor = self._cursor.advance(token)
        return self._cursor

    @property
    def log_probs(self) -> Tensor:
        """Float[num, vocab] on the model's device: log p(· | prefix)."""
        return self.cursor.log_probs

    def going(self) -> Tensor:
        """Bool[num]: has the text not ended, so that its next distribution has to be asked for?"""
        return ~is_end(self.tokens, self.model.tokenizer.eos_ids).any(-1)

    def _longer(self, row: Tensor | None, token: Tensor) -> tuple[Tensor, Tensor, Cursor]:
        """Tokens and scores with Long[children] tokens more, and what read them so far."""
        every = torch.arange(len(self)) if row is None else row
        score = scores_of(self.log_probs, token, every)
        tokens = torch.cat([self.tokens[every], token[:, None]], 1)
        return tokens, torch.cat([self.token_scores[every], score[:, None]], 1), self.cursor

    def followed_by(self, token: Tensor) -> PlainPrefixes:
        """Each with one token more, Long[num]."""
        return PlainPrefixes(self.model, *self._longer(None, token))


def read_together(parts: Sequence[PlainPrefixes]) -> list[float]:
    """Read prefixes of one length that go on from the same cursor, or from nothing, in one pass.

    Returns:
        The LM tokens that each answers for: its share of the rows that the model reads.
    """
    if parts[0].position == 0:
        root = parts[0].model.begin(1)
        for part in parts:
            part._cursor = SharedRows(root, torch.zeros(len(part), dtype=torch.long))
        return [0.0] * len(parts)
    wanted = []
    for part in parts:
        assert isinstance(part._before, SharedRows)
        rows = torch.arange(len(part)) if part._rows is None else part._rows
        wanted.append((part._before, part.tokens[:, -1], rows))
    read = []
    for part, shared in zip(parts, advance_together(wanted), strict=True):
        part._cursor, part._before = shared, None
        read.append(shared.rows[part.going()])
    rows_read, all_wanted = len(torch.unique(torch.cat(read))), sum(map(len, read))
    return [rows_read * len(own) / max(1, all_wanted) for own in read]


class Prefixes(PlainPrefixes):
    """Prefixes, each with the constraint's state after it.

    Attributes:
        reader: of the constraint's circuit.
        states: Long[num].
    """

    def __init__(
        self,
        model: LanguageModel,
        reader: LeftToRight,
        tokens: Tensor,
        token_scores: Tensor,
        states: Tensor,
        before: Cursor | None = None,
        rows: Tensor | None = None,
    ) -> None:
        super().__init__(model, tokens, token_scores, before, rows)
        self.reader, self.states = reader, states

    @classmethod
    def start(cls, model: LanguageModel, reader: LeftToRight, num: int = 1) -> Prefixes:
        """The empty prefix, `num` times."""
        scores = torch.zeros(num, 0, dtype=torch.float64)
        return cls(model, reader, scores.long(), scores, reader.initial(num))

    @property
    def are_complete(self) -> bool:
        """Is there no next token?"""
        return self.position == self.reader.length

    def allowed(self, look_ahead: bool = True) -> Tensor:
        """Bool[num, vocab]: tokens that α can still be completed after, within the length or (no look-ahead) at some length."""
        return self.reader.allowed_tokens(self.position, self.states, look_ahead)

    def masked(self, look_ahead: bool = True) -> Tensor:
        """f64[num, vocab] on the CPU: log p(· | prefix) of allowed tokens, −inf elsewhere."""
        rows = torch.empty(len(self), self.model.vocab_size, dtype=torch.float64)
        for part, logs in self._masked_parts(look_ahead):
            rows[part] = logs.cpu()
        return rows

    def masses(self, look_ahead: bool = True) -> NextTokens:
        """How probable each token is that `allowed` says; fewer passes over the vocabulary than `masked` and its sums."""
        dtype = torch.promote_types(self.log_probs.dtype, torch.float32)  # as precise as the model; sums are f64
        masses = torch.empty(len(self), self.model.vocab_size, dtype=dtype, device=self.log_probs.device)
        peaks = masses.new_zeros(len(masses))
        for part, logs in self._masked_parts(look_ahead):
            peaks[part] = logs.amax(-1)
            peaks[part].masked_fill_(peaks[part] == NEG_INF, 0.0)  # nothing is allowed
            exp_(masses[part].copy_(logs).sub_(peaks[part, None]))
        return NextTokens(masses, peaks.double())

    def _masked_parts(self, look_ahead: bool = True) -> Iterator[tuple[slice, Tensor]]:
        """Some rows at a time, their logs of the allowed tokens on the model's device."""
        log_probs = self.log_probs
        distinct, which = torch.unique(self.states, return_inverse=True)
        allowed = self.reader.log_allowed(self.position, distinct, log_probs.device, look_ahead)
        which = which.to(log_probs.device)
        for part in row_slices(log_probs):
            yield part, log_probs[part] + allowed[which[part]]

    def extended(self, row: Tensor | None, token: Tensor, look_ahead: bool = True) -> Prefixes:
        """One more token each: Long[children] after the prefixes Long[children], by default after each its own."""
        tokens, scores, cursor = self._longer(row, token)
        states = self.states if row is None else self.states[row]
        after = self.reader.step(self.position, states, token, look_ahead)
        return Prefixes(self.model, self.reader, tokens, scores, after, cursor, row)

    def forgotten(self) -> Prefixes:
        """The same, without what the model remembers of them."""
        return Prefixes(self.model, self.reader, self.tokens, self.token_scores, self.states)

    def settle(self) -> None:
        """Say that what is returned begins with one of them, to whoever listens."""
        can_only_return(self.tokens, self.reader, self.states)

    def padded(self) -> Prefixes:
        """These, whose texts have all ended, up to the last position: a horizon far behind the end of a text costs nothing."""
        missing = self.reader.length - self.position
        padding = torch.full((len(self), missing), self.model.tokenizer.eos_ids[0])
        states = self.states
        for position in range(self.position, self.reader.length):
            states = self.reader.step(position, states, padding[:, 0])
        tokens, scores = torch.cat([self.tokens, padding], 1), torch.nn.functional.pad(self.token_scores, (0, missing))
        return Prefixes(self.model, self.reader, tokens, scores, states)

    def at(self, which: Tensor) -> Prefixes:
        """Some of them, Long or Bool."""
        index = torch.arange(len(self))[which]
        rows = index if self._rows is None else self._rows[index]
        tokens, scores, states = self.tokens[which], self.token_scores[which], self.states[which]
        some = Prefixes(self.model, self.reader, tokens, scores, states, self._before, rows)
        if self._cursor is not None:
            some._cursor = SharedRows(self._cursor, index)
        return some

    def split(self, size: int) -> list[Prefixes]:
        """In parts of at most this size; none of no prefixes."""
        return [self.at(part) for part in torch.split(torch.arange(len(self)), size) if len(part)]


@dataclass(frozen=True, eq=False)
class NextTokens:
    """Masses of the tokens that may follow distinct prefixes, relative to the likeliest of each.

    They are on the model's device; what is asked of them is on the CPU.

    Attributes:
        masses: Float[prefixes, vocab]; 0 where α cannot be completed.
        peaks: f64[prefixes], log p of the likeliest; 0 where no token is possible.
    """

    masses: Tensor
    peaks: Tensor

    @property
    def log_mass(self) -> Tensor:
        """f64[prefixes]: log of the sum; −inf where no token is possible."""
        return (self.peaks + self.masses.sum(-1, dtype=torch.float64).log()).cpu()

    def draw(self, prefix: Tensor, uniforms: Tensor) -> Tensor:
        """A token for each of Long[particles] prefixes of positive mass, by inversion of f64[particles] in [0, 1)."""
        order = prefix.argsort(stable=True)
        row, count = prefix[order], torch.bincount(prefix, minlength=len(self.masses))
        rank = torch.arange(len(row)) - (count.cumsum(0) - count)[row]
        points = torch.zeros(len(self.masses), int(count.max()), dtype=torch.float64)
        points[row, rank] = uniforms[order]
        points = points.to(self.masses.device)
        tokens = torch.empty(points.shape, dtype=torch.long, device=points.device)
        for part in row_slices(self.masses):
            cumulated = self.masses[part].cumsum(-1, dtype=torch.float64)
            tokens[part] = torch.searchsorted(cumulated, points[part] * cumulated[:, -1:], right=True)
        return torch.empty_like(prefix).index_copy_(0, order, tokens.cpu()[row, rank])

    def left_by(self, row: Tensor, token: Tensor) -> Tensor:
        """f64[prefixes]: log of the mass without Long[children] tokens of these rows. These lose their masses for good."""
        self.masses[row.to(self.masses.device), token.to(self.masses.device)] = 0.0
        return self.log_mass


class UnreadMass:
    """What is certain of p(α) after a reading of prefixes from left to right.

    Before the last token prefixes are left unread: x followed by an allowed v that nobody took. After the last one it is known
    which sequences satisfy α and how probable they are, whether they are kept or not. With K the probability of these and U
    that of what was left, K ≤ p(α) ≤ K + U. All terms are positive, so nothing cancels however rare α is.
    """

    def __init__(self) -> None:
        self._log_left = torch.tensor(NEG_INF, dtype=torch.float64)

    def add(self, log_left: Tensor) -> None:
        """What was left unread: Float[…] logs of masses."""
        self._log_left = torch.logaddexp(self._log_left, torch.logsumexp(log_left.flatten(), 0))

    def bounds(self, log_joint: Tensor) -> Bounds:
        """Of log p(α), given the prefixes before the last token and the tokens with which they satisfy α, or their sums."""
        low = torch.logsumexp(log_joint.flatten(), 0)
        return float(low), float(torch.logaddexp(low, self._log_left))
