"""The small transformer of this experiment: its network, its training, and the models of a run by their names.

`OMP_NUM_THREADS=1 python -m locore_lab.sudoku.train` trains it on generated puzzles with 10 open cells, leaves checkpoints in
`lab/runs`, and at the end the log in `lab/results` and the weights in the package; given again it goes on after a kill.

`OMP_NUM_THREADS=1 python -m locore_lab.sudoku.train` leaves checkpoints in `lab/runs`, and at the end the log in `lab/results`
and the weights in the package.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import locore
from locore.kernel.errors import InvalidArgument
from locore.models import HuggingFaceModel, LanguageModel
from locore_lab.shared import LOG, RESULTS, RUNS, Training
from locore_lab.sudoku.dataset import DATA_SEED, generated_split
from locore_lab.sudoku.methods import REQUEST
from locore_lab.sudoku.puzzles import OPEN, Puzzle, relabelled, turned

END, LINE = "<end>", "Ċ"  # the second is how byte-level tokenizers write a line end


@dataclass(frozen=True)
class Size:
    """Of a network."""

    box: int = 3
    width: int = 96
    layers: int = 4
    heads: int = 4

    @property
    def cells(self) -> int:
        """Of a grid."""
        return self.box**4


def make_tokenizer(box: int) -> PreTrainedTokenizerFast:
    """One token for each digit, the open cell, the line end, the whole request, and the end."""
    pieces = [END, LINE, OPEN, *(str(d) for d in range(1, box * box + 1))]
    fast = FastTokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens([END])
    fast.add_tokens([AddedToken(REQUEST, special=False, normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=fast, eos_token=END)  # type: ignore[no-untyped-call]


def make_network(size: Size, vocab_size: int, seed: int) -> GPT2LMHeadModel:
    """A fresh network; its position embeddings say at the start which row, column and box a place belongs to."""
    config = GPT2Config(
        vocab_size=vocab_size,
        n_positions=2 * size.cells + 4,
        n_embd=size.width,
        n_layer=size.layers,
        n_head=size.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = GPT2LMHeadModel(config)
        places = _places(size, config.n_positions)
        projection = torch.randn(places.shape[1], size.width)
        with torch.no_grad():
            network.transformer.wte.weight.copy_(torch.randn(vocab_size, size.width) * 0.1)
            network.transformer.wpe.weight.copy_(places @ projection * 0.05)
    return network


def encode(puzzles: list[Puzzle], tokenizer: PreTrainedTokenizerFast) -> Tensor:
    """Long[puzzles, 2 · cells + 3]: request, puzzle, line end, solution, end."""
    texts = [f"{REQUEST}{p.givens}\n{p.solution}{END}" for p in puzzles]
    return torch.tensor(tokenizer(texts)["input_ids"])


def _places(size: Size, positions: int) -> Tensor:
    """Float[positions, features]: row, column and box of the cell that stands at a position, and of the one that comes next."""
    side, cells = size.box**2, size.cells
    own, following = torch.zeros(positions, 3 * side + 1), torch.zeros(positions, 3 * side)
    for cell in range(cells):
        row, column = divmod(cell, side)
        box = row // size.box * size.box + column // size.box
        features = torch.tensor([row, side + column, 2 * side + box])
        puzzle, answer = 1 + cell, cells + 2 + cell  # after the request; after the line end
        own[puzzle, features] = own[answer, features] = 1.0
        own[answer, -1] = 1.0
        following[answer - 1, features] = 1.0
    return torch.cat([own, following], 1)


@dataclass(frozen=True)
class Settings:
    """How to train."""

    size: Size = field(default_factory=Size)  # of the network
    seed: int = 0  # of the weights and of the order of the puzzles
    steps: int = 3000  # of the optimizer (AdamW); the learning rate falls to a tenth over them, along half a cosine
    batch: int = 16  # puzzles in a step, each with its digits renamed and its grid turned or mirrored at random
    learning_rate: float = 1.5e-3  # after the warm-up
    warmup: int = 100  # steps until it is reached
    every: int = 100  # steps between two validations, each followed by a checkpoint
    bfloat16: bool = True  # whether to multiply in 16 bits while training; validation uses 32


class Trainer(Training):
    """Of a fresh network; InvalidArgument where the puzzles are not of its size."""

    def __init__(self, settings: Settings, train: list[Puzzle], validation: list[Puzzle]) -> None:
        wrong = next((p for p in [*train, *validation] if p.box != settings.size.box), None)
        if wrong or not train or not validation:
            raise InvalidArgument(f"training needs puzzles with boxes of {settings.size.box}, got {wrong or 'none'}.")
        self.settings, self.train, self.validation = settings, train, validation
        self.tokenizer = make_tokenizer(settings.size.box)
        self.network = make_network(settings.size, len(self.tokenizer), settings.seed)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=settings.learning_rate, weight_decay=0.01)
        self.what, self.history = asdict(settings), []
        self.parts = {"network": self.network, "optimizer": self.optimizer}

    @property
    def step(self) -> int:
        return int(self.history[-1]["step"]) if self.history else 0

    @property
    def finished(self) -> bool:
        return self.step >= self.settings.steps

    def look(self) -> dict[str, Any]:
        before = self.history[-1]["cpu_seconds"] if self.history else 0.0
        start, goal = time.process_time(), min(self.step + self.settings.every, self.settings.steps)
        self.network.train()
        losses = [self._step(step) for step in range(self.step, goal)]
        seconds = round(before + time.process_time() - start, 1)
        report = {"step": goal, "nats": float(np.mean(losses)), "cpu_seconds": seconds}
        self.history.append(report | validate(self.network, self.tokenizer, self.validation))
        return self.history[-1]

    def _step(self, step: int) -> float:
        """One step of the optimizer; returns nats per puzzle."""
        settings, cells = self.settings, self.settings.size.cells
        tokens = encode(_batch(self.train, settings, step), self.tokenizer)
        with torch.autocast("cpu", torch.bfloat16, enabled=settings.bfloat16):
            logits = self.network(tokens[:, :-1]).logits[:, cells + 1 :]
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, cells + 2 :].flatten(), reduction="sum")
        fall = 0.55 + 0.45 * math.cos(math.pi * step / settings.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate * min((step + 1) / settings.warmup, fall)
        self.optimizer.zero_grad()
        (loss / tokens[:, cells + 2 :].numel()).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        return float(loss.detach()) / len(tokens)


def train(
    settings: Settings,
    puzzles: list[Puzzle],
    validation: list[Puzzle],
    folder: Path | None = None,
    report: Callable[[dict[str, Any]], None] = lambda _: None,
) -> Trainer:
    """Train on puzzles, or go on from the checkpoint in a folder; see `Training.run`."""
    trainer = Trainer(settings, puzzles, validation)
    trainer.run(folder, report)
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


TRAINED = "trained"  # the name of the transformer of this experiment
WEIGHTS = Path(str(files("locore_lab"))) / "sudoku" / "weights"
TOY = Settings(
    size=Size(box=2, width=48, layers=2, heads=2), steps=240, every=60, learning_rate=4e-3, warmup=20, bfloat16=False
)


def save_model(trainer: Trainer, folder: Path) -> None:
    """Network in 16 bits and tokenizer, as `locore.load` and `transformers` read them."""
    network = trainer.network
    state = {name: weight.half() for name, weight in network.state_dict().items()}
    network.save_pretrained(folder, state_dict=state)
    trainer.tokenizer.save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)  # weights are written for their owner alone


def open_models(names: tuple[str, ...], box: int, output: Path, split: Mapping[str, list[Puzzle]]) -> dict[str, LanguageModel]:
    """Models by name: "trained", or as `locore.load` takes it.

    For 9 × 9 the trained one comes with Locore; a smaller one for 4 × 4 is trained in the output folder, in seconds.
    """
    if len(set(names)) < len(names):
        raise InvalidArgument(f"a model is named twice: {', '.join(names)}.")
    return {name: _open(name, box, output, split) for name in names}


def _open(name: str, box: int, output: Path, split: Mapping[str, list[Puzzle]]) -> LanguageModel:
    if name != TRAINED:
        return locore.load(name)
    if box == 3:
        return locore.load(WEIGHTS, dtype=torch.float32)
    trainer = train(TOY, split["train"], split["validation"], output / "model", _say)
    return HuggingFaceModel.from_module(trainer.network, trainer.tokenizer)


def _say(report: dict[str, Any]) -> None:
    print(f"training, step {report['step']}: {report['exact']:.1%} of samples exact", file=sys.stderr, flush=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=Settings.steps)
    parser.add_argument("--runs", type=Path, default=RUNS / "sudoku")
    parser.add_argument("--export", type=Path, default=WEIGHTS, help="folder of the weights")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    split = generated_split(DATA_SEED)
    folder = arguments.runs / f"seed{arguments.seed}"
    settings = Settings(seed=arguments.seed, steps=arguments.steps)
    trainer = train(settings, split["train"], split["validation"], folder, lambda line: print(json.dumps(line), flush=True))
    save_model(trainer, arguments.export)
    shutil.copy(folder / LOG, RESULTS / "sudoku" / f"training{arguments.seed}.jsonl")
    print(json.dumps({"test": validate(trainer.network, trainer.tokenizer, split["test"])}))


if __name__ == "__main__":
    main()
