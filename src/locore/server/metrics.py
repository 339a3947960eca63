"""What Prometheus reads at /metrics. No label holds anything that a client can choose freely."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.9, 1.0)


class Metrics:
    """Of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.requests = Counter("locore_requests", "Answers, by route and HTTP status.", ("route", "status"), registry=registry)
        self.seconds = Histogram(
            "locore_request_seconds", "From request to answer.", ("route",), buckets=SECONDS, registry=registry
        )
        self.waiting = Gauge("locore_queue_depth", "Requests that wait for a worker.", registry=registry)
        self.ready = Gauge("locore_workers_ready", "Workers with a loaded model.", registry=registry)
        self.running = Gauge("locore_runs", "Runs that workers are busy with.", registry=registry)
        self.stopped = Counter("locore_stopped", "Work that was stopped, by reason.", ("reason",), registry=registry)
        self.restarts = Counter("locore_worker_restarts", "Workers that ended and were started again.", registry=registry)
        self.compiling = Histogram("locore_compile_seconds", "Of compiling a constraint.", buckets=SECONDS, registry=registry)
        self.sampling = Histogram("locore_sample_seconds", "Of compiling and sampling.", buckets=SECONDS, registry=registry)
        self.ess = Histogram("locore_ess_ratio", "Effective sample size over particles.", buckets=SHARES, registry=registry)
        self.tokens = Counter("locore_lm_tokens", "Next-token distributions asked of the model.", registry=registry)
        self.verdicts = Counter("locore_verdicts", "Answers, by verdict on their weights.", ("verdict",), registry=registry)

    def record(self, found: dict[str, Any]) -> None:
        """The `locore` object of one answer."""
        self.compiling.observe(found["compile_seconds"])
        self.sampling.observe(found["seconds"])
        if found["ess"] is not None:
            self.ess.observe(found["ess"] / found["num_particles"])
        self.tokens.inc(found["lm_tokens"])
        self.verdicts.labels(found["verdict"]).inc()

    def text(self) -> bytes:
        """In the format of Prometheus."""
        return generate_latest(self.registry)
