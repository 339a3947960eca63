"""An audit of a file of prompts: a batch whose rows are those of `locore.audit`. It outlives a kill, and runs on Ray."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from locore.auditing.prompt_audit import AuditRow, Question, row_of_error
from locore.auditing.result import Audit
from locore.batch.batch_settings import Settings
from locore.batch.driver import Progress, run
from locore.batch.engine import Engine
from locore.batch.plan import results_folder
from locore.kernel.errors import InvalidArgument


def audit_file(
    path: Path,
    output: Path,
    question: Question,
    settings: Settings,
    engine: Engine | None = None,
    *,
    resume: bool = False,
    progress: Progress | None = None,
) -> Audit:
    """An audit of the prompts in a file, one JSON object a line.

    Args:
        path: of the file, see docs/batch.md.
        output: folder for the rows, one a line in the order of the input, and for what a resumed run needs.
        question: what is asked after each prompt.
        settings: of the batch, as `batch_of` makes them.
        engine: who computes the rows.
        resume: go on with what is in the folder.
        progress: is called as rows are done.

    Raises:
        InvalidArgument: as `locore.batch.run`.
    """
    run(path, output, settings, engine, resume=resume, progress=progress)
    return read_audit(output)


def read_audit(output: Path) -> Audit:
    """The audit whose rows are in a folder; see `locore.batch.run`.

    Raises:
        InvalidArgument: there is none.
    """
    try:
        config = json.loads((output / "config.json").read_text(encoding="utf-8"))["settings"]
        about, limit = {"event": config["constraint"], "max_tokens": config["max_new_tokens"]}, config["audit"]["limit"]
        rows = list(_rows(output, limit))
    except (OSError, ValueError, LookupError, TypeError) as error:
        why = "" if isinstance(error, FileNotFoundError) else f" ({error})"
        raise InvalidArgument(f"{output} holds no audit{why}; give the folder that `locore audit --out` wrote.") from None
    if not rows:
        raise InvalidArgument(f"the audit in {output} has no finished rows; go on with it by --resume.")
    return Audit.of(rows, limit, about)


def _rows(output: Path, limit: float | None) -> Iterator[AuditRow]:
    for path in sorted(results_folder(output).glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                read = json.loads(line)
                index = read["line"] - 1
                failed = read.get("error")
                yield AuditRow.from_json(read, index=index) if failed is None else row_of_error(index, failed["message"], limit)
