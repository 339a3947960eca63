"""One harness for everything that is measured: commands with their options, cases that go on after a kill, tables.

A measurement is a function `run` that yields cases: what tells a case from the others, and the work that gives the rest of its
row (or of its rows). With `@measurement` it becomes a command, whose options are the arguments of the function:

    @measurement("sampler | ms", "{sampler} | {milliseconds:.1f}", quick={"runs": 1})
    def run(model: str = "tiny", runs: Annotated[int, "the fastest counts"] = 5) -> Iterator[Case]:
        for sampler in SAMPLERS:
            yield {"sampler": sampler}, partial(measured, model, sampler, runs)

An experiment is a function `run` that writes a folder, and keeps in its own journal what it has. With `@experiment` it becomes
a command that shows its table. Commands are found by the names of modules, which are imported when they are called.
"""

from __future__ import annotations

import ast
import inspect
import json
import pickle
import re
import string
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperGroup

from locore.io import machine, require_same, write_whole
from locore.kernel.errors import InvalidArgument, LocoreError

Row = dict[str, Any]
Case = tuple[Row, Callable[[], Row | list[Row]]]
Columns = tuple[str, str]  # the heads of a table, and the format of a line; both with | between the columns
Fields = Mapping[str, Callable[[Row], object]]  # what tables show beside the fields of a row
Run = Callable[..., Any]


def say(text: str) -> None:
    """Progress goes to stderr."""
    print(text, file=sys.stderr, flush=True)


def option(help: str, *names: str) -> Any:
    """An option of a command, by the name of its argument or by these."""
    return typer.Option(*names, help=help)


Output = Annotated[Path, option("Folder of results.json and table.md; a killed run goes on.", "--output", "-o")]
Quick = Annotated[bool, typer.Option("--quick", help="At toy size, in a few minutes, without data.")]
Data = Annotated[Path | None, option("Folder of the real data; docs/lab/reproduce.md says what it holds.")]
Seed = Annotated[int, option("Of everything.")]
Some = list[str] | None
Hidden = Annotated[Any, "hidden"]  # an argument that the shell does not have


@dataclass(frozen=True)
class Measurement:
    """What `@measurement` makes."""

    cases: Callable[..., Iterable[Case]]  # yields them
    tables: Mapping[str, Columns]  # columns by the `part` that rows name; those of all rows under ""
    quick: Mapping[str, Any]  # arguments at toy size
    fields: Fields  # what a table shows beside the fields of a row
    after: Callable[[list[Row]], str] | None = None  # what is to be said of all rows

    def measure(self, options: Mapping[str, Any], path: Path | None = None, resume: bool = False) -> list[Row]:
        """Print every row when it is known, and write all of them to a file."""
        import torch

        if resume and path is None:
            raise InvalidArgument("--resume goes on with what a file has: name it, --json FILE.")
        torch.set_num_threads(1)  # CPU seconds of more count how they wait for each other
        settings = json.loads(json.dumps(dict(options), default=str))
        rows = _kept(path, settings) if resume and path else []
        for number in range(len(rows)):
            self._show(rows[: number + 1])
        for name, work in self.cases(**options):
            if any(name.items() <= row.items() for row in rows):
                continue
            found = work()
            for row in found if isinstance(found, list) else [found]:
                rows.append({**name, **row})
                self._show(rows)
            if path:
                write_rows(
                    path, {"machine": {**machine(), "transformers": version("transformers")}, "settings": settings}, rows
                )
        if self.after is not None:
            print(f"\n{self.after(rows)}", flush=True)
        return rows

    def _show(self, rows: list[Row]) -> None:
        """The last of some rows; heads where a table begins."""
        lines = self.table(rows[-1:]).splitlines()
        begins = len(rows) == 1 or rows[-1].get("part") != rows[-2].get("part")
        print(*(["", *lines] if begins else lines[2:]), sep="\n", flush=True)

    def table(self, rows: Iterable[Row]) -> str:
        """Markdown; the first column is text, the others are numbers. What a row lacks is a dash."""
        rows = list(rows)
        return table(rows, self.tables[rows[0].get("part", "") if rows else ""], self.fields)


def table(rows: Iterable[Row], columns: Columns, fields: Fields | None = None) -> str:
    """Markdown; the first column is text, the others are numbers. What a row lacks is a dash."""
    heads, cells = ([part.strip() for part in line.split("|")] for line in columns)
    return markdown(heads, ([_cell(row, cell, fields or {}) for cell in cells] for row in rows))


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the first column is text, the others are numbers."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(row: Row, cell: str, fields: Fields) -> str:
    try:
        shown = {name: of(row) for name, of in fields.items() if f"{{{name}" in cell}
        return _SENSIBLE.format(cell, **{**row, **shown})
    except (KeyError, TypeError):  # it is not there, or None
        return "–"


class _Sensible(string.Formatter):
    """Gives numbers sensible digits where a format says nothing."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        if value is None:
            raise TypeError("nothing is there")
        if isinstance(value, float) and not format_spec:
            format_spec = ".2f" if abs(value) >= 1 else ".3g"
        return super().format_field(value, format_spec)


_SENSIBLE = _Sensible()


def write_report(
    folder: Path, title: str, text: str, rows: list[dict[str, Any]], columns: list[str], *, after: str = "", **facts: Any
) -> None:
    """`results.json` (all fields of all rows) and `table.md` (the columns, under a title and a text).

    Args:
        after: Markdown that follows the table.
        facts: more fields of `results.json`, such as the settings.
    """
    record = {"title": title, **facts, "machine": machine(), "rows": rows}
    write_whole(folder / "results.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    parts = [f"# {title}", text, markdown_table(rows, columns), after]
    write_whole(folder / "table.md", "\n\n".join(part for part in parts if part) + "\n")


def markdown_table(rows: list[dict[str, Any]], columns: list[str]) -> str:
    """Fields of rows as a table; numbers with sensible digits, what a row lacks as a dash."""
    return markdown(columns, ([_shown(row.get(column)) for column in columns] for row in rows))


def _shown(value: Any) -> str:
    return "–" if value is None else _SENSIBLE.format("{}", value)


def write_rows(path: Path, facts: Row, rows: Iterable[Row]) -> None:
    """`facts` and `rows` as JSON, a row a line."""
    head = json.dumps(facts, indent=1, ensure_ascii=False)
    lines = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in rows)
    write_whole(path, f'{head[:-2]},\n "rows": [\n  {lines}\n ]\n}}\n')


def _kept(path: Path, settings: Row) -> list[Row]:
    if not path.exists():
        return []
    record = json.loads(path.read_text(encoding="utf-8"))
    require_same(path, record.get("settings", {}), settings)
    rows: list[Row] = record["rows"]
    return rows


def measurement(
    heads: str,
    line: str,
    quick: Mapping[str, Any] | None = None,
    fields: Fields | None = None,
    after: Callable[[list[Row]], str] | None = None,
    **parts: Columns,
) -> Callable[[Callable[..., Iterable[Case]]], Measurement]:
    """Makes a measurement of a function that yields cases.

    Args:
        heads, line: columns of the table.
        quick, fields, after: as in `Measurement`.
        parts: columns of rows whose `part` is this, in a table of their own.
    """
    return lambda cases: Measurement(cases, {"": (heads, line), **parts}, quick or {}, fields or {}, after)


def experiment(example: str, shows: str = "table.md") -> Callable[[Run], Run]:
    """Makes a command of a function that writes a folder."""

    def made(run: Run) -> Run:
        run.example, run.shows = example, shows  # type: ignore[attr-defined]
        return run

    return made


def apart(function: Callable[..., Any], *arguments: object, seconds: float | None = None) -> Any:
    """What a function of some module returns in a process of its own, where memory and imports are its own; as JSON."""
    command = [sys.executable, "-c", "from locore_lab.harness import answer; answer()"]
    order = pickle.dumps((function, arguments))
    done = subprocess.run(command, input=order, capture_output=True, timeout=seconds)
    if done.returncode:
        raise LocoreError(f"{function.__qualname__} failed in a process of its own: {done.stderr.decode()[-400:]}")
    return json.loads(done.stdout.splitlines()[-1])


def answer() -> None:
    """The other side of `apart`."""
    import torch

    torch.set_num_threads(1)
    function, arguments = pickle.load(sys.stdin.buffer)
    print("\n" + json.dumps(function(*arguments)))


def commands(modules: Mapping[str, str]) -> type[TyperGroup]:
    """A group of commands: name -> module, which is imported when the command is called, and read for a line on it."""

    class Commands(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return [*modules, *super().list_commands(ctx)]

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            if cmd_name in modules:
                return command(cmd_name, import_module(modules[cmd_name]).run)
            return super().get_command(ctx, cmd_name)

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            told = {name: _first_line(module) for name, module in modules.items()}
            told |= {name: each.get_short_help_str(90) for name, each in self.commands.items()}
            with formatter.section("Commands"):
                formatter.write_dl(list(told.items()))

    return Commands


def command(name: str, run: Measurement | Run) -> Any:
    """What the shell calls."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    made = _measuring(run) if isinstance(run, Measurement) else _showing(run)
    app.command(name, epilog=f"Example: {run.example}" if hasattr(run, "example") else None)(made)
    return typer.main.get_command(app)


def _first_line(module: str) -> str:
    text = _file(module).with_suffix(".py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").split("\n")[0]


def _showing(run: Any) -> Run:
    def called(**options: Any) -> None:
        run(**options)
        if hasattr(run, "shows") and (options["output"] / run.shows).exists():
            print((options["output"] / run.shows).read_text())

    return _like(called, run, inspect.getdoc(run) or "", {})


def _measuring(run: Measurement) -> Run:
    usual = {name: one.default for name, one in inspect.signature(run.cases).parameters.items()}

    def called(quick: bool, json: Path | None, resume: bool, **options: Any) -> None:
        untouched = {name for name, given in options.items() if given in (usual[name], _listed(usual[name]))}
        small = {name: value for name, value in run.quick.items() if name in untouched} if quick else {}
        run.measure({**options, **small}, json, resume)

    own = {
        "quick": (bool, typer.Option("--quick", help="At toy size."), False),
        "json": (Path | None, typer.Option("--json", help="Write all rows here, after each of them."), None),
        "resume": (bool, typer.Option("--resume", help="What this file has is not measured again."), False),
    }
    return _like(called, run.cases, inspect.getdoc(sys.modules[run.cases.__module__]) or "", own)


def _like(called: Run, function: Run, doc: str, more: Mapping[str, tuple[Any, Any, Any]]) -> Run:
    """`called` with the options of a function, and more: name -> type, option, default."""
    hints, empty = get_type_hints(function, include_extras=True), inspect.Parameter.empty
    parameters = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind, told = hints[name], typer.Option()
        if kind == Hidden:
            continue
        if get_origin(kind) is Annotated:
            kind, told = get_args(kind)[:2]
            told = typer.Option(help=told) if isinstance(told, str) else told
        parameters.append((name, kind, told, _listed(parameter.default)))
    parameters += [(name, *rest) for name, rest in more.items()]
    keyword = inspect.Parameter.KEYWORD_ONLY
    signature = [
        inspect.Parameter(name, keyword, default=default, annotation=Annotated[kind, told])
        for name, kind, told, default in parameters
    ]
    called.__signature__ = inspect.Signature(sorted(signature, key=lambda one: one.default is not empty))  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in signature}
    called.__doc__ = re.split(r"\n(?:Args|Raises|Returns):", doc)[0]
    return called


def _listed(default: Any) -> Any:
    """As the shell gives it."""
    return list(default) if isinstance(default, tuple) else default


def in_folder(package: str) -> Iterator[tuple[str, str]]:
    """Names of commands and their modules, for each module in the folder of a package."""
    for path in sorted(_file(package).glob("[a-z]*.py")):
        yield path.stem.replace("_", "-"), f"{package}.{path.stem}"


def _file(module: str) -> Path:
    """Where a module of the lab lies, which need not be imported for it."""
    return Path(__file__).parent.joinpath(*module.split(".")[1:])
