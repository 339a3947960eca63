"""How close samplers come to p(y | α), at what price: `run` measures, `main` is its command line."""

from locore.bench.fidelity.command import run
from locore.bench.fidelity.options import main

__all__ = ["main", "run"]
