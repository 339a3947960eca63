"""One line of the input, what is written for it, and counts over what was written."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from locore import io
from locore.batch.batch_settings import ROW_OPTIONS, Settings
from locore.evidence import Particles
from locore.kernel.chat import Prompt, plain_messages
from locore.kernel.errors import InvalidArgument, UnsupportedKeyword
from locore.parsing import Answer

MAX_ROW_BYTES = 16_000_000
MAX_DEPTH = 200  # of objects and lists in a row
FIELDS = ("prompt", "messages", "id", "meta", *ROW_OPTIONS)
SEED_BYTES = 4  # torch's generators on a CPU use no more of a seed
COPIED = (
    *("log_weights", "log_evidence", "log_evidence_error", "log_evidence_interval", "log_evidence_bounds", "ess", "pareto_k"),
    *("verdict", "zero_weights"),
)

Record = dict[str, Any]


def read_object(line: bytes) -> Record:
    """The JSON object of a line of the input.

    Raises:
        InvalidArgument: there is none.
    """
    if len(line) > MAX_ROW_BYTES:
        raise InvalidArgument(f"the row has more than {MAX_ROW_BYTES:,} bytes; make it shorter.")
    if not line.strip():
        raise InvalidArgument("the line is empty; remove it.")
    try:
        row = io.parse(line.decode("utf-8"), MAX_DEPTH)
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"the row is no UTF-8: {error.reason} at byte {error.start}; convert it.") from None
    except io.NotJson as error:
        raise InvalidArgument(f"the row {error}.") from None
    if not isinstance(row, dict):
        raise InvalidArgument('the row is no JSON object; write {"prompt": "..."}.')
    return row


def labels_of(row: Record) -> Record:
    """`id` and `meta`: they are given back whatever becomes of the row."""
    return {"id": row.get("id"), **({"meta": row["meta"]} if "meta" in row else {})}


def check_fields(row: Record) -> None:
    """Are all fields of a row known, and is there a prompt? What the options may be is checked by `locore.generate`.

    Raises:
        UnsupportedKeyword: a field is not known; nothing is dropped silently.
        InvalidArgument: there is no prompt, or the id is neither text nor number.
    """
    unknown = [name for name in row if name not in FIELDS]
    if unknown:
        raise UnsupportedKeyword(
            f"the row has a field {unknown[0]!r}, which is not known; known are {', '.join(FIELDS)}. Put what is only to be "
            "kept under 'meta'."
        )
    if ("prompt" in row) == ("messages" in row) or not isinstance(row.get("prompt", []), str | list):
        raise InvalidArgument(
            "the row needs a field 'prompt': a text, a list of token ids, or messages; or a field 'messages' instead."
        )
    if isinstance(row.get("id"), bool | float | list | dict):
        raise InvalidArgument(f"the id must be a text or a whole number, got {row['id']!r}.")


def prompt_of(row: Record) -> Prompt:
    """The prompt of a row whose fields are known.

    Raises:
        InvalidArgument: `messages` are no messages.
    """
    prompt: Prompt = plain_messages(row["messages"]) if "messages" in row else row["prompt"]
    return prompt


def digest_of(line: bytes) -> str:
    """A short name for what a line says, byte by byte."""
    return hashlib.blake2b(line, digest_size=8).hexdigest()


def seed_of(run_seed: int, row: Record) -> int:
    """The seed of a row: it depends on the run's and on all that the row says but `meta`, on nothing else.

    Rows that are equal have equal seeds, wherever they stand.
    """
    content = {name: value for name, value in row.items() if name != "meta"}
    text = json.dumps([run_seed, content], sort_keys=True)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=SEED_BYTES).digest(), "little")


def result_of(particles: Particles, settings: Settings) -> Record:
    """What is written of particles; None where a number is unknown or infinite.

    Raises:
        InvalidArgument: fields are asked for, and a text is no JSON.
    """
    plain = particles.to_json()
    info = plain["info"]
    bare = plain["texts"] is None
    return {
        **({} if bare else {"texts": plain["texts"]}),
        **({"tokens": plain["tokens"]} if settings.tokens or bare else {}),
        **({"record": Answer(particles, abstain_below=settings.abstain_below).to_json()} if settings.parse else {}),
        **{name: plain[name] for name in COPIED},
        "guarantee": info["guarantee"],
        "sampler": info.get("chosen", info["sampler"]),
        "seed": info["seed"],
        "lm_tokens": info["lm_tokens"],
    }


def error_of(error: BaseException) -> Record:
    """What is written of a row that failed."""
    return {"error": {"type": type(error).__name__, "message": str(error)}}


def encode(record: Record) -> bytes:
    """A line of the results."""
    text = json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can write and UTF-8 cannot
        return json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def whole_rows(path: Path, first: int) -> Iterator[tuple[Record, int]]:
    """The rows of a file of results and their bytes, up to where it was torn by a kill or a failing machine.

    Args:
        path: of the file; one that is not there has no rows.
        first: line number of its first row; the others follow it.
    """
    with suppress(FileNotFoundError), path.open("rb") as lines:
        for number, line in enumerate(lines, first):
            try:
                row = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                return
            if not isinstance(row, dict) or row.get("line") != number or "seconds" not in row:
                return
            yield row, len(line)


@dataclass
class Tally:
    """Counts over rows.

    Attributes:
        rows: all of them.
        lm_tokens: what they asked of the model.
        seconds: that they took, one after the other.
        errors: rows that failed, by the class of the error.
        verdicts: the others, by verdict.
    """

    rows: int = 0
    lm_tokens: int = 0
    seconds: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        """Rows that are errors."""
        return self.errors.total()

    def add(self, row: Record) -> None:
        """Count one more row."""
        self.rows += 1
        self.seconds += row["seconds"]
        if "error" in row:
            self.errors[row["error"]["type"]] += 1
        else:
            self.lm_tokens += row["lm_tokens"]
            self.verdicts[row["verdict"]] += 1

    def merge(self, other: Record) -> None:
        """Count the rows of another tally, as `to_json` writes it."""
        self.rows += other["rows"]
        self.lm_tokens += other["lm_tokens"]
        self.seconds += other["seconds"]
        self.errors.update(other["errors"])
        self.verdicts.update(other["verdicts"])

    def to_json(self) -> Record:
        """As plain values."""
        counts = {"errors": dict(self.errors), "verdicts": dict(self.verdicts)}
        return {"rows": self.rows, "failed": self.failed, "lm_tokens": self.lm_tokens, "seconds": self.seconds, **counts}
