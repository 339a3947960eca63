"""Training of the CNN-LSTM on labels, up to about the level of the paper's model, with checkpoints after every epoch.

An LSTM over edge bits learns within an epoch what a path looks like, and after four it does not look at the picture yet: its
encoder hears of a wrong turn only through the few bits that the bits before them do not decide. So the encoder has a head of
its own while it is trained, which tells every token from the picture alone, and it may learn some epochs before the LSTM does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from locore.kernel.errors import InvalidArgument
from locore_lab.shared import Training
from locore_lab.warcraft.dataset import Maps, grade
from locore_lab.warcraft.model import IMAGE_SIZE, PathNetwork, State, save_weights
from locore_lab.warcraft.paths import Encoding

WEIGHTS, ROUNDED = "weights.safetensors", "rounded.safetensors"
# Which share of validation maps decides what is kept: a path of minimum cost by a draw, or by the likelier token at each place.
KEPT = {WEIGHTS: "exact", ROUNDED: "rounded_exact"}


LARGEST_GRADIENT = 1.0  # norm; without a bound the loss of edge bits doubled within an eighth of an epoch


@dataclass(frozen=True)
class Settings:
    """How to train; optimizer and batch are those of Vlastelica et al. (2020), whose learning rate is 5e-4."""

    seed: int = 0  # of the weights and of the order of the maps
    epochs: int = 24  # the most there will be; the learning rate falls to zero over them, along half a cosine
    looks: int = 1  # validations in an epoch, each after an equal part of it
    batch: int = 70  # maps in a step
    learning_rate: float = 1e-3  # of Adam, after a warm-up
    warmup: int = 100  # steps until the rate is reached
    symmetries: int = 4  # views of each map, 1 or 4 (`Maps.turned`); each map is seen in one of them an epoch
    # share of sampled paths that are of minimum cost. Training ends with the first validation that reaches it, and the weights
    # that are kept are those that came closest to it (`KEPT`)
    target: float = 0.62
    draws: int = 4  # paths sampled for each validation map
    bfloat16: bool = True  # whether pictures are read in 16 bits while training; validation uses 32
    aside: float = 0.0  # weight of the loss of the encoder's own head, which is thrown away after training; 0 for none
    encoder_epochs: float = 0.0  # epochs of the encoder and its head alone, before all others; nothing is validated in them

    @property
    def encoder_looks(self) -> int:
        """Looks while the encoder learns alone."""
        return round(self.encoder_epochs * self.looks)

    @property
    def all_looks(self) -> int:
        """Looks of a training that does not reach its target."""
        return self.encoder_looks + self.epochs * self.looks


class Trainer(Training):
    """Of a fresh network."""

    def __init__(self, settings: Settings, train: Maps, val: Maps) -> None:
        """A fresh start."""
        if len(train) < settings.batch:
            raise InvalidArgument(f"{len(train)} training maps do not fill a batch of {settings.batch}.")
        if settings.symmetries not in (1, 4):
            raise InvalidArgument(f"symmetries is {settings.symmetries}; give 1 or 4.")
        if settings.encoder_epochs and not settings.aside:
            raise InvalidArgument("an encoder that is to learn alone needs a head of its own; give `aside` above 0.")
        self.settings, self.val = settings, val
        self.views = [train.turned(symmetry) for symmetry in range(settings.symmetries)]
        self.length = max(view.longest for view in self.views)
        self.targets = torch.stack([view.tokens(self.length) for view in self.views])
        with torch.random.fork_rng():
            torch.manual_seed(settings.seed)
            self.network = PathNetwork(train.height, train.width, train.encoding)
            self.aside = nn.Linear(IMAGE_SIZE, self.length * train.encoding.vocab_size) if settings.aside else None
        self.network.set_normalisation(torch.from_numpy(train.images))
        self.parameters = [*self.network.parameters(), *(self.aside.parameters() if self.aside else ())]
        self.optimizer = torch.optim.Adam(self.parameters, lr=settings.learning_rate)
        self.what, self.history = asdict(settings) | {"encoding": train.encoding.name}, []
        self.parts = {"network": self.network, "optimizer": self.optimizer, **({"aside": self.aside} if self.aside else {})}

    @property
    def steps_per_look(self) -> int:
        """Full batches between two validations."""
        return len(self.views[0]) // self.settings.batch // self.settings.looks

    @property
    def finished(self) -> bool:
        """Whether the target or the last epoch is reached."""
        best = max((float(report["exact"]) for report in self._validated), default=0.0)
        return best >= self.settings.target or len(self.history) >= self.settings.all_looks

    @property
    def _validated(self) -> list[dict[str, Any]]:
        """Of `history`, what was measured since the LSTM learns."""
        return self.history[self.settings.encoder_looks :]

    def look(self) -> dict[str, Any]:
        """Train for one epoch or its part, validate if the LSTM learns by now, and note both in `history`."""
        settings, start = self.settings, time.perf_counter()
        epoch, part = divmod(len(self.history), settings.looks)
        # No state but the epoch's number decides order and views, so going on from a checkpoint is exact.
        rng = np.random.default_rng([settings.seed, epoch])
        order = rng.permutation(len(self.views[0]))
        view = rng.integers(0, settings.symmetries, len(order))
        losses = []
        self.network.train()
        for step in range(part * self.steps_per_look, (part + 1) * self.steps_per_look):
            chosen = order[step * settings.batch : (step + 1) * settings.batch]
            self._set_rate(epoch * settings.looks * self.steps_per_look + step)
            losses.append(self._step(chosen, view[chosen]))
        seconds = time.perf_counter() - start
        report = {
            "epoch": (len(self.history) + 1) / settings.looks,
            "learns": "encoder" if self._encoder_alone else "all",
            "train_loss": float(np.mean(losses)),
            "train_seconds": round(seconds, 1),
        }
        if not self._encoder_alone:
            report |= validate(self.network, self.val, settings.draws, settings.seed)
        self.history.append(report)
        return report

    def is_closest(self, share: str = "exact") -> bool:
        """Whether no earlier validation came closer to the target than the last one; False if there is none yet."""
        distance = [abs(float(report[share]) - self.settings.target) for report in self._validated]
        return bool(distance) and distance[-1] <= min(distance)

    def keep(self, folder: Path) -> None:
        """The weights that came closest to the target, by draws and by the likelier token at each place."""
        for name, share in KEPT.items():
            if self.is_closest(share):
                save_weights(self.network, folder / name)

    @property
    def _encoder_alone(self) -> bool:
        """Does the LSTM not learn yet?"""
        return len(self.history) < self.settings.encoder_looks

    def _step(self, chosen: NDArray[np.int64], view: NDArray[np.int64]) -> float:
        """One step of the optimizer; returns nats per path, of the encoder's head while that learns alone."""
        images = torch.from_numpy(np.stack([self.views[v].images[i] for i, v in zip(chosen, view, strict=True)]))
        tokens = self.targets[view, chosen]
        read = _read(tokens, self.network.encoding)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.settings.bfloat16):
            embedding = self.network.embed(images)
        losses = []
        if not self._encoder_alone:
            longest = int(read.sum(1).max())
            losses.append(_nats(self.network.logits(embedding, tokens[:, :longest]), tokens[:, :longest], read[:, :longest]))
        if self.aside:
            logits = self.aside(embedding).unflatten(1, (self.length, -1))
            losses.append(_nats(logits, tokens, read) * (1.0 if self._encoder_alone else self.settings.aside))
        self.optimizer.zero_grad()
        torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.parameters, LARGEST_GRADIENT)
        self.optimizer.step()
        return float(losses[0].detach())

    def _set_rate(self, step: int) -> None:
        settings = self.settings
        first = settings.encoder_looks * self.steps_per_look
        step, looks = (step, settings.encoder_looks) if step < first else (step - first, settings.epochs * settings.looks)
        progress = step / (looks * self.steps_per_look)
        rate = settings.learning_rate * min((step + 1) / settings.warmup, 0.5 * (1 + math.cos(math.pi * progress)))
        for group in self.optimizer.param_groups:
            group["lr"] = rate


def _nats(logits: Tensor, tokens: Tensor, read: Tensor) -> Tensor:
    """Float[]: loss per path of logits Float[batch, time, vocab] at the tokens Long[batch, time] where Bool[batch, time]."""
    return nn.functional.cross_entropy(logits[read], tokens[read], reduction="sum") / len(tokens)


def _read(tokens: Tensor, encoding: Encoding) -> Tensor:
    """Bool[batch, time]: which tokens are learned, up to the first end of each row."""
    if encoding.end is None:
        return torch.ones_like(tokens, dtype=torch.bool)
    return (tokens != encoding.end).sum(1, keepdim=True) >= torch.arange(tokens.shape[1])


def train(
    settings: Settings, maps: Maps, val: Maps, folder: Path, report: Callable[[dict[str, Any]], None] = lambda _: None
) -> list[dict[str, Any]]:
    """Train, or go on from the checkpoint in the folder; what each validation gave, as `look` and `validate` say."""
    trainer = Trainer(settings, maps, val)
    trainer.run(folder, report)
    return trainer.history


@torch.no_grad()
def validate(network: PathNetwork, maps: Maps, draws: int, seed: int) -> dict[str, float]:
    """Nats per label, and the shares of sampled paths that are consistent, exact and equal to the label."""
    network.eval()
    embedding = torch.cat([network.embed(torch.from_numpy(part)) for part in np.array_split(maps.images, len(maps) // 64 + 1)])
    tokens = maps.tokens(maps.longest)
    scores = network.logits(embedding, tokens).log_softmax(-1).gather(2, tokens[..., None])[..., 0]
    read = _read(tokens, network.encoding)
    generator = torch.Generator().manual_seed(seed)
    rates = [grade(draw(network, embedding, maps.horizon, generator), maps).rates() for _ in range(draws)]
    means = {name: float(np.mean([each[name] for each in rates])) for name in rates[0]}
    rounded = grade(draw(network, embedding, maps.horizon, None), maps).rates()
    rounded = {f"rounded_{name}": share for name, share in rounded.items()}
    return {"nats": float(-(scores * read).sum(1).mean()), **means, **rounded}


@torch.no_grad()
def draw(network: PathNetwork, embedding: Tensor, length: int, generator: torch.Generator | None) -> Tensor:
    """Long[batch, length]: a sequence for each picture, drawn token by token; without a generator the likeliest token each."""
    end = network.encoding.end
    tokens = torch.full((len(embedding), 1), network.encoding.begin)
    ended = torch.zeros(len(embedding), 1, dtype=torch.bool)
    state: State | None = None
    drawn = []
    for _ in range(length):
        logits, state = network.step(embedding, tokens, state)
        law = logits[:, 0].softmax(-1)
        tokens = law.argmax(1, keepdim=True) if generator is None else torch.multinomial(law, 1, generator=generator)
        if end is not None:
            tokens = tokens.masked_fill(ended, end)
            ended |= tokens == end
        drawn.append(tokens)
    return torch.cat(drawn, 1)
