"""What a verdict on particles is; who comes to one registers with `Particles.judge`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

Level = Literal["trust", "rough", "not judged", "do not trust", "biased"]
LEVELS: tuple[Level, ...] = get_args(Level)  # from best to worst
FAIR_ERROR, FAIR_REACH = 0.35, 3.0  # what is rough: relative error of p(α), and nats by which it may be larger


@dataclass(frozen=True)
class Verdict:
    """The judgement on a set of particles.

    Attributes:
        level: of the texts, that is of one draw from them: "trust", "rough", "do not trust"; "not judged" where nothing shows
            an error; "biased" where no weight helps.
        text: the judgement with its reason, and what is known of p(α): two lines.
        details: what there is to know beyond that.
    """

    level: Level
    text: str = field(repr=False)
    details: str = field(repr=False)
