"""What a request for an answer to messages may say: turns of all roles, functions to call, options of the template."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from locore.server.schema import MOST_TOP_LOGPROBS, Common, Count, HarmlessInChats, Json, Strict, Whole
from locore.server.task import NO_LOGPROBS, Task
from locore.server.tools import NO_ARGUMENTS, Calls, Function, Messages, function_result, names_in, with_instruction, written

Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f]+$")]
FunctionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class TextPart(Strict):
    """A part of a message."""

    type: Literal["text"]
    text: str


Content = str | list[TextPart]


class NamedMessage(Strict):
    """What the system or a user says."""

    role: Literal["system", "developer", "user"]
    content: Content
    name: Name | None = Field(default=None, description="Who speaks; written before the text.")


class CalledFunction(Strict):
    """What was called, with its arguments as JSON text."""

    name: FunctionName
    arguments: str


class ToolCall(Strict):
    """A call that an earlier answer made."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(Strict):
    """An earlier answer; as the last message, the beginning of this one."""

    role: Literal["assistant"]
    content: Content | None = None
    name: Name | None = None
    tool_calls: list[ToolCall] | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> AssistantMessage:
        if self.content is None and not self.tool_calls:
            raise ValueError("a message of the assistant needs content or tool_calls")
        return self


class ToolMessage(Strict):
    """What a function gave."""

    role: Literal["tool"]
    content: Content
    tool_call_id: str


ChatMessage = Annotated[NamedMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


class FunctionDefinition(Strict):
    """A function that an answer may call; its arguments always fit the schema."""

    name: FunctionName
    description: str | None = None
    parameters: Json | None = Field(default=None, description="A JSON schema.")
    strict: bool | None = None


class Tool(Strict):
    """As OpenAI's."""

    type: Literal["function"]
    function: FunctionDefinition


class ChosenFunction(Strict):
    """By its name."""

    name: FunctionName


class ToolChoice(Strict):
    """This function must be called."""

    type: Literal["function"]
    function: ChosenFunction


class ChatRequest(Common, HarmlessInChats):
    """Messages to answer."""

    messages: list[ChatMessage] = Field(min_length=1, description="An answer goes on from a last one of the assistant.")
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = Field(default=None, description="Answer with the log-probabilities of the tokens.")
    top_logprobs: Annotated[Whole, Field(ge=0, le=MOST_TOP_LOGPROBS)] | None = Field(
        default=None, description="And of so many others at each place."
    )
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = Field(default=None, description="Several calls in one answer; not unless asked for.")
    chat_template_kwargs: Json | None = Field(default=None, description="Options of the model's chat template.")
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None

    @model_validator(mode="after")
    def _makes_sense(self) -> ChatRequest:
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise ValueError("give one of max_tokens and max_completion_tokens")
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs=true")
        goes_on = self.messages[-1].role == "assistant"
        if goes_on if self.continue_final_message is False or self.add_generation_prompt else self.continue_final_message:
            raise ValueError("an answer goes on from a last message of the assistant, and from no other")
        names = [tool.function.name for tool in self.tools or []]
        if len(set(names)) < len(names):
            raise ValueError("two tools have the same name")
        resources: Json = {}
        parameters = [tool.function.parameters for tool in self.tools or []] if self.parallel_tool_calls else []
        if any(resources.setdefault(name, schema) != schema for root in parameters for name, schema in names_in(root)):
            raise ValueError("two tools have different schemas of one $id; rename one of them")
        if isinstance(self.tool_choice, ToolChoice) and self.tool_choice.function.name not in names:
            raise ValueError("tool_choice names a function that is not among the tools")
        if self.tool_choice == "required" and not names:
            raise ValueError("tool_choice is 'required', but there are no tools")
        return self

    def calls(self) -> Calls | None:
        """What may be called, if anything."""
        if not self.tools or self.tool_choice == "none":
            return None
        chosen = self.tool_choice.function.name if isinstance(self.tool_choice, ToolChoice) else None
        offered = tuple(
            Function(tool.function.name, tool.function.parameters or NO_ARGUMENTS, tool.function.description)
            for tool in self.tools
            if chosen in (None, tool.function.name)
        )
        must = chosen is not None or self.tool_choice == "required"
        return Calls(offered, "required" if must else "auto", bool(self.parallel_tool_calls) and chosen is None)

    def place(self, what: str) -> str:
        """What is called is a constraint too."""
        if what == "constraint" and self.calls() is not None:
            return "tools"
        renamed = what == "max_tokens" and self.max_completion_tokens is not None
        return "max_completion_tokens" if renamed else super().place(what)

    def constrains_stop(self) -> bool:
        """Not of calls, which no stop string follows."""
        return super().constrains_stop() and self.calls() is None

    def alpha(self) -> Json:
        """The constraint, and what a call looks like."""
        calls, text = self.calls(), super().alpha()
        return text if calls is None else calls.constraint(text)

    def plain(self) -> Messages:
        """The messages as turns, and how functions are called."""
        turns, calls = plain_turns(self.messages), self.calls()
        return turns if calls is None else with_instruction(turns, calls.instruction())

    def tasks(self, default_tokens: int) -> list[Task]:
        """One, or one for each text that is to be independent."""
        length = self.max_completion_tokens or self.max_tokens or default_tokens
        logprobs = (self.top_logprobs or 0) if self.logprobs else NO_LOGPROBS
        tasks = self.runs([self.plain()], length, logprobs=logprobs, template_options=self.chat_template_kwargs or {})
        # Of a call nobody knows that it is one before it is whole.
        return tasks if self.calls() is None else [replace(task, streams=False) for task in tasks]


def plain_turns(messages: list[ChatMessage]) -> Messages:
    """Messages, each with a role and a text that a chat template can write."""
    names: dict[str, str] = {}
    turns: Messages = []
    for message in messages:
        if isinstance(message, AssistantMessage) and message.tool_calls:
            calls = [(call.function.name, call.function.arguments) for call in message.tool_calls]
            names |= {call.id: call.function.name for call in message.tool_calls}
            said = _text(message.content)
            turns.append({"role": "assistant", "content": f"{said}\n{written(calls)}" if said else written(calls)})
        elif isinstance(message, ToolMessage):
            result = function_result(names.get(message.tool_call_id, "a function"), _text(message.content))
            if turns and turns[-1]["role"] == "user":  # many templates want turns to alternate
                turns[-1] = {"role": "user", "content": f"{turns[-1]['content']}\n{result}"}
            else:
                turns.append({"role": "user", "content": result})
        else:
            text = _text(message.content)
            turns.append({"role": message.role, "content": f"{message.name}: {text}" if message.name else text})
    return turns


def _text(content: Content | None) -> str:
    """The parts of a message, joined."""
    return content if isinstance(content, str) else "".join(part.text for part in content or [])
