"""Models of pydantic, as users write them, through the helpers `parse` and `stream` of OpenAI's client."""

from __future__ import annotations

import datetime
import decimal
import enum
import ipaddress
import uuid
from typing import Annotated, Any, Generic, Literal, TypeVar

import pytest
from pydantic import AwareDatetime, BaseModel, Field, HttpUrl, PositiveInt, RootModel, StringConstraints, field_validator


class Step(BaseModel):
    explanation: str
    output: str


class MathReasoning(BaseModel):
    steps: list[Step]
    final_answer: str


class CalendarEvent(BaseModel):
    name: str
    date: datetime.date
    participants: list[str] = Field(max_length=3)


class Category(enum.StrEnum):
    violence = "violence"
    sexual = "sexual"
    self_harm = "self_harm"


class ContentCompliance(BaseModel):
    is_violating: bool
    category: Category | None
    explanation_if_violating: str | None


class UI(BaseModel):
    """Recursive."""

    type: Literal["div", "button", "header"]
    label: str
    children: list[UI]


class Address(BaseModel):
    number: str
    street: str
    city: str


class User(BaseModel):
    """The client's own example of anyOf."""

    name: str
    age: int


class Item(BaseModel):
    item: User | Address


class LinkedNode(BaseModel):
    value: int
    next: LinkedNode | None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=1, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[Literal["sit", "roll"]]


class Pet(BaseModel):
    """A discriminated union."""

    pet: Cat | Dog


class Line(BaseModel):
    sku: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}-\d{4}$")]
    quantity: PositiveInt
    price: Annotated[float, Field(gt=0, le=1e4)]


class Invoice(BaseModel):
    number: uuid.UUID
    issued: datetime.datetime
    lines: list[Line] = Field(min_length=1, max_length=2)
    currency: Literal["EUR", "USD"] = "EUR"
    note: str | None = None


class Money(BaseModel):
    """The schema of a Decimal that the client sends is that of any string, so this one says what is meant."""

    amount: decimal.Decimal = Field(json_schema_extra={"anyOf": [{"type": "number", "minimum": 0, "maximum": 1000}]})
    at: datetime.time


class Host(BaseModel):
    address: ipaddress.IPv4Address
    port: int = Field(ge=1, le=65535)


class Link(BaseModel):
    """The schema of an HttpUrl is that of any URI."""

    url: HttpUrl = Field(json_schema_extra={"pattern": r"^https?://[a-z]+\.[a-z]+/"})
    rank: int | float


class Color(enum.IntEnum):
    red = 1
    green = 2


class Paint(BaseModel):
    color: Color
    mix: tuple[int, int, int] | None


class Wait(BaseModel):
    """A duration of the standard may be longer than any timedelta."""

    length: datetime.timedelta = Field(json_schema_extra={"pattern": r"^PT\d{1,6}S$"})
    since: AwareDatetime


class Tags(BaseModel):
    tags: set[Literal["a", "b", "c"]]
    scores: list[list[int]] = Field(max_length=2)


class Many(BaseModel):
    """Everything optional."""

    a: int | None = None
    b: str | None = None
    c: bool | None = None
    d: list[int] | None = None


class Aliased(BaseModel):
    class_: str = Field(alias="class")
    from_: int = Field(alias="from")


class Inner(BaseModel):
    even: Annotated[int, Field(multiple_of=2, ge=0, le=100)]


class Outer(BaseModel):
    one: Inner
    two: Inner = Field(description="Another one.")


T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    items: list[T] = Field(max_length=2)
    following: int | None


class Short(BaseModel):
    text: Annotated[str, StringConstraints(min_length=2, max_length=5)]


class Empty(BaseModel):
    """No fields."""


class Documented(BaseModel):
    """With examples and titles."""

    name: str = Field(title="Name", examples=["Ann"], description="Who is it?")


class Nothing(BaseModel):
    nothing: None


class Choice(BaseModel):
    answer: Literal["yes", "no", 1, None, True]


class Const(BaseModel):
    version: Literal["1.0"]
    payload: Annotated[str, StringConstraints(pattern="^(ok|error: [a-z]+)$")]


class Weekday(BaseModel):
    day: Literal["Mon", "Tue"]

    @field_validator("day")
    @classmethod
    def as_it_is(cls, day: str) -> str:
        return day


class Temperature(BaseModel):
    celsius: float = Field(ge=-90, le=60)
    half: Annotated[float, Field(multiple_of=0.5, ge=0, lt=3)]


class Matrix(RootModel[list[Annotated[int, Field(ge=0, le=9)]]]):
    """An array, which OpenAI's service refuses at the top."""


MODELS: list[Any] = [
    MathReasoning,
    CalendarEvent,
    ContentCompliance,
    UI,
    Item,
    User,
    LinkedNode,
    Pet,
    Invoice,
    Line,
    Money,
    Host,
    Link,
    Paint,
    Wait,
    Tags,
    Many,
    Aliased,
    Outer,
    Page[int],
    Page[Short],
    Short,
    Empty,
    Documented,
    Nothing,
    Choice,
    Const,
    Weekday,
    Temperature,
    Matrix,
]
TOKENS = {CalendarEvent: 56, ContentCompliance: 56, Wait: 56, Invoice: 140}  # 40 for the others
STREAMED = (MathReasoning, UI, Invoice, Matrix)


@pytest.mark.parametrize("wanted", MODELS, ids=lambda model: model.__name__)
def test_the_client_parses_it(client, wanted):
    asked = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Tell me."}],
        "max_tokens": TOKENS.get(wanted, 40),
        "seed": 1,
        "response_format": wanted,
        "extra_body": {"effort": "low"},
    }
    answer = client.chat.completions.parse(**asked).choices[0]
    assert answer.finish_reason == "stop"
    assert isinstance(answer.message.parsed, wanted)
    if wanted in STREAMED:
        with client.chat.completions.stream(**asked) as stream:
            streamed = stream.get_final_completion().choices[0].message
        assert streamed.parsed == answer.message.parsed
