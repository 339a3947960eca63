"""What the rows of a batch depend on, beside the input and the versions."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from locore.errors import InvalidArgument
from locore.limits import Limits

# What a row may say for itself; a row without one of these gets that of the settings.
ROW_OPTIONS = (
    *("constraint", "max_new_tokens", "min_new_tokens", "num_particles", "sampler", "seed", "budget", "canonical", "stop"),
    "resample",
)


@dataclass(frozen=True)
class Settings:
    """Settings of one run; those that a row may also give are its defaults.

    Attributes:
        model: "tiny", "smollm2", a folder, a GGUF file, or a Hugging Face name.
        device: where the model computes, as in `torch`.
        threads: of the arithmetic of one worker; the last digits of a result can depend on it.
        seed: of the run; that of a row follows from it and from the content of the row.
        constraint: as JSON; None if every row has its own.
        max_new_tokens, min_new_tokens, num_particles, sampler, budget, canonical, stop: as in `locore.generate`.
        resample: give so many equally probable draws instead of the weighted particles.
        limits: what compiling one constraint may use.
        tokens: write the token ids too.

    Raises:
        InvalidArgument: threads, seed or resample is out of range; the rest is checked by `run`.
    """

    model: str = "tiny"
    device: str = "cpu"
    threads: int = 1
    seed: int = 0
    constraint: dict[str, Any] | None = None
    max_new_tokens: int = 20
    min_new_tokens: int = 0
    num_particles: int = 32
    sampler: str | None = None
    budget: int | None = None
    canonical: str | None = None
    stop: str | None = None
    resample: int | None = None
    limits: Limits = field(default_factory=Limits)
    tokens: bool = False

    def __post_init__(self) -> None:
        for name, low in (("threads", 1), ("seed", 0)):
            if getattr(self, name) < low:
                raise InvalidArgument(f"{name} must be at least {low}, got {getattr(self, name)}.")
        if self.resample is not None and self.resample < 1:
            raise InvalidArgument(f"resample must be at least 1, got {self.resample}.")

    def defaults(self) -> dict[str, Any]:
        """What a row gets that does not say it itself. No seed: each row has its own."""
        return {name: getattr(self, name) for name in ROW_OPTIONS if name != "seed"}

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)
