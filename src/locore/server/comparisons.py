"""The form of the page's answers; `locore.server.compare` fills it."""

from __future__ import annotations

from pydantic import BaseModel, Field

from locore.server.answers import Diagnostics


class TokenOfSequence(BaseModel):
    """A token where it stands."""

    text: str
    end: bool = Field(description="It ends the text.")
    log_prob: float | None = Field(description="log p(token | before), of the model.")
    shift: float | None = Field(description="By how many nats its side moves that; null where it is not known.")


class Sequence(BaseModel):
    """A token sequence that a side drew."""

    text: str
    tokens: list[TokenOfSequence]
    share: float = Field(description="Of its side: of the draws of masking, of the weight of Locore's particles.")
    draws: int = Field(description="Particles that are this sequence.")
    weighted_share: float | None = Field(default=None, description="Masking only: its share if the draws were weighted.")


class Side(BaseModel):
    """What one way of sampling found; without sequences if it failed."""

    error: str | None
    num_particles: int = 0
    lm_tokens: int = 0
    seconds: float = 0.0
    exact: bool = Field(default=False, description="The shifts are exact, since every sequence was enumerated.")
    other_sequences: int = 0
    sequences: list[Sequence] = []


class Sides(BaseModel):
    """Both."""

    masking: Side
    locore: Side


class TextOfBoth(BaseModel):
    """How probable each side makes a text."""

    text: str
    masking: float
    locore: float


class OtherTexts(BaseModel):
    """All that are not listed."""

    number: int
    masking: float
    locore: float


class Arc(BaseModel):
    """From a state of one column to one of the next."""

    position: int
    source: int
    target: int
    tokens: str
    masking: float
    locore: float


class Trellis(BaseModel):
    """A small circuit, column by column."""

    columns: list[int]
    arcs: list[Arc]


class CircuitFacts(BaseModel):
    """The size of the circuit."""

    nodes: int
    edges: int
    classes: int
    vocab_size: int
    positions: int
    relaxed: bool
    trellis: Trellis | None


class ComparisonAnswer(BaseModel):
    """The answer of /page/compare."""

    prompt_tokens: int
    locore: Diagnostics
    judged_by_blocks: bool = Field(description="The particles depend on each other, so that blocks judge them, not the ESS.")
    divergence: float | None = Field(description="KL of masking's law from p(text | constraint), in nats, estimated.")
    divergence_error: float | None
    sides: Sides
    texts: list[TextOfBoth]
    other_texts: OtherTexts
    circuit: CircuitFacts
