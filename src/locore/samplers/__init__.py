"""Samplers of p(y | α): one file for each algorithm."""

from locore.errors import InvalidArgument
from locore.samplers.base import Draws, Sampler
from locore.samplers.greedy import GreedyMasking
from locore.samplers.lcr import LocallyConstrainedResampling
from locore.samplers.rejection import Oversampling, Rejection
from locore.samplers.swor import WithoutReplacement
from locore.samplers.twisted import Twisted

BY_NAME: dict[str, Sampler] = {
    "greedy": GreedyMasking(),
    "lcr": LocallyConstrainedResampling(),
    "rejection": Rejection(),
    "oversampling": Oversampling(),
    "swor": WithoutReplacement(),
    "twisted": Twisted(),
}
DEFAULT = "greedy"


def sampler_by_name(sampler: str | Sampler | None) -> Sampler:
    """A sampler given by name or as an object; None is the default.

    Raises:
        InvalidArgument: no sampler has this name.
    """
    if sampler is None:
        return BY_NAME[DEFAULT]
    if not isinstance(sampler, str):
        if not callable(sampler):
            raise InvalidArgument(f"sampler must be a name or an object of locore.samplers, got {sampler!r}.")
        return sampler
    if sampler not in BY_NAME:
        raise InvalidArgument(f"unknown sampler {sampler!r}; known are {', '.join(BY_NAME)}.")
    return BY_NAME[sampler]


__all__ = [
    "BY_NAME",
    "Draws",
    "GreedyMasking",
    "LocallyConstrainedResampling",
    "Oversampling",
    "Rejection",
    "Sampler",
    "Twisted",
    "WithoutReplacement",
    "sampler_by_name",
]
