"""The second form of the experiment, at 6 × 6: an LSTM over edge indicators, under the exact circuit of all simple paths.

One token for each edge of the grid with 4 neighbours, 1 if the path uses it; the model sees the terrain of the map and the
edges before. It is trained here, in some minutes, and sampled through the library like any other model.

    OMP_NUM_THREADS=1 python -m locore_lab.warcraft.edges
"""

from __future__ import annotations

import argparse
import heapq
import json
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import locore
from locore import Tokenizer, simple_path
from locore.io import markdown_table, write_whole
from locore.models import Cursor, LanguageModel
from locore_lab.places import RESULTS
from locore_lab.warcraft.methods import METHODS, Task
from locore_lab.warcraft.terrain import WEIGHTS, draw_terrain

SIDE = 6
EDGES = locore.grid(SIDE, SIDE, 4)
START, GOAL = (0, 0), (SIDE - 1, SIDE - 1)
HIDDEN = 192
ABSENT, PRESENT, NOTHING = 0, 1, 2  # NOTHING is read before the first edge
Cell = tuple[int, int]


class EdgeNetwork(nn.Module):
    """Terrain and earlier edges in, logits of the next edge's indicator out."""

    def __init__(self) -> None:
        super().__init__()
        self.context = nn.Sequential(nn.Linear(SIDE * SIDE * len(WEIGHTS), 256), nn.ReLU(), nn.Linear(256, 128))
        self.bit = nn.Embedding(3, 32)
        self.place = nn.Embedding(len(EDGES), 64)
        self.lstm = nn.LSTM(128 + 32 + 64 + 2 * len(WEIGHTS), HIDDEN, batch_first=True)
        self.head = nn.Linear(HIDDEN, 2)
        ends = [[row * SIDE + column for row, column in edge] for edge in EDGES]
        self.register_buffer("ends", torch.tensor(ends))

    def features(self, terrain: Tensor) -> Tensor:
        """Float[batch, edges, size] of Long[batch, SIDE, SIDE]: what there is to know of each edge before any is decided."""
        ground = nn.functional.one_hot(terrain.flatten(1), len(WEIGHTS)).float()
        context = self.context(ground.flatten(1))[:, None].expand(-1, len(EDGES), -1)
        local = ground[:, self.ends].flatten(2)
        place = self.place.weight[None].expand(len(terrain), -1, -1)
        return torch.cat([context, place, local], 2)

    def forward(self, features: Tensor, before: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Logits Float[batch, time, 2] after Long[batch, time] indicators, whose next edges have these features."""
        hidden, state = self.lstm(torch.cat([features, self.bit(before)], 2), state)
        return self.head(hidden), state


class EdgeModel(LanguageModel):
    """p(indicators | terrain); the prompt is Long[SIDE, SIDE]."""

    def __init__(self, network: EdgeNetwork, features: Tensor | None = None) -> None:
        self.network, self.features = network.eval().requires_grad_(False), features
        self.tokenizer = Tokenizer.integers(2)
        self.full_support = True

    def prompted(self, prompt: Any) -> EdgeModel:
        """The model after a terrain; an empty prompt leaves it as it is."""
        return self if not len(prompt) else EdgeModel(self.network, self.network.features(torch.as_tensor(prompt)[None]))

    def unprompted(self) -> EdgeModel:
        """The model before any terrain."""
        return EdgeModel(self.network)

    def fingerprint(self) -> None:
        """Nothing is kept of it."""

    def _log_probs(self, tokens: Tensor) -> Tensor:
        before = torch.cat([torch.full_like(tokens[:, :1], NOTHING), tokens[:, :-1]], 1)
        features = self.features[:, : tokens.shape[1]].expand(len(tokens), -1, -1)
        return self.network(features, before)[0].log_softmax(-1)

    def _begin(self, batch: int) -> Cursor:
        return EdgeCursor(self, torch.full((batch,), NOTHING), 0, None)


class EdgeCursor(Cursor):
    """The LSTM's state after the indicators of some rows."""

    def __init__(self, model: EdgeModel, tokens: Tensor, position: int, state: Any) -> None:
        features = model.features[:, position : position + 1].expand(len(tokens), -1, -1)
        logits, self.state = model.network(features, tokens[:, None], state)
        self.model, self.position, self._rows = model, position, logits[:, 0].log_softmax(-1)

    @property
    def log_probs(self) -> Tensor:
        """Float[batch, 2]."""
        return self._rows

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> EdgeCursor:
        """Feed one indicator to each row that goes on."""
        state = self.state if parents is None else tuple(part[:, parents] for part in self.state)
        return EdgeCursor(self.model, tokens, self.position + 1, state)


def cheapest(terrain: np.ndarray) -> tuple[list[Cell], int]:
    """A path of minimum cost with 4 neighbours, and its cost in hundredths; ends included."""
    cost = (np.array(WEIGHTS) * 100).round().astype(int)[terrain]
    best, heap = {START: (int(cost[START]), START)}, [(int(cost[START]), START)]
    while heap:
        so_far, (row, column) = heapq.heappop(heap)
        for cell in ((row - 1, column), (row, column - 1), (row, column + 1), (row + 1, column)):
            if min(cell) >= 0 and max(cell) < SIDE and so_far + cost[cell] < best.get(cell, (np.inf, START))[0]:
                best[cell] = so_far + int(cost[cell]), (row, column)
                heapq.heappush(heap, (best[cell][0], cell))
    path = [GOAL]
    while path[-1] != START:
        path.append(best[path[-1]][1])
    return path[::-1], best[GOAL][0]


def indicators(path: Sequence[Cell]) -> list[int]:
    """The tokens of a path."""
    used = {frozenset(pair) for pair in pairwise(path)}
    return [int(frozenset(edge) in used) for edge in EDGES]


def cost_of(tokens: Sequence[int], terrain: np.ndarray) -> int:
    """Cost of the vertices that the edges of a path touch, in hundredths."""
    cost = (np.array(WEIGHTS) * 100).round().astype(int)[terrain]
    return int(sum(cost[cell] for cell in {cell for edge, token in zip(EDGES, tokens, strict=True) if token for cell in edge}))


def train(network: EdgeNetwork, terrain: Tensor, labels: Tensor, epochs: int) -> None:
    """Adam with a rate that falls to zero; batches of 100."""
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    batches = len(terrain) // 100
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * batches)
    before = torch.cat([torch.full_like(labels[:, :1], NOTHING), labels[:, :-1]], 1)
    for epoch in range(epochs):
        order, losses = torch.randperm(len(terrain)), []
        for chosen in order[: batches * 100].view(batches, 100):
            logits, _ = network(network.features(terrain[chosen]), before[chosen])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels[chosen].flatten(), reduction="sum") / 100
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(float(loss.detach()))
        print(f"epoch {epoch + 1}: {mean(losses):.3f} nats a path", flush=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=int, default=20_000, help="training maps")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--maps", type=int, default=200, help="test maps")
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS / "warcraft")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(6)
    maps = np.stack([draw_terrain(rng, SIDE, SIDE) for _ in range(options.train + options.maps)]).astype(np.int64)
    found = [cheapest(terrain) for terrain in maps]
    network, start = EdgeNetwork(), time.process_time()
    labels = torch.tensor([indicators(path) for path, _ in found[: options.train]])
    train(network, torch.from_numpy(maps[: options.train]), labels, options.epochs)
    seconds = time.process_time() - start
    alpha = simple_path(EDGES, START, GOAL)
    task, model, rows = Task(alpha, len(EDGES), options.samples), EdgeModel(network), []
    for name, method in METHODS.items():
        answers = []
        for i in range(options.train, len(maps)):
            answer = method(model.prompted(maps[i]), task, i)
            valid = answer.tokens is not None and alpha.evaluate(answer.tokens, model.tokenizer)
            right = valid and cost_of(answer.tokens, maps[i]) == found[i][1]
            answers.append(
                {"exact %": 100 * right, "consistent %": 100 * valid, "LM tokens": answer.lm_tokens, "s": answer.seconds}
            )
        rows.append(
            {"row": name.replace("CNN-LSTM", "LSTM")} | {key: mean(each[key] for each in answers) for key in answers[0]}
        )
        print(rows[-1], flush=True)
    settings = {name: value for name, value in vars(options).items() if name != "out"} | {
        "training_cpu_seconds": round(seconds)
    }
    write_whole(options.out / "edges.json", json.dumps({"settings": settings, "rows": rows}, indent=1) + "\n")
    write_whole(options.out / "edges.md", markdown_table(rows, list(rows[0])) + "\n")


if __name__ == "__main__":
    main()
