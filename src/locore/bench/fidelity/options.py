"""The command line of the benchmark: `python -m locore.bench.fidelity`, and what `locore bench fidelity` calls."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from locore.bench.fidelity.command import run


def parser() -> argparse.ArgumentParser:
    """All options of `run`."""
    result = argparse.ArgumentParser(prog="locore bench fidelity", description="Who samples from p(y | α), at what price.")
    result.add_argument("-o", "--output", type=Path, required=True, help="folder of the results; a killed run goes on there")
    result.add_argument("--quick", action="store_true", help="small sizes that need no data; under 5 minutes")
    result.add_argument("--model", help="only problems of this model")
    result.add_argument("--problems", nargs="+", metavar="NAME", help="only these problems")
    result.add_argument("--samplers", nargs="+", metavar="NAME", help="only these samplers")
    result.add_argument("--budgets", nargs="+", type=int, metavar="TOKENS", help="LM tokens for one draw")
    result.add_argument("--runs", type=int, help="in every cell; by default as many as the noise asks for")
    result.add_argument("--drawn", type=int, help="problems drawn by the seed, for each model")
    result.add_argument("--seed", type=int, default=0)
    result.add_argument("--models", type=Path, help="folder of models that the wheel does not have, such as stories260k")
    result.add_argument("--truths", type=Path, nargs="+", help="folders of answers that were found before")
    result.add_argument("--cell-seconds", type=float, help="CPU seconds for one sampler on one problem at one budget")
    result.add_argument("--threads", type=int, default=1, help="of torch")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with these arguments, by default those of the shell; returns the exit code."""
    options = vars(parser().parse_args(arguments))
    torch.set_num_threads(options.pop("threads"))
    run(**options)
    return 0
