"""What the page asks, and the form of its answers: masking and Locore beside each other, of a text or of a chat."""

from __future__ import annotations

from pydantic import BaseModel, Field, model_validator

from locore.server.answers import Diagnostics
from locore.server.chats import ChatMessage, plain_turns
from locore.server.schema import Count, Sampling
from locore.server.task import Task


class CompareRequest(Sampling):
    """For the page: masking and Locore beside each other."""

    prompt: str | None = Field(default=None, description="A text to go on from.")
    messages: list[ChatMessage] | None = Field(default=None, min_length=1, description="Or messages, as of a chat.")
    max_tokens: Count = 16
    stream: bool = Field(default=False, description="Answer with events: how far it is, then the answer.")

    @model_validator(mode="after")
    def _single_input(self) -> CompareRequest:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give one of prompt and messages")
        return self

    def tasks(self, default_tokens: int) -> list[Task]:
        """One."""
        prompt = plain_turns(self.messages) if self.messages is not None else self.prompt or ""
        return [Task(prompt, self.max_tokens, compares=True, **self.settings())]


class ModelFacts(BaseModel):
    """The answer of /page/model: what the form must know."""

    id: str
    chat: bool = Field(description="It has a chat template, so it reads messages.")
    most: dict[str, int] = Field(description="The largest number that each of these fields takes.")


class TokenOfSequence(BaseModel):
    """A token where it stands."""

    text: str
    end: bool = Field(description="It ends the text.")
    log_prob: float | None = Field(description="log p(token | before), of the model.")
    shift: float | None = Field(description="By how many nats its side moves that; null where it is not known.")


class Sequence(BaseModel):
    """A token sequence that a side drew."""

    text: str
    cut: bool = Field(description="The limit of tokens cut off a text that could have gone on.")
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
    """How much of each side a text is, and how probable it is."""

    text: str
    cut: bool = Field(description="All its sequences that were found are cut off by the limit of tokens.")
    masking: float
    locore: float
    probability: float | None = Field(
        description="p(text | constraint): p(text), of the spellings that were found, over the estimate of p(constraint)."
    )


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

    nodes: int | None
    edges: int | None
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
