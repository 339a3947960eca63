"""What a request may say. Every field is known: an unknown one is refused, so that no constraint is ever dropped silently.

Other names for some constraints, as OpenAI and vLLM have them, come first. A field of theirs that changes no text is taken; one
that Locore does not have takes only the values that ask for nothing, which many clients send unasked, and says why otherwise.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

import locore
from locore import io
from locore.kernel.errors import InvalidArgument
from locore.kernel.request import SLIPS, Law, Request, Seconds, help_of, read_budget
from locore.samplers import NAMED, name_now
from locore.server.settings import Settings
from locore.server.task import EVERYTHING, NO_LOGPROBS, Effort, Prompt, Task
from locore.server.tools import STYLE

Json = dict[str, Any]
MOST_STOPS = 64
MOST_TOP_LOGPROBS = 20
MOST_BIASED = 1024
SCHEMA_DEPTH = 100  # of objects and lists in a schema that comes as a text
SEEDS = 2**62  # there are as many; the others are taken modulo this number


def as_whole(value: object) -> object:
    """An integer that was written as 1.0, which JSON does not tell from 1."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def as_budget(value: object) -> object:
    """LM tokens, or seconds as a text."""
    try:
        read = Request(budget=as_whole(value)).budget  # type: ignore[arg-type]  # it checks
    except InvalidArgument as error:
        raise ValueError(str(error)) from None
    return str(read) if isinstance(read, Seconds) else read


Whole = Annotated[int, BeforeValidator(as_whole)]
Count = Annotated[int, BeforeValidator(as_whole), Field(ge=1)]
SpentAtMost = Annotated[int | str, BeforeValidator(as_budget)]
Seed = Annotated[int, BeforeValidator(as_whole), Field(ge=-(2**63), lt=2**63), AfterValidator(lambda seed: seed % SEEDS)]
AsNamedNow = BeforeValidator(lambda name: name_now(name) if isinstance(name, str) else name)
Zero = Annotated[float, Field(ge=0, le=0)]
OneExactly = Annotated[float, Field(ge=1, le=1)]
Nothing = Annotated[list[Any], Field(max_length=0)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Bias = Annotated[float, Field(ge=-100, le=100)]
TokenId = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]
# Its form is checked where it is built, in the worker, which says where it is wrong.
ConstraintJson = Annotated[Json, WithJsonSchema({"$ref": "#/components/schemas/Target"})]
ANY_OBJECT = {"type": "json_schema", "schema": {"type": "object"}, **STYLE}

GBNF = re.compile(r"^\s*[\w-]+\s*::=", re.MULTILINE)

# Fields that ask for something which Locore has not, and what to do instead.
REASONS = {
    "allowed_token_ids": "say with a constraint of type token or count_tokens which tokens may stand where",
    "audio": "the model reads and writes text alone",
    "best_of": "it would change the law of the texts; temperature=0 gives the most probable text found",
    "disable_any_whitespace": 'constraint={"type": "json_schema", "schema": ..., "whitespace": "compact"} writes none',
    "echo": "an answer in a chat is what the assistant says",
    "function_call": "send tools and tool_choice, which have replaced it",
    "functions": "send tools and tool_choice, which have replaced it",
    "ignore_eos": "an end that the model writes is an end; min_tokens demands a longer text",
    "length_penalty": "texts are compared by their probability alone; leave it out",
    "modalities": "the model writes text alone",
    "priority": "requests take turns",
    "prompt_logprobs": "only texts that are sampled are scored",
    "reasoning_effort": "the model does not think before it answers; `effort` says how well to sample",
    "repetition_penalty": SLIPS["repetition_penalty"].removesuffix("."),
    "skip_special_tokens": "special tokens spell nothing",
    "stop_token_ids": "the model's own ends end a text; `stop` takes strings",
    "store": "nothing is stored",
    "structural_tag": (
        "in a chat, tools and tool_choice ask for free text or calls; "
        'constraint={"type": "after", "marker": ..., "of": ...} for free text up to a marker and then what satisfies '
        "a constraint"
    ),
    "suffix": "a model writes from left to right; say with ends_with how the text ends",
    "truncate_prompt_tokens": "a prompt is read as a whole or refused",
    "use_beam_search": 'sampler="search" gives the n most probable texts found',
    "verbosity": "say with word_count how long the text may be",
    "web_search_options": "nothing is looked up",
    "whitespace_pattern": "`whitespace` of a constraint of type json_schema says which there is",
}
# Of these, what asks for something of the text: leaving it out would drop that.
ASK_OF_THE_TEXT = frozenset(REASONS) & {
    *("allowed_token_ids", "disable_additional_properties", "disable_any_whitespace", "function_call", "functions"),
    *("structural_tag", "suffix", "whitespace_pattern"),
}


def as_schema(value: Any) -> Any:
    """A schema, which may come as its JSON text, as vLLM takes it."""
    if not isinstance(value, str):
        return value
    try:
        schema = io.parse(value, SCHEMA_DEPTH)
    except io.NotJson as error:
        raise ValueError(f"the text {error}") from None
    if not isinstance(schema, dict | bool):
        raise ValueError("the text is JSON, but no schema, which is an object, true or false")
    return schema


SchemaJson = Annotated[Json | bool | str, AfterValidator(as_schema)]


class Strict(BaseModel):
    """An object without other fields; nothing is converted from other types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class NamedSchema(Strict):
    """As in OpenAI's `response_format`."""

    name: str
    schema_: SchemaJson = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class TextFormat(Strict):
    """No constraint."""

    type: Literal["text"]


class ObjectFormat(Strict):
    """Any JSON object, or, as llama.cpp has it, JSON that is valid for a schema."""

    type: Literal["json_object"]
    schema_: SchemaJson | None = Field(default=None, alias="schema")

    def constraint(self) -> Json:
        """As Locore's JSON."""
        return ANY_OBJECT if self.schema_ is None else {"type": "json_schema", "schema": self.schema_, **STYLE}


class SchemaFormat(Strict):
    """JSON that is valid for a schema: its properties in its order, and no others unless it says which there may be."""

    type: Literal["json_schema"]
    json_schema: NamedSchema

    def constraint(self) -> Json:
        """As Locore's JSON."""
        return {"type": "json_schema", "schema": self.json_schema.schema_, **STYLE}


class StructuredOutputs(Strict):
    """As vLLM's; exactly one of the fields. It is about the text with its stop string, if there is one."""

    json_: SchemaJson | None = Field(default=None, alias="json", description="A schema, or its text.")
    json_object: Literal[True] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = Field(default=None, description="Lark's; llama.cpp's where a line begins with a name and `::=`.")
    structural_tag: None = None
    whitespace_pattern: None = None
    disable_any_whitespace: Literal[False] | None = None
    disable_additional_properties: bool | None = Field(
        default=None, description="false: objects may have properties that the schema neither lists nor excludes."
    )

    @model_validator(mode="after")
    def _single_constraint(self) -> StructuredOutputs:
        given = (self.json_, self.json_object, self.regex, self.choice, self.grammar)
        if len([value for value in given if value is not None]) != 1:
            raise ValueError("structured_outputs needs exactly one of json, json_object, regex, choice, grammar")
        return self

    def constraint(self) -> Json:
        """As Locore's JSON."""
        if self.regex is not None:
            return {"type": "regex", "pattern": self.regex}
        if self.choice is not None:
            return {"type": "choice", "texts": self.choice}
        if self.grammar is not None:
            return {"type": "grammar", "text": self.grammar, "syntax": "gbnf" if GBNF.search(self.grammar) else "lark"}
        if self.json_ is None:
            return ANY_OBJECT
        objects = {} if self.disable_additional_properties is False else STYLE
        return {"type": "json_schema", "schema": self.json_, **objects}


class Harmless(Strict):
    """What changes no text, or asks for nothing."""

    user: str | None = Field(default=None, description="Has no effect.")
    metadata: dict[str, str] | None = Field(default=None, description="Has no effect.")
    safety_identifier: str | None = Field(default=None, description="Has no effect.")
    prompt_cache_key: str | None = Field(default=None, description="Has no effect.")
    service_tier: Literal["auto", "default"] | None = Field(default=None, description="Has no effect.")
    request_id: str | None = Field(default=None, description="Has no effect.")
    priority: Annotated[Whole, Field(ge=0, le=0)] | None = None
    use_beam_search: Literal[False] | None = None
    length_penalty: OneExactly | None = None
    repetition_penalty: OneExactly | None = None
    stop_token_ids: Nothing | None = None
    allowed_token_ids: Nothing | None = None
    ignore_eos: Literal[False] | None = None
    skip_special_tokens: Literal[True] | None = None
    spaces_between_special_tokens: Literal[True] | None = None
    truncate_prompt_tokens: None = None
    prompt_logprobs: None = None
    store: Literal[False] | None = None


class HarmlessInChats(Harmless):
    """In chats."""

    echo: Literal[False] | None = None
    modalities: Annotated[list[Literal["text"]], Field(max_length=1)] | None = None
    reasoning_effort: Literal["none"] | None = None
    verbosity: Literal["medium"] | None = None
    prediction: Json | None = Field(default=None, description="Has no effect.")
    audio: None = None
    web_search_options: None = None
    functions: Nothing | None = None
    function_call: Literal["none"] | None = None


class StreamOptions(Strict):
    """As OpenAI's."""

    include_usage: bool | None = False
    include_obfuscation: bool | None = Field(default=None, description="Has no effect.")


class Sampling(Strict):
    """What is to be sampled, and how; shared by all requests."""

    model: str = Field(description="The name in /v1/models.")
    constraint: ConstraintJson | None = Field(default=None, description="What the text must satisfy.")
    min_tokens: Annotated[Whole, Field(ge=0)] = Field(
        default=0, description="The text may not end before; part of the constraint."
    )
    num_particles: Count | None = Field(default=None, description=help_of("num_particles"))
    sampler: Annotated[Literal[tuple(NAMED)], AsNamedNow] | None = None  # type: ignore[valid-type]
    budget: SpentAtMost | None = Field(default=None, description=help_of("budget"))
    effort: Effort = Field(default="normal", description="How well to sample where neither sampler nor budget is given.")
    seed: Seed | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = Field(default=None, description=help_of("temperature"))
    top_p: Annotated[float, Field(gt=0, le=1)] | None = Field(default=None, description=help_of("top_p"))
    canonical: Literal["alpha", "only"] | None = None
    ending: Literal["eos", "complete"] | None = Field(default=None, description=help_of("ending"))
    finished: bool = Field(default=False, description=help_of("finished"))
    sampling: Literal["model"] | None = Field(default=None, description=help_of("sampling"))

    def alpha(self) -> Json:
        """The constraint."""
        return EVERYTHING if self.constraint is None else self.constraint

    def law(self) -> Law:
        """How the model is changed."""
        given: Json = {"temperature": self.temperature, "top_p": self.top_p, "sampling": self.sampling}
        return Law(**{name: value for name, value in given.items() if value is not None})

    def settings(self) -> Json:
        """Fields of the task that are the request's own."""
        names = ("min_tokens", "num_particles", "sampler", "budget", "effort", "seed", "canonical", "ending", "finished")
        return {**{name: getattr(self, name) for name in names}, "constraint": self.alpha(), "law": self.law()}

    def place(self, what: str) -> str:
        """The field of this request that says something; `constraint` has several names, and so have others."""
        return what

    def tasks(self, default_tokens: int) -> list[Task]:
        """The runs that the request asks for."""
        raise NotImplementedError


class Common(Sampling):
    """What requests for texts share."""

    response_format: Annotated[TextFormat | ObjectFormat | SchemaFormat, Field(discriminator="type")] | None = None
    structured_outputs: StructuredOutputs | None = None
    n: Count | None = Field(default=None, description="Texts, drawn in proportion to the weights of the particles.")
    independent: bool = Field(default=False, description="Each of the n texts from particles of its own.")
    stop: str | list[str] | None = Field(default=None, description="The text ends before the first of these strings.")
    include_stop_str_in_output: bool | None = Field(default=None, description="It ends behind it.")
    bad_words: list[str] | None = Field(default=None, description="The text holds none of them; part of the constraint.")
    frequency_penalty: Penalty | None = Field(default=None, description=help_of("frequency_penalty"))
    presence_penalty: Penalty | None = Field(default=None, description=help_of("presence_penalty"))
    logit_bias: Annotated[dict[TokenId, Bias], Field(max_length=MOST_BIASED)] | None = Field(
        default=None, description=help_of("logit_bias")
    )
    top_k: Annotated[Whole, Field(ge=-1, lt=2**63)] | None = Field(default=None, description=help_of("top_k"))
    min_p: Annotated[float, Field(ge=0, le=1)] | None = Field(default=None, description=help_of("min_p"))
    return_particles: bool = Field(default=False, description="Answer with all weighted texts too.")
    return_fields: bool = Field(default=False, description="Answer with the probability of each field of JSON too.")
    abstain_below: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="With return_fields: leave less probable fields out of `kept`."
    )
    return_token_ids: bool | None = Field(default=None, description="Answer with the ids of prompt and texts too.")
    stream: bool | None = False
    stream_options: StreamOptions | None = None

    @model_validator(mode="after")
    def _fits(self) -> Common:
        given = [name for name in ("constraint", "response_format", "structured_outputs") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f'give one of {" and ".join(given)}; join constraints with {{"type": "and", "of": [...]}}')
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options needs stream=true")
        if self.abstain_below is not None and not self.return_fields:
            raise ValueError("abstain_below needs return_fields=true")
        if len(self.stops()) > MOST_STOPS or not all(self.stops()):
            raise ValueError(f"stop takes up to {MOST_STOPS} strings, none of them empty")
        return self

    def stops(self) -> list[str]:
        """The stop strings."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    def place(self, what: str) -> str:
        """The first of the fields that a constraint may come by, which is there."""
        names = ("constraint", "response_format", "structured_outputs", "bad_words", "stop")
        return next((name for name in names if getattr(self, name)), what) if what == "constraint" else what

    def constrains_stop(self) -> bool:
        """Is the constraint about the text with its stop string?"""
        return self.structured_outputs is not None

    def alpha(self) -> Json:
        """The constraint, by whichever name it came."""
        if self.structured_outputs is not None:
            return self.structured_outputs.constraint()
        if isinstance(self.response_format, ObjectFormat | SchemaFormat):
            return self.response_format.constraint()
        return super().alpha()

    def law(self) -> Law:
        """How the model is changed."""
        given: Json = {
            "frequency_penalty": self.frequency_penalty,
            "presence_penalty": self.presence_penalty,
            "logit_bias": self.logit_bias,
            "min_p": self.min_p,
            "top_k": self.top_k,
        }
        return replace(super().law(), **{name: value for name, value in given.items() if value is not None})

    def settings(self) -> Json:
        """Fields of the task that are the request's own."""
        return {
            **super().settings(),
            "stop": self.stops(),
            "include_stop": bool(self.include_stop_str_in_output),
            "constrains_stop": self.constrains_stop(),
            "bad_words": self.bad_words or [],
            "return_particles": self.return_particles,
            "return_fields": self.return_fields,
            "abstain_below": self.abstain_below,
            "return_ids": bool(self.return_token_ids),
            "streams": bool(self.stream),
        }

    def runs(self, prompts: list[Prompt], max_tokens: int, **more: Any) -> list[Task]:
        """Of each prompt one, or one for each text that is to be independent; run i has the seed `seed + i`."""
        settings, texts = self.settings(), _given(self.n, 1)
        n, repeated = (1, texts) if self.independent else (texts, 1)
        all_prompts = [prompt for prompt in prompts for _ in range(repeated)]
        seed = settings.pop("seed")
        seeds = [None if seed is None else seed + number for number in range(len(all_prompts))]
        return [
            Task(prompt, max_tokens, n=n, seed=own, **settings, **more) for prompt, own in zip(all_prompts, seeds, strict=True)
        ]


class CompletionRequest(Common, Harmless):
    """A text to go on from, or several."""

    prompt: str | list[Whole] | list[str] | list[list[Whole]] = Field(
        description="A text, or token ids, which are taken as they are; or a list of either, each of which gets n texts."
    )
    max_tokens: Count | None = None
    logprobs: Annotated[Whole, Field(ge=0, le=MOST_TOP_LOGPROBS)] | None = Field(
        default=None, description="Log-probabilities of the tokens, and of so many others at each place."
    )
    echo: bool | None = Field(default=None, description="The prompt stands before the text.")
    best_of: OneExactly | None = None
    suffix: Literal[""] | None = None

    @model_validator(mode="after")
    def _can_echo(self) -> CompletionRequest:
        if self.echo and self.logprobs is not None:
            raise ValueError("echo with logprobs would need the log-probabilities of the prompt; leave one of them out")
        return self

    def prompts(self) -> list[Prompt]:
        """All of them."""
        several = isinstance(self.prompt, list) and bool(self.prompt) and isinstance(self.prompt[0], str | list)
        return list(self.prompt) if several else [self.prompt]  # type: ignore[arg-type, list-item]

    def tasks(self, default_tokens: int) -> list[Task]:
        """Runs for all prompts."""
        logprobs = _given(self.logprobs, NO_LOGPROBS)
        return self.runs(self.prompts(), _given(self.max_tokens, 16), logprobs=logprobs, echo=bool(self.echo))


def _given(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value


def refusal(tasks: list[Task], settings: Settings) -> tuple[str, str] | None:
    """The field that is beyond what this server allows, and a message; None if there is none."""
    if not tasks:
        return "prompt", "prompt is a list of nothing; give at least one."
    first = tasks[0]
    asked = {
        "max_tokens": (first.max_tokens, settings.max_tokens),
        "num_particles": (first.particles, settings.max_particles),
        "budget": (first.lm_tokens, settings.max_budget),
        "n": (first.n * len(tasks), settings.max_n),
    }
    for name, (value, most) in asked.items():
        if value > most:
            texts = "n, times the number of prompts," if name == "n" and len(tasks) > 1 else name
            return name, f"{texts} is {value}, but this server allows at most {most}."
    budget = read_budget(first.budget)
    if isinstance(budget, Seconds) and budget.seconds >= settings.timeout:
        return "budget", f"a budget of {first.budget} is more than an answer may take here, which is {settings.timeout:g} s."
    if first.min_tokens > first.max_tokens:
        return "min_tokens", f"min_tokens is {first.min_tokens}, above max_tokens, which is {first.max_tokens}."
    return None


def version() -> str:
    """Of Locore."""
    return locore.__version__
