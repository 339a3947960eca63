"""Asking a function that somebody else wrote: about many texts, with every answer looked at, and within a time."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from locore.kernel.errors import BrokenPotential, LocoreError
from locore.potentials.target import Potential

SHOWN = 60  # characters of a text in a message
MOST_AHEAD = 1e6  # nats that a beginning may be said to be worth: more, and sums would lose what the model says
ROUNDING = 1e-6  # relative, by which an answer may exceed its bound


class TookTooLong(BaseException):
    """Raised inside a function whose time is up; no `except Exception` of its own catches it."""


@dataclass
class Tally:
    """What was asked of one function.

    Attributes:
        texts: how many were asked about, each once.
        errors, timeouts: of these, how many raised something, or took too long.
        first_error: what the first of them raised, in words.
    """

    texts: int = 0
    errors: int = 0
    timeouts: int = 0
    first_error: str | None = None


def log_factors(phi: Potential, f: Callable[..., Any], texts: list[str], tally: Tally, ahead: bool = False) -> list[float]:
    """weight · f of each text, every one of them asked for the first time.

    Args:
        phi: the potential.
        f: its function of finished texts, or that of beginnings.
        texts: distinct.
        tally: what is counted on.
        ahead: are these beginnings? What is said of them is a guess: it is clipped, and an error of a predicate means yes.

    Raises:
        BrokenPotential: the answer is no list of as many numbers below +∞ and the bound, that of a predicate neither True nor
            False, or the function of a potential raised.
    """
    tally.texts += len(texts)
    if phi.is_predicate:
        return [0.0 if _says_yes(phi, f, text, tally, ahead) else -math.inf for text in texts]
    try:
        answer = f(list(texts))
    except LocoreError:
        raise
    except Exception as error:
        raise BrokenPotential(
            f"{phi!r} raised {type(error).__name__}: {error} (asked about {len(texts)} texts, the first {shown(texts[0])}). "
            "Catch it in the function and return a number, or make a predicate of it, whose errors mean no."
        ) from error
    return [_checked(phi, value, text, ahead) for value, text in zip(_numbers(phi, answer, texts), texts, strict=True)]


def shown(text: str) -> str:
    """A text in a message."""
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


def _numbers(phi: Potential, answer: Any, texts: list[str]) -> Sequence[float]:
    """The answer as a list of one number for each text."""
    try:
        values = np.asarray(answer.detach().cpu().double() if hasattr(answer, "detach") else answer, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError):
        raise BrokenPotential(
            f"{phi!r} returned {type(answer).__name__}, which is no list of numbers; it gets a list of texts and returns as "
            "many log-factors."
        ) from None
    if values.shape != (len(texts),):
        size = f"{values.size} values" if values.ndim == 1 else f"an array of shape {values.shape}"
        raise BrokenPotential(
            f"{phi!r} returned {size} for {len(texts)} texts; it gets a list of texts and returns as many log-factors."
        )
    return [float(value) for value in values]


def _checked(phi: Potential, value: float, text: str, ahead: bool) -> float:
    """The log-factor of one text; about that of one that begins so, it may be any finite number."""
    if math.isnan(value) or value == math.inf:
        raise BrokenPotential(
            f"{phi!r} returned {value} for the text {shown(text)}; return a number, or -inf for a text that is excluded."
        )
    if value == -math.inf:
        if phi.weight <= 0:
            raise BrokenPotential(f"{phi!r} excludes the text {shown(text)} by -inf, which a weight of {phi.weight:g} undoes.")
        return value
    weighed = phi.weight * value
    if weighed == math.inf:
        raise BrokenPotential(f"{phi!r} returned {value:g} for the text {shown(text)}, which its weight makes infinite.")
    if ahead:
        return max(-MOST_AHEAD, min(weighed, phi.bound, MOST_AHEAD))
    if weighed > phi.bound + ROUNDING * (1 + abs(phi.bound)):
        raise BrokenPotential(
            f"{phi!r} returned {value:g} for the text {shown(text)}, above its bound of {phi.bound / phi.weight:g}; "
            "correct the bound."
        )
    return min(weighed, phi.bound)


def _says_yes(phi: Potential, f: Callable[..., Any], text: str, tally: Tally, otherwise: bool) -> bool:
    """The answer of a predicate, `otherwise` where there is none."""
    try:
        with limited(phi.timeout):
            answer = f(text)
    except TookTooLong:
        tally.timeouts += 1
        return otherwise
    except Exception as error:
        tally.errors += 1
        said = f"{type(error).__name__}: {error}"[: 2 * SHOWN]
        tally.first_error = tally.first_error or f"{phi!r} on {shown(text)}: {said}"
        return otherwise
    if isinstance(answer, bool | np.bool_):
        return bool(answer)
    which = f"the prefix function of {phi!r}" if f is phi.prefix else repr(phi)
    raise BrokenPotential(
        f"{which} returned {shown(str(answer))} ({type(answer).__name__}) for the text {shown(text)}; a predicate returns True "
        "or False, so check that every path ends in a return, or write bool(...)."
    )


def limited(seconds: float | None) -> AbstractContextManager[None]:
    """Raise `TookTooLong` in this thread, wherever it is in Python code, once the time is up.

    The function runs in the thread of its caller, as connections to databases and the like demand, and another thread rings. No
    generator stands between the two, in whose own code the exception could be lost.
    """
    return nullcontext() if seconds is None else _Alarm(seconds)


class _Alarm:
    """Rings once in the thread that set it, unless it is left before."""

    def __init__(self, seconds: float) -> None:
        self._lock = threading.Lock()
        self._thread = ctypes.c_ulong(threading.get_ident())
        self._is_set, self._has_rung = True, False
        self._timer = threading.Timer(seconds, self._ring)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._is_set = False
        if self._has_rung:  # perhaps so late that nothing was interrupted yet
            ctypes.pythonapi.PyThreadState_SetAsyncExc(self._thread, None)
            if kind is not TookTooLong:
                raise TookTooLong

    def _ring(self) -> None:
        with self._lock:
            if self._is_set:
                self._has_rung = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(self._thread, ctypes.py_object(TookTooLong))
