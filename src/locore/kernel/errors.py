"""Every exception and warning of Locore. A message says what was wrong, where, and what to do."""

from __future__ import annotations


class LocoreError(Exception):
    """Base of all errors that Locore raises on purpose."""


class InvalidArgument(LocoreError, ValueError):
    """An argument is of the wrong kind or out of range."""


class InvalidConstraint(LocoreError, ValueError):
    """A constraint that has no meaning: an empty phrase, a position out of range, a bad JSON form."""


class Unsatisfiable(LocoreError):
    """No sequence of the asked length satisfies the constraint."""


class BudgetExceeded(LocoreError):
    """A compile or a run would cost more than its budget; the message names the price."""


class ZeroWeights(LocoreError):
    """Every particle has weight zero, so there is nothing to return as a sample of p(y | α)."""

    log_most: float = 0.0  # certain upper bound of log p(α), where prefixes were counted


class UnsupportedKeyword(LocoreError):
    """A schema keyword or a constraint field that Locore does not know. Nothing is dropped silently."""


class CannotScore(LocoreError):
    """The model cannot give the probability that was asked for (context too long, no such tokens)."""


class BrokenModel(LocoreError):
    """The model gave something that is not a probability distribution: a NaN, or probabilities that do not sum to 1."""


class BrokenPotential(LocoreError):
    """A potential gave something other than log-factors: a NaN, too few, an error, another answer than before."""


class EngineError(LocoreError):
    """An engine is out of reach, or answers what it should not."""


class MissingTemplate(LocoreError):
    """Messages for a tokenizer that says nothing about how a chat is written."""


class ModelNotFound(LocoreError):
    """No model under this name or path, or its folder lacks a file that is needed."""


class MissingExtra(LocoreError, ImportError):
    """A part needs an optional dependency that is not installed."""


class DeviceLost(LocoreError):
    """The accelerator stopped working; only a new process can use it again."""


class Interrupted(LocoreError):
    """Requests that run together were stopped, and this one with them."""


class TimedOut(LocoreError):
    """The time was up before there was anything to return."""


class LocoreWarning(UserWarning):
    """Everything works, but not as it should: slower, or not as in the original model. Said once, where it is found out."""
