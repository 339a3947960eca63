"""llama.cpp in this process, by the low-level calls of `llama-cpp-python`.

Sequences of llama.cpp share the cells of what they have read: a prefix is read once, whoever goes on from it. Keys and values
are in 32 bits and attention is llama.cpp's plain one, so that a score does not depend on what was read before it by more than
the rounding of quantised products.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from threading import RLock
from typing import Any

import torch
from torch import Tensor

from locore.kernel.errors import CannotScore, EngineError, InvalidArgument
from locore.kernel.models.language_model import ModelInfo, Origin
from locore.kernel.models.validation import positive
from locore.models.bundled import located
from locore.models.engines.llamacpp_cells import SEQUENCES, Answer, Cells, Entry, NoRoom, Piece, shared
from locore.models.engines.llamacpp_vocabulary import Opened, tokenizer_of
from locore.models.engines.model import Engine, EngineModel, Ids, require_options
from locore.models.gguf_header import provenance
from locore.models.hardware import VARIABLES, free_bytes, physical_cores

FIRST_CELLS, LARGER = 512, 4  # tokens that fit at first; so many times as many whenever they do not
LEAST_KEPT = 64  # texts; more where more were asked for at once
TRIAL = 3  # tokens of the text that is read in two ways before a model is used
TOLERANCE = 1.0  # nats a token: quantised products differ by some .03 with what is read beside them, wrong ones by several
OPTIONS = ("threads", "memory_bytes", "tolerance")


class LlamaCpp(Engine):
    """A GGUF file in llama.cpp."""

    reuses_prefix = True

    def __init__(self, file: Path, threads: int | None = None, memory_bytes: int = 2**30) -> None:
        """Open a file.

        Args:
            file: GGUF, of a model that reads texts alone from left to right; of a split one the first.
            threads: that compute; one for each core of the machine by default, or what OMP_NUM_THREADS says.
            memory_bytes: that keys and values may take.

        Raises:
            MissingExtra: `llama-cpp-python` is not installed.
            ModelNotFound: llama.cpp does not read this file.
            InvalidArgument: no thread, or no memory.
        """
        self.name, self.root = f"llama.cpp with {file.name}", str(file)
        self._opened = Opened(file)
        self._api, self._model = self._opened.api, self._opened.pointer
        self._require_cut()
        self._threads = _threads() if threads is None else positive(threads, "threads")
        self._each = _cell_bytes(self._opened)
        self._most = positive(memory_bytes, "memory_bytes") // self._each
        if self._most < FIRST_CELLS:
            raise InvalidArgument(
                f"memory_bytes must leave room for {FIRST_CELLS:,} tokens, {FIRST_CELLS * self._each:,} bytes with this model."
            )
        self.context = min(self._api.llama_model_n_ctx_train(self._model), self._most)
        self.vocab_size = self._api.llama_vocab_n_tokens(self._opened.vocabulary)
        self._lock = RLock()  # a context of llama.cpp is for one thread at a time
        self._cells = self._new_cells(FIRST_CELLS)

    def _require_cut(self) -> None:
        """Only keys and values can be shared by those that go on from them."""
        kinds = {"is_recurrent": "a state", "is_hybrid": "a state", "is_diffusion": "noise", "has_encoder": "an encoder"}
        for kind, why in kinds.items():
            if getattr(self._api, f"llama_model_{kind}")(self._model):
                raise CannotScore(f"{self.name} reads with {why}, not with keys and values alone, which Locore needs there.")

    @property
    def info(self) -> ModelInfo:
        """What the file says of itself."""
        text_of = self._opened.text
        buffer = ctypes.create_string_buffer(128)
        self._api.llama_model_desc(self._model, buffer, len(buffer))
        return ModelInfo(
            name=Path(self.root).stem,
            architecture=text_of("general.architecture") or "",
            parameters=self._api.llama_model_n_params(self._model),
            vocabulary=self.vocab_size,
            context=self.context,
            dtype="the file's own formats, keys and values in float32",
            place=self.root,
            origin=Origin(provenance(text_of), text_of("general.license"), buffer.value.decode(errors="replace")),
            threads=str(self._threads),
        )

    def next_log_probs(self, prefixes: Sequence[Ids]) -> Tensor:
        """Float[prefix, vocab], log p(· | prefix) of non-empty prefixes; what they share is read once."""
        rows = torch.empty(len(prefixes), self.vocab_size)

        def receive(entries: Sequence[Entry], logits: Tensor) -> None:
            rows[[entry.piece.number for entry in entries]] = logits

        self._read([Piece(i, tuple(prefix), len(prefix) - 1) for i, prefix in enumerate(prefixes)], receive)
        return rows.log_softmax(-1)

    def tail_scores(self, prefixes: Sequence[Ids], tails: Sequence[Ids]) -> list[list[float]]:
        """Log p of each token of each tail after its prefix; neither is empty."""
        scores = [[0.0] * len(tail) for tail in tails]

        def receive(entries: Sequence[Entry], logits: Tensor) -> None:
            places = [(entry.piece.number, entry.at - entry.piece.start) for entry in entries]
            chosen = torch.tensor([tails[number][at] for number, at in places])
            log_probs = logits.gather(1, chosen[:, None])[:, 0] - logits.logsumexp(1)
            for (number, at), score in zip(places, log_probs.tolist(), strict=True):
                scores[number][at] = score

        pairs = enumerate(zip(prefixes, tails, strict=True))
        self._read([Piece(i, (*prefix, *tail[:-1]), len(prefix) - 1) for i, (prefix, tail) in pairs], receive)
        return scores

    def plain_scores(self, prefixes: Sequence[Ids], tails: Sequence[Ids]) -> list[list[float]]:
        """As `tail_scores`, each text by itself and from its first token on."""
        scores = []
        for prefix, tail in zip(prefixes, tails, strict=True):
            with self._lock:
                self._whole().keep(0)
                scores += self.tail_scores([prefix], [tail])
        return scores

    def _read(self, pieces: Sequence[Piece], receive: Answer) -> None:
        """Answer all pieces, in groups that fit."""
        with self._lock:
            self._whole().touch(pieces)
            for at in range(0, len(pieces), SEQUENCES - 1):
                self._fitting(pieces[at : at + SEQUENCES - 1], receive, pieces)
            self._cells.keep(max(LEAST_KEPT, 2 * len(pieces)))

    def _whole(self) -> Cells:
        """The cells; new ones if work was broken off while they were being exchanged."""
        if not self._cells.close.alive:
            self._cells = self._new_cells(FIRST_CELLS)
        return self._cells

    def _fitting(self, pieces: Sequence[Piece], receive: Answer, every: Sequence[Piece]) -> None:
        """Answer pieces: without what none of `every` goes on from, with room made for them, in halves, or alone."""
        while True:
            try:
                self._cells.answer(self._cells.stem(pieces), receive)
                return self._cells.answer(pieces, receive)
            except NoRoom:
                if self._cells.forget_others(every) or self._grow(pieces):
                    continue
                if len(pieces) > 1:
                    break
                if not self._cells.read:
                    raise CannotScore(
                        f"A text of {len(pieces[0].ids):,} tokens does not fit into the memory for keys and values, which has "
                        f"room for {self._cells.size:,}. Give more memory_bytes, or a shorter prompt."
                    ) from None
                self._cells.keep(0)
        half = len(pieces) // 2
        self._fitting(pieces[:half], receive, every)
        self._fitting(pieces[half:], receive, every)

    def _grow(self, pieces: Sequence[Piece]) -> bool:
        """Make room for these, and several times what there is, as all is read again there; False if there is none."""
        size, once = self._cells.size, len(shared(pieces))
        needed = once + sum(len(piece.ids) - once for piece in pieces)
        larger = min(max(LARGER * size, needed), self._most)
        free = free_bytes(torch.device("cpu"))
        if larger <= size or (free is not None and (larger - size) * self._each > free):
            return False
        self._cells.close()
        try:
            self._cells = Cells(self._opened, larger, self._threads)
        except NoRoom:
            self._most = size
            self._cells = self._new_cells(size)
        return self._cells.size > size

    def _new_cells(self, cells: int) -> Cells:
        try:
            return Cells(self._opened, cells, self._threads)
        except NoRoom:
            raise CannotScore(
                f"llama.cpp found no memory for the keys and values of {cells:,} tokens, {cells * self._each / 1e6:,.0f} MB. "
                "Close other programs, or use a smaller model."
            ) from None


def open_file(name: str, tolerance: float = TOLERANCE, **options: Any) -> EngineModel:
    """A model in llama.cpp, after a look at whether it contradicts itself.

    Args:
        name: a GGUF file, or "smollm2".
        tolerance: nats a token by which scores after shared beginnings may differ from plain ones, in the mean.
        **options: see `LlamaCpp`.

    Raises:
        EngineError: it contradicts itself.
        MissingExtra, ModelNotFound, CannotScore, InvalidArgument: as `LlamaCpp`.
    """
    if not tolerance > 0:
        raise InvalidArgument(f"tolerance must be a positive number of nats, got {tolerance}.")
    require_options("llama.cpp", options, OPTIONS)
    file = Path(located(name)).expanduser()
    engine = LlamaCpp(file, **options)
    model = EngineModel(engine, tokenizer_of(file), bool(engine.next_log_probs([[0]]).isfinite().all()))
    model.info = engine.info
    model.differences["scores"] = gap = _difference(engine)
    if not gap <= tolerance:
        raise EngineError(
            f"Scores of {engine.name} after a beginning that texts share differ from plain ones by {gap:.3g} nats a token "
            f"(allowed: {tolerance:g}), so no weight could be trusted. Build llama-cpp-python anew, or report the model."
        )
    return model


def _difference(engine: LlamaCpp) -> float:
    """Nats a token, in the mean over a text that was read in steps, beside others that share its beginning, and at once."""
    text = [1 % engine.vocab_size]
    for _ in range(TRIAL):
        likeliest = engine.next_log_probs([text])[0].topk(min(2, engine.vocab_size)).indices.tolist()
        engine.next_log_probs([[*text, token] for token in likeliest])
        text.append(likeliest[0])
    shared = engine.tail_scores([text[:2]], [text[2:]])
    plain = engine.plain_scores([text[:1]], [text[1:]])
    return sum(abs(a - b) for a, b in zip(shared[0], plain[0][1:], strict=True)) / len(shared[0])


def _threads() -> int:
    said = next((value for name in VARIABLES if (value := os.environ.get(name, "")).isdecimal() and int(value)), None)
    return len(physical_cores()) if said is None else int(said)


def _cell_bytes(opened: Opened) -> int:
    """Keys and values of one token in all layers."""
    api, model = opened.api, opened.pointer
    heads = max(1, api.llama_model_n_head(model))
    size = api.llama_model_n_embd(model) // heads
    key, value = (opened.number(f"attention.{name}_length") or size for name in ("key", "value"))
    shared = api.llama_model_n_head_kv(model) or heads
    return int(ctypes.sizeof(ctypes.c_float) * api.llama_model_n_layer(model) * shared * (key + value))
