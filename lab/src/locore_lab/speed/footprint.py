"""Start-up, memory and size on disk."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import locore
from locore_lab.speed.plan import BUNDLED, Case, Row, SpeedPlan

IMPORT = "import locore"
GENERATE = (
    "import sys; from locore.cli import main; "
    f"sys.exit(main(['generate', '--model', '{BUNDLED}', '--prompt', 'The weather is', '--constraint', "
    '\'{"type": "contains", "text": " sun"}\']))'
)
PREPARE = f"import sys; from locore.cli import main; sys.exit(main(['prepare', '{BUNDLED}']))"
WATCH = """\
import json, resource, subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1]], stdout=subprocess.DEVNULL, check=True)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([usage.ru_utime + usage.ru_stime, usage.ru_maxrss]))
"""
COLUMNS = ("what | got | goal", "{what} | {value:.3g} {unit} | at most {most:g} {unit}")
ABOUT = """\
## Start-up and footprint

Each in a process of its own, one thread. Memory is the largest resident size."""


def cases(_: SpeedPlan) -> Iterator[Case]:
    """All in one."""
    yield ("footprint",), _footprint


def _footprint() -> list[Row]:
    with TemporaryDirectory() as cache:
        nothing, imported, generated = (_process(code, cache) for code in ("pass", IMPORT, GENERATE))
        _process(PREPARE, cache)
        prepared = _process(GENERATE, cache)
    found = [
        ("`import locore`", imported[0] - nothing[0], "s", 0.3),
        ("`locore generate` on the bundled model, 32 particles", generated[0], "s", 10.0),
        ("memory of it", generated[1], "MB", 700.0),
        ("memory of it after `locore prepare`", prepared[1], "MB", 700.0),
        ("the package, compressed", packed_bytes(Path(locore.__file__).parent) / 1e6, "MB", 20.0),
    ]
    return [
        {"part": "footprint", "what": what, "value": value, "unit": unit, "most": most} for what, value, unit, most in found
    ]


def _process(code: str, cache: str) -> tuple[float, float]:
    """CPU seconds and megabytes of a Python process that runs this, with what Locore keeps in a folder of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "LOCORE_CACHE": cache}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    # A process counts what its parent held when it began, so a small one stands between.
    found = subprocess.run([sys.executable, "-c", WATCH, code], env=environment, stdout=subprocess.PIPE, check=True)
    seconds, peak = json.loads(found.stdout)
    return seconds, peak * (1 if sys.platform == "darwin" else 1024) / 1e6


def packed_bytes(folder: Path) -> int:
    """How large a wheel of these files is."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in folder.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(folder))
    return buffer.tell()
