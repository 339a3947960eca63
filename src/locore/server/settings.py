"""What the server is told at its start, checked once."""

from __future__ import annotations

import ipaddress
import math
import sys
from dataclasses import dataclass, field, fields

from locore.kernel.errors import InvalidArgument
from locore.kernel.limits import available_memory

CAN_FORK = sys.platform == "linux"  # elsewhere libraries may have begun threads when they were imported
SHORTEST_KEY = 16  # characters
ROOM = 2  # times the places of a worker: the second half is for owners who have less than their share


@dataclass(frozen=True)
class Settings:
    """Settings of one server.

    Attributes:
        model: "tiny", "smollm2", a folder, a GGUF file, or a Hugging Face name.
        name: what clients call the model; as `model` by default.
        device: where the model computes, as in `torch`.
        threads: of the arithmetic of each worker; as many as pay by default, measured when the model is loaded.
        steer_dtype: of a copy that draws what the model weighs; see `locore.load`.
        host: address to listen at; any but this machine's own needs a key.
        port: 0 for a free one.
        hosts: names by which the server may be asked, beside this machine's own and the address it listens at.
        api_key: what clients send as a bearer token, or several keys of as many clients; None for no key.
        requests_per_minute: of each key; None for no limit.
        lm_tokens_per_minute: of each key; None for no limit.
        json_logs: a line of JSON for each request, for machines to read.
        workers: processes that sample, each with its own copy of the model.
        queue_size: requests of one key that may wait, or of one address where there are no keys; more get 429.
        together: requests that a worker runs beside each other, in shared forward passes; twice as many where owners come
            (keys, or addresses) who have less than their share.
        max_rows: of one forward pass, and of all runs of a worker together; a run counts as a quarter of them at most.
        exact_batches: is each run read by itself, so that an answer has the same bits whatever is computed beside it?
        timeout: seconds from a request's arrival to its answer; later ones get 504.
        grace: seconds after which a worker that does not stop is killed.
        compile_seconds: of wall time for one constraint.
        compile_memory: bytes that a compile may take.
        memory: bytes of all workers together, their models included; three quarters of what is free when the server starts,
            by default. A worker that has more than its part is killed and started again; long before, it forgets what it
            keeps, and runs nothing beside what runs.
        body_bytes: of a request.
        body_seconds: until the whole request must have come.
        json_depth: of objects and lists in a request.
        keep_alive: seconds between the comments that keep a stream open.
        max_tokens: the largest `max_tokens` of a request.
        max_particles: the largest `num_particles`.
        max_budget: the largest `budget`.
        max_n: the largest `n`, times the number of prompts.
        default_tokens: `max_tokens` of a chat that does not say.
        first_byte: seconds until a stream begins, if there is no answer before; an error until then has its HTTP status.

    Raises:
        InvalidArgument: a number is out of range, the key is too short, or the address is public and there is no key.
    """

    model: str = "tiny"
    name: str | None = None
    device: str = "cpu"
    threads: int | None = None
    steer_dtype: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    hosts: tuple[str, ...] = ()
    api_key: str | tuple[str, ...] | None = field(default=None, repr=False)
    requests_per_minute: int | None = None
    lm_tokens_per_minute: int | None = None
    json_logs: bool = False
    workers: int = 1
    queue_size: int = 64
    together: int = 16
    max_rows: int = 1024
    exact_batches: bool = False
    timeout: float = 60.0
    grace: float = 5.0
    compile_seconds: float = 20.0
    compile_memory: int = 1_000_000_000
    memory: int = field(default_factory=lambda: usual_memory())
    body_bytes: int = 1_000_000
    body_seconds: float = 20.0
    json_depth: int = 100
    keep_alive: float = 5.0
    max_tokens: int = 512
    max_particles: int = 4096
    max_budget: int = 1_000_000
    max_n: int = 128
    default_tokens: int = 256
    first_byte: float = 0.5

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys; none where everybody may ask."""
        return (self.api_key,) if isinstance(self.api_key, str) else self.api_key or ()

    def rows_of(self, rows: int) -> int:
        """As how many a run of so many rows counts: it is read in pieces, so a large one leaves room for others."""
        return min(rows, max(1, self.max_rows // 4))

    @property
    def worker_memory(self) -> int:
        """Bytes of one worker, at most."""
        return self.memory // self.workers

    @property
    def model_id(self) -> str:
        """What clients call the model."""
        return self.model if self.name is None else self.name

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if setting.name == "port":
                if not 0 <= value <= 65535:
                    raise InvalidArgument(f"port must lie in 0..65535, got {value}.")
            elif isinstance(value, int | float) and not isinstance(value, bool) and not (0 < value < math.inf):
                raise InvalidArgument(f"{setting.name} must be a positive number, got {value}.")
        if self.api_key is not None and (not self.keys or min(map(len, self.keys)) < SHORTEST_KEY):
            raise InvalidArgument(f"an API key has fewer than {SHORTEST_KEY} characters; choose a longer one.")
        if self.api_key is None and not is_loopback(self.host):
            raise InvalidArgument(
                f"{self.host} can be reached from other machines, and there is no API key. Set LOCORE_API_KEY or give "
                "--api-key-file, or listen at 127.0.0.1."
            )


def usual_memory() -> int:
    """Three quarters of the memory that is free; where the system does not tell, there is no bound that it could be held to."""
    return 3 * (available_memory() or 2**62) // 4


def is_loopback(host: str) -> bool:
    """Is this an address that only this machine reaches? A name other than `localhost` may resolve to anything."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
