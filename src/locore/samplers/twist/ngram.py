"""An n-gram table of a model's own next-token distributions: a cheap stand-in for the model in look-aheads.

Rows are means of *distributions*, not counts of tokens, so a few thousand positions of the model's own text go far. Contexts
are the last two tokens, backing off to the last one, backing off to the mean of all distributions.

A table of a model's own text is made once, when it is asked for, and kept on disk under the hash of the weights.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import torch
from torch import Tensor

from locore.cache import cache_folder, read_tensors, write_tensors
from locore.kernel.errors import CannotScore
from locore.kernel.numerics import NEG_INF, categorical, exp_, row_slices
from locore.kernel.samplers.rounds import Walk, abreast
from locore.kernel.samplers.sampler import PlainPrefixes
from locore.models import LanguageModel
from locore.samplers.ahead import last_tokens

SMOOTHING = 2.0  # κ, pseudo-positions of the lower order in every row
ENTRIES_PER_ROW = 256  # largest probabilities kept of each recorded distribution
ROW_ENTRIES = 64  # of them that a look-ahead reads, beside the tokens that a constraint singles out
STRETCH, ROWS = 64, 16  # tokens, and distributions at least, that are looked through together


@dataclass(frozen=True, eq=False)
class NGramTable:
    """Back-off rows over contexts. Context 0 is "anything"; then the single tokens, then the pairs.

    Attributes:
        unigram: f64[vocab], the mean distribution.
        single: Long[vocab], the context of a last token, 0 where it was never seen.
        pair_keys: Long[pairs], first · vocab + second, increasing; their contexts are the last ones, in this order.
        start: Long[contexts + 1], where the entries of each context begin.
        tokens, probs: Int, f32[entries]: the largest entries of each context's row, in decreasing order; there are millions.
        backoff: f64[contexts], the mass that a row leaves to its parent's distribution.
        size: f64[contexts], how many distributions each row is the mean of.
        parent: Long[contexts], the context of the next lower order.
    """

    unigram: Tensor
    single: Tensor
    pair_keys: Tensor
    start: Tensor
    tokens: Tensor
    probs: Tensor
    backoff: Tensor
    parent: Tensor
    size: Tensor

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return len(self.unigram)

    @property
    def num_contexts(self) -> int:
        """Contexts, context 0 included."""
        return len(self.parent)

    @property
    def first_pair(self) -> int:
        """The context of pair 0."""
        return self.num_contexts - len(self.pair_keys)

    def fingerprint(self) -> str:
        """A hash of all numbers."""
        digest = hashlib.sha256()
        for part in fields(self):
            digest.update(getattr(self, part.name).numpy().tobytes())
        return digest.hexdigest()[:32]

    def after(self, first: Tensor, second: Tensor) -> Tensor:
        """Long like the arguments: the context of two last tokens; first is −1 where there is none."""
        context = self.single[second]
        if not len(self.pair_keys):
            return context
        key = first * self.vocab_size + second
        place = torch.searchsorted(self.pair_keys, key).clamp_max(len(self.pair_keys) - 1)
        is_pair = (self.pair_keys[place] == key) & (first >= 0)
        return torch.where(is_pair, self.first_pair + place, context)

    def limited(self, max_contexts: int) -> NGramTable:
        """The table with the most often seen contexts only; pairs go first, they back off to single tokens."""
        if self.num_contexts <= max_contexts:
            return self
        rank = self.size.clone()
        rank[1 : self.first_pair] += self.size.max() + 1
        rank[0] = float("inf")
        keep = torch.zeros(self.num_contexts, dtype=torch.bool)
        keep[rank.topk(max(1, max_contexts)).indices] = True
        # An end is certain of its padding; without its row it would look like any token.
        keep[1:] |= (self.size[1:] == 0) & (torch.arange(1, self.num_contexts) < self.first_pair)
        number = torch.where(keep, keep.long().cumsum(0) - 1, 0)
        owner = torch.repeat_interleave(torch.arange(self.num_contexts), self.start[1:] - self.start[:-1])
        entries = keep[owner]
        sizes = torch.bincount(number[owner[entries]], minlength=int(keep.sum()))
        return NGramTable(
            self.unigram,
            number[self.single],
            self.pair_keys[keep[self.first_pair :]],
            torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]),
            self.tokens[entries],
            self.probs[entries],
            self.backoff[keep],
            number[self.parent[keep]],
            self.size[keep],
        )

    def last_token(self) -> Tensor:
        """Long[contexts]: the last token of each context, −1 for context 0."""
        result = torch.full((self.num_contexts,), -1)
        seen = self.single.nonzero()[:, 0]
        result[self.single[seen]] = seen
        result[self.first_pair :] = self.pair_keys % self.vocab_size
        return result


@dataclass
class NGramCounts:
    """Collects next-token distributions with the tokens before them.

    Attributes:
        vocab_size: number of tokens.
        eos_ids: ends; after one, the padding is certain.
        wanted: Long[tokens], which are kept beside the `ROW_ENTRIES` largest; None, where nobody knows who will ask, for more.
    """

    vocab_size: int
    eos_ids: tuple[int, ...]
    wanted: Tensor | None = None
    positions: int = 0
    # The two tokens before, the likeliest next tokens and their probabilities.
    _parts: list[tuple[Tensor, Tensor, Tensor, Tensor]] = field(default_factory=list)
    _total: Tensor | None = None

    @property
    def entries(self) -> int:
        """Numbers that were recorded."""
        return sum(probs.numel() for *_, probs in self._parts)

    def add(self, first: Tensor, second: Tensor, log_probs: Tensor) -> None:
        """Record Float[rows, vocab] distributions after Long[rows] last tokens; −1 where there is none."""
        live = torch.ones_like(second, dtype=torch.bool)
        for end in self.eos_ids:
            live &= second != end
        if not bool(live.all()):
            first, second, log_probs = first[live], second[live], log_probs[live.to(log_probs.device)]
        total = log_probs.new_zeros(self.vocab_size, dtype=torch.promote_types(log_probs.dtype, torch.float32))
        for part in row_slices(log_probs, ROWS):
            tokens, logs = self._entries(log_probs[part])
            self._parts.append((first[part], second[part], tokens.cpu(), exp_(logs.double()).cpu()))
        for part in row_slices(log_probs):
            total += log_probs[part].to(total.dtype).exp().sum(0)
        self._total = total.double().cpu() if self._total is None else self._total + total.cpu()
        self.positions += len(second)

    def _entries(self, logs: Tensor) -> tuple[Tensor, Tensor]:
        """Long and Float[rows, entries]: the tokens that are kept of each distribution, and their logs."""
        if self.wanted is None:
            return largest(logs, ENTRIES_PER_ROW)
        wanted = self.wanted.to(logs.device)
        tokens, values = largest(logs, ROW_ENTRIES)
        values = values.masked_fill(torch.isin(tokens, wanted), NEG_INF)  # nothing is counted twice
        return torch.cat([tokens, wanted.expand(len(logs), -1)], 1), torch.cat([values, logs[:, wanted]], 1)

    def drafts(
        self, model: LanguageModel, num: int, length: int, generator: torch.Generator, counting: bool = True
    ) -> Walk[tuple[Tensor, float]]:
        """Draw Long[num, length] sequences from a model, and their LM tokens; `counting` what it says along them."""
        nothing = torch.zeros(num, 0, dtype=torch.float64)
        drawn = PlainPrefixes(model, nothing.long(), nothing)
        uniforms = torch.rand(num, length, generator=generator, dtype=torch.float64)
        cost = 0.0
        for step in range(length):
            cost += yield drawn
            if counting:
                self.add(*last_tokens(drawn.tokens), drawn.log_probs)
            drawn = drawn.followed_by(categorical(drawn.log_probs, uniforms[:, step]))
        return drawn.tokens, cost

    def draft(self, model: LanguageModel, num: int, length: int, generator: torch.Generator) -> Tensor:
        """The same by itself."""
        ((tokens, _),) = abreast([self.drafts(model, num, length, generator)])
        return tokens

    def with_more(self, more: NGramCounts) -> NGramCounts:
        """What both have recorded."""
        totals = [each._total for each in (self, more) if each._total is not None]
        total = torch.stack(totals).sum(0) if totals else None
        return replace(self, positions=self.positions + more.positions, _parts=self._parts + more._parts, _total=total)

    def table(self) -> NGramTable:
        """The back-off table of what was recorded."""
        first, second, likeliest, probs = (torch.cat(parts) for parts in zip(*self._parts, strict=True))
        total = self._total if self._total is not None else torch.ones(self.vocab_size).double()
        ends = torch.tensor(sorted(self.eos_ids), dtype=torch.long)
        seen = torch.unique(torch.cat([second[second >= 0], ends]))
        single = torch.zeros(self.vocab_size, dtype=torch.long)
        single[seen] = 1 + torch.arange(len(seen))
        after_one, after_two = (second >= 0).nonzero()[:, 0], (first >= 0).nonzero()[:, 0]
        keys = first[after_two] * self.vocab_size + second[after_two]
        pair_keys = torch.unique(keys)
        first_pair = 1 + len(seen)
        context = torch.cat([single[second[after_one]], first_pair + torch.searchsorted(pair_keys, keys)])
        num_contexts = first_pair + len(pair_keys)
        parent = torch.zeros(num_contexts, dtype=torch.long)
        parent[first_pair:] = single[pair_keys % self.vocab_size]
        rows = _merge(context, torch.cat([after_one, after_two]), likeliest, probs, num_contexts, self.vocab_size)
        if self.eos_ids:
            rows = _certain_end(rows, single[ends], self.eos_ids[0])
        size = torch.bincount(context, minlength=num_contexts).double()
        tokens, probs = rows.tokens.int(), rows.probs.float()
        return NGramTable(total / total.sum(), single, pair_keys, rows.start, tokens, probs, rows.backoff, parent, size)


def largest(rows: Tensor, num: int) -> tuple[Tensor, Tensor]:
    """Long and Float[rows, at most num]: the columns of the largest of Float[rows, columns], and these; faster than `topk`."""
    count = rows.shape[1] // STRETCH
    if count <= num:
        values, columns = rows.topk(min(num, rows.shape[1]))
        return columns, values
    stretches = rows[:, : count * STRETCH].reshape(len(rows), count, STRETCH)
    chosen = stretches.amax(2).topk(num, sorted=False).indices
    near = stretches.gather(1, chosen[:, :, None].expand(-1, -1, STRETCH)).flatten(1)
    columns = (chosen[:, :, None] * STRETCH + torch.arange(STRETCH, device=rows.device)).flatten(1)
    rest = torch.arange(count * STRETCH, rows.shape[1], device=rows.device).expand(len(rows), -1)
    near, columns = torch.cat([near, rows[:, count * STRETCH :]], 1), torch.cat([columns, rest], 1)
    values, place = near.topk(num)
    return columns.gather(1, place), values


@dataclass(frozen=True, eq=False)
class _Entries:
    """The rows of all contexts; attributes as in `NGramTable`."""

    start: Tensor
    tokens: Tensor
    probs: Tensor
    backoff: Tensor


def _merge(context: Tensor, position: Tensor, tokens: Tensor, probs: Tensor, num_contexts: int, vocab_size: int) -> _Entries:
    """Sum the recorded distributions of each context."""
    size = torch.bincount(context, minlength=num_contexts).double()
    key = (context[:, None] * vocab_size + tokens[position]).flatten()
    distinct, inverse = torch.unique(key, return_inverse=True)
    mass = torch.zeros(len(distinct), dtype=torch.float64)
    mass.index_add_(0, inverse, probs[position].flatten())
    distinct, mass = distinct[mass > 0], mass[mass > 0]
    owner = distinct // vocab_size
    share = mass / (size[owner] + SMOOTHING)
    seen_mass = torch.zeros(num_contexts, dtype=torch.float64).index_add_(0, owner, share)
    start = torch.zeros(num_contexts + 1, dtype=torch.long)
    start[1:] = torch.bincount(owner, minlength=num_contexts).cumsum(0)
    order = torch.argsort(owner - share, stable=True)  # a share is less than 1
    return _Entries(start, distinct[order] % vocab_size, share[order], (1 - seen_mass).clamp_min(0.0))


def _certain_end(rows: _Entries, ends: Tensor, padding: int) -> _Entries:
    """Give the contexts that end a text, which were never recorded, a row that is certain of the padding."""
    sizes = rows.start[1:] - rows.start[:-1]
    sizes[ends] = 1
    start = torch.cat([rows.start[:1], sizes.cumsum(0)])
    owner = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    recorded = ~torch.isin(owner, ends)
    tokens = torch.full((len(owner),), padding)
    probs = torch.ones(len(owner), dtype=torch.float64)
    tokens[recorded], probs[recorded] = rows.tokens, rows.probs
    backoff = rows.backoff.clone()
    backoff[ends] = 0.0
    return _Entries(start, tokens, probs, backoff)


POSITIONS = 20_000  # next-token distributions that a table is made of
TIME = 128  # tokens in each of the texts they come from
BATCH = 32  # texts at once, and fewer where their distributions would be larger than this
FORMAT = 4  # of the files; a table of another format is made again
SEED = 0

_in_memory: dict[Path, NGramTable | None] = {}


@dataclass(frozen=True)
class Prepared:
    """A table and what it cost.

    Attributes:
        table: the table.
        path: where it is kept; None if the model has no fingerprint.
        lm_tokens: LM tokens spent now, 0 if it was there.
        seconds: wall time spent now.
    """

    table: NGramTable
    path: Path | None
    lm_tokens: int
    seconds: float


def prepare(model: LanguageModel, positions: int = POSITIONS, progress: Callable[[int, int], None] | None = None) -> Prepared:
    """The n-gram table of a model, from its own text without a prompt; made at the first call, then read from disk.

    The folder is `$LOCORE_CACHE`, or `~/.cache/locore`. A damaged file is made again.

    Args:
        model: which one; its prompt, if it has one, does not matter.
        positions: next-token distributions to make it of, at least.
        progress: called with how many are read and how many will be, at the start and after each batch of texts.
    """
    start = time.perf_counter()
    bare = model.unprompted()
    path = _path(bare, positions)
    table, spent = prepared_table(model, positions), 0
    if table is None:
        table, spent = _make(bare, positions, progress)
        if path is not None:
            _write(path, table)
            _in_memory[path] = table
    return Prepared(table, path, spent, time.perf_counter() - start)


def prepared_table(model: LanguageModel, positions: int = POSITIONS) -> NGramTable | None:
    """The table that `prepare` made for this model, if it has."""
    path = _path(model.unprompted(), positions)
    if path is None:
        return None
    if path not in _in_memory:
        table = _read(path)
        if table is None:
            return None
        _in_memory[path] = table
    return _in_memory[path]


def settle(model: LanguageModel, use: bool = True) -> bool:
    """From now on this process uses the table that is there, or none: what others prepare meanwhile changes no answer.

    Args:
        model: whose table.
        use: the table, if it is there; False for none in any case.

    Returns:
        Is there one that is used?
    """
    table, path = prepared_table(model) if use else None, _path(model.unprompted(), POSITIONS)
    if path is not None:
        _in_memory[path] = table
    return table is not None


def _path(model: LanguageModel, positions: int) -> Path | None:
    """Where the table of a model is kept; None if the model has no fingerprint."""
    name = model.fingerprint()
    return None if name is None else cache_folder() / "ngram" / f"{name}-{positions}.safetensors"


def _make(model: LanguageModel, positions: int, progress: Callable[[int, int], None] | None = None) -> tuple[NGramTable, int]:
    length, generator = _longest(model), torch.Generator().manual_seed(SEED)
    counts = NGramCounts(model.vocab_size, model.tokenizer.eos_ids)
    tell = progress or (lambda done, wanted: None)
    tell(0, positions)
    while counts.positions < positions:
        counts.draft(model, BATCH, length, generator)
        tell(min(counts.positions, positions), positions)
    return counts.table(), counts.positions


def _longest(model: LanguageModel) -> int:
    """A length of text that fits the model's context."""
    length = TIME
    while length > 1:
        try:
            model.score(torch.zeros(1, length, dtype=torch.long))
        except CannotScore:
            length //= 2
        else:
            break
    return length


def _read(path: Path) -> NGramTable | None:
    tensors, notes = read_tensors(path) or ({}, {})
    return NGramTable(**tensors) if notes.get("format") == str(FORMAT) else None


def _write(path: Path, table: NGramTable) -> None:
    tensors = {field.name: getattr(table, field.name).contiguous() for field in fields(table)}
    write_tensors(path, tensors, {"format": str(FORMAT)})
