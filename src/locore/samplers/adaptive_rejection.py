"""Rejection that remembers what failed: ARS, and CARS (Parys et al. 2025, arXiv 2510.01902).

A trie holds the prefixes that were visited and the set F_k of sequences known, before attempt k, to
violate α: those below a prefix that cannot be completed. Attempt k draws y ~ p(· | not F_k), and
M_k = 1 − p(F_k) is known exactly. F_k holds violations only, so y is accepted with probability
Z/M_k, Z = p(α), and is then an exact draw from p(· | α), whatever happened before.

**Evidence, run until K + 1 are accepted.** Plain rejection would first draw from F_k, a geometric
number of times, and fail; here these draws are skipped. With G_k ~ Geometric(M_k) the τ attempts
stand for T = Σ_k G_k draws of plain rejection, for which K/(T−1) is unbiased and independent of
what was accepted; both remain when it is averaged over the G_k. From 1/m = ∫_0^1 s^(m−1) ds and
E s^G_k = M_k s / (1 − (1−M_k) s), with x = 1/s − 1,

    Ẑ = K · E[1/(T−1) | M_1 … M_τ] = K · ∫_0^∞ Π_k (1 + x/M_k)^(−1) dx,

which is K/(τ−1) if nothing is remembered (all M_k = 1), and Z itself in the limit (all M_k = Z).

**Evidence, run for a fixed number T of attempts.** M_k is known before attempt k, so the mean of
M_k 1[y_k ⊨ α] f(y_k), given what happened before, is Σ_y p(y) 1[y ⊨ α] f(y): an accepted sequence
weighs w = M_k, any other 0.

Always Σ of p over the distinct accepted ≤ Z ≤ M_k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from locore.cache import Kept
from locore.circuits import DEAD, Circuit, LeftToRight
from locore.evidence import Draws, Record
from locore.kernel.errors import InvalidArgument, ZeroWeights
from locore.kernel.evidence.bounds import betting_bounds
from locore.kernel.evidence.record import log_total
from locore.kernel.numerics import NEG_INF, categorical
from locore.kernel.samplers.sampler import affordable, left_to_right
from locore.models import Cursor, LanguageModel

Records = Literal["failed", "all", "masked"]
KEPT_CURSORS = 256  # with their caches; a prefix whose cursor was dropped is read again
MEMORY_NUMBERS = 2**26  # probabilities that are remembered; later prefixes are forgotten after their attempt
ATTEMPTS_PER_PARTICLE = 256  # the limit where the caller sets no budget
NO_ATTEMPT = "the attempt met what cannot satisfy the constraint"
STEP, REACH = 0.25, 37.0  # of the quadrature, in nats: relative error below 1e-12
QUADRATURE_NUMBERS = 2**20


@dataclass(frozen=True, eq=False)
class Attempt:
    """One way from the root.

    Attributes:
        accepted: does it satisfy the constraint?
        tokens: up to and with the one that failed.
        scores: log p of each.
        mass: what was not known to fail when it began; it was drawn from p given that.
        lm_tokens: next-token distributions after at least one token that it used, read now or
            before.
    """

    accepted: bool
    tokens: tuple[int, ...]
    scores: tuple[float, ...]
    mass: float
    lm_tokens: int


@dataclass(eq=False)
class _Node:
    """A prefix.

    Attributes:
        parent: None at the root.
        token: the last token.
        prob: p(token | parent).
        state: Long[1], of the constraint's reader.
        in_trie: is it part of the trie, and not forgotten after its attempt?
        open: f64[vocab], p(v | prefix) times the share below that is not known to fail; None before
            the first visit.
    """

    parent: _Node | None
    token: int
    prob: float
    state: Tensor
    in_trie: bool = True
    open: Tensor | None = None


class Trie:
    """Attempts to draw a sequence, each from the model given that it is not known to fail.

    What an attempt records: "failed", the prefix that failed; "all", every token that cannot follow
    a prefix it visits, after having drawn from that prefix; "masked" the same before drawing, so
    that no attempt fails and none is an exact draw.
    """

    def __init__(self, model: LanguageModel, reader: LeftToRight, records: Records) -> None:
        self._model = model
        self._reader = reader
        self._records = records
        self._root = _Node(None, -1, 1.0, reader.initial(1))
        self._children: dict[tuple[_Node, int], _Node] = {}  # not in nodes, which would then wait for the garbage collector
        self._cursors: Kept[_Node, Cursor] = Kept(KEPT_CURSORS)
        self._numbers = 0

    @property
    def remaining(self) -> float:
        """Probability of what is not known to fail: an upper bound of p(α)."""
        return 1.0 if self._root.open is None else float(self._root.open.sum())

    def attempt(self, generator: torch.Generator) -> Attempt:
        """Draw one sequence, and record what it shows."""
        length, eos_ids = self._reader.length, self._model.tokenizer.eos_ids
        uniforms = torch.rand(length, generator=generator, dtype=torch.float64)
        node, mass, alive = self._root, self.remaining, True
        tokens: list[int] = []
        scores: list[float] = []
        lm_tokens, ended = 0, False
        for position in range(length):
            fresh, choices = self._visit(node, position)
            lm_tokens += position > 0 and not ended
            if not bool((choices > 0).any()):
                alive = False
                break
            token = int(categorical(choices.log()[None], uniforms[position, None]))
            child = self._child(node, position, token)
            ended |= token in eos_ids
            tokens.append(token)
            scores.append(math.log(child.prob))
            alive = int(child.state) != DEAD
            self._record(node, position, fresh, None if alive else token)
            if not alive:
                break
            node = child
        self._back_up(node)
        return Attempt(alive, tuple(tokens), tuple(scores), mass, lm_tokens)

    def _visit(self, node: _Node, position: int) -> tuple[bool, Tensor]:
        """Whether the node is new, and f64[vocab], what to draw from."""
        if node.open is not None:
            return False, node.open
        node.open = self._cursor(node).log_probs[0].cpu().double().exp()
        if self._records == "masked":
            self._mask(node, position)
        self._numbers += len(node.open) if node.in_trie else 0
        return True, node.open

    def _child(self, node: _Node, position: int, token: int) -> _Node:
        """The child of a visited node; it is remembered if it can be completed and there is room."""
        if (node, token) in self._children:
            return self._children[node, token]
        assert node.open is not None
        state = self._reader.step(position, node.state, torch.tensor([token]))
        room = self._numbers + self._model.vocab_size <= MEMORY_NUMBERS
        in_trie = node.in_trie and room and int(state) != DEAD
        child = _Node(node, token, float(node.open[token]), state, in_trie)
        if child.in_trie:
            self._children[node, token] = child
        return child

    def _record(self, node: _Node, position: int, fresh: bool, failed: int | None) -> None:
        assert node.open is not None
        if fresh and self._records == "all":
            self._mask(node, position)
        if failed is not None:
            node.open[failed] = 0.0

    def _mask(self, node: _Node, position: int) -> None:
        assert node.open is not None
        allowed = self._reader.allowed_tokens(position, node.state)[0]
        node.open[~allowed] = 0.0

    @staticmethod
    def _back_up(node: _Node) -> None:
        """Tell the ancestors what is open below; what is not remembered must stay open."""
        while node.parent is not None:
            parent = node.parent
            if node.in_trie and node.open is not None:
                assert parent.open is not None
                parent.open[node.token] = node.prob * node.open.sum()
            node = parent

    def _cursor(self, node: _Node) -> Cursor:
        """The cursor after a prefix, from the nearest ancestor whose cursor is still there."""
        unread = []
        while (cursor := self._cursors.get(node)) is None and node.parent is not None:
            unread.append(node)
            node = node.parent
        cursor = self._cursors.put(node, self._model.begin(1)) if cursor is None else cursor
        for child in reversed(unread):
            cursor = self._cursors.put(child, cursor.advance(torch.tensor([child.token])))
        return cursor


@dataclass(frozen=True)
class AdaptiveRejection:
    """Exact independent draws from p(· | α), the cheaper the more has failed before.

    Without a budget it runs until one sequence more than asked for is accepted, and returns the
    others with equal weights. With a budget it makes as many attempts as that surely pays for and
    returns all that were accepted.

    Attributes:
        records: "all" (CARS): every token that cannot follow a visited prefix; "failed" (ARS): only
            the prefix that failed.
    """

    records: Literal["all", "failed"] = "all"

    @property
    def name(self) -> str:
        """What the report calls it."""
        return "cars" if self.records == "all" else "ars"

    def __call__(
        self, model: LanguageModel, circuit: Circuit, num_particles: int, budget: int | None, generator: torch.Generator
    ) -> Draws:
        """See `Sampler`."""
        if self.records not in ("all", "failed"):
            raise InvalidArgument(f"records must be 'all' or 'failed', got {self.records!r}.")
        limit = ATTEMPTS_PER_PARTICLE * (affordable(num_particles, 0, None, self.name) + 1)
        most = affordable(limit, circuit.length - 1, budget, self.name)
        enough = num_particles + 1 if budget is None else None
        trie = Trie(model, left_to_right(circuit), self.records)
        attempts = _run(trie, most, enough, generator)
        accepted = [attempt for attempt in attempts if attempt.accepted]
        if not accepted:
            raise ZeroWeights(
                f"none of {len(attempts)} attempts satisfies the constraint, which has a probability below "
                f"{trie.remaining:.3g}; use sampler='twisted' or a larger budget."
            )
        record = _record(attempts, trie.remaining)
        if len(accepted) == enough:
            log_weight = log_evidence(_log_masses(attempts), num_particles)
            return _draws(accepted[:-1], log_weight.expand(num_particles), replace(record, drawn=len(attempts) - 1))
        log_weights = _log_masses(accepted) + math.log(len(accepted) / len(attempts))
        if budget is None:
            note = (
                f"the limit of {limit:,} attempts ended the run, which makes the evidence a little biased; set a budget instead"
            )
            record = replace(record, guarantee="asymptotic", notes=(note,))
        return _draws(accepted, log_weights, record)


def log_evidence(log_masses: Tensor, accepted: int) -> Tensor:
    """Log of the unbiased estimate K · ∫_0^∞ Π_k (1 + x/M_k)^(−1) dx of the probability of
    acceptance.

    Args:
        log_masses: f64[..., attempts], log M_k; +inf is no attempt.
        accepted: K ≥ 1, how many were accepted before the last attempt, which was accepted too.

    Returns:
        f64[...]. The trapezoidal rule on v = log x, where the integrand is analytic and falls off
        exponentially on both sides.
    """
    lowest = float(log_masses.min()) - math.log(log_masses.shape[-1])
    grid = torch.arange(lowest - REACH, REACH, STEP, dtype=torch.float64)
    values = grid.expand(*log_masses.shape[:-1], len(grid))
    size = max(1, QUADRATURE_NUMBERS // values.numel())
    for part in torch.split(log_masses, size, -1):
        values = values - torch.nn.functional.softplus(grid[:, None] - part[..., None, :], threshold=40.0).sum(-1)
    return values.logsumexp(-1) + math.log(STEP * accepted)


def _run(trie: Trie, most: int, enough: int | None, generator: torch.Generator) -> list[Attempt]:
    """Attempts until there were `most`, or `enough` of them were accepted."""
    attempts: list[Attempt] = []
    accepted = 0
    while len(attempts) < most and accepted != enough:
        if trie.remaining == 0.0:
            raise ZeroWeights("the model gives no probability to any sequence that satisfies the constraint.")
        attempts.append(trie.attempt(generator))
        accepted += attempts[-1].accepted
    return attempts


def _draws(accepted: list[Attempt], log_weights: Tensor, record: Record) -> Draws:
    tokens = torch.tensor([attempt.tokens for attempt in accepted])
    scores = torch.tensor([attempt.scores for attempt in accepted], dtype=torch.float64)
    return Draws(tokens, log_weights.clone(), scores, record)


def _log_masses(attempts: list[Attempt]) -> Tensor:
    return torch.tensor([attempt.mass for attempt in attempts], dtype=torch.float64).log()


def _record(attempts: list[Attempt], remaining: float) -> Record:
    """What is certain of p(α), what is likely, and the share of attempts that failed."""
    accepted = [attempt for attempt in attempts if attempt.accepted]
    tokens = torch.tensor([attempt.tokens for attempt in accepted])
    scores = torch.tensor([sum(attempt.scores) for attempt in accepted], dtype=torch.float64)
    caps = _log_masses(attempts)
    # w = M_k 1[y_k ⊨ α] has the mean p(α) given what happened before, and at most M_k, whenever the run stops.
    weights = caps.where(torch.tensor([attempt.accepted for attempt in attempts]), NEG_INF)
    failed = 1 - len(accepted) / len(attempts)
    return Record(
        drawn=len(attempts),
        exact_draws=True,
        pareto_k=math.nan,  # bounded weights that know of each other have no tail to speak of
        bounds=(log_total(tokens, scores), math.log(remaining)),
        likely=betting_bounds(weights, caps),
        zeros={NO_ATTEMPT: failed} if failed else {},
        details={
            "attempts": len(attempts),
            "accepted": len(accepted),
            "nominal_lm_tokens": sum(attempt.lm_tokens for attempt in attempts),
        },
    )
