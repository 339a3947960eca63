"""`runs.jsonl`: one line for each chunk of runs, so that a study that was killed goes on where it stopped."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from locore.io import cut_half_line
from locore_lab.fidelity.problems import Problem
from locore_lab.fidelity.runs import Chunk


class Cell(NamedTuple):
    """One sampler on one problem at one budget; `key` is that of the problem, which may change under its name."""

    problem: str
    key: str
    sampler: str
    budget: int

    @classmethod
    def of(cls, problem: Problem, sampler: str, budget: int) -> Cell:
        """The cell of a problem."""
        return cls(problem.name, problem.key(), sampler, budget)


class Journal:
    """Chunks on disk. Only where they lie is kept in memory: the laws of a whole study are too large."""

    def __init__(self, path: Path, **settings: int) -> None:
        """Read the index of a file, which need not exist; half a line at its end is cut off.

        Args:
            path: of the file.
            settings: what all chunks of a study have in common, such as the seed; lines with other values are not seen.
        """
        self.path = path
        self.settings = settings
        self.damaged = 0  # lines that could not be read, and are measured again
        self._places: dict[Cell, list[int]] = defaultdict(list)
        if path.exists():
            cut_half_line(path)
            for place, record in self._records():
                self._note(place, record)

    def chunks(self, cell: Cell) -> list[Chunk]:
        """The chunks of a cell, in order."""
        found = []
        if cell in self._places:
            with self.path.open("rb") as lines:
                for place in self._places[cell]:
                    lines.seek(place)
                    found.append(Chunk.from_json(json.loads(lines.readline())))
        return found

    def append(self, cell: Cell, chunk: Chunk) -> None:
        """Write the next chunk of a cell."""
        record = {**self.settings, **cell._asdict(), "chunk": len(self._places[cell]), **chunk.to_json()}
        with self.path.open("ab") as lines:
            place = lines.tell()
            lines.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        self._places[cell].append(place)

    def _records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        with self.path.open("rb") as lines:
            place = 0
            for line in lines:
                try:
                    yield place, json.loads(line)
                except json.JSONDecodeError:
                    self.damaged += 1
                place += len(line)

    def _note(self, place: int, record: dict[str, Any]) -> None:
        """Remember a line, if it is the next chunk of its cell; settings that it does not name are those of before."""
        if any(record.get(name, value) != value for name, value in self.settings.items()):
            return
        places = self._places[Cell(*(record[name] for name in Cell._fields))]
        if record["chunk"] == len(places):
            places.append(place)
