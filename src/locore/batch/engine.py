"""Who computes the rows of a batch: the choice of an engine, and what its workers share and promise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, get_args

from locore.batch.batch_settings import Settings
from locore.batch.plan import Span
from locore.batch.rows import Record
from locore.batch.worker import Watch
from locore.kernel.errors import InvalidArgument

Name = Literal["local", "ray"]


@dataclass(frozen=True)
class Engine:
    """Which engine, and how much of it; results do not depend on this.

    Attributes:
        name: "local" for a plain loop in this process, "ray" for Ray Data.
        workers: copies of the model; None for as many as Ray's cluster has room for.
        cpus_per_worker: cores that Ray sets aside for one.
        gpus_per_worker: accelerators, or a share of one, that Ray sets aside.
        ray_address: of a running cluster, or "auto"; None starts one on this machine.

    Raises:
        InvalidArgument: an unknown name, a number out of range, or options of Ray for the local engine.
    """

    name: Name = "local"
    workers: int | None = None
    cpus_per_worker: float = 1.0
    gpus_per_worker: float = 0.0
    ray_address: str | None = None

    def __post_init__(self) -> None:
        if self.name not in get_args(Name):
            raise InvalidArgument(f"engine must be one of {', '.join(get_args(Name))}, got {self.name!r}.")
        if self.workers is not None and self.workers < 1:
            raise InvalidArgument(f"workers must be at least 1, got {self.workers}.")
        if not (0 < self.cpus_per_worker < math.inf and 0 <= self.gpus_per_worker < math.inf):
            raise InvalidArgument("cpus_per_worker must be positive, and gpus_per_worker not negative.")
        alone = (self.workers or 1, self.cpus_per_worker, self.gpus_per_worker, self.ray_address) == (1, 1.0, 0.0, None)
        if self.name == "local" and not alone:
            raise InvalidArgument("the local engine is one process without further options; for more take --engine ray.")


@dataclass(frozen=True)
class Job:
    """What all workers of a run share.

    Attributes:
        settings: of the rows.
        path: of the input; every worker sees it under this name.
        output: folder of the batch, likewise.
        run: a name for the life of this driver.
        facts: what every worker must agree on.
    """

    settings: Settings
    path: Path
    output: Path
    run: str
    facts: Record


class Crew(Protocol):
    """Workers that are ready."""

    def facts(self) -> Record:
        """What results depend on beside settings and input."""

    def reports(self, job: Job, spans: Sequence[Span], watch: Watch) -> Iterator[Record]:
        """Work on shards, in any order; what `Worker.shard` says of each, once its file is there."""
