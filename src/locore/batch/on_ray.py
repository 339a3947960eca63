"""Batches on many machines: Ray Data hands shards to actors that hold the model. Needs the extra `ray`.

Only places of shards and counts travel: workers read the input and write the results themselves, on storage that all see.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from locore.batch.batch_settings import Settings
from locore.batch.engine import Engine, Job
from locore.batch.plan import Span
from locore.batch.rows import Record, error_of
from locore.batch.worker import Watch, Worker
from locore.kernel import errors
from locore.kernel.errors import DeviceLost, InvalidArgument, LocoreError, MissingExtra

try:
    import ray
    import ray.data
except ImportError as error:
    raise MissingExtra("this engine needs Ray, which is not installed: pip install 'locore[ray]'.") from error

SECONDS_TO_CONNECT = 10
OBJECT_STORE_BYTES = 2**27  # of a cluster that is started here; rows never go through it

Batch = dict[str, Any]


@contextmanager
def cluster(engine: Engine, settings: Settings) -> Iterator[Cluster]:
    """Workers on the cluster at an address, or on one that is started on this machine and ended afterwards.

    Raises:
        InvalidArgument: there is no cluster at this address, or it has no room for a worker.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # of the cluster that is started here
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its remarks would come between ours
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    here = {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES} if engine.ray_address is None else {}
    try:
        _knock(engine.ray_address)
        ray.init(address=engine.ray_address or "local", log_to_driver=False, logging_level=logging.ERROR, **here)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"no Ray cluster at {engine.ray_address}: {error}; start one with `ray start --head`.") from error
    try:
        yield Cluster(engine, settings)
    finally:
        ray.shutdown()


def _knock(address: str | None) -> None:
    """Does anything listen at HOST:PORT? Ray itself would ask for many minutes."""
    host, colon, port = (address or "").rpartition(":")
    if colon and port.isdecimal() and "://" not in host:
        socket.create_connection((host.strip("[]"), int(port)), SECONDS_TO_CONNECT).close()


class Cluster:
    """Actors of Ray."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._settings = settings
        self._resources = {"num_cpus": engine.cpus_per_worker, "num_gpus": engine.gpus_per_worker}
        room = self._room()
        if not room and (engine.ray_address is None or engine.workers is None):
            has = ", ".join(f"{ray.cluster_resources().get(name, 0):g} {name}" for name in ("CPU", "GPU"))
            raise InvalidArgument(
                f"the cluster has {has}, too little for one worker; lower --cpus-per-worker and --gpus-per-worker, or give "
                "--workers to wait until a running cluster has more."
            )
        self.workers = engine.workers or room

    def facts(self) -> Record:
        """Of a worker somewhere in the cluster; the driver's machine need not be able to hold the model."""
        # A process of its own, which ends: what it leaves on an accelerator would be in the way of the actors.
        ask = ray.remote(max_calls=1, **self._resources)(_facts)
        return _unpacked(ray.get(ask.remote(self._settings)))

    def reports(self, job: Job, spans: Sequence[Span], watch: Watch) -> Iterator[Record]:
        """What each shard's worker says, as they finish; Ray starts dead workers again and gives their shards to others.

        Raises:
            LocoreError: a worker cannot go on, and no other could.
        """
        ray.data.DataContext.get_current().enable_progress_bars = False
        shards = ray.data.from_items([asdict(span) for span in spans], override_num_blocks=len(spans))
        done = shards.map_batches(
            ShardActor,
            fn_constructor_args=(job,),
            batch_size=1,  # a shard is the unit of work, of retries and of results
            compute=ray.data.ActorPoolStrategy(size=min(self.workers, len(spans)), max_tasks_in_flight_per_actor=1),
            **self._resources,
        )
        for row in done.iter_rows():
            yield _unpacked(row["report"])

    def _room(self) -> int:
        """How many workers fit now."""
        there = ray.cluster_resources()
        needed = {"CPU": self._resources["num_cpus"], "GPU": self._resources["num_gpus"]}
        return min(int(there.get(name, 0) / amount) for name, amount in needed.items() if amount)


class ShardActor:
    """A worker in a process of Ray's."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._worker: Worker | None = None

    def __call__(self, batch: Batch) -> Batch:
        """One shard: the columns of a `Span`, each of length 1."""
        span = Span(**{name: column[0].item() for name, column in batch.items() if name != "digest"}, digest=batch["digest"][0])
        try:
            report = self._ready().shard(self._job.path, self._job.output, span, self._job.run)
        except DeviceLost:
            os._exit(1)  # Ray starts another process, which can use the device again
        except LocoreError as error:
            report = error_of(error)
        return {"report": [json.dumps(report)]}

    def _ready(self) -> Worker:
        # Not when the actor is made: Ray would take an error there for a fault of the machine, and try for ever.
        if self._worker is None:
            _check_folder(self._job.output, self._job.run)
            worker = Worker(self._job.settings)
            worker.check(self._job.facts)
            self._worker = worker
        return self._worker


def _facts(settings: Settings) -> str:
    try:
        return json.dumps(Worker(settings).facts())
    except LocoreError as error:
        return json.dumps(error_of(error))


def _check_folder(output: Path, run: str) -> None:
    """Is the folder that this machine sees the driver's?"""
    try:
        stored_run = json.loads((output / "config.json").read_text(encoding="utf-8"))["run"]
    except (OSError, ValueError, KeyError):
        stored_run = None
    if stored_run != run:
        raise InvalidArgument(f"a worker does not see the driver's folder {output}; put input and output on shared storage.")


def _unpacked(text: str) -> Record:
    """What a worker said; its error is raised here, as what it was there."""
    report: Record = json.loads(text)
    if "error" in report:
        kind = getattr(errors, report["error"]["type"], LocoreError)
        raise kind(report["error"]["message"])
    return report
