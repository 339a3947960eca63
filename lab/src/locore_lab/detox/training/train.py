"""Trains the toxicity scorer that ships with Locore. About two minutes of one core.

`OMP_NUM_THREADS=1 python -m locore_lab.detox.training.train && python -m locore_lab.detox.training.evaluate`
"""

from __future__ import annotations

import argparse
import json
import lzma
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy

import locore_lab.detox.scorers as scorers
from locore_lab.detox.scorers.local import WEIGHTS, LinearModel, WordNetwork, ids_of_text, save_model, words_of
from locore_lab.shared import SHARED

DATA = SHARED / "data" / "detox" / "toxicity_text.jsonl.xz"
TARGET = "perspective"  # the kind of label that the scorer stands in for


@dataclass(frozen=True)
class Texts:
    """Texts with labels, one entry each."""

    texts: list[str]  # as they are
    words: list[list[str]]  # what the scorer reads of them
    toxicity: np.ndarray  # Float[num] in [0, 1]
    column: np.ndarray  # Int[num], 0 for Perspective scores, else one number for each source: what it means by "toxic"
    source: np.ndarray  # where a text is from; texts of one group are not independent
    group: np.ndarray

    def __len__(self) -> int:
        return len(self.texts)


def load(path: Path) -> dict[str, Texts]:
    """The splits train, valid and test, as the file says."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    columns = [TARGET, *sorted({row["source"] for row in rows if row["kind"] != TARGET})]
    return {split: _texts([row for row in rows if row["split"] == split], columns) for split in ("train", "valid", "test")}


def _texts(rows: list[dict], columns: list[str]) -> Texts:
    meaning = [TARGET if row["kind"] == TARGET else row["source"] for row in rows]
    return Texts(
        texts=[row["text"] for row in rows],
        words=[words_of(row["text"]) for row in rows],
        toxicity=np.array([row["toxicity"] for row in rows]),
        column=np.array([columns.index(name) for name in meaning]),
        source=np.array([row["source"] for row in rows]),
        group=np.array([row["group"] for row in rows]),
    )


VERSION = "1"
SHIPPED = Path(scorers.__file__).parent / WEIGHTS

PERSPECTIVE_WEIGHT = 6.0  # of a Perspective score against one crowd label: it is the target, and a fifth of the texts
LINEAR_BUCKETS, BUCKETS, SIZE, FILTERS = 2**18, 2**14, 24, 64
LINEAR_EPOCHS, LINEAR_RATE, LINEAR_DECAY, LINEAR_BATCH = 10, 0.02, 1.5e-5, 512
EPOCHS, RATE, DECAY, BATCH = 10, 0.003, 0.01, 256
MOST_WORDS = 100  # of a training text that the network reads


def batches(order: np.ndarray, size: int) -> list[np.ndarray]:
    """Rows in groups of `size`, the last one smaller."""
    return [order[start : start + size] for start in range(0, len(order), size)]


class Labels:
    """What the losses need to know of each text."""

    def __init__(self, texts: Texts) -> None:
        self.column = torch.from_numpy(texts.column)
        self.target = torch.from_numpy(texts.toxicity).float()
        self.weight = torch.where(self.column == 0, PERSPECTIVE_WEIGHT, 1.0)

    def loss(self, logits: Tensor, rows: np.ndarray) -> Tensor:
        """Mean cross-entropy to the labels, which may lie between 0 and 1."""
        losses = cross_entropy(logits, self.target[rows], reduction="none")
        return (losses * self.weight[rows]).mean()


def train_linear(train: Texts) -> LinearModel:
    """Shared weights, and a second set that only Perspective texts use (Daumé 2007); a scale and an offset for each source."""
    model, labels = LinearModel(LINEAR_BUCKETS, columns=2), Labels(train)
    sets = [ids_of_text(words) for words in train.words]
    scale, offset = (torch.zeros(int(train.column.max()) + 1, requires_grad=True) for _ in range(2))
    groups = [{"params": model.parameters(), "lr": LINEAR_RATE}, {"params": [scale, offset], "lr": 0.01}]
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.99))
    for epoch in range(LINEAR_EPOCHS):
        optimizer.param_groups[0]["lr"] = LINEAR_RATE * (1 - epoch / LINEAR_EPOCHS)
        losses = []
        for rows in batches(np.random.default_rng(epoch).permutation(len(train)), LINEAR_BATCH):
            column = labels.column[rows]
            both = model.read([sets[row] for row in rows])
            logits = (both[:, 0] + both[:, 1] * (column == 0)) * scale[column].exp() + offset[column]
            loss = labels.loss(logits, rows)
            optimizer.zero_grad()
            (loss + LINEAR_DECAY * model.weights.weight.square().sum()).backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"linear, epoch {epoch + 1}: loss {np.mean(losses):.4f}", flush=True)
    merged = LinearModel(LINEAR_BUCKETS)
    with torch.no_grad():
        merged.weights.weight.copy_(model.weights.weight.sum(1, keepdim=True) * scale[0].exp())
    return merged


def train_network(train: Texts) -> WordNetwork:
    """One logit for each meaning of "toxic" over shared features; the one of Perspective is kept."""
    torch.manual_seed(0)
    network, labels = WordNetwork(BUCKETS, SIZE, FILTERS, columns=int(train.column.max()) + 1), Labels(train)
    layers = [*network.filters.parameters(), *network.logits.parameters()]
    groups = [{"params": network.pieces.parameters(), "weight_decay": 0.0}, {"params": layers, "weight_decay": DECAY}]
    optimizer = torch.optim.AdamW(groups, lr=RATE)
    steps = EPOCHS * -(-len(train) // BATCH)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    lengths = np.array([len(words) for words in train.words])
    for epoch in range(EPOCHS):
        random = np.random.default_rng(epoch)
        # Texts of similar length go together, for the padding; the noise keeps batches different from epoch to epoch.
        chunks = batches(np.argsort(lengths + random.random(len(train)) * 8), BATCH)
        losses = []
        for chunk in random.permutation(len(chunks)):
            rows = chunks[chunk]
            logits = network([train.words[row][:MOST_WORDS] for row in rows])
            loss = labels.loss(logits.gather(1, labels.column[rows][:, None])[:, 0], rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        print(f"network, epoch {epoch + 1}: loss {np.mean(losses):.4f}", flush=True)
    single = WordNetwork(BUCKETS, SIZE, FILTERS)
    kept = {name: value[:1] if name.startswith("logits") else value for name, value in network.state_dict().items()}
    single.load_state_dict(kept)
    return single.eval()


@torch.no_grad()
def fit_mix(linear: LinearModel, network: WordNetwork, valid: Texts) -> Tensor:
    """Weights of both models and a constant, by logistic regression on the validation texts with Perspective scores.

    This mixes and calibrates at once (Platt 1999). An isotonic curve on the same 816 texts left the test Brier at 0.0171.
    """
    rows = np.flatnonzero(valid.column == 0)
    parts = [
        torch.stack([linear(words)[:, 0], network(words)[:, 0], torch.ones(len(words))], 1)
        for words in ([valid.words[row] for row in chunk] for chunk in batches(rows, BATCH))
    ]
    inputs, target = torch.cat(parts).double(), torch.from_numpy(valid.toxicity[rows])
    mix = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([mix], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        with torch.enable_grad():
            loss = cross_entropy(inputs @ mix, target)
            loss.backward()
        return loss

    optimizer.step(closure)
    return mix.detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=SHIPPED, help="default: the file that ships with the package")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    splits = load(arguments.data)
    linear = train_linear(splits["train"]).half().float()  # as they will be read again
    network = train_network(splits["train"]).half().float()
    mix = fit_mix(linear, network, splits["valid"])
    print(f"mix: linear {mix[0]:.3f}, network {mix[1]:.3f}, constant {mix[2]:.3f}")
    save_model(arguments.out, linear, network, mix, VERSION)
    print(f"{arguments.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
