"""Does what drafts teach foretell p(α)? python -m locore_lab.micro.foresight [--problem NAME ...] [--budget 1000] [--seeds 2]

For problems of `locore bench tasks`: the steps of forecasts without a twist and with the one that drafts taught, as "twisted"
puts it to the test before it steers by it (docs/samplers.md), and what the round that was not steered found.
"""

from __future__ import annotations

import argparse
import math

import torch

import locore
from locore.models import Counted
from locore.samplers.base import left_to_right
from locore.samplers.swor import one_round
from locore.samplers.twist.lookahead import look_ahead
from locore.samplers.twist.ngram import NGramCounts
from locore_lab.tasks.command import selected
from locore_lab.tasks.drawn import drawn_problems
from locore_lab.tasks.problem import Task
from locore_lab.tasks.truth import stored_truth
from locore_lab.tasks.written import written_problems

SHARE = 1 / 8  # of the budget, for drafts and for the trial each


def report(task: Task, budget: int, seed: int) -> str:
    """One trial, as a row of a Markdown table."""
    counted, circuit, generator = Counted(task.model), task.circuit, torch.Generator().manual_seed(seed)
    model, reader, price = task.target(counted), left_to_right(circuit), max(1, circuit.length - 1)
    counts = NGramCounts(model.vocab_size, model.tokenizer.eos_ids)
    drafts = max(1, int(budget * SHARE) // price)
    accepted = int(circuit.accepts(counts.draft(model, drafts, circuit.length, generator)).sum())
    twist = look_ahead(counts.table(), reader)
    trial = one_round(model, reader, max(2, int(budget * SHARE) // price), generator, tried=twist)
    assert trial.trial is not None
    truth = stored_truth(task.problem)
    error = float(torch.logsumexp(trial.log_weights, 0)) - (truth.log_z if truth else math.nan)
    steps = f"{trial.trial.untwisted:.1f} | {trial.trial.twisted:.1f}"
    return f"| {task.problem.name} | {circuit.length} | {accepted} of {drafts} | {steps} | {error:+.1f} |"


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problem", action="append", help="its name; all by default")
    parser.add_argument("--budget", type=int, default=1000, help="LM tokens of the call that the trial is part of")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    problems = selected([*written_problems(), *drawn_problems(0)], options.problem, None, quick=False)
    torch.set_num_threads(1)
    model = locore.load("smollm2")
    print("| problem | n | drafts accepted | steps without, nats | with | error of log Ẑ of the trial |")
    print("|---|---|---|---:|---:|---:|")
    for problem in problems:
        task = Task.of(problem, model)
        for seed in range(options.seeds):
            print(report(task, options.budget, seed), flush=True)


if __name__ == "__main__":
    main()
