"""What the rows of a batch depend on, beside the input and the versions."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from locore.kernel.errors import InvalidArgument
from locore.kernel.request import Request, Seconds

# What a row may say for itself; a row without one of these gets that of the settings.
ROW_OPTIONS = ("constraint", *(option.name for option in fields(Request) if option.name != "limits"), "resample")


@dataclass(frozen=True)
class Settings(Request):
    """Settings of one run: a request, whose options are the defaults of rows, and more.

    Attributes:
        model: "tiny", "smollm2", a folder, a GGUF file, or a Hugging Face name.
        device: where the model computes, as in `torch`.
        threads: of the arithmetic of one worker; the last digits of a result can depend on it.
        steer_dtype: of a copy that draws what the model weighs; see `locore.load`.
        together: rows of one worker that run beside each other and share forward passes; what is beside a row can change its
            last digits, and where these decide a draw its texts.
        seed: of the run; that of a row follows from it and from the content of the row.
        constraint: as JSON; None if every row has its own.
        resample: give so many equally probable draws instead of the weighted particles.
        tokens: write the token ids too.
        parse: write what is known of the fields of texts that are JSON; see `locore.parse`.
        abstain_below: with `parse`, leave less probable fields out of what is kept.
        audit: `phrases`, `limit` and `show_texts` of a `Question` about the constraint; rows are then those of an audit.

    Raises:
        InvalidArgument: one is out of range.
    """

    model: str = "tiny"
    device: str = "cpu"
    threads: int = 1
    steer_dtype: str | None = None
    together: int = 1
    seed: int = 0
    constraint: dict[str, Any] | None = None
    resample: int | None = None
    tokens: bool = False
    parse: bool = False
    abstain_below: float | None = None
    audit: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, low in (("threads", 1), ("together", 1), ("seed", 0)):
            if getattr(self, name) < low:
                raise InvalidArgument(f"{name} must be at least {low}, got {getattr(self, name)}.")
        if self.resample is not None and self.resample < 1:
            raise InvalidArgument(f"resample must be at least 1, got {self.resample}.")
        if self.abstain_below is not None:
            from locore.parsing import checked_level  # takes as long to import as all that samples

            checked_level(self.abstain_below)
            if not self.parse:
                raise InvalidArgument("abstain_below is about fields; give parse, too.")

    def defaults(self) -> dict[str, Any]:
        """What a row gets that does not say it itself. No seed: each row has its own."""
        return {name: getattr(self, name) for name in ROW_OPTIONS if name != "seed"}

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "budget": str(self.budget) if isinstance(self.budget, Seconds) else self.budget}
