"""How large the experiment is, in either encoding, whole or quick."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from locore_lab.warcraft.dataset import Maps, generate_maps
from locore_lab.warcraft.encodings import ENCODINGS, Encoding
from locore_lab.warcraft.training import Settings

DATA_SEED = 0


@dataclass(frozen=True)
class WarcraftPlan:
    """Sizes.

    Attributes:
        encoding: how paths are written as tokens, a name of `ENCODINGS`.
        size: rows and columns of cells.
        maps: test maps.
        costly: how many of them where a row asks for every neighbour of a draft.
        samples: drafts, pairs or particles of a row that draws several; such a row is repeated for each.
        seeds: models trained here, where no weights are given.
        train, val: maps to train on and to validate on.
        settings: of their training.
        memory: cells that the circuit remembers, see `locore.simple_moves`.
    """

    encoding: str = "edges"
    size: int = 8
    maps: int = 300
    costly: int = 100
    samples: tuple[int, ...] = (2, 5, 10)
    seeds: int = 3
    train: int = 20_000
    val: int = 500
    settings: Settings = field(
        default_factory=lambda: Settings(epochs=6, looks=4, batch=50, draws=1, aside=1.0, encoder_epochs=2.5)
    )
    memory: int = 2

    @property
    def paths(self) -> Encoding:
        """How they are written."""
        return ENCODINGS[self.encoding]

    def drawn(self, split: str, num: int) -> Maps:
        """Maps of this size."""
        return generate_maps(num, DATA_SEED, split, self.size, self.size, encoding=self.paths)

    def seeded(self, seed: int) -> Settings:
        """The settings of one training."""
        return replace(self.settings, seed=seed, warmup=min(self.settings.warmup, self.train // self.settings.batch))


WHOLE = {
    "edges": WarcraftPlan(),
    "moves": WarcraftPlan(
        encoding="moves", size=12, maps=1000, costly=1000, samples=(10,), train=10_000, val=1000, settings=Settings()
    ),
}
QUICK = {
    "edges": WarcraftPlan(
        size=4, maps=2, costly=2, samples=(2, 5), seeds=2, train=80, val=20, settings=Settings(epochs=3, batch=40, draws=1)
    ),
    "moves": WarcraftPlan(
        encoding="moves", size=5, maps=12, costly=12, samples=(5,), seeds=2, train=350, val=35, settings=Settings(epochs=10)
    ),
}
