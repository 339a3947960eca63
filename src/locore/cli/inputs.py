"""What the command line takes in: constraints as JSON, texts, models."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import fields
from os.path import isfile as is_file  # false for what is no name at all
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import locore
from locore import jsontext
from locore.chat import EXAMPLE as CHAT_EXAMPLE
from locore.chat import Prompt, plain_messages
from locore.errors import InvalidArgument, InvalidConstraint
from locore.limits import Limits
from locore.request import help_of

if TYPE_CHECKING:
    from locore.constraints import Constraint

MODEL_HELP = "tiny, smollm2, a folder, a GGUF file, or a Hugging Face name."
EXAMPLE = '{"type": "ban", "phrases": ["awful"]}'

# The options of a request, as the shell takes them.
MaxNewTokens = Annotated[int, typer.Option(help=help_of("max_new_tokens"))]
MinNewTokens = Annotated[int, typer.Option(help=help_of("min_new_tokens"))]
NumParticles = Annotated[int, typer.Option(help=help_of("num_particles"))]
SamplerName = Annotated[str | None, typer.Option(help=help_of("sampler"))]
Budget = Annotated[int | None, typer.Option(help=help_of("budget"))]
CanonicalMode = Annotated[str | None, typer.Option(metavar="alpha|only", help=help_of("canonical"))]
StopMode = Annotated[str | None, typer.Option(metavar="complete|eos", help=help_of("stop"))]
LimitList = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help=help_of("limits"))]


def read_constraint(value: str) -> Constraint:
    """The constraint of a `--constraint` option: JSON, @file, or @- for standard input.

    Raises:
        InvalidConstraint: it is no JSON, or not that of a constraint; the message names the place.
        InvalidArgument: the file cannot be read.
    """
    source = f"file {value[1:]}" if value.startswith("@") else "option --constraint"
    text = read_text(value[1:]) if value.startswith("@") else value
    file = f"@{value}, since that is a file" if is_file(value) else "@file"
    return locore.from_json(parse_json(text, source, f"write JSON such as {EXAMPLE}, or {file}"))


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
        messages = jsontext.parse(read_text(prompt[1:]))
    except jsontext.NotJson as error:
        raise InvalidArgument(f"file {prompt[1:]} {error}; write a list of messages such as {CHAT_EXAMPLE}.") from None
    return plain_messages(messages)


def parse_json(text: str, source: str, remedy: str) -> Any:
    """The value of a JSON text; a name that stands twice in an object is an error, not silently the last one."""
    try:
        return jsontext.parse(text)
    except jsontext.NotJson as error:
        raise InvalidConstraint(f"{source} {error}; {remedy}.") from None


def read_limits(options: list[str]) -> Limits:
    """The limits of options `--limit NAME=VALUE`; the others keep their defaults.

    Raises:
        InvalidArgument: no such limit, one that is given twice, or no positive number.
    """
    names = [field.name for field in fields(Limits)]
    found: dict[str, Any] = {}
    for option in options:
        name, _, value = option.partition("=")
        if name not in names or name in found:
            raise InvalidArgument(f"--limit {option!r}: give each of {', '.join(names)} at most once, as states=1000000.")
        try:
            found[name] = float(value) if name == "seconds" else int(value)
        except ValueError:
            raise InvalidArgument(f"--limit {option!r}: {value!r} is no number; write {name}=1000000.") from None
    return Limits(**found)


def read_text(path: str) -> str:
    """The text of a file, or of standard input for "-", as it is: nothing is stripped."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise InvalidArgument(f"cannot read {path}: {error.strerror}; check the name.") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{path} is no UTF-8: {error.reason} at byte {error.start}; convert it.") from error


def write_atomically(path: str, text: str) -> None:
    """Write a file so that it is there whole or not at all; "-" is standard output."""
    if path == "-":
        sys.stdout.write(text)
        return
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise InvalidArgument(f"cannot write {path}: {error.strerror}; choose another place.") from error


def _umask() -> int:
    """The umask of this process; there is no way to read it without setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
