"""Scores on disk (SQLite), so that a run that stops asks for nothing twice."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from locore.kernel.errors import InvalidArgument

_TABLE = "CREATE TABLE IF NOT EXISTS scores (key TEXT PRIMARY KEY, score REAL, refusal TEXT, asked TEXT NOT NULL)"
WAIT_SECONDS = 60.0  # for another process that writes to the same file


@dataclass(frozen=True)
class Reply:
    """What a service said about one text.

    Attributes:
        score: in [0, 1]; None if it was refused.
        refusal: why; None if there is a score.
    """

    score: float | None
    refusal: str | None = None


class ScoreCache:
    """Answers by text; each is on the disk when `put` returns. The file holds hashes of the texts, not the texts."""

    def __init__(self, path: Path, version: str) -> None:
        """Open a file, or make it.

        Args:
            path: of the file; several processes may share it.
            version: answers of other versions are not seen.
        """
        self.path, self._version = path, version
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._rows = sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)
            self._rows.execute(_TABLE)
            self._rows.execute("SELECT key, score, refusal, asked FROM scores LIMIT 1")
        except (OSError, sqlite3.Error) as error:
            raise InvalidArgument(f"{path} cannot keep scores ({error}); remove it, or choose another file.") from None

    def get(self, text: str) -> Reply | None:
        """The answer for a text; None if it was never asked for."""
        found = self._rows.execute("SELECT score, refusal FROM scores WHERE key = ?", (self._key(text),)).fetchone()
        return Reply(*found) if found else None

    def put(self, text: str, answer: Reply) -> None:
        """Keep an answer, with the time (UTC), because services change their models unannounced."""
        asked = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        row = (self._key(text), answer.score, answer.refusal, asked)
        self._rows.execute("INSERT OR REPLACE INTO scores VALUES (?, ?, ?, ?)", row)

    def close(self) -> None:
        """Give the file back."""
        self._rows.close()

    def _key(self, text: str) -> str:
        return hashlib.sha256(f"{self._version}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()
