"""Which samplers can carry potentials, and how: by what they foresee, by a product of models, or by their weights alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import Tensor

from locore.circuits import Circuit
from locore.kernel.errors import InvalidArgument
from locore.kernel.samplers.sampler import Sampler, Worth, promised
from locore.models import LanguageModel

if TYPE_CHECKING:
    from locore.potentials.scorer import Scorer


@runtime_checkable
class HasPlace(Protocol):
    """A sampler that says itself what it does with what texts are worth."""

    def with_worth(self, worth: Worth) -> Sampler:
        """One that knows of it."""


@runtime_checkable
class SeeksMode(Protocol):
    """A sampler of the most probable texts, or of those of the largest product of probability and worth."""

    @property
    def texts(self) -> int | None:
        """How many; None for as many as particles are asked for."""

    def seeking(self, worth: Callable[[Tensor], Tensor] | None, log_most: float, stops: tuple[str, ...]) -> Sampler:
        """One that knows of log worth, f64[num] of Long[num, length], of what that cannot exceed, and where texts are cut."""


def steered(sampler: Sampler, model: LanguageModel, circuit: Circuit, scorer: Scorer) -> tuple[Sampler, LanguageModel]:
    """A sampler and a model that carry the factors as far as they can; what is left to do is to weigh the draws.

    Experts become a part of the model where the sampler weighs prefixes by what the model says of them, be that normalised or
    not; elsewhere they are factors of finished texts.

    Raises:
        InvalidArgument: the sampler's draws have no proper weights that potentials could multiply.
    """
    informed = with_worth(sampler, scorer)
    if promised(sampler, "reads_prefixes") and circuit.reader is not None:
        return informed, scorer.tilted(model)
    return informed, model


def with_worth(sampler: Sampler, worth: Worth) -> Sampler:
    """A sampler that knows what texts are worth, where it has a place for it; others are weighed when they are done.

    Raises:
        InvalidArgument: its draws have no proper weights that potentials could multiply.
    """
    check_proper(sampler)
    if isinstance(sampler, HasPlace):
        return sampler.with_worth(worth)
    own: set[str] = {part.name for part in fields(sampler)} if is_dataclass(sampler) else set()
    places: dict[str, Any] = {"worth": worth, "keep_all": True}
    if "worth" not in own:  # who knows of texts asks what is known of beginnings too
        places["ahead"] = worth.ahead
    options = {name: value for name, value in places.items() if name in own}
    return replace(sampler, **options) if options else sampler  # type: ignore[type-var]


def keeping_all(sampler: Sampler) -> Sampler:
    """A sampler that thins nothing before it is weighed or filtered, where it can be told so."""
    return replace(sampler, keep_all=True) if hasattr(sampler, "keep_all") else sampler  # type: ignore[type-var]


def check_proper(sampler: Sampler) -> None:
    """Refuse a sampler whose draws have no proper weights.

    Raises:
        InvalidArgument: it is one of those.
    """
    if promised(sampler, "guarantee") != "proper":
        raise InvalidArgument(
            f"sampler={sampler.name!r} has no proper weights, so it cannot carry potentials; use 'auto', 'twisted', 'swor', "
            "'smc', 'exact' or 'rejection'."
        )
