"""The low-level calls of `llama_cpp` that Locore uses, computed here: cells, sequences, and what llama.cpp aborts on.

It is a module to whoever imports it. What it reads are files of their own: the word GGUF and the number of a `StubModel`.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from locore.models import LanguageModel
from locore.models.engines import llamacpp_vocabulary
from locore.models.engines.llamacpp import open_file
from locore.models.engines.model import EngineModel

MOST_SEQUENCES = 256
CONTROL, NORMAL = 8, 4
NO_WINDOW = 2**31


@dataclass
class StubModel:
    """A model by the logits after each text, and what its file says.

    Attributes:
        row: Float[vocab] of the logits behind a non-empty text.
        window: how far its narrowest layer looks back; a cell that is further back than that may be taken.
        fails: what `llama_decode` returns after so many calls.
        kinds: "recurrent", "hybrid", "diffusion", "encoder".
        most_cells: contexts of more cannot be made.
    """

    row: Callable[[tuple[int, ...]], torch.Tensor]
    vocab_size: int
    ends: tuple[int, ...] = ()
    context: int = 4_096
    window: int = NO_WINDOW
    kinds: tuple[str, ...] = ()
    metadata: dict[str, str] = field(default_factory=lambda: {"general.architecture": "stub", "general.name": "A stub"})
    most_cells: int = NO_WINDOW
    fails: dict[int, int] = field(default_factory=dict)
    memory: bool = True
    before: Callable[[], None] = lambda: None  # a decode
    decoded: int = 0  # tokens
    calls: int = 0
    contexts: int = 0  # that are not freed
    largest: int = 0  # of them


class Handle:
    """A model that was loaded: what a pointer is to llama.cpp."""

    def __init__(self, model: StubModel) -> None:
        self.model, self.contexts, self.alive = model, 0, True

    def __getattr__(self, name: str) -> Any:
        assert self.alive, "the model is freed"
        return getattr(self.model, name)


class StubContext:
    """What its sequences have read, cell by cell."""

    def __init__(self, handle: Handle, wanted: Any) -> None:
        assert wanted.n_seq_max <= MOST_SEQUENCES and wanted.n_outputs_max >= wanted.n_seq_max
        self.handle, self.model, self.wanted = handle, handle.model, wanted
        self.batch = min(wanted.n_batch, wanted.n_ctx)
        self.cells: list[tuple[int, int, set[int]] | None] = [None] * wanted.n_ctx
        self.out = np.zeros((wanted.n_outputs_max, handle.vocab_size), dtype=np.float32)
        self.alive = True

    def of(self, sequence: int) -> dict[int, int]:
        """Tokens by position."""
        assert self.alive and 0 <= sequence < MOST_SEQUENCES
        return {cell[0]: cell[1] for cell in self.cells if cell is not None and sequence in cell[2]}

    def take(self, entries: list[tuple[int, int, int]]) -> bool:
        """Put tokens into cells that nobody needs; all of them, or none."""
        last = {s: max(self.of(s), default=-1) for s in {s for cell in self.cells if cell for s in cell[2]}}
        free = [i for i, cell in enumerate(self.cells) if cell is None]
        free += [
            i
            for i, cell in enumerate(self.cells)
            if cell is not None and len(cell[2]) == 1 and last[min(cell[2])] + 1 - cell[0] >= self.model.window
        ]
        if len(free) < len(entries):
            return False
        for i, (token, at, sequence) in zip(free, entries, strict=False):
            taken = self.cells[i]
            self.cells[i] = (at, token, {sequence})
            if taken is not None:  # the layers with a window forget all that is as old
                self.remove(min(taken[2]), 0, taken[0] + 1)
        return True

    def remove(self, sequence: int, start: int, end: int) -> None:
        for i, cell in enumerate(self.cells):
            if cell is not None and sequence in cell[2] and start <= cell[0] < end:
                rest = cell[2] - {sequence}
                self.cells[i] = (cell[0], cell[1], rest) if rest else None


class Stub:
    """The module."""

    llama_context_params = SimpleNamespace(n_outputs_max=0)
    __version__ = "stub"
    llama_log_callback = staticmethod(lambda function: function)

    def __init__(self) -> None:
        self.models: dict[bytes, StubModel] = {}
        self.numbers = count()
        self.log: Any = None

    def file(self, folder: Path, model: StubModel) -> Path:
        """Where a model can be read."""
        name = b"%d" % next(self.numbers)
        self.models[name] = model
        path = folder / f"stub{name.decode()}.gguf"
        path.write_bytes(b"GGUF" + name)
        return path

    # The library and files.

    def llama_backend_init(self) -> None: ...

    def llama_log_set(self, callback: Any, _: Any) -> None:
        self.log = callback

    def llama_model_default_params(self) -> Any:
        return SimpleNamespace(vocab_only=False)

    def llama_model_load_from_file(self, path: bytes, wanted: Any) -> Handle | None:
        model = self.models.get(Path(path.decode()).read_bytes()[4:])
        if model is None:
            self.log(4, b"the file is damaged.\n", None)
            return None
        return Handle(model)

    def llama_model_free(self, model: Handle) -> None:
        assert model.alive and not model.contexts, "freed twice, or before what computes with it"
        model.alive = False

    def llama_model_get_vocab(self, model: Handle) -> Handle:
        return model

    def llama_model_meta_val_str(self, model: Handle, key: bytes, buffer: Any, size: int) -> int:
        value = model.metadata.get(key.decode())
        if value is None:
            return -1
        buffer.value = value.encode()[: size - 1]
        return len(value.encode())

    def llama_model_desc(self, model: Handle, buffer: Any, size: int) -> int:
        buffer.value = b"stub"
        return 4

    llama_model_is_recurrent = staticmethod(lambda model: "recurrent" in model.kinds)
    llama_model_is_hybrid = staticmethod(lambda model: "hybrid" in model.kinds)
    llama_model_is_diffusion = staticmethod(lambda model: "diffusion" in model.kinds)
    llama_model_has_encoder = staticmethod(lambda model: "encoder" in model.kinds)
    llama_model_n_ctx_train = staticmethod(lambda model: model.context)
    llama_model_n_swa = staticmethod(lambda model: 0 if model.window == NO_WINDOW else model.window)
    llama_model_n_params = staticmethod(lambda model: 7)
    llama_model_n_head = staticmethod(lambda model: 1)
    llama_model_n_head_kv = staticmethod(lambda model: 1)
    llama_model_n_embd = staticmethod(lambda model: 2)
    llama_model_n_layer = staticmethod(lambda model: 1)  # so a cell has 16 bytes

    # The vocabulary: letters.

    llama_vocab_n_tokens = staticmethod(lambda model: model.vocab_size)
    llama_vocab_get_attr = staticmethod(lambda model, token: CONTROL if token in model.ends else NORMAL)
    llama_vocab_is_eog = staticmethod(lambda model, token: token in model.ends)
    llama_vocab_eos = staticmethod(lambda model: model.ends[0] if model.ends else -1)
    llama_vocab_bos = staticmethod(lambda model: -1)
    llama_vocab_type = staticmethod(lambda model: 2)
    llama_vocab_get_text = staticmethod(lambda model, token: b"<%d>" % token)

    def llama_tokenize(self, model: Handle, data: bytes, size: int, ids: Any, most: int, adds: bool, specials: bool) -> int:
        ids[:size] = [byte - ord("a") for byte in data]
        return size

    def llama_token_to_piece(self, model: Handle, token: int, buffer: Any, size: int, lstrip: int, special: bool) -> int:
        buffer[0] = chr(ord("a") + token).encode()
        return 1

    # Contexts.

    def llama_context_default_params(self) -> Any:
        return SimpleNamespace()

    def llama_init_from_model(self, model: Handle, wanted: Any) -> StubContext | None:
        if wanted.n_ctx > model.most_cells:
            return None
        model.contexts += 1
        model.model.contexts += 1
        model.model.largest = max(model.model.largest, wanted.n_ctx)
        return StubContext(model, wanted)

    def llama_free(self, context: StubContext) -> None:
        assert context.alive and context.handle.alive, "freed twice, or after its model"
        context.alive = False
        context.handle.contexts -= 1
        context.model.contexts -= 1

    def llama_get_memory(self, context: StubContext) -> StubContext | None:
        return context if context.model.memory else None

    def llama_batch_init(self, tokens: int, _: int, sequences: int) -> Any:
        ints = ctypes.c_int32 * tokens
        return SimpleNamespace(
            n_tokens=0,
            token=ints(),
            pos=ints(),
            logits=ints(),
            n_seq_id=ints(),
            seq_id=[[0] * sequences for _ in range(tokens)],
        )

    def llama_batch_free(self, batch: Any) -> None:
        batch.token = None

    def llama_memory_seq_cp(self, memory: StubContext, source: int, target: int, start: int, end: int) -> None:
        assert memory.alive and 0 <= target < MOST_SEQUENCES
        for cell in memory.cells:
            if cell is not None and source in cell[2] and start <= cell[0] < end:
                cell[2].add(target)

    def llama_memory_seq_rm(self, memory: StubContext, sequence: int, start: int, end: int) -> bool:
        assert memory.alive and (start, end) == (-1, -1) and 0 <= sequence < MOST_SEQUENCES
        memory.remove(sequence, 0, NO_WINDOW)
        return True

    def llama_memory_seq_pos_min(self, memory: StubContext, sequence: int) -> int:
        return min(memory.of(sequence), default=-1)

    def llama_decode(self, context: StubContext, batch: Any) -> int:
        model = context.model
        assert context.alive and 0 < batch.n_tokens <= context.batch, "GGML_ASSERT(n_tokens_all <= cparams.n_batch)"
        entries = [(batch.token[i], batch.pos[i], batch.seq_id[i][0]) for i in range(batch.n_tokens)]
        wanted = [i for i in range(batch.n_tokens) if batch.logits[i]]
        assert len(wanted) <= context.wanted.n_outputs_max, "GGML_ASSERT(n_outputs_max <= cparams.n_outputs_max)"
        model.before()
        model.calls += 1
        if model.calls in model.fails:
            return model.fails.pop(model.calls)
        if not self._fits(context, entries):
            return -1
        if not context.take(entries):
            return 1
        model.decoded += len(entries)
        for row, i in enumerate(wanted):
            _, at, sequence = entries[i]
            context.out[row] = model.row(self._seen(context, sequence, at)).numpy()
        return 0

    def _fits(self, context: StubContext, entries: list[tuple[int, int, int]]) -> bool:
        after: dict[int, int] = {}
        for token, at, sequence in entries:
            last = after[sequence] if sequence in after else max(context.of(sequence), default=-1)
            if not 0 <= token < context.model.vocab_size or at != last + 1:
                return False
            after[sequence] = at
        return True

    def _seen(self, context: StubContext, sequence: int, at: int) -> tuple[int, ...]:
        """What the model looks back on: the newest positions, which must be there."""
        there = context.of(sequence)
        first = max(0, at + 1 - context.model.window)
        assert all(position in there for position in range(first, at + 1)), "a position was lost"
        return tuple(there[position] for position in range(first, at + 1))

    def llama_get_logits(self, context: StubContext) -> Any:
        return context.out.ctypes.data_as(ctypes.POINTER(ctypes.c_float))


@contextmanager
def installed(module: Any) -> Iterator[None]:
    """This, where `llama_cpp` is imported; None is an environment without it."""
    before = sys.modules.get("llama_cpp", ...)
    sys.modules["llama_cpp"] = module
    llamacpp_vocabulary.library.cache_clear()
    try:
        yield
    finally:
        del sys.modules["llama_cpp"]
        if before is not ...:
            sys.modules["llama_cpp"] = before
        llamacpp_vocabulary.library.cache_clear()


STUB = Stub()


def saying(model: LanguageModel, **options: Any) -> StubModel:
    """Says what this model says, which has neither ends nor a prompt."""
    row = lru_cache(None)(lambda ids: model.prompted(ids).log_probs(torch.zeros(1, 1, dtype=torch.int64))[0, 0])
    return StubModel(row, model.vocab_size, **options)


def drawn(vocab_size: int, seed: int = 0, window: int = NO_WINDOW, **options: Any) -> StubModel:
    """Random numbers for every text, which depend on all of it that the window shows, in order."""

    def row(ids: tuple[int, ...]) -> torch.Tensor:
        number = hash((seed, ids[-window:] if window < NO_WINDOW else ids)) % 2**63  # of integers: the same in every process
        return torch.randn(vocab_size, generator=torch.Generator().manual_seed(number))

    return StubModel(lru_cache(None)(row), vocab_size, window=window, **options)


def opened(model: StubModel, folder: Path, **options: Any) -> EngineModel:
    """A model of the stub, as `locore.load` opens it."""
    with installed(STUB):
        return open_file(str(STUB.file(folder, model)), **{"threads": 1, **options})
