"""Exact posteriors of a real model, the law of masked decoding beside them, and what each sampler gets.

Every prefix that can still satisfy the constraint is walked (some 520,000 contexts for four tokens), once under the model
p and once under its masked and renormalised form q(y) = Π_t p(y_t | y_<t) 1[allowed] / Z_t, which is what engines that mask
sample from. Nothing here is estimated, up to the pruned mass that is stated.

    python -m locore_lab.micro.exact_posteriors [--json lab/results/exact_posteriors.json] [--samplers greedy lcr ...]
"""

import argparse
import json
import math
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor

import locore
from locore.chat import Prompt
from locore.circuits import Circuit
from locore.models import LanguageModel
from locore.testing import Posterior, enumerate_posterior
from locore_lab.fidelity import run
from locore_lab.fidelity.problems import Problem, enumerable
from locore_lab.fidelity.truth import enumerated, write_truth
from locore_lab.micro.machine import machine
from locore_lab.places import RESULTS, SHARED

MODELS = SHARED / "models"
TOP = 100
KNOWN = {"happy4": 2.016e-6, "dog4": 3.562e-5, "ban6": 0.5555}  # found independently


class Masked(LanguageModel):
    """A model that may only write what can still satisfy the constraint, renormalised token by token."""

    def __init__(self, base: LanguageModel, circuit: Circuit) -> None:
        self.base, self.circuit, self.tokenizer = base, circuit, base.tokenizer
        self.full_support = False

    def prompted(self, prompt: Prompt) -> LanguageModel:
        raise NotImplementedError

    def _log_probs(self, tokens: Tensor) -> Tensor:
        """Of the last position; enumeration reads no other, so the others stay as they are."""
        rows, reader = self.base.log_probs(tokens), self.circuit.reader
        states = reader.read(tokens[:, :-1])
        allowed = reader.allowed(tokens.shape[1] - 1, states)[:, reader.token_class]
        rows[:, -1] = rows[:, -1].masked_fill(~allowed, float("-inf")).log_softmax(-1)
        return rows


def top(posterior: Posterior, tokenizer: locore.Tokenizer, other: Posterior) -> list[dict]:
    """The most probable sequences with their log probability given α, and that under the other law."""
    best = posterior.log_joint.topk(min(TOP, len(posterior.tokens))).indices
    rows = []
    for index in best.tolist():
        y = posterior.tokens[index]
        found = (other.tokens == y).all(-1).nonzero()
        theirs = float(other.log_joint[found[0, 0]]) - other.log_evidence if len(found) else None
        rows.append(
            {
                "tokens": y.tolist(),
                "text": tokenizer.decode(y.tolist()),
                "log_prob": round(float(posterior.log_joint[index]) - posterior.log_evidence, 6),
                "other_log_prob": None if theirs is None else round(theirs, 6),
            }
        )
    return rows


def distance(p: Posterior, q: Posterior) -> dict:
    """Total variation on everything that was enumerated, on the 100 top sequences of both and "other", and of token 1."""
    keys, place = torch.cat([p.tokens, q.tokens]).unique(dim=0, return_inverse=True)
    gap = torch.zeros(len(keys), dtype=torch.float64)
    gap.index_add_(0, place, torch.cat([p.probabilities, -q.probabilities]))
    best = [x.log_joint.topk(min(TOP, len(x.tokens))).indices for x in (p, q)]
    listed = gap[torch.cat([place[best[0]], place[len(p.tokens) + best[1]]]).unique()]
    first = torch.zeros(int(keys[:, 0].max()) + 1, dtype=torch.float64).index_add_(0, keys[:, 0], gap)
    return {
        "tv": 0.5 * float(gap.abs().sum()),
        "tv_top": 0.5 * float(listed.abs().sum() + listed.sum().abs()),
        "tv_first_token": 0.5 * float(first.abs().sum()),
    }


def enumerate_both(problem: Problem, models: Path, truths: Path) -> dict:
    model = locore.load(str(models / problem.model)).prompted(problem.prompt)
    circuit = locore.compile(problem.constraint, model, problem.length)
    start = time.process_time()
    p = enumerate_posterior(model, circuit, 4_000_000, problem.min_prob)
    seconds = time.process_time() - start
    q = enumerate_posterior(Masked(model, circuit), circuit, 4_000_000, problem.min_prob)
    truths.mkdir(parents=True, exist_ok=True)
    write_truth(enumerated(problem, model, circuit, p), truths / f"{problem.name}.json")
    return {
        **problem.to_json(),
        "log_z": p.log_evidence,
        "z": math.exp(p.log_evidence),
        "z_found_independently": KNOWN[problem.name],
        "missing_at_most": p.pruned,
        "sequences": len(p.tokens),
        "contexts": p.contexts,
        "cpu_seconds": seconds,
        "masking": {**distance(p, q), "missing_at_most": q.pruned},
        "top": top(p, model.tokenizer, q),
        "top_masking": top(q, model.tokenizer, p)[:20],
        "texts": dict(list(p.texts(model.tokenizer).items())[:20]),
        "texts_masking": dict(list(q.texts(model.tokenizer).items())[:20]),
    }


def show(name: str, found: dict) -> None:
    print(
        f"{name}: Z = {found['z']:.4g} (independently {found['z_found_independently']:.4g}), "
        f"{found['sequences']:,} sequences, {found['contexts']:,} contexts, {found['cpu_seconds']:.0f} CPU s, "
        f"missing ≤ {found['missing_at_most']:.2g}"
    )
    for law, texts in (("p(y | α)", found["texts"]), ("masking", found["texts_masking"])):
        print(f"  {law:9}", "  ".join(f"{text!r} {share:.3f}" for text, share in list(texts.items())[:4]))
    print("  masking against p:", ", ".join(f"{k} {v:.3f}" for k, v in found["masking"].items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=MODELS, help="folder that holds stories260k")
    parser.add_argument("--truths", type=Path, default=RESULTS / "truth", help="gets the answers")
    parser.add_argument(
        "--samplers",
        nargs="*",
        default=["masking, unweighted", "masked", "lcr", "lcr-forward", "rejection", "oversampling"],
        help="none: enumerate only",
    )
    parser.add_argument("--budgets", type=int, nargs="+", default=[20, 80, 400, 2000, 8000], help="LM tokens for one draw")
    parser.add_argument("--cell-seconds", type=float, default=20, help="CPU seconds for one sampler at one budget")
    parser.add_argument("--work", type=Path, help="folder to go on in after an interruption")
    parser.add_argument("--json", type=Path, help="also write the results here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    record: dict = {"machine": machine(), "problems": {}}
    work = arguments.work or Path(tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    for problem in enumerable():
        kept = work / f"{problem.name}-{problem.key()}.json"
        if not kept.exists():
            kept.write_text(json.dumps(enumerate_both(problem, arguments.models, arguments.truths)))
        found = json.loads(kept.read_text())
        record["problems"][problem.name] = found
        show(problem.name, found)
    if arguments.samplers:
        results = run(
            work,
            problems=[p.name for p in enumerable()],
            samplers=arguments.samplers,
            budgets=arguments.budgets,
            models=arguments.models,
            truths=[arguments.truths],
            drawn=0,
            cell_seconds=arguments.cell_seconds,
        )
        record["samplers"] = results["rows"]
        print((work / "table.md").read_text())
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
