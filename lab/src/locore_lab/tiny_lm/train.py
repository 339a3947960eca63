"""Trains the model within a wall-clock budget, from a fresh start, from given weights or from the last checkpoint.

`python -m locore_lab.tiny_lm.train --minutes 60` starts anew; with `--resume` it continues, also after kill -9.
`--weights FOLDER` starts from an exported model of the same size, for which a lower `--rate` fits. `--model judge` trains
the second model.
`OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 -m locore_lab.tiny_lm.train --minutes 60` splits every
batch over two processes that meet once a step; on a CPU shared with other work that is much faster
than two threads, which meet several hundred times a step and wait for each other each time.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, distributed, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from locore.io import replacing
from locore_lab.tiny_lm.models import BOS_ID, CONTEXT, EOS_ID, RECIPES, Recipe

EMBEDDINGS = ("embed_tokens", "wte", "wpe")  # in the names of parameters
HALF = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()  # elsewhere four times slower
EMA_DECAY = 0.997  # averages about the last 330 steps: a good model at any time, for early exports


def learning_rate(progress: float, step: int) -> float:
    """Warm-up, plateau, then linear decay to zero over the last 40 % of the time budget."""
    return min((step + 1) / 100, (1 - progress) / 0.4, 1.0)


def optimizers(model: PreTrainedModel, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the blocks, AdamW for the embeddings and the norms; where 16 bits are slow AdamW for all."""
    if not HALF:  # Muon computes in them
        return [torch.optim.AdamW(model.parameters(), lr=2e-3 * rate, betas=(0.9, 0.98), weight_decay=0.05)]
    embedding = {name: any(part in name for part in EMBEDDINGS) for name, _ in model.named_parameters()}
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and not embedding[name]]
    others = [p for name, p in model.named_parameters() if p.ndim == 1 or embedding[name]]
    return [
        torch.optim.Muon(matrices, lr=0.02 * rate, momentum=0.95, weight_decay=0.05),
        torch.optim.AdamW(others, lr=3e-3 * rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def batches(rows: np.ndarray, size: int, step: int, rank: int, ranks: int) -> Iterator[Tensor]:
    """This process's rows of endless batches from `step` on.

    Every epoch has an order of its own that no state but the step decides: resuming is exact.
    """
    per_epoch = len(rows) // size
    while True:
        epoch, position = divmod(step, per_epoch)
        order = np.random.default_rng(epoch).permutation(len(rows))
        for start in range(position * size, per_epoch * size, size):
            mine = np.sort(order[start + rank : start + size : ranks])
            yield torch.from_numpy(rows[mine].astype(np.int64))
            step += 1


def loss_of(model: PreTrainedModel, ids: Tensor, answers_after: int | None = None) -> Tensor:
    """Mean nats per token. What follows an EOS (a new document or padding) is nothing to learn, nor is a question."""
    inputs, targets = ids[:, :-1], ids[:, 1:]
    targets = targets.masked_fill(inputs == EOS_ID, -100)
    if answers_after is not None:
        places = torch.arange(1, inputs.shape[1] + 1)
        last = [((inputs == token) * places).cummax(1).values for token in (answers_after, BOS_ID)]
        targets = targets.masked_fill(last[0] <= last[1], -100)
    with torch.autocast("cpu", torch.bfloat16, enabled=HALF):
        logits = model(input_ids=inputs, use_cache=False).logits
    flat = logits.flatten(0, 1).float()
    return nn.functional.cross_entropy(flat, targets.flatten(), ignore_index=-100)


class Run:
    """What a checkpoint holds: model, averaged weights, optimizers, step and time used."""

    def __init__(self, recipe: Recipe, seed: int, weights: Path | None = None, rate: float = 1.0) -> None:
        torch.manual_seed(seed)
        self.recipe = recipe
        self.model = recipe.make()
        if weights is not None:
            exported = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
            self.model.load_state_dict(exported.state_dict())
        self.ema = {k: p.detach().clone() for k, p in self.model.named_parameters()}
        self.optimizers = optimizers(self.model, rate)
        self.base_rates = [o.param_groups[0]["lr"] for o in self.optimizers]
        self.step, self.seconds = 0, 0.0

    def save(self, path: Path) -> None:
        """A kill at any moment leaves the old or the new checkpoint."""
        state = {
            "model": self.model.state_dict(),
            "ema": self.ema,
            "optimizers": [o.state_dict() for o in self.optimizers],
            "step": self.step,
            "seconds": self.seconds,
        }
        with replacing(path) as temporary:
            torch.save(state, temporary)

    def load(self, path: Path) -> None:
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.ema = state["ema"]
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.seconds = state["step"], state["seconds"]

    def share(self, loss: Tensor) -> Tensor:
        """Averages gradients, loss and clock over the processes, so that all stay identical."""
        if not distributed.is_initialized():
            return loss.detach()
        gradients = [p.grad for p in self.model.parameters()]
        extra = torch.stack([loss.detach(), torch.tensor(self.seconds)])
        flat = torch.cat([*(g.flatten() for g in gradients), extra])
        distributed.all_reduce(flat)
        flat /= distributed.get_world_size()
        sizes = [g.numel() for g in gradients]
        for gradient, mean in zip(gradients, flat[:-2].split(sizes), strict=True):
            gradient.copy_(mean.view_as(gradient))
        self.seconds = flat[-1].item()
        return flat[-2]

    def update(self, budget: float) -> None:
        progress = self.seconds / budget
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer, rate in zip(self.optimizers, self.base_rates, strict=True):
            optimizer.param_groups[0]["lr"] = rate * learning_rate(progress, self.step)
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        decay = min(EMA_DECAY, self.step / (self.step + 10))  # forgets the random start quickly
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                self.ema[name].lerp_(parameter, 1 - decay)

    @torch.no_grad()
    def validation_loss(self, rows: np.ndarray, size: int = 16, most: int = 4) -> float:
        """Of the averaged weights, which are the ones exported."""
        averaged = self.recipe.make()
        averaged.load_state_dict(self.ema, strict=False)  # the tied output head is not listed
        picks = [rows[i : i + size] for i in range(0, len(rows) - size + 1, size)][:most]
        ids = [torch.from_numpy(pick.astype(np.int64)) for pick in picks]
        losses = [loss_of(averaged, rows, self.recipe.answers_after) for rows in ids]
        return torch.stack(losses).mean().item()


def train(run: Run, args: argparse.Namespace, rank: int, ranks: int) -> None:
    rows = np.load(args.runs / "train.npy", mmap_mode="r")
    valid = np.load(args.runs / "valid.npy")
    budget = args.minutes * 60
    loss_function = loss_of if args.no_compile else torch.compile(loss_of)
    source = batches(rows, args.batch, run.step, rank, ranks)
    saved, now, recent = run.seconds, time.monotonic(), []
    finished = False
    while not finished:
        loss = loss_function(run.model, next(source), run.recipe.answers_after)
        loss.backward()
        recent.append(run.share(loss))
        finished = run.seconds >= budget  # by the shared clock, so that all processes stop at once
        run.update(budget)
        # All that takes time counts: the budget is wall-clock time, on a shared machine or not.
        run.seconds, now = run.seconds + time.monotonic() - now, time.monotonic()
        if rank == 0 and run.step % 50 == 0:
            tokens = run.step * args.batch * CONTEXT / 1e6
            minutes, mean = run.seconds / 60, torch.stack(recent).mean()
            print(f"step {run.step} minutes {minutes:.1f} Mtokens {tokens:.2f} loss {mean:.4f}")
            recent.clear()
        if rank == 0 and (run.seconds - saved > args.save_minutes * 60 or finished):
            run.save(args.runs / "checkpoint.pt")
            saved = run.seconds
            print(f"saved at step {run.step}, valid {run.validation_loss(valid):.4f}")


def processes() -> tuple[int, int]:
    """This process's number and how many there are; more than one if torchrun started them."""
    if "RANK" in os.environ:
        distributed.init_process_group("gloo")
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=RECIPES, default="tiny")
    parser.add_argument("--minutes", type=float, required=True, help="wall-clock budget in all")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--weights", type=Path, help="folder of an exported model to start from")
    parser.add_argument("--rate", type=float, default=1.0, help="of all learning rates, times their own")
    parser.add_argument("--runs", type=Path, help="folder of the packed data and the checkpoints")
    parser.add_argument("--batch", type=int, default=16, help="rows of 512 tokens a step")
    parser.add_argument("--save-minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    recipe = RECIPES[args.model]
    args.runs = args.runs or recipe.runs
    sys.stdout.reconfigure(line_buffering=True)
    rank, ranks = processes()
    run = Run(recipe, args.seed, args.weights, args.rate)
    print(f"{sum(p.numel() for p in run.model.parameters())} parameters")
    if args.resume and (args.runs / "checkpoint.pt").exists():
        run.load(args.runs / "checkpoint.pt")
        print(f"resumed at step {run.step}, minute {run.seconds / 60:.1f}")
    train(run, args, rank, ranks)


if __name__ == "__main__":
    main()
