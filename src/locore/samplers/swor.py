"""Sequential Monte Carlo without replacement: expand every child of every prefix, keep the best, thin the rest without bias.

A language model is peaked, so SMC with replacement spends most of its budget on copies. Here no prefix is ever evaluated twice
(Fearnhead and Clifford 2003 for discrete spaces). Their optimal resampling keeps what is large and thins the rest: see
`locore.kernel.samplers.selection`.

What children are selected by is their **merit**; any merit keeps the weights proper. Steered, a child counts w · p · (β + κ): w
is the weight of its prefix, p its probability, β what is foreseen behind it (`locore.samplers.ahead`), and κ the defence
against a β that is wrong about what it has not seen. Unsteered: w · p, and a share goes **evenly over the states** of the
constraint, as half of κ does: by p alone a keyword that was written early, and seldom, is lost to heavier prefixes without it,
and where the model rules much out nothing can be completed in the end. Where most of what may follow satisfies the constraint
(a ban) there is nothing to lose, and states do not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from locore.kernel.circuits.reading import DEAD, LeftToRight
from locore.kernel.evidence.blocks import Kept, Lineage, Surprise
from locore.kernel.evidence.record import Bounds
from locore.kernel.models.language_model import LanguageModel
from locore.kernel.numerics import NEG_INF, row_slices, segment_logsumexp
from locore.kernel.samplers.rounds import Round, Walk
from locore.kernel.samplers.sampler import Ahead, Prefixes
from locore.kernel.samplers.selection import Selection, padded_rows, select_in_place
from locore.samplers.ahead import DEFENCE, LEAST_DEFENCE, Children, children_of

JUDGED_BLOCKS, JUDGED_WIDTH = 2, 48  # blocks that judge each other, and prefixes in each from which that says something
STRETCHED = 4  # times the width: what a position may keep if earlier ones kept less
# With each prefix more the variance that a selection adds falls by the square of the share below which it thins. That is 1/e
# where e are kept and nothing outweighs anything else; prefixes that bring less than a 64th of its square are not kept, unless
# nothing was left so far, and nothing need be left now.
FINE = 8
WHOLE = 1 - 1e-9  # times: what is whole but for rounding is not one more
ROUNDED = 1e-4  # nats: more than single precision loses in what is left unread
# Is told the prefixes of each position before they are read on, and f64[num], their log weights.
Watch = Callable[[Prefixes, Tensor], None]
EVENLY = 0.3  # share that goes evenly over the states where nothing is foreseen, to that which goes by p
UNLIMITED = math.inf  # log of what is left unread, where that is not known
RAREST = 1e12  # times that a child may count more than its weight
ROWS = 16  # of probabilities, at least, that are summed together
PASS_NUMBERS = 2**25  # entries of tables that a pass reads
LOST = 2**-22  # of a row's weight, for four and each nat of its logarithm: more than single precision loses in its sum


@dataclass(frozen=True)
class Size:
    """What a round may keep.

    Where few prefixes can be completed, or a few outweigh all others, as where a text is as good as fixed, fewer LM tokens are
    spent; later positions keep more for them, up to `STRETCHED` times the width. Complete sequences cost nothing, and once most
    of the weight has ended, what goes on adds little to the error: a share s of the weight gets √s of the prefixes.

    Attributes:
        width: prefixes at each position.
        wanted: complete sequences; 0: as many as the width.
        lm_tokens: that may be spent; None: as many as the width at each position.
    """

    width: int
    wanted: int = 0
    lm_tokens: int | None = None

    def next_width(self, left: float, remaining: int, going: Tensor, weights: Tensor) -> int:
        """How many at the next position, at most, with so many LM tokens and positions left."""
        if not remaining:
            return self.wanted or self.width
        share = float((torch.logsumexp(weights[going], 0) - torch.logsumexp(weights, 0)).exp())
        ended = int((~going).sum())
        read = min(int(left / remaining + ROUNDED), STRETCHED * self.width)
        return min(read + min(ended, self.width), ended + math.ceil(STRETCHED * self.width * math.sqrt(share) * WHOLE))


class _History:
    """What a round remembers of its selections."""

    def __init__(self) -> None:
        self._selections: list[Selection] = []
        self._parents: list[Tensor] = []
        self._log_left: list[float] = []
        self._levels: list[Kept] | None = []
        self._largest_step = 0.0  # of the totals, nats

    def add(self, selection: Selection, row: Tensor, log_unread: float) -> None:
        """A selection of children of Long[chosen] rows, and log of the probability of the children that were left."""
        if self._selections:
            self._largest_step = max(self._largest_step, abs(selection.log_total - self._selections[-1].log_total))
        self._selections.append(selection)
        self._parents.append(row)
        self._log_left.append(log_unread)

    def keep(self, tokens: Tensor, log_weights: Tensor, log_masses: Tensor | None) -> None:
        """What was selected; it is forgotten once masses are not known."""
        if log_masses is None:
            self._levels = None
        elif self._levels is not None:
            self._levels.append(Kept(tokens, log_weights, log_masses))

    def end(self) -> None:
        """All texts have ended: nothing more is selected, and nothing more is left."""
        self._log_left.append(NEG_INF)

    @property
    def is_whole(self) -> bool:
        """Was all kept so far?"""
        return not any(selection.share_drawn for selection in self._selections)

    def defence(self) -> float:
        """Share of the next selection that should go by p alone: as much as forecasts have been wrong so far.

        Were the twist right, the totals would stay as they are. Where they do, as on a Markov chain whose table is the model
        itself, each prefix that is kept for its probability alone is one less of those that matter.
        """
        return min(DEFENCE, max(LEAST_DEFENCE, self._largest_step))

    def bounds(self, complete: Tensor) -> Bounds:
        """Certain ones of log p(α), from f64[num] log p of the distinct sequences that were kept.

        As in `UnreadMass`: what was left at the last position satisfies α, and what was left before it may.
        """
        left = complete.new_tensor(self._log_left)
        last = torch.where(left[-1:] == UNLIMITED, NEG_INF, left[-1:] - ROUNDED)
        low = torch.logsumexp(torch.cat([complete, last]), 0)
        high = torch.logsumexp(torch.cat([complete, left + ROUNDED]), 0)
        return float(low), min(0.0, float(high))

    def nothing(self) -> Bounds:
        """Certain ones of log p(α), where nothing that was kept can be completed: all that satisfies α was left."""
        return NEG_INF, min(0.0, float(torch.logsumexp(torch.tensor(self._log_left), 0)))

    def surprise(self) -> Surprise:
        """By the forecasts; the first is left out, as it knows no token yet."""
        before = self._selections[:-1] or self._selections
        drawn = max(selection.share_drawn for selection in self._selections)
        width = sum(len(selection.chosen) for selection in before) / len(before)
        return Surprise(size_of_steps(self.totals[1:]), drawn, width)

    def lineage(self) -> Lineage:
        raises = tuple(selection.log_raise for selection in self._selections)
        levels = None if self._levels is None else tuple(self._levels)
        return Lineage(tuple(self._parents), raises, self._selections[-1].log_rows, levels)

    @property
    def totals(self) -> tuple[float, ...]:
        """Log of the weight before each selection, which keeps it."""
        return tuple(selection.log_total for selection in self._selections)


def size_of_steps(sums: Sequence[float]) -> float:
    """Root of the sum of the squares of the steps between numbers."""
    return float(torch.tensor(sums, dtype=torch.float64).diff().square().sum().sqrt())


def blocks_for(blocks: int | None, num_particles: int, length: int, budget: int | None) -> int:
    """How many blocks: as asked, or as many as the particles are good for."""
    if blocks is not None:
        return blocks
    prefixes = num_particles if budget is None else budget // max(1, length - 1)
    return JUDGED_BLOCKS if prefixes >= JUDGED_BLOCKS * JUDGED_WIDTH else 1


def walk(
    model: LanguageModel,
    reader: LeftToRight,
    size: Size,
    generator: torch.Generator,
    ahead: Ahead | None = None,
    watch: Sequence[Watch] = (),
) -> Walk[Round]:
    """One pass over the positions, keeping so many prefixes at each, beside others (`locore.kernel.samplers.rounds`).

    Prefixes are selected by p(prefix) · (β(prefix) + κ), β being what is foreseen, which never enters the weight, and κ what
    limits what a wrong β can do. What watches steers nothing. What others read as well costs less, and later positions keep
    more for it.
    """
    prefixes, weights = Prefixes.start(model, reader), torch.zeros(1, dtype=torch.float64)
    allowed = left = float(size.width * (reader.length - 1) if size.lm_tokens is None else size.lm_tokens)
    history = _History()
    while not prefixes.are_complete:
        left -= yield prefixes
        remaining = reader.length - 1 - prefixes.position
        for each in watch:
            each(prefixes, weights)
        merit = Merit(prefixes, weights, children_of(ahead, prefixes, weights, history.defence()), bool(remaining))
        uniform = float(torch.rand((), generator=generator, dtype=torch.float64))
        width = size.next_width(left, remaining, prefixes.going(), weights)
        fine = 1 / (FINE * max(1.0, left / remaining)) if remaining else 0.0
        selection, row, token = merit.select(width, uniform, fine, not history.is_whole)
        prefixes = prefixes.extended(row, token)
        weighed = weights[row] + prefixes.token_scores[:, -1]
        history.add(merit.forecast(selection, weighed), row, merit.log_unread(selection, row, weighed))
        if not len(row):  # nothing that was kept can be completed
            return Round.nothing(reader.length, allowed - left, history.nothing())
        before, weights = weights, weighed + selection.log_raise
        history.keep(token, weights, merit.log_masses(selection, before))
        if remaining and not bool(prefixes.going().any()):  # only padding is to come
            prefixes = prefixes.padded()
            history.end()
    facts = (history.surprise(), history.lineage(), allowed - left, history.bounds(prefixes.log_mass), history.totals)
    return Round(prefixes.tokens, weights, prefixes.token_scores, *facts)


class Merit:
    """f32[prefixes, vocab and some −inf]: log merit of every child; −inf where nothing can be completed.

    It is on the model's device. Single precision is enough; only what is chosen is weighed in double. The rows are filled a few
    at a time, so that they stay near the processor.
    """

    def __init__(self, prefixes: Prefixes, weights: Tensor, ahead: Children | None, defends: bool) -> None:
        """Of children of prefixes with f64[prefixes] log weights; where states are not foreseen, a share goes by them if it
        `defends`.
        """
        ahead = ahead or Children()
        self._over = weights - prefixes.log_mass
        self._steered, self._worth = ahead.by_state is not None, ahead.by_prefix is not None
        rare = rarity(prefixes, weights) if not self._steered and defends else None
        self._matrix = self._filled(prefixes, weights, ahead, rare)

    def _filled(self, prefixes: Prefixes, weights: Tensor, children: Children, rare: Tensor | None) -> Tensor:
        log_probs, reader = prefixes.log_probs, prefixes.reader
        device, (batch, vocab) = log_probs.device, log_probs.shape
        distinct, which = torch.unique(prefixes.states, return_inverse=True)
        ahead = reader.log_allowed(prefixes.position, distinct, device)
        more = None if rare is None else _of_tokens(prefixes, distinct, torch.log1p(EVENLY * rare))
        if children.by_state is not None:
            ahead += children.by_state
        matrix = padded_rows(batch, vocab, device)
        plain = []
        for number, (weight, state) in enumerate(zip(weights.tolist(), which.tolist(), strict=True)):
            merits = torch.add(log_probs[number], ahead[state], out=matrix[number, :vocab]).add_(weight)
            if more is not None:
                plain.append(torch.logsumexp(merits, 0))
                merits.add_(more[state])
        self._plain = torch.stack(plain).cpu().double() if plain else None
        if children.pairs is not None:
            by_row, which = weights.to(device), which.to(device)
            row, token, value = (part.to(device) for part in children.pairs)
            value += by_row[row] + log_probs[row, token]
            matrix[row, token] = torch.where(ahead[which[row], token] == NEG_INF, NEG_INF, value)
        if children.by_prefix is not None:  # it may be nothing where α can be satisfied
            matrix += children.by_prefix[:, None].to(matrix)
        return matrix

    def select(self, most: int, uniform: float, fine: float, spares: bool) -> tuple[Selection, Tensor, Tensor]:
        """At most so many children, Long[chosen] the rows of their prefixes, and their tokens; see `select_in_place`."""
        columns = self._matrix.shape[1]
        selection = select_in_place(self._matrix, most, uniform, fine, spares)
        return selection, selection.chosen // columns, selection.chosen % columns

    def log_unread(self, selection: Selection, row: Tensor, weighed: Tensor) -> float:
        """Log of the probability of the children that were not chosen; infinite where that is not known.

        Args:
            selection: what was chosen.
            row: Long[chosen], the rows of their prefixes.
            weighed: f64[chosen], log of w · p.
        """
        if self._worth:
            return UNLIMITED
        if not bool((selection.log_left > NEG_INF).any()):  # all were chosen
            return NEG_INF
        if self._steered:
            return UNLIMITED
        left = selection.log_left
        if self._plain is not None:  # by merit a child weighs more; where little is left, that is nearer than a difference
            share = (segment_logsumexp(weighed, row, len(self._plain)) - self._plain).exp().nan_to_num()
            lost = LOST * (4 + self._plain.abs().clamp_max(1 / LOST))
            left = torch.minimum(left, self._plain + ((1 - share).clamp_min(0) + lost).log())
        return float(torch.logsumexp(left - self._over, 0))

    def log_masses(self, selection: Selection, weights: Tensor) -> Tensor | None:
        """f64[prefixes]: log of the probability of all that may follow each; None where something is foreseen.

        Args:
            selection: that was made.
            weights: f64[prefixes], their log weights.
        """
        if self._steered or self._worth:
            return None
        return (selection.log_rows if self._plain is None else self._plain) - weights

    def forecast(self, selection: Selection, weighed: Tensor) -> Selection:
        """The selection with the total and the share drawn of what it foretells: of the weights, where states count evenly."""
        if self._plain is None:
            return selection
        total = float(torch.logsumexp(self._plain, 0))
        raised = (weighed + selection.log_raise)[selection.log_raise > 0]
        drawn = math.exp(float(torch.logsumexp(raised, 0)) - total) if len(raised) else 0.0
        return replace(selection, log_total=total, share_drawn=min(1.0, drawn))


def rarity(prefixes: Prefixes, weights: Tensor) -> Tensor | None:
    """f32[states after the next token]: how much more than its weight a child in each state counts, if all states count alike.

    That is M / (S · M_s): M_s is the weight of the children in state s, M that of all, S the number of states with children.
    None where there are not several, or where states do not count.
    """
    reader, position = prefixes.reader.outline, prefixes.position
    if reader is None or _is_easy(reader) or len(reader.live[position + 1]) < 2:
        return None
    distinct, which = torch.unique(prefixes.reader.outlined(prefixes.states), return_inverse=True)
    targets = reader.rows[position][distinct].long()
    live = targets != DEAD
    masses = _by_class(prefixes, reader, weights, which, len(distinct))
    of_states = torch.zeros(len(reader.live[position + 1])).index_add_(0, targets[live], masses[live])
    met = of_states > 0
    number = int(met.sum())
    # What single precision can hardly tell from nothing must not become infinitely rare.
    rare = (of_states.sum() / (number * of_states)).clamp_max(RAREST)
    return None if number < 2 else torch.where(met, rare, 1.0)


@lru_cache(maxsize=8)
def _is_easy(reader: LeftToRight) -> bool:
    """Does most of what may follow satisfy the constraint, were every token as probable as any other?

    By one backward pass; so are those taken that have too many states for it.
    """
    if sum(rows.numel() for rows in reader.rows) > PASS_NUMBERS:
        return True
    sizes = torch.bincount(reader.token_class, minlength=reader.rows[0].shape[1]).double()
    shares = reader.live[-1].double()
    for rows in reversed(reader.rows):
        padded = torch.nn.functional.pad(shares, (0, 1))  # a last column of zeros stands for DEAD
        shares = padded[torch.where(rows == DEAD, len(shares), rows.long())] @ (sizes / sizes.sum())
    return float(shares[reader.start]) > 1 / 2


def _by_class(prefixes: Prefixes, reader: LeftToRight, weights: Tensor, which: Tensor, states: int) -> Tensor:
    """f32[states, classes]: weight of the children of prefixes in each of the states, whose numbers are Long[prefixes]."""
    log_probs = prefixes.log_probs
    share = torch.zeros(states, len(weights))
    share[which, torch.arange(len(weights))] = (weights - weights.max()).exp().float()
    share = share.to(log_probs.device)
    tokens = torch.zeros(states, log_probs.shape[1], device=log_probs.device)
    for part in row_slices(log_probs, ROWS):
        tokens.addmm_(share[:, part], log_probs[part].float().exp())
    classes = reader.classes_on(log_probs.device)
    number = reader.rows[prefixes.position].shape[1]
    return torch.zeros(states, number, device=log_probs.device).index_add_(1, classes, tokens).cpu()


def _of_tokens(prefixes: Prefixes, states: Tensor, of_targets: Tensor) -> Tensor:
    """f32[states, vocab] on the model's device: a number of the outlined state that each token leads to, from Long[states]."""
    reader, device = prefixes.reader.outline, prefixes.log_probs.device
    assert reader is not None  # nothing was rare without
    target = reader.rows[prefixes.position][prefixes.reader.outlined(states)].long().clamp_min(0)
    return of_targets[target].to(device).gather(1, reader.classes_on(device).expand(len(states), -1))
