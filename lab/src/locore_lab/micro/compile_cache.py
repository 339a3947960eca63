"""The compile cache: seconds to compile a constraint, to keep it, and to get it back from disk and from memory.

python -m locore_lab.micro.compile_cache --vocabularies DIR --words FILE [--json lab/results/compile_cache.json]
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

import locore
from locore.cache import cache_folder
from locore.compilers import stored
from locore_lab.micro.machine import machine
from locore_lab.micro.mask_cases import SIZES, WORDS, Vocabulary, cases

REPEATS = 5


def least(work: Callable[[], object], before: Callable[[], object] = lambda: None) -> dict[str, float]:
    """Least CPU and wall seconds of some repeats."""
    found = []
    for _ in range(REPEATS):
        before()
        cpu, wall = time.process_time(), time.perf_counter()
        work()
        found.append((time.process_time() - cpu, time.perf_counter() - wall))
    return {"cpu_seconds": min(cpu for cpu, _ in found), "wall_seconds": min(wall for _, wall in found)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocabularies", type=Path, required=True, help="folder with bpe32000.json and bpe128000.json")
    parser.add_argument("--words", type=Path, default=WORDS, help="phrases of the ban list")
    parser.add_argument("--json", type=Path, help="also write the results here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    record: dict = {"machine": machine(), "cases": []}
    for size in SIZES:
        tokenizer = Vocabulary.load(options.vocabularies / f"bpe{size}.json").tokenizer
        for case in cases(options.words):
            if case.kind == "regex":  # too quick to be kept
                continue
            with tempfile.TemporaryDirectory() as folder:
                os.environ["LOCORE_CACHE"] = folder

                def compiled(use_cache: bool = True) -> locore.circuits.Circuit:
                    return locore.compile(case.alpha(), tokenizer, case.length, use_cache=use_cache)  # noqa: B023

                row: dict = {"tokens": size, "case": case.name, "length": case.length}
                reader = compiled(use_cache=False).reader
                assert reader is not None
                row["table_bytes"] = sum({id(rows): rows.nbytes for rows in reader.rows}.values())
                row["compile"] = least(lambda: compiled(use_cache=False))
                stored.forget()
                start = time.process_time()
                compiled()
                row["compile_and_keep"] = {"cpu_seconds": time.process_time() - start}
                row["from_disk"] = least(compiled, before=stored.forget)
                row["from_memory"] = least(compiled)
                row["file_bytes"] = sum(path.stat().st_size for path in (cache_folder() / "circuits").iterdir())
            record["cases"].append(row)
            print(row, flush=True)
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
