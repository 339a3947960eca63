"""What compiling a constraint may use: states, nodes, seconds and memory.

Automata and circuits are built in many small steps, by constraints and compilers alike. The limits in force are therefore kept
in one place for the time of a compile, and each step that can grow asks here before it goes on.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from pathlib import Path

from locore.kernel.errors import BudgetExceeded, InvalidArgument

_MEMINFO = Path("/proc/meminfo")
SECONDS_BETWEEN_LOOKS = 0.05  # at the memory of the process


@dataclass(frozen=True)
class Limits:
    """Limits of one compile; beyond any of them `BudgetExceeded` says which, and what to change.

    Attributes:
        states: of one automaton, or of all positions of a circuit that is explored state by state; not those that grammars and
            large schemas make while text is written.
        nodes: of the circuit, when they are asked for; those that positions share once.
        seconds: of wall time.
        memory: bytes that the process may grow by, and of any one table.

    Raises:
        InvalidArgument: a limit is not a positive number.
    """

    states: int = 200_000
    nodes: int = 20_000_000
    seconds: float = 300.0
    memory: int = 4_000_000_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            whole = field.name != "seconds"
            good = isinstance(value, int if whole else int | float) and not isinstance(value, bool) and value > 0
            if not good or (isinstance(value, int) and value >= 2**63):
                kind = "a positive integer" if whole else "a positive number"
                raise InvalidArgument(f"the limit on {field.name} must be {kind}, got {value!r}.")

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """These limits hold inside the `with` block, memory from its beginning; a deadline that ends sooner is kept."""
        outer, deadline = _in_force.get(), time.monotonic() + self.seconds
        deadline = deadline if outer is None else min(deadline, outer.deadline)
        token = _in_force.set(_Run(self, deadline, resident_memory(), outer))
        try:
            yield
        finally:
            _in_force.reset(token)


@dataclass
class _Run:
    """Limits in force, with what they are measured from."""

    limits: Limits
    deadline: float
    memory_before: int
    outer: _Run | None
    next_look: float = 0.0


DEFAULT = Limits()
_in_force: ContextVar[_Run | None] = ContextVar("limits in force", default=None)
_watch: ContextVar[Callable[[], None] | None] = ContextVar("who may stop the work", default=None)
_count: ContextVar[Callable[[int], None] | None] = ContextVar("who is told what the work costs", default=None)
_expect: ContextVar[Callable[[int], None] | None] = ContextVar("who is told what it will cost", default=None)


@contextmanager
def watched(
    check: Callable[[], None] | None, count: Callable[[int], None] | None = None, expect: Callable[[int], None] | None = None
) -> Iterator[None]:
    """Watch the work inside the `with` block.

    Args:
        check: compiling and reading a model call it again and again, and who watches further out; what it raises ends them.
            With None nothing inside can be ended.
        count: called with each number of LM tokens that is spent; nobody further out is told.
        expect: called with the number of LM tokens that the rest of the work is expected to cost.
    """
    outer = _watch.get()
    if outer is not None and check is not None:
        inner = check

        def check() -> None:
            outer()
            inner()

    check_before, count_before, expect_before = _watch.set(check), _count.set(count), _expect.set(expect)
    try:
        yield
    finally:
        _watch.reset(check_before)
        _count.reset(count_before)
        _expect.reset(expect_before)


def held_back(seconds: float) -> None:
    """So long others were let through: the compiles that are running have as much time as before."""
    run = _in_force.get()
    while run is not None:
        run.deadline += seconds
        run = run.outer


def may_stop() -> None:
    """A place where work can be ended by whoever watches it."""
    if (check := _watch.get()) is not None:
        check()


def spent(lm_tokens: int) -> None:
    """So many next-token distributions were asked for; whoever watches the work is told."""
    if (count := _count.get()) is not None:
        count(lm_tokens)


def expected(lm_tokens: int) -> None:
    """So many next-token distributions will probably be asked for from now on, more than was thought or less."""
    if (expect := _expect.get()) is not None:
        expect(lm_tokens)


def limits_in_force() -> Limits:
    """The limits of the compile that is running, or the default ones."""
    return DEFAULT if (run := _in_force.get()) is None else run.limits


def check_states(count: int, what: str, remedy: str) -> None:
    """`BudgetExceeded` if `what` has more states than the limit; `remedy` says how to need fewer."""
    _check("states", count, what, remedy)


def check_nodes(count: int, what: str, remedy: str) -> None:
    """`BudgetExceeded` if `what` has more nodes than the limit."""
    _check("nodes", count, what, remedy)


def check_table(num_bytes: int, what: str, remedy: str) -> None:
    """`BudgetExceeded` if a table that is about to be made would be larger than the limit on memory."""
    _check("memory", num_bytes, what, remedy)


def check_progress(what: str, remedy: str) -> None:
    """`BudgetExceeded` if the time is up, or the process has grown too much; cheap enough for inner loops."""
    may_stop()
    if (run := _in_force.get()) is None:
        return
    now = time.monotonic()
    if now > run.deadline:
        raise BudgetExceeded(
            f"{what} took longer than the limit of {run.limits.seconds:g} seconds; raise it with "
            f"--limit seconds=... or limits=Limits(seconds=...), or ask for less: {remedy}."
        )
    if now > run.next_look:
        run.next_look = now + SECONDS_BETWEEN_LOOKS
        _check("memory", resident_memory() - run.memory_before, what, remedy)


def available_memory() -> int | None:
    """Bytes of the machine that are left; None where the system does not say."""
    match = re.search(r"MemAvailable: +(\d+) kB", _MEMINFO.read_text()) if _MEMINFO.exists() else None
    return None if match is None else 1024 * int(match[1])


def resident_memory(process: int | str | None = "self") -> int:
    """Bytes of a process that are in memory, of this one by default; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError, IndexError):
        return 0


def _check(kind: str, needed: int, what: str, remedy: str) -> None:
    limit = getattr(limits_in_force(), kind)
    if needed > limit:
        unit = "bytes of memory" if kind == "memory" else kind
        raise BudgetExceeded(
            f"{what} needs {needed:,} {unit}, more than the limit of {limit:,}; raise it with --limit {kind}=... or "
            f"limits=Limits({kind}=...), or ask for less: {remedy}."
        )
