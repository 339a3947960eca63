"""Twenty things that people ask of a language model: a prompt that says it in words, and the constraint a user would write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from locore import (
    ban,
    choice,
    contains,
    ends_with,
    json_schema,
    pattern,
    regex,
    sentence_count,
    starts_with,
    template,
    word_count,
)
from locore.constraints import Constraint

TEMPERATURE = 0.3
EMAIL = "Hi team, this is Maria Lopez from Brightwater. We need 24 office chairs by 12 March, and it is urgent. Thanks, Maria"
ORDER = {
    "type": "object",
    "properties": {
        "customer": {"type": "string"},
        "product": {"type": "string"},
        "quantity": {"type": "integer"},
        "delivery_date": {"type": "string"},
        "urgent": {"type": "boolean"},
    },
    "required": ["customer", "product", "quantity", "delivery_date", "urgent"],
    "additionalProperties": False,
}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "age": {"type": "integer", "minimum": 18, "maximum": 99},
        "city": {"type": "string", "maxLength": 20},
    },
    "required": ["name", "age", "city"],
    "additionalProperties": False,
}
SOURCES = (
    "Sources: [1] The Elbe is 1,094 km long. [2] The Elbe flows into the North Sea at Cuxhaven.\n"
    "Tell me about the Elbe in one or two sentences, and cite a source as [1] or [2]."
)


@dataclass(frozen=True)
class Wish:
    """One task."""

    name: str  # in tables
    asked: str  # what the user types, which says the wish in words for all tools alike
    constraint: Constraint  # the same for Locore and for masking
    tokens: int = 40  # the horizon
    chat: bool = True  # is it a message of a chat, or a text that goes on?
    options: Mapping[str, Any] = field(default_factory=lambda: {"finished": True})  # any more of `locore.sample`
    # what transformers can be told to leave out (`bad_words_ids`); of all else it knows by the prompt alone
    banned: tuple[str, ...] = ()

    @property
    def prompt(self) -> str | list[dict[str, str]]:
        """For all tools."""
        return [{"role": "user", "content": self.asked}] if self.chat else self.asked


# Not `finished`: what ends by itself, JSON or a label, or a text that goes on from the prompt and stops at a line.
WHOLE: Mapping[str, Any] = {}
RAINY = ("rain", "wet", "grey", "gray")
PHYSICS = ("scatter", "Rayleigh", "wavelength")

WISHES = (
    Wish(
        "extraction",
        f"{EMAIL}\n\nExtract the order from this e-mail as JSON with customer, product, quantity, delivery_date and urgent.",
        json_schema(ORDER),
        80,
        options=WHOLE,
    ),
    Wish(
        "tweet",
        "Write a tweet about our new coffee shop. Mention espresso and croissants.",
        contains(["espresso", "croissants"], ignore_case=True),
    ),
    Wish(
        "slogan",
        "Write a slogan of three to eight words for a bakery called Sunrise. The slogan names the bakery.",
        contains("Sunrise") & word_count(3, 8),
        20,
    ),
    Wish(
        "ban list",
        "Describe a rainy day in London in one or two sentences, without the words rain, wet and grey.",
        ban(RAINY, ignore_case=True) & sentence_count(1, 2),
        banned=RAINY,
    ),
    Wish(
        "story",
        "Tell a story of two or three sentences about a girl called Mia and a dragon.",
        contains(["Mia", "dragon"]) & sentence_count(2, 3),
        60,
    ),
    Wish(
        "label",
        "Review: The food was cold, and the waiter forgot us twice.\nIs this review positive, negative or neutral? One word.",
        choice(["positive", "negative", "neutral"]),
        6,
        options=WHOLE,
    ),
    Wish(
        "date",
        "On what day did the first human land on the Moon? Answer with the date alone, as YYYY-MM-DD.",
        regex(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"),
        14,
        options=WHOLE,
    ),
    Wish("citations", SOURCES, contains(pattern(r"\[[12]\]")) & ban(pattern(r"\[[^12]")) & sentence_count(1, 2), 50),
    Wish(
        "title",
        "Write a title of four to seven words for a blog post about learning to swim as an adult. No colon.",
        word_count(4, 7) & ban([":", "\n"]) & contains("swim", ignore_case=True),
        16,
    ),
    Wish(
        "haiku line",
        "Write the first line of a haiku about autumn leaves, in four or five words.",
        word_count(4, 5) & contains("leaves", ignore_case=True) & ban("\n"),
        14,
    ),
    Wish(
        "JSON record",
        "Invent a person. Answer with JSON that has the fields name, age (18 to 99) and city.",
        json_schema(PERSON),
        40,
        options=WHOLE,
    ),
    Wish(
        "phone number",
        "Call me at the office: +44 20 7946 0018, or write to jo@example.org. Anna\n\n"
        "What is the phone number in this message? Answer with the number alone.",
        regex(r"\+?\d[\d ]{6,16}\d"),
        24,
    ),
    Wish(
        "product text",
        "Describe a hiking watch for a shop in one or two sentences. "
        "Mention that it is waterproof and has a battery for 30 days.",
        contains(["waterproof", "30 days"]) & sentence_count(1, 2),
        50,
    ),
    Wish(
        "forbidden words",
        "Why is the sky blue? Explain it to a child in one or two sentences, "
        "without the words scattering, Rayleigh and wavelength.",
        ban(PHYSICS, ignore_case=True) & sentence_count(1, 2),
        50,
        banned=PHYSICS,
    ),
    Wish(
        "last word",
        "Write one sentence about a fisherman that ends with the word ocean.",
        ends_with(" ocean.") & sentence_count(1, 1),
        24,
    ),
    Wish(
        "infilling",
        "Tom heard a noise in the kitchen.",
        template("{middle} So he took the cat back to bed.", middle=regex(r" [A-Z][^\n]{10,120}[.]")),
        40,
        chat=False,
        options=WHOLE,
    ),
    Wish(
        "list of three",
        "Name three things to take on a hike, as a list of three lines that begin with a hyphen.",
        regex(r"(- [^\n]{3,40}\n){2}- [^\n]{3,40}"),
        40,
    ),
    Wish(
        "yes or no, and why",
        'Is a tomato a fruit? Answer with "Yes, because …" or "No, because …", in one sentence.',
        regex(r"(Yes|No), because [^\n.]{10,120}\."),
        36,
        options=WHOLE,
    ),
    Wish(
        "SQL",
        "There is a table users with the columns name, age and city. Write an SQL query for the names of users in Paris.",
        regex(
            r"SELECT (name|age|city|\*)(, (name|age|city)){0,2} FROM users( WHERE (age|city|name) (=|<|>) ('[A-Za-z ]+'|\d+))?;"
        ),
        30,
        options=WHOLE,
    ),
    Wish(
        "poem line",
        'Write one line of a poem that begins with "When the moon" and has the word silver in it.',
        starts_with("When the moon") & contains("silver") & ban("\n"),
        24,
    ),
)
