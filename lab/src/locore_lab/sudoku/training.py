"""Training of the small transformer, with checkpoints from which it goes on exactly."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

from locore.kernel.errors import InvalidArgument
from locore_lab.shared import load_checkpoint, save_checkpoint, write_log
from locore_lab.sudoku.network import Size, encode, make_network, make_tokenizer
from locore_lab.sudoku.puzzles import Puzzle, relabelled, turned

CHECKPOINT, LOG = "checkpoint.pt", "log.jsonl"


@dataclass(frozen=True)
class Settings:
    """How to train.

    Attributes:
        size: of the network.
        seed: of the weights and of the order of the puzzles.
        steps: of the optimizer (AdamW); the learning rate falls to a tenth over them, along half a cosine.
        batch: puzzles in a step, each with its digits renamed and its grid turned or mirrored at random.
        learning_rate: after the warm-up.
        warmup: steps until it is reached.
        every: steps between two validations, each followed by a checkpoint.
        bfloat16: whether to multiply in 16 bits while training; validation uses 32.
    """

    size: Size = field(default_factory=Size)
    seed: int = 0
    steps: int = 3000
    batch: int = 16
    learning_rate: float = 1.5e-3
    warmup: int = 100
    every: int = 100
    bfloat16: bool = True


class Trainer:
    """What a checkpoint holds: network, optimizer, the steps done and what was measured."""

    def __init__(self, settings: Settings, train: list[Puzzle], validation: list[Puzzle]) -> None:
        """A fresh start; InvalidArgument where the puzzles are not of the network's size."""
        wrong = next((p for p in [*train, *validation] if p.box != settings.size.box), None)
        if wrong or not train or not validation:
            raise InvalidArgument(f"training needs puzzles with boxes of {settings.size.box}, got {wrong or 'none'}.")
        self.settings, self.train, self.validation = settings, train, validation
        self.tokenizer = make_tokenizer(settings.size.box)
        self.network = make_network(settings.size, len(self.tokenizer), settings.seed)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=settings.learning_rate, weight_decay=0.01)
        self.step = 0
        self.seconds = 0.0
        self.history: list[dict[str, Any]] = []

    def run_to_validation(self) -> dict[str, Any]:
        """Train until the next validation, and note what it gives in `history`."""
        start, losses = time.process_time(), []
        self.network.train()
        goal = min(self.step + self.settings.every, self.settings.steps)
        while self.step < goal:
            losses.append(self._step())
        self.seconds += time.process_time() - start
        report = {"step": self.step, "nats": float(np.mean(losses)), "cpu_seconds": round(self.seconds, 1)}
        report |= validate(self.network, self.tokenizer, self.validation)
        self.history.append(report)
        return report

    def save(self, path: Path) -> None:
        """A kill at any moment leaves the old or the new checkpoint, never half of one."""
        state = {
            "settings": asdict(self.settings),
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
            "history": self.history,
        }
        save_checkpoint(state, path)

    def load(self, path: Path) -> None:
        """Go on from a checkpoint; InvalidArgument if it was made with other settings."""
        state = load_checkpoint(path, asdict(self.settings))
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds, self.history = state["step"], state["seconds"], state["history"]

    def _step(self) -> float:
        """One step of the optimizer; returns nats per puzzle."""
        settings, cells = self.settings, self.settings.size.cells
        # No state but the step's number decides what is read, so going on from a checkpoint is exact.
        tokens = encode(_batch(self.train, settings, self.step), self.tokenizer)
        with torch.autocast("cpu", torch.bfloat16, enabled=settings.bfloat16):
            logits = self.network(tokens[:, :-1]).logits[:, cells + 1 :]
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, cells + 2 :].flatten(), reduction="sum")
        self._set_rate()
        self.optimizer.zero_grad()
        (loss / tokens[:, cells + 2 :].numel()).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        return float(loss.detach()) / len(tokens)

    def _set_rate(self) -> None:
        settings = self.settings
        fall = 0.55 + 0.45 * math.cos(math.pi * self.step / settings.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate * min((self.step + 1) / settings.warmup, fall)


def train(
    settings: Settings,
    puzzles: list[Puzzle],
    validation: list[Puzzle],
    folder: Path | None = None,
    report: Callable[[dict[str, Any]], None] = lambda _: None,
) -> Trainer:
    """Train, or go on from the checkpoint in a folder.

    Args:
        settings: how.
        puzzles: to train on.
        validation: to validate on.
        folder: gets `checkpoint.pt` and `log.jsonl`; None to keep nothing.
        report: is told what each validation gave.
    """
    trainer = Trainer(settings, puzzles, validation)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / CHECKPOINT).is_file():
            trainer.load(folder / CHECKPOINT)
    while trainer.step < settings.steps:
        report(trainer.run_to_validation())
        if folder is not None:
            trainer.save(folder / CHECKPOINT)
            write_log(folder / LOG, asdict(settings), trainer.history)
    trainer.network.train(False)
    return trainer


@torch.no_grad()
def validate(network: GPT2LMHeadModel, tokenizer: PreTrainedTokenizerFast, puzzles: list[Puzzle]) -> dict[str, float]:
    """Mean log p(solution | puzzle) in nats, the mean of p itself (the share of exact samples), and that of an open cell."""
    network.train(False)
    tokens = encode(puzzles, tokenizer)
    cells = len(puzzles[0].givens)
    parts = [network(part[:, :-1]).logits[:, cells + 1 :].log_softmax(-1) for part in torch.split(tokens, 64)]
    answers = tokens[:, cells + 2 :]
    scores: Tensor = torch.cat(parts).gather(2, answers[..., None])[..., 0].double()
    opened = torch.tensor([[cell == "." for cell in p.givens] + [False] for p in puzzles])
    total = scores.sum(-1)
    return {
        "log_p": round(float(total.mean()), 4),
        "exact": round(float(total.exp().mean()), 4),
        "open_cell": round(float(scores[opened].exp().mean()), 4),
        "given_cell": round(float(scores[~opened].exp().mean()), 4),
    }


def _batch(puzzles: list[Puzzle], settings: Settings, step: int) -> list[Puzzle]:
    """The puzzles of a step: every puzzle comes once in an epoch."""
    rng = np.random.default_rng([settings.seed, step])
    first = step * settings.batch
    chosen = []
    for number in range(first, first + settings.batch):
        epoch, place = divmod(number, len(puzzles))
        puzzle = puzzles[_order(len(puzzles), settings.seed, epoch)[place]]
        digits = "".join(str(d) for d in 1 + rng.permutation(settings.size.box**2))
        symmetry = int(rng.integers(8))
        givens, solution = (relabelled(turned(text, symmetry), digits) for text in (puzzle.givens, puzzle.solution))
        chosen.append(Puzzle(givens, solution))
    return chosen


@lru_cache(maxsize=2)
def _order(num: int, seed: int, epoch: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng([seed, epoch, num]).permutation(num).tolist())
