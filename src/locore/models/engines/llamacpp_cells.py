"""What llama.cpp has read: sequences that share the keys and values of what they begin with."""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from locore.kernel.errors import CannotScore, EngineError
from locore.kernel.limits import may_stop
from locore.models.engines.llamacpp_vocabulary import LOG, Opened

TOKENS = 128  # read in one call; between calls a run can be stopped
SEQUENCES = 128  # at most 256; for each llama.cpp keeps room for a distribution, 25 MB with 49,152 tokens
OUTPUTS = 128  # distributions of one call; no fewer than sequences, or llama.cpp aborts the process
CALL = 4  # tokens that cost about as much as a call by itself
F32 = 0  # ggml's number of that format
NO_ROOM = 1  # what `llama_decode` says where the cells are used up


@dataclass(frozen=True)
class Piece:
    """Tokens to read; the next-token distributions from that after `ids[start]` on are wanted.

    Attributes:
        number: among those that are asked for together.
    """

    number: int
    ids: tuple[int, ...]
    start: int

    @property
    def before(self) -> tuple[int, ...]:
        """What may be known already."""
        return self.ids[: self.start]


@dataclass(frozen=True)
class Entry:
    """A token of a call: where it stands in which sequence, of which piece, and whether its distribution is wanted."""

    token: int
    at: int
    sequence: int
    piece: Piece
    wanted: bool


# Is told the entries whose distributions were wanted, and Float[entry, vocab] logits.
Answer = Callable[[Sequence[Entry], Tensor], None]


class NoRoom(Exception):
    """The cells are used up, or there is no memory for them."""


class Cells:
    """A context of llama.cpp. Its memory is given back by `close`, or with the last reference.

    Attributes:
        size: tokens that fit.
        read: the sequence of each text, the one that was used longest ago first.
    """

    def __init__(self, opened: Opened, size: int, threads: int) -> None:
        """Make room.

        Raises:
            NoRoom: there is no memory.
            CannotScore: the model keeps no keys and values.
        """
        self._api = api = opened.api
        wanted = api.llama_context_default_params()
        wanted.n_ctx, wanted.n_batch, wanted.n_ubatch = size, TOKENS, TOKENS
        wanted.n_seq_max, wanted.n_outputs_max = SEQUENCES, OUTPUTS
        wanted.n_threads = wanted.n_threads_batch = threads
        wanted.type_k = wanted.type_v = F32
        wanted.flash_attn_type = 0
        wanted.swa_full = wanted.kv_unified = wanted.no_perf = True
        self._context = api.llama_init_from_model(opened.pointer, wanted)
        if not self._context:
            raise NoRoom
        self._batch = api.llama_batch_init(TOKENS, 0, 1)
        # The model is freed after what computes with it, so it is held until then.
        self.close = weakref.finalize(self, _freed, api, self._context, self._batch, opened)
        self.close.atexit = False  # another thread may still compute
        self._memory = api.llama_get_memory(self._context)
        if not self._memory:
            raise CannotScore(f"{opened.file.name} is no model that goes on with texts. Use a decoder-only model.")
        self._columns = api.llama_vocab_n_tokens(opened.vocabulary)
        self._window = api.llama_model_n_swa(opened.pointer) or size
        self._free = list(range(SEQUENCES))
        self.size = size
        self.read: OrderedDict[tuple[int, ...], int] = OrderedDict()
        self._sorted: list[tuple[int, ...]] = []

    def touch(self, pieces: Sequence[Piece]) -> None:
        """What pieces go on from is forgotten last, in their order."""
        for piece in pieces:
            if piece.before in self.read:
                self.read.move_to_end(piece.before)

    def keep(self, number: int) -> None:
        """Forget all but the texts that were used last."""
        while len(self.read) > number:
            self._forget(next(iter(self.read)))

    def forget_others(self, pieces: Sequence[Piece]) -> bool:
        """Forget what none of these goes on from. Was there anything?"""
        others = self.read.keys() - {self._longest(piece.before)[0] for piece in pieces}
        for ids in others:
            self._forget(ids)
        return bool(others)

    def stem(self, pieces: Sequence[Piece]) -> list[Piece]:
        """What all pieces begin with, where it pays to read it before them."""
        beginning = shared(pieces)
        new = len(beginning) - self._longest(beginning)[1]
        return [Piece(0, beginning, len(beginning))] if new * (len(pieces) - 1) > CALL else []

    def answer(self, pieces: Sequence[Piece], receive: Answer) -> None:
        """Read fewer pieces than there are sequences; `receive` gets their distributions, some twice if it is called again.

        Raises:
            NoRoom: they do not fit beside what is kept; nothing of them is.
            EngineError: llama.cpp fails.
        """
        begun: list[int] = []
        try:
            entries = [entry for piece in pieces for entry in self._begun(piece, begun)]
            for some in _slices(entries):
                self._decode(some, receive)
            for piece, sequence in zip(pieces, begun, strict=True):
                self._keep(piece.ids, sequence)
        except BaseException:
            self._recover()
            raise

    def _begun(self, piece: Piece, begun: list[int]) -> Iterator[Entry]:
        """What is left to read of a piece, in a sequence that has the rest from another one."""
        nearest, length = self._longest(piece.before)
        if not self._free:
            self._forget(next(ids for ids in self.read if ids != nearest))
        sequence = self._free.pop()
        begun.append(sequence)
        if length:
            self._api.llama_memory_seq_cp(self._memory, self.read[nearest], sequence, 0, length)
            first = self._api.llama_memory_seq_pos_min(self._memory, sequence)
            if not 0 <= first <= max(0, length - self._window):  # layers that look back so far have lost some of it
                self._api.llama_memory_seq_rm(self._memory, sequence, -1, -1)
                length = 0
        for at in range(length, len(piece.ids)):
            yield Entry(piece.ids[at], at, sequence, piece, at >= piece.start)

    def _longest(self, ids: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
        """The text that shares most with this one, and how much: in their order it is one of the two beside it."""
        if ids in self.read:
            return ids, len(ids)
        at = bisect_left(self._sorted, ids)
        beside = self._sorted[max(0, at - 1) : at + 1]
        return max(((other, _common(ids, other)) for other in beside), key=lambda pair: pair[1], default=((), 0))

    def _decode(self, entries: Sequence[Entry], receive: Answer) -> None:
        may_stop()
        batch = self._batch
        batch.n_tokens = len(entries)
        for i, entry in enumerate(entries):
            batch.token[i], batch.pos[i], batch.logits[i] = entry.token, entry.at, entry.wanted
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, entry.sequence
        status = self._api.llama_decode(self._context, batch)
        if status == NO_ROOM:
            raise NoRoom
        if status:
            raise EngineError(
                f"llama.cpp could not read {len(entries)} tokens (llama_decode returned {status}). Nothing was computed from "
                f"them; ask for fewer at once, or see what it says with {LOG}=1."
            )
        wanted = [entry for entry in entries if entry.wanted]
        if wanted:
            pointer = self._api.llama_get_logits(self._context)
            receive(wanted, torch.from_numpy(np.ctypeslib.as_array(pointer, (len(wanted), self._columns))))

    def _keep(self, ids: tuple[int, ...], sequence: int) -> None:
        if ids in self.read:
            self._forget(ids)
        self.read[ids] = sequence
        insort(self._sorted, ids)

    def _forget(self, ids: tuple[int, ...]) -> None:
        del self._sorted[bisect_left(self._sorted, ids)]
        sequence = self.read.pop(ids)
        self._api.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        self._free.append(sequence)

    def _recover(self) -> None:
        """Make everything fit what is known to be read, wherever it was broken off."""
        in_use = set(self.read.values())
        self._sorted = sorted(self.read)
        self._free = [sequence for sequence in range(SEQUENCES) if sequence not in in_use]
        for sequence in self._free:
            self._api.llama_memory_seq_rm(self._memory, sequence, -1, -1)


def _freed(api: ModuleType, context: Any, batch: Any, _: Opened) -> None:
    api.llama_batch_free(batch)
    api.llama_free(context)


def _slices(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Entries that are read in one call."""
    some: list[Entry] = []
    outputs = 0
    for entry in entries:
        if len(some) == TOKENS or outputs + entry.wanted > OUTPUTS:
            yield some
            some, outputs = [], 0
        some.append(entry)
        outputs += entry.wanted
    if some:
        yield some


def shared(pieces: Sequence[Piece]) -> tuple[int, ...]:
    """What all pieces begin with: what the first and the last in their order do."""
    first, last = (which((piece.before for piece in pieces), default=()) for which in (min, max))
    return first[: _common(first, last)]


def _common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """How many tokens two texts begin with alike."""
    most = min(len(a), len(b))
    return bisect_right(range(1, most + 1), False, key=lambda size: a[:size] != b[:size])
