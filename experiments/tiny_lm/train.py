"""Trains the model within a wall-clock budget, from a fresh start or from the last checkpoint.

`python train.py --minutes 60` starts anew; with `--resume` it continues, also after kill -9.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

RUNS = Path(__file__).parent / "runs"
BOS_ID, EOS_ID = 0, 1
CONFIG = LlamaConfig(
    vocab_size=2048,
    hidden_size=256,
    intermediate_size=768,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=4,
    head_dim=64,
    max_position_embeddings=512,
    tie_word_embeddings=True,
    bos_token_id=BOS_ID,
    eos_token_id=EOS_ID,
    pad_token_id=EOS_ID,
)
EMA_DECAY = 0.997  # averages about the last 330 steps: a good model at any time, for early exports


def learning_rate(progress: float, step: int) -> float:
    """Warm-up, plateau, then linear decay to zero over the last 40 % of the time budget."""
    return min((step + 1) / 100, (1 - progress) / 0.4, 1.0)


def optimizers(model: LlamaForCausalLM) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the blocks, AdamW for the embedding and the norms."""
    embedding = model.get_input_embeddings().weight
    matrices = [p for p in model.parameters() if p.ndim == 2 and p is not embedding]
    gains = [p for p in model.parameters() if p.ndim == 1]
    return [
        torch.optim.Muon(matrices, lr=0.02, momentum=0.95, weight_decay=0.05),
        torch.optim.AdamW([embedding, *gains], lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def batches(rows: np.ndarray, size: int, step: int) -> Iterator[Tensor]:
    """Endless batches from `step` on; every epoch has its own order, so that resuming is exact."""
    per_epoch = len(rows) // size
    while True:
        epoch, position = divmod(step, per_epoch)
        order = np.random.default_rng(epoch).permutation(len(rows))
        for start in range(position * size, per_epoch * size, size):
            yield torch.from_numpy(rows[np.sort(order[start : start + size])].astype(np.int64))
            step += 1


def loss_of(model: LlamaForCausalLM, ids: Tensor) -> Tensor:
    """Mean nats per token. What follows an EOS (a new document or padding) is nothing to learn."""
    inputs, targets = ids[:, :-1], ids[:, 1:]
    targets = targets.masked_fill(inputs == EOS_ID, -100)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(input_ids=inputs, use_cache=False).logits
    return nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten(), ignore_index=-100
    )


class Run:
    """What a checkpoint holds: model, averaged weights, optimizers, step and time used."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = LlamaForCausalLM(CONFIG)
        self.ema = {k: p.detach().clone() for k, p in self.model.named_parameters()}
        self.optimizers = optimizers(self.model)
        self.base_rates = [o.param_groups[0]["lr"] for o in self.optimizers]
        self.step, self.seconds = 0, 0.0

    def save(self, path: Path) -> None:
        """Atomic: a kill at any moment leaves the old or the new checkpoint, never half of one."""
        temporary = path.with_suffix(".tmp")
        with temporary.open("wb") as file:
            torch.save(
                {
                    "model": self.model.state_dict(),
                    "ema": self.ema,
                    "optimizers": [o.state_dict() for o in self.optimizers],
                    "step": self.step,
                    "seconds": self.seconds,
                },
                file,
            )
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)

    def load(self, path: Path) -> None:
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.ema = state["ema"]
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.seconds = state["step"], state["seconds"]

    def update(self, loss: Tensor, progress: float) -> None:
        loss.backward()
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
    def validation_loss(self, rows: np.ndarray, size: int = 16, most: int = 8) -> float:
        """Of the averaged weights, which are the ones exported."""
        averaged = LlamaForCausalLM(CONFIG)
        averaged.load_state_dict(self.ema, strict=False)  # the tied output head is not listed
        picks = [rows[i : i + size] for i in range(0, len(rows) - size + 1, size)][:most]
        losses = [loss_of(averaged, torch.from_numpy(p.astype(np.int64))) for p in picks]
        return torch.stack(losses).mean().item()


def train(run: Run, args: argparse.Namespace) -> None:
    rows = np.load(args.runs / "train.npy", mmap_mode="r")
    valid = np.load(args.runs / "valid.npy")
    checkpoint, budget = args.runs / "checkpoint.pt", args.minutes * 60
    loss_function = loss_of if args.no_compile else torch.compile(loss_of)
    source = batches(rows, args.batch, run.step)
    saved = now = time.monotonic()
    total, count = torch.zeros(()), 0
    while run.seconds < budget:
        loss = loss_function(run.model, next(source))
        run.update(loss, run.seconds / budget)
        total, count = total + loss.detach(), count + 1
        # Slow first steps count too: the budget is wall-clock time, shared machine or not.
        run.seconds, now = run.seconds + time.monotonic() - now, time.monotonic()
        if run.step % 50 == 0:
            tokens = run.step * args.batch * CONFIG.max_position_embeddings / 1e6
            print(
                f"step {run.step} minutes {run.seconds / 60:.1f} Mtokens {tokens:.2f} "
                f"loss {total.item() / count:.4f}",
                flush=True,
            )
            total, count = torch.zeros(()), 0
        if now - saved > args.save_minutes * 60 or run.seconds >= budget:
            run.save(checkpoint)
            saved = now
            print(f"saved at step {run.step}, valid {run.validation_loss(valid):.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, required=True, help="wall-clock budget in all")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--batch", type=int, default=16, help="rows of 512 tokens a step")
    parser.add_argument("--save-minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    run = Run(args.seed)
    print(f"{sum(p.numel() for p in run.model.parameters())} parameters", flush=True)
    if args.resume and (args.runs / "checkpoint.pt").exists():
        run.load(args.runs / "checkpoint.pt")
        print(f"resumed at step {run.step}, minute {run.seconds / 60:.1f}", flush=True)
    train(run, args)


if __name__ == "__main__":
    main()
