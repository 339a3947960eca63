"""Grammars of real languages from the examples of SynCode, Outlines, Lark, llama.cpp and transformers-CFG.

`sources.json` names the files: repository, commit, path, licence and the hash of their content. The files themselves are not
here; they are read from clones of the repositories.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from locore.kernel.errors import InvalidArgument
from locore_lab.shared import pinned

SOURCES = Path(__file__).with_name("sources.json")
Syntax = Literal["lark", "gbnf"]


@dataclass(frozen=True)
class Listed:
    """A grammar that somebody else has written.

    Attributes:
        repository, commit: of GitHub.
        path: in it; behind a # the variable of a Python file that holds the text.
        sha256: of the file.
        change: what has to be written in another way for Locore, in words; "" where nothing has to be.
        replace: the same as pairs of texts, each of which stands there once.
    """

    name: str
    repository: str
    commit: str
    path: str
    sha256: str
    licence: str
    change: str = ""
    replace: tuple[tuple[str, str], ...] = ()

    @property
    def syntax(self) -> Syntax:
        """GBNF is also called EBNF by those who took it from llama.cpp."""
        return "gbnf" if self.path.endswith((".gbnf", ".ebnf")) else "lark"

    def text(self, clones: Path) -> str:
        """As its authors wrote it.

        Args:
            clones: a folder with a clone OWNER/NAME of each repository.

        Raises:
            InvalidArgument: it is not there, or is another version.
        """
        path, _, variable = self.path.partition("#")
        file = clones / self.repository / path
        folder = clones / self.repository
        wanted = f"git clone https://github.com/{self.repository} {folder}, and there git checkout {self.commit}"
        [content] = pinned([file], self.sha256, wanted)
        return _variable(content.decode(), variable) if variable else content.decode()

    def changed(self, text: str) -> str:
        """As Locore takes it."""
        for old, new in self.replace:
            if text.count(old) != 1:
                raise InvalidArgument(f"{old!r} stands {text.count(old)} times in the grammar {self.name!r}, not once.")
            text = text.replace(old, new)
        return text


def _variable(program: str, name: str) -> str:
    """The text that a program gives to a variable."""
    for statement in ast.parse(program).body:
        if isinstance(statement, ast.Assign) and [ast.unparse(target) for target in statement.targets] == [name]:
            return str(ast.literal_eval(statement.value))
    raise InvalidArgument(f"no text is given to {name!r} there.")


def listed(path: Path = SOURCES) -> list[Listed]:
    """All grammars, in the order of the table."""
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    found = []
    for row in record["grammars"]:
        fields = {**record["repositories"][row["repository"]], **row}
        found.append(Listed(**{**fields, "replace": tuple(map(tuple, row.get("replace", ())))}))
    return found
