"""Where things lie in the repository that this package is installed from (`pip install -e ./lab`)."""

from __future__ import annotations

from pathlib import Path

LAB = Path(__file__).resolve().parents[2]
RESULTS = LAB / "results"
RUNS = LAB / "runs"  # checkpoints, which git ignores
REPOSITORY = LAB.parent
SHARED = REPOSITORY.parent / "shared"  # models and data that are not part of the repository
