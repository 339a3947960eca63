"""N-gram tables made once for each model, when they are asked for, and kept on disk under the hash of its weights."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import torch

from locore.cache import cache_folder, read_tensors, write_tensors
from locore.kernel.errors import CannotScore
from locore.models import LanguageModel
from locore.samplers.twist.ngram import NGramCounts, NGramTable

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
    length = _longest(model)
    counts = NGramCounts(model.vocab_size, model.tokenizer.eos_ids)
    generator = torch.Generator().manual_seed(SEED)
    spent = 0
    if progress is not None:
        progress(0, positions)
    while counts.positions < positions:
        before = counts.positions
        counts.draft(model, BATCH, length, generator)
        spent += counts.positions - before
        if progress is not None:
            progress(min(counts.positions, positions), positions)
    return counts.table(), spent


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
