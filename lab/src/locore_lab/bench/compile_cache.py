"""The compile cache: seconds to compile a constraint, to keep it, and to get it back from disk and from memory.

The vocabularies are those of `locore bench vocabularies`.
"""

import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import locore
from locore.cache import cache_folder
from locore.compilers import stored
from locore_lab.harness import Case, Row, measurement
from locore_lab.mask_engines.cases import SIZES, WORDS, Constrained, Vocabulary, constraints
from locore_lab.measuring import least_seconds, timed

REPEATS = 5


def measured(tokenizer: locore.Tokenizer, case: Constrained) -> Row:
    """In a cache of its own."""

    def compiled(use_cache: bool = True) -> locore.circuits.Circuit:
        return locore.compile(case.alpha(), tokenizer, case.length, use_cache=use_cache)

    with tempfile.TemporaryDirectory() as folder:
        os.environ["LOCORE_CACHE"] = folder
        reader = compiled(use_cache=False).reader
        assert reader is not None
        row: Row = {"table_bytes": sum({id(rows): rows.nbytes for rows in reader.rows}.values())}
        row |= least_seconds({"compile": lambda: compiled(use_cache=False)}, REPEATS)
        stored.forget()
        row["compile_and_keep"] = timed(compiled)[1]
        row |= least_seconds({"from_disk": lambda: (stored.forget(), compiled())}, REPEATS)
        row |= least_seconds({"from_memory": compiled}, REPEATS)
        row["file_bytes"] = sum(path.stat().st_size for path in (cache_folder() / "circuits").iterdir())
    return row


@measurement(
    " | tokens | compile | compile and keep | from disk | from memory | table, MB | file, MB",
    "{case} | {tokens:,} | {compile:.4f} | {compile_and_keep:.4f} | {from_disk:.4f} | {from_memory:.4f} "
    "| {table_mb:.0f} | {file_mb:.1f}",
    fields={"table_mb": lambda row: row["table_bytes"] / 1e6, "file_mb": lambda row: row["file_bytes"] / 1e6},
)
def run(
    vocabularies: Annotated[Path, "folder with bpe32000.json and bpe128000.json"],
    words: Annotated[Path, "phrases of the ban list"] = WORDS,
) -> Iterator[Case]:
    for size in SIZES:
        tokenizer = Vocabulary.load(vocabularies / f"bpe{size}.json").tokenizer
        for case in constraints(words):
            if case.kind != "regex":  # too quick to be kept
                yield {"tokens": size, "case": case.name}, partial(measured, tokenizer, case)
