"""What the command line takes in: options, constraints as JSON, texts from files and pipes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from os.path import isfile as is_file  # false for what is no name at all
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints
from urllib.parse import urldefrag, urljoin

import typer

import locore
from locore import io
from locore.kernel.chat import EXAMPLE as CHAT_EXAMPLE
from locore.kernel.chat import Prompt, plain_messages
from locore.kernel.errors import InvalidArgument, InvalidConstraint
from locore.kernel.limits import Limits
from locore.kernel.request import Request, help_of

if TYPE_CHECKING:
    from locore.constraints import Constraint, Pattern
    from locore.evidence import Particles
    from locore.parsing import Answer
    from locore.potentials import Target


COPY_HELP = "Of a copy that draws what the model weighs; none by default."
THREADS_HELP = "Threads of the arithmetic; as many as pay by default, measured when the model is loaded."
MODEL_HELP = "tiny, smollm2, a folder, a GGUF file, or a Hugging Face name."
EXAMPLE = '{"type": "ban", "phrases": ["awful"]}'

ThreadNumber = Annotated[int | None, typer.Option("--threads", help=THREADS_HELP)]
SteerDtype = Annotated[str | None, typer.Option(metavar="auto|bfloat16|float16", help=COPY_HELP)]
Parse = Annotated[bool, typer.Option("--parse", help="Of JSON: the most probable fields, each with its probability.")]
AbstainBelow = Annotated[float | None, typer.Option(metavar="P", help="With --parse: leave out fields less probable than P.")]
LimitList = Annotated[list[str] | None, typer.Option("--limit", metavar="NAME=VALUE", help=help_of("limits"))]
ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}
ESCAPED = re.compile(r"\\[nt\\]")
PatternHelp = "a regular expression, or the name of a ready pattern, such as email; several times."


def read_constraint(value: str) -> Constraint | Target:
    """The constraint or product of a `--constraint` option: JSON, @file, or @- for standard input.

    Raises:
        InvalidConstraint: it is no JSON, or not that of a constraint; the message names the place.
        InvalidArgument: the file cannot be read.
    """
    source = f"file {value[1:]}" if value.startswith("@") else "option --constraint"
    text = read_text(value[1:]) if value.startswith("@") else value
    file = f"@{value}, since that is a file" if is_file(value) else "@file"
    return locore.from_json(parse_json(text, source, f"write JSON such as {EXAMPLE}, or {file}"))


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of the dataclasses that it takes."""
    taken = signature(command, eval_str=True).parameters
    groups: dict[str, Any] = {name: each.annotation for name, each in taken.items() if is_dataclass(each.annotation)}
    options: list[Parameter] = []
    for name, each in taken.items():
        hints = get_type_hints(groups[name], include_extras=True) if name in groups else {}
        held = fields(groups[name]) if name in groups else ()
        options += [each.replace(name=part.name, annotation=hints[part.name], default=part.default) for part in held] or [each]

    @wraps(command)
    def called(**given: Any) -> None:
        records = {name: kind(**{part.name: given.pop(part.name) for part in fields(kind)}) for name, kind in groups.items()}
        command(**given, **records)

    called.__signature__ = Signature(options)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in options}
    return called


@dataclass(frozen=True)
class Asked:
    """The options of a request, but for its seed, as the shell takes them."""

    max_new_tokens: Annotated[int, typer.Option(help=help_of("max_new_tokens"))] = Request.max_new_tokens
    min_new_tokens: Annotated[int, typer.Option(help=help_of("min_new_tokens"))] = Request.min_new_tokens
    num_particles: Annotated[int, typer.Option(help=help_of("num_particles"))] = Request.num_particles
    sampler: Annotated[str | None, typer.Option(help=help_of("sampler"))] = None
    budget: Annotated[str | None, typer.Option(metavar="TOKENS|SECONDSs", help=help_of("budget"))] = None
    canonical: Annotated[str | None, typer.Option(metavar="alpha|only", help=help_of("canonical"))] = None
    temperature: Annotated[float, typer.Option(help=help_of("temperature"))] = Request.temperature
    top_p: Annotated[float, typer.Option(help=help_of("top_p"))] = Request.top_p
    top_k: Annotated[int, typer.Option(help=help_of("top_k"))] = Request.top_k
    min_p: Annotated[float, typer.Option(help=help_of("min_p"))] = Request.min_p
    frequency_penalty: Annotated[float, typer.Option(help=help_of("frequency_penalty"))] = Request.frequency_penalty
    presence_penalty: Annotated[float, typer.Option(help=help_of("presence_penalty"))] = Request.presence_penalty
    logit_bias: Annotated[list[str] | None, typer.Option(metavar="ID=NATS", help=help_of("logit_bias"))] = None
    sampling: Annotated[str | None, typer.Option(metavar="model", help=help_of("sampling"))] = None
    stop: Annotated[list[str] | None, typer.Option(metavar="TEXT", help=help_of("stop"))] = None
    ending: Annotated[str | None, typer.Option(metavar="complete|eos", help=help_of("ending"))] = None
    finished: Annotated[bool, typer.Option("--finished", help=help_of("finished"))] = False
    limit: LimitList = None

    def read(self) -> dict[str, Any]:
        """As `generate` and batches take them, which check them.

        Raises:
            InvalidArgument: a bias, or a limit, that is none.
        """
        given = dict(vars(self))
        limits = read_limits(given.pop("limit") or [])
        return given | {"logit_bias": read_biases(self.logit_bias or []), "stop": read_stop(self.stop or []), "limits": limits}


@dataclass(frozen=True)
class Said:
    """A constraint as the shell has it: JSON, and what is said in a word; several of them hold together."""

    constraint: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE", help="What the text must satisfy; @- reads stdin.")
    ] = None
    contains: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="It contains this; several times: all of them.")
    ] = None
    ban: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="It does not contain this; several times.")] = None
    regex: Annotated[str | None, typer.Option(metavar="PATTERN", help="The whole text matches.")] = None
    json_schema: Annotated[str | None, typer.Option(metavar="FILE|JSON", help="It is JSON, valid for a schema.")] = None
    choice: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="It is one of these; several times.")] = None
    starts_with: Annotated[str | None, typer.Option(metavar="TEXT", help="It starts with this.")] = None
    ends_with: Annotated[str | None, typer.Option(metavar="TEXT", help="It ends with this.")] = None
    words: Annotated[str | None, typer.Option(metavar="N|LO-HI", help="It has so many words.")] = None
    contains_pattern: Annotated[list[str] | None, typer.Option(metavar="REGEX|NAME", help=f"It contains {PatternHelp}")] = None
    ban_pattern: Annotated[list[str] | None, typer.Option(metavar="REGEX|NAME", help=f"It does not contain {PatternHelp}")] = (
        None
    )
    over: Annotated[
        str | None, typer.Option(metavar="text|prompt+text", help="What mentions and bans see, if not the text alone.")
    ] = None

    def read(self) -> Constraint | Target:
        """All of it together.

        Raises:
            InvalidConstraint: nothing is said, or what is said is no constraint.
            InvalidArgument: a file cannot be read.
        """
        parts: list[Any] = [] if self.constraint is None else [read_constraint(self.constraint)]
        mentions = [locore.contains(text) for text in self.contains or ()]
        mentions += [locore.contains(_pattern(text)) for text in self.contains_pattern or ()]
        banned = [*(self.ban or ()), *map(_pattern, self.ban_pattern or ())]
        mentions += [locore.ban(banned)] if banned else []
        if self.over is not None and not mentions:
            raise InvalidConstraint("--over goes with --contains, --ban, --contains-pattern or --ban-pattern.")
        parts += mentions if self.over is None else [mention.over(self.over) for mention in mentions]
        parts += [locore.regex(self.regex)] if self.regex is not None else []
        parts += [_read_schema(self.json_schema)] if self.json_schema is not None else []
        parts += [locore.choice(self.choice)] if self.choice else []
        parts += [locore.starts_with(self.starts_with)] if self.starts_with is not None else []
        parts += [locore.ends_with(self.ends_with)] if self.ends_with is not None else []
        parts += [_read_words(self.words)] if self.words is not None else []
        if not parts:
            raise InvalidConstraint(
                "what should the text satisfy? Say it in a word (--contains, --ban, --regex, --json-schema, --choice, "
                "--starts-with, --ends-with, --words, --contains-pattern, --ban-pattern; several hold together), or as JSON: "
                f"--constraint '{EXAMPLE}'."
            )
        together: Constraint | Target = parts[0]
        for part in parts[1:]:
            together = together & part if isinstance(together, locore.Constraint) else together * part
        return together


def _read_schema(value: str) -> Constraint:
    """Of a schema that is given as JSON, or the name of a file with it, which may refer to files beside it."""
    is_text = value.lstrip()[:1] in ("{", "t", "f") and not is_file(value)
    path = Path(value.removeprefix("@"))
    text = value if is_text else read_text(str(path))
    schema = parse_json(text, "option --json-schema", "write a schema, or the name of a file with one")
    return locore.json_schema(schema, documents={} if is_text else _beside(schema, path.parent))


def _beside(schema: Any, folder: Path) -> dict[str, Any]:
    """Schemas in a folder that a schema in it, or one of them, refers to; by URI."""
    from locore.constraints.json_schema.documents import members

    top = str(schema.get("$id", "")) if isinstance(schema, dict) else ""
    schemas, todo = dict[str, Any](), [(top, schema)]
    for base, content in todo:  # grows while it is read
        references = [value for key, value in members(content) if key in ("$ref", "$dynamicRef") and isinstance(value, str)]
        for uri in [_without_fragment(base, reference) for reference in references]:
            path = folder / uri.removeprefix(top[: top.rfind("/") + 1])
            if uri not in (*schemas, top) and is_file(path) and path.resolve().is_relative_to(folder.resolve()):
                schemas[uri] = parse_json(read_text(str(path)), str(path), "a schema is JSON")
                todo.append((uri, schemas[uri]))
    return schemas


def _without_fragment(base: str, reference: str) -> str:
    try:
        return urldefrag(urljoin(base, reference)).url
    except ValueError:  # which is told where it is followed
        return base


def _pattern(value: str) -> Pattern:
    """A ready pattern by its name, or one of a regular expression."""
    ready: Any = locore.patterns
    return getattr(ready, value) if value in dir(ready) else locore.pattern(value)


def _read_words(value: str) -> Constraint:
    least, _, most = value.partition("-")
    try:
        low = int(least)
        return locore.word_count(low, int(most) if most else low)
    except ValueError:
        raise InvalidConstraint(f"--words {value!r}: write a number, as 5, or two, as 3-5.") from None


def read_prompt(prompt: str, chat: bool, system: str | None) -> Prompt:
    """The prompt of `--prompt`, `--chat` and `--system`.

    Raises:
        InvalidArgument: options that do not go together, or a file that holds no messages.
    """
    if not chat:
        if system is not None:
            raise InvalidArgument("--system is of a chat; add --chat, or write it into the prompt.")
        return prompt
    if not prompt.startswith("@"):
        turns = [("system", system)] if system is not None else []
        return plain_messages([{"role": role, "content": text} for role, text in (*turns, ("user", prompt))])
    if system is not None:
        raise InvalidArgument("--system goes with a message, not with a file of them; put it into the file, as the first one.")
    try:
        messages = io.parse(read_text(prompt[1:]))
    except io.NotJson as error:
        raise InvalidArgument(f"file {prompt[1:]} {error}; write a list of messages such as {CHAT_EXAMPLE}.") from None
    return plain_messages(messages)


def parse_json(text: str, source: str, remedy: str) -> Any:
    """The value of a JSON text; a name that stands twice in an object is an error, not silently the last one."""
    try:
        return io.parse(text)
    except io.NotJson as error:
        raise InvalidConstraint(f"{source} {error}; {remedy}.") from None


def read_biases(options: list[str]) -> dict[int, float]:
    """Nats by token id, of options `--logit-bias ID=NATS`.

    Raises:
        InvalidArgument: no id with a number.
    """
    biases: dict[int, float] = {}
    for option in options:
        token, _, nats = option.partition("=")
        try:
            biases[int(token)] = float(nats)
        except ValueError:
            raise InvalidArgument(f"--logit-bias {option!r}: write a token id and a number of nats, as 11=-5.") from None
    return biases


def read_stop(options: list[str]) -> Any:
    r"""Stop strings as the shell gives them, in which \n, \t and \\ stand for what they do in code.

    What `--ending` says now was once said by `--stop`; that alone is still read so.
    """
    if options in (["complete"], ["eos"]):
        return options[0]
    return [ESCAPED.sub(lambda match: ESCAPES[match[0]], option) for option in options]


def read_limits(options: list[str]) -> Limits:
    """The limits of options `--limit NAME=VALUE`; the others keep their defaults.

    Raises:
        InvalidArgument: no such limit, one that is given twice, or no positive number.
    """
    names = [field.name for field in fields(Limits)]
    limits: dict[str, Any] = {}
    for option in options:
        name, _, value = option.partition("=")
        if name not in names or name in limits:
            raise InvalidArgument(f"--limit {option!r}: give each of {', '.join(names)} at most once, as states=1000000.")
        try:
            limits[name] = float(value) if name == "seconds" else int(value)
        except ValueError:
            raise InvalidArgument(f"--limit {option!r}: {value!r} is no number; write {name}=1000000.") from None
    return Limits(**limits)


def read_text(path: str) -> str:
    """The text of a file, or of standard input for "-", as it is: nothing is stripped."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise InvalidArgument(f"cannot read {path}: {error.strerror}; check the name.") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{path} is no UTF-8: {error.reason} at byte {error.start}; convert it.") from error


def write_text(path: str, text: str) -> None:
    """Write a file so that it is there whole or not at all; "-" is standard output."""
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        io.write_whole(Path(path), text)
    except OSError as error:
        raise InvalidArgument(f"cannot write {path}: {error.strerror}; choose another place.") from error


def read_record(particles: Particles, asked: bool, abstain_below: float | None) -> Answer | None:
    """What is known of the fields of texts that are JSON, if it was asked for."""
    from locore.parsing import Answer, checked_level

    level = checked_level(abstain_below)
    if level is not None and not asked:
        raise InvalidArgument("--abstain-below is about fields; give --parse, too.")
    return Answer(particles, None, level) if asked else None
