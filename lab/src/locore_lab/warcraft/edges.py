"""The authors' form of the experiment, small: an LSTM over edge indicators, under the exact circuit of all simple paths.

One token for each edge of the grid with 4 neighbours, 1 if the path uses it, as in the precursor's code (Ahmed, Chang, Van den
Broeck, NeurIPS 2023). The model sees the terrain as a whole and the bits before, and has to find out by itself which edge is
next and what lies around it. It is trained here until as many of its draws are cheapest paths as in the paper, and sampled
through the library like any other model.

    OMP_NUM_THREADS=1 python -m locore_lab.warcraft.edges [--side 6]
"""

from __future__ import annotations

import argparse
import heapq
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import locore
from locore import Tokenizer, simple_path
from locore.constraints import Constraint
from locore.io import markdown_table, write_whole
from locore.models import Counted, Cursor, LanguageModel
from locore.samplers import LocallyConstrainedResampling
from locore_lab.places import RESULTS
from locore_lab.warcraft.methods import METHODS, Method, Proposal, Task, constrained
from locore_lab.warcraft.terrain import WEIGHTS, draw_terrain

HIDDEN, CONTEXT, BIT = 192, 128, 32
NOTHING = 2  # is read before the first edge
PAPERS_LEVEL = 0.62  # share of exact draws at which training ends
VALIDATION = 1000  # maps on which that is looked at
BATCH, LOOKED_AT = 100, 20  # maps in a batch, and after how many batches that is
Cell = tuple[int, int]


@dataclass(frozen=True)
class Grid:
    """A square of cells with 4 neighbours, its corners and its edges in the order of the tokens."""

    side: int

    @cached_property
    def edges(self) -> tuple[tuple[Cell, Cell], ...]:
        """As `locore.grid` lists them."""
        return tuple(locore.grid(self.side, self.side, 4))

    @property
    def start(self) -> Cell:
        """Where a path begins."""
        return (0, 0)

    @property
    def goal(self) -> Cell:
        """Where it ends."""
        return (self.side - 1, self.side - 1)

    def indicators(self, path: Sequence[Cell]) -> list[int]:
        """The tokens of a path."""
        used = {frozenset(pair) for pair in pairwise(path)}
        return [int(frozenset(edge) in used) for edge in self.edges]

    def cells(self, tokens: Sequence[int]) -> set[Cell]:
        """Of the edges that tokens say are used."""
        return {cell for edge, token in zip(self.edges, tokens, strict=True) if token for cell in edge}

    def cheapest(self, terrain: np.ndarray) -> tuple[list[Cell], int]:
        """A path of minimum cost, and its cost in hundredths; both ends included."""
        cost = hundredths(terrain)
        best, heap = {self.start: (int(cost[self.start]), self.start)}, [(int(cost[self.start]), self.start)]
        while heap:
            so_far, (row, column) = heapq.heappop(heap)
            for cell in ((row - 1, column), (row, column - 1), (row, column + 1), (row + 1, column)):
                inside = min(cell) >= 0 and max(cell) < self.side
                if inside and so_far + cost[cell] < best.get(cell, (np.inf, cell))[0]:
                    best[cell] = so_far + int(cost[cell]), (row, column)
                    heapq.heappush(heap, (best[cell][0], cell))
        path = [self.goal]
        while path[-1] != self.start:
            path.append(best[path[-1]][1])
        return path[::-1], best[self.goal][0]


def hundredths(terrain: np.ndarray) -> np.ndarray:
    """What each cell costs."""
    return (np.array(WEIGHTS) * 100).round().astype(int)[terrain]


class EdgeNetwork(nn.Module):
    """Terrain and earlier bits in, logits of the next bit out."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.context = nn.Sequential(
            nn.Conv2d(len(WEIGHTS), 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(64 * side * side, CONTEXT),
        )  # fmt: skip
        self.bit = nn.Embedding(3, BIT)
        self.lstm = nn.LSTM(CONTEXT + BIT, HIDDEN, batch_first=True)
        self.head = nn.Linear(HIDDEN, 2)

    def seen(self, terrain: Tensor) -> Tensor:
        """Float[batch, CONTEXT] of Long[batch, side, side]."""
        ground = nn.functional.one_hot(terrain, len(WEIGHTS)).float().permute(0, 3, 1, 2)
        return self.context(ground)

    def forward(self, seen: Tensor, before: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Logits Float[batch, time, 2] after Long[batch, time] bits."""
        context = seen[:, None].expand(-1, before.shape[1], -1)
        hidden, state = self.lstm(torch.cat([context, self.bit(before)], 2), state)
        return self.head(hidden), state


class EdgeModel(LanguageModel):
    """p(bits | terrain); the prompt is Long[side, side]."""

    def __init__(self, network: EdgeNetwork, seen: Tensor | None = None) -> None:
        self.network, self.seen = network.eval().requires_grad_(False), seen
        self.tokenizer = Tokenizer.integers(2)
        self.full_support = True

    def prompted(self, prompt: Any) -> EdgeModel:
        """The model after a terrain; an empty prompt leaves it as it is."""
        return self if not len(prompt) else EdgeModel(self.network, self.network.seen(torch.as_tensor(prompt)[None]))

    def unprompted(self) -> EdgeModel:
        """The model before any terrain."""
        return EdgeModel(self.network)

    def fingerprint(self) -> None:
        """Nothing is kept of it."""

    def _log_probs(self, tokens: Tensor) -> Tensor:
        before = torch.cat([torch.full_like(tokens[:, :1], NOTHING), tokens[:, :-1]], 1)
        return self.network(self.seen.expand(len(tokens), -1), before)[0].log_softmax(-1)

    def _begin(self, batch: int) -> Cursor:
        return EdgeCursor(self, torch.full((batch,), NOTHING), None)


class EdgeCursor(Cursor):
    """The LSTM's state after the bits of some rows."""

    def __init__(self, model: EdgeModel, tokens: Tensor, state: Any) -> None:
        logits, self.state = model.network(model.seen.expand(len(tokens), -1), tokens[:, None], state)
        self.model, self._rows = model, logits[:, 0].log_softmax(-1)

    @property
    def log_probs(self) -> Tensor:
        """Float[batch, 2]."""
        return self._rows

    def advance(self, tokens: Tensor, parents: Tensor | None = None) -> EdgeCursor:
        """Feed one bit to each row that goes on."""
        state = self.state if parents is None else tuple(part[:, parents] for part in self.state)
        return EdgeCursor(self.model, tokens, state)


@dataclass(frozen=True, eq=False)
class Maps:
    """Terrains with a cheapest path each.

    Attributes:
        terrain: Long[maps, side, side].
        labels: Long[maps, edges], the tokens of the path.
        costs: of the paths, in hundredths.
    """

    grid: Grid
    terrain: Tensor
    labels: Tensor
    costs: list[int]

    @classmethod
    def drawn(cls, grid: Grid, number: int, rng: np.random.Generator) -> Maps:
        """Like those of the first form."""
        terrain = np.stack([draw_terrain(rng, grid.side, grid.side) for _ in range(number)]).astype(np.int64)
        found = [grid.cheapest(one) for one in terrain]
        labels = torch.tensor([grid.indicators(path) for path, _ in found])
        return cls(grid, torch.from_numpy(terrain), labels, [cost for _, cost in found])

    def __len__(self) -> int:
        return len(self.costs)

    def part(self, start: int, stop: int) -> Maps:
        """Some of them."""
        return Maps(self.grid, self.terrain[start:stop], self.labels[start:stop], self.costs[start:stop])

    def grades(self, index: int, tokens: Sequence[int] | None, alpha: Constraint, tokenizer: Tokenizer) -> dict[str, float]:
        """What the paper may mean by exact (a path of minimum cost; the label's path), and consistent; in per cent."""
        valid = tokens is not None and alpha.evaluate(tokens, tokenizer)
        cost = hundredths(self.terrain[index].numpy())
        cheap = valid and sum(int(cost[cell]) for cell in self.grid.cells(tokens)) == self.costs[index]
        same = valid and list(tokens) == self.labels[index].tolist()
        return {"cheapest %": 100.0 * cheap, "the label's %": 100.0 * same, "consistent %": 100.0 * valid}


def train(network: EdgeNetwork, maps: Maps, validation: Maps, epochs: int) -> float:
    """Adam, batches of 100, until draws are at the paper's level; how many epochs that took."""
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    before = torch.cat([torch.full_like(maps.labels[:, :1], NOTHING), maps.labels[:, :-1]], 1)
    alpha = simple_path(maps.grid.edges, maps.grid.start, maps.grid.goal)
    batches = len(maps) // BATCH
    for epoch in range(epochs):
        losses = []
        for number, chosen in enumerate(torch.randperm(len(maps))[: batches * BATCH].view(-1, BATCH), 1):
            network.train().requires_grad_(True)
            logits, _ = network(network.seen(maps.terrain[chosen]), before[chosen])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), maps.labels[chosen].flatten(), reduction="sum") / BATCH
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            losses.append(float(loss.detach()))
            if number % LOOKED_AT == 0 or number == batches:
                exact, after = level(EdgeModel(network), validation, alpha), epoch + number / batches
                print(f"epoch {after:.2f}: {mean(losses[-LOOKED_AT:]):.3f} nats a path, {exact:.1%} are cheapest", flush=True)
                if exact >= PAPERS_LEVEL:
                    return after
    return float(epochs)


def level(model: EdgeModel, maps: Maps, alpha: Constraint) -> float:
    """Share of maps whose draw, one for each, is a path of minimum cost."""
    bound, generator = alpha.bind(model.tokenizer), torch.Generator().manual_seed(0)
    together = EdgeModel(model.network, model.network.seen(maps.terrain))
    tokens = together.sample(len(maps), maps.labels.shape[1], generator).tokens.tolist()
    grades = (maps.grades(i, found, bound, model.tokenizer) for i, found in enumerate(tokens))
    return mean(grade["cheapest %"] for grade in grades) / 100


def rounded(model: EdgeModel, task: Task, seed: int) -> Proposal:
    """The likelier bit at each place, as the precursor's code evaluates."""
    start, counted = time.perf_counter(), Counted(model)
    cursor, tokens = counted.begin(1), []
    for position in range(task.length):
        tokens.append(int(cursor.log_probs[0].argmax()))
        if position + 1 < task.length:
            cursor = cursor.advance(torch.tensor(tokens[-1:]))
    return Proposal(tokens, counted.lm_tokens, time.perf_counter() - start)


ROWS: dict[str, Method] = {
    "LSTM, rounding": rounded,
    "LSTM, one draw": METHODS["CNN-LSTM"],
    "+ oversampling": METHODS["+ oversampling"],
    "+ the paper's sampler (lcr, exact kernel)": constrained(LocallyConstrainedResampling(kernel="exact")),
    "+ masked": constrained("masked"),
    "+ smc": constrained("smc"),
    "+ Locore, without replacement (swor)": constrained("swor"),
    "+ Locore, default (auto)": constrained("auto"),
    "p(y | α) (rejection until accepted)": METHODS["exact (rejection until accepted)"],
}


def measured(model: EdgeModel, maps: Maps, task: Task, alpha: Constraint, method: Method) -> dict[str, float]:
    """Means of one answer for each map."""
    answers = []
    for index in range(len(maps)):
        answer = method(model.prompted(maps.terrain[index]), task, index)
        found = maps.grades(index, answer.tokens, alpha, model.tokenizer)
        answers.append(found | {"LM tokens": answer.lm_tokens, "s": answer.seconds})
    return {key: mean(each[key] for each in answers) for key in answers[0]}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=6, help="cells of a side of the maps")
    parser.add_argument("--train", type=int, default=20_000, help="training maps")
    parser.add_argument("--epochs", type=int, default=40, help="at most")
    parser.add_argument("--maps", type=int, default=300, help="test maps")
    parser.add_argument("--samples", type=int, nargs="+", default=[10], help="drafts or pairs of a row")
    parser.add_argument("--out", type=Path, default=RESULTS / "warcraft")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    grid, start = Grid(options.side), time.process_time()
    maps = Maps.drawn(grid, options.train + VALIDATION + options.maps, np.random.default_rng(6))
    network = EdgeNetwork(options.side)
    validation, test = options.train + VALIDATION, len(maps)
    epochs = train(network, maps.part(0, options.train), maps.part(options.train, validation), options.epochs)
    seconds = time.process_time() - start
    alpha, model, rows = simple_path(grid.edges, grid.start, grid.goal), EdgeModel(network), []
    for name, method in ROWS.items():
        for samples in options.samples if name.startswith("+") else [1]:
            task = Task(alpha, len(grid.edges), samples)
            found = measured(model, maps.part(validation, test), task, alpha, method)
            rows.append({"row": name, "draws": samples} | found)
            print(rows[-1], flush=True)
    settings = {name: value for name, value in vars(options).items() if name != "out"}
    settings |= {"epochs_needed": epochs, "training_cpu_seconds": round(seconds)}
    options.out.mkdir(parents=True, exist_ok=True)
    write_whole(options.out / "edges.json", json.dumps({"settings": settings, "rows": rows}, indent=1) + "\n")
    write_whole(options.out / "edges.md", markdown_table(rows, list(rows[0])) + "\n")


if __name__ == "__main__":
    main()
