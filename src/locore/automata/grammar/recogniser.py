"""llguidance's own reading of a grammar in Lark's syntax, byte by byte: what texts of it are, and the check of every text."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from locore.automata.grammar.terminals import COMMON
from locore.kernel.errors import BudgetExceeded, InvalidConstraint, MissingExtra

UNFORCED = '\n%llguidance { "no_forcing": true }\n'  # what is forced is of no interest, and may never end
PRIORITY = re.compile(r"^([ \t]*[!?_]*[a-zA-Z][\w-]*[ \t]*)(\.[+-]?[0-9]+)(?=[ \t]*:)", re.MULTILINE)
STRING = re.compile(
    r"^[ \t]*%import[ \t]+common(?:\.ESCAPED_STRING\b(?:[ \t]*->[ \t]*(\w+))?|[ \t]*\(([^()]*\bESCAPED_STRING\b[^()]*)\))",
    re.MULTILINE,
)
SHALLOW = 50  # levels of rules in rules for which any thread's stack is large enough
STACK = 1 << 28  # bytes for the deepest grammar, of which only those are taken that are needed: about 3.5 kB a level
_stack_size = threading.Lock()
T = TypeVar("T")


def as_meant(text: str) -> str:
    """The grammar for llguidance: without priorities (`NAME.2: …`), which only choose among readings; strings on one line."""
    return STRING.sub(_defined, PRIORITY.sub(lambda match: match[1] + " " * len(match[2]), text))


def _defined(match: re.Match[str]) -> str:
    string, names = f"/{COMMON['ESCAPED_STRING']}/", re.findall(r"\w+", match[2] or "")
    lines = (f"{name}: {string}" if name == "ESCAPED_STRING" else f"%import common.{name}" for name in names)
    return "\n".join(lines) or f"{match[1] or 'ESCAPED_STRING'}: {string}"


class Engine:
    """llguidance's matcher of a grammar over bytes.

    Args:
        text: the grammar.
        depth: how deep its rules stand in each other; llguidance calls itself for each.

    Raises:
        InvalidConstraint: llguidance does not take it.
        MissingExtra: it is not installed.
    """

    def __init__(self, text: str, depth: int) -> None:
        llguidance = llguidance_module()
        tokenizer = byte_tokenizer()
        lark = llguidance.LLMatcher.grammar_from_lark(text + UNFORCED)

        def new_matcher() -> Any:
            return llguidance.LLMatcher(tokenizer, lark, log_level=0)

        self._matcher = new_matcher() if depth <= SHALLOW else _on_a_large_stack(new_matcher)
        if self._matcher.is_error():
            raise InvalidConstraint(f"the grammar is not one for llguidance: {self._matcher.get_error().strip()}")

    def read(self, content: bytes) -> tuple[int, bool]:
        """With how many bytes of the text some sentence begins; and is all of it one?

        Raises:
            BudgetExceeded: llguidance gives up on the text.
        """
        matcher = self._matcher.deep_copy()
        read = int(matcher.try_consume_tokens(list(content)))
        if read == len(content):
            return read, bool(matcher.is_accepting())
        if matcher.is_error() and "limit" in matcher.get_error():
            raise BudgetExceeded(f"llguidance gives up on a text of this grammar: {matcher.get_error().splitlines()[0]}")
        return read, False


def _on_a_large_stack(make: Callable[[], T]) -> T:
    """What a function returns in a thread of its own: a stack that is too small ends the process."""
    returned: list[T] = []
    with _stack_size:
        before = threading.stack_size(STACK)
        try:
            thread = threading.Thread(target=lambda: returned.append(make()))
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    return returned[0]


class _Bytes:
    """A vocabulary of the 256 bytes and an end, as llguidance wants it."""

    eos_token_id = 256
    bos_token_id = None
    special_token_ids = (256,)
    tokens = (*(bytes([byte]) for byte in range(256)), b"</s>")

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


def byte_tokenizer() -> Any:
    """The tokenizer of the bytes, for llguidance."""
    llguidance = llguidance_module()
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()), n_vocab=257, eos_token=256, slices=[])


def llguidance_module() -> Any:
    """The package.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import llguidance
    except ImportError as error:
        message = "grammars in Lark's syntax need the package llguidance; install it with: pip install 'locore[grammar]'"
        raise MissingExtra(message) from error
    return llguidance
