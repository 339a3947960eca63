"""The pages of the documentation: their blocks of code, and how tests run them.

A fenced block of `python` runs, after those before it on the page. In a block of `sh` every line has to be a `locore` command,
which runs. A block of `text` shows the last lines that were printed by then. A comment right above a fence makes an exception:

- `<!-- not run: REASON -->` for what a test cannot do, or what another test does;
- `<!-- needs: MODULE -->` for Python that runs where the module is installed;
- `<!-- one run -->` for printed text that another machine may print otherwise.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from locore.cli import main

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")] + sorted(DOCS.rglob("*.md"))
FENCE = re.compile(r"^(?:<!-- ([^>]+?) -->\n)?```(\w+)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MARKS = ("not run: ", "needs: ", "one run")


class Block(NamedTuple):
    """A fenced block: its language, its content, the comment above it, and the line where the content begins."""

    language: str
    content: str
    mark: str
    line: int

    @property
    def runs(self) -> bool:
        """Can it run here?"""
        needed = self.mark.removeprefix("needs: ") if self.mark.startswith("needs: ") else None
        return not self.mark.startswith("not run: ") and (needed is None or is_installed(needed))


def is_installed(module: str) -> bool:
    """Can the module be imported?"""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # nor the package that it is in
        return False


def name_of(page: Path) -> str:
    """The page as tests print it."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> Iterator[Block]:
    """All fenced blocks that name a language."""
    text = page.read_text()
    for found in FENCE.finditer(text):
        mark, language, content = found.groups()
        yield Block(language, content, mark or "", text.count("\n", 0, found.start(3)) + 1)


def run_page(page: Path, adapt: Callable[[str], str] = lambda code: code, command: Callable[[list[str]], int] = main) -> str:
    """Run the Python and the commands of a page in the current folder, in their order, and compare what is printed.

    Args:
        adapt: changes the Python of the page first, such as the address of a server.
        command: what runs the arguments of `locore`, and returns the exit code.

    Returns:
        All that was printed.
    """
    names: dict[str, Any] = {"__name__": name_of(page)}
    printed = ""
    for block in blocks(page):
        if block.language == "python" and block.runs:
            # Empty lines before the code make the lines of a traceback those of the page.
            code = compile("\n" * (block.line - 1) + adapt(block.content), str(page), "exec", dont_inherit=True)
            printed += _printed_by(lambda code=code: exec(code, names))
        elif block.language == "sh" and block.runs:
            for arguments in commands(block):
                printed += _printed_by(lambda arguments=arguments: _succeed(command, arguments))
        elif block.language == "text" and block.mark != "one run":
            last = "".join(printed.splitlines(keepends=True)[-block.content.count("\n") :])
            assert last == block.content, f"{name_of(page)}:{block.line} is not what was printed, which is\n{last}"
    return printed


def commands(block: Block) -> list[list[str]]:
    """The arguments of each `locore` command of a block; any other line is an error."""
    found = []
    for line in block.content.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            assert words[0] == "locore", f"{line!r} cannot be run; say why in a comment above the block"
            found.append(words[1:])
    return found


def _printed_by(run: Callable[[], object]) -> str:
    """What is printed on standard output; it is also passed on."""
    buffer = io.StringIO()
    with redirect_stdout(buffer):
        run()
    return buffer.getvalue()


PROGRESS = re.compile(r".*\(\d+\.\d %\), .* left|(compiling|.* LM tokens.*), \d+ s(, .* left)?")  # on a slow machine only


def _succeed(command: Callable[[list[str]], int], arguments: list[str]) -> None:
    complaints = io.StringIO()
    with redirect_stderr(complaints):
        code = command(arguments)
    said = [line for line in complaints.getvalue().splitlines() if not PROGRESS.fullmatch(line.strip())]
    assert (code, said) == (0, []), f"locore {shlex.join(arguments)}: {code}, {said}"
