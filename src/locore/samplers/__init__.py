"""Samplers of p(y | α), each a class that says what it promises, and the names that every face knows them by.

A new one is a file, and a line in `NAMED`; one of another distribution is registered: `register("mine", MySampler())`, or by an
entry point of the group `locore.samplers`. Nothing is imported before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from locore.kernel.errors import InvalidArgument
from locore.kernel.plugins import lazy_names, renamed

if TYPE_CHECKING:
    from locore.evidence import Draws, keep_positive
    from locore.kernel.samplers.sampler import Promises, Sampler
    from locore.kernel.samplers.smc import SequentialMonteCarlo
    from locore.samplers.adaptive_rejection import AdaptiveRejection
    from locore.samplers.auto import Auto, Quick
    from locore.samplers.best_first import BestFirst, Enumeration
    from locore.samplers.lcr import LocallyConstrainedResampling
    from locore.samplers.masking import Masking
    from locore.samplers.most_probable import MostProbable
    from locore.samplers.rejection import Oversampling, Rejection
    from locore.samplers.twist.lessons import Twisted
    from locore.samplers.without_replacement import WithoutReplacement

_HOME = {
    "AdaptiveRejection": ".adaptive_rejection",
    "Auto": ".auto",
    "BestFirst": ".best_first",
    "Draws": "..kernel.samplers.sampler",
    "Enumeration": ".best_first",
    "LocallyConstrainedResampling": ".lcr",
    "Masking": ".masking",
    "MostProbable": ".most_probable",
    "Oversampling": ".rejection",
    "Promises": "..kernel.samplers.sampler",
    "Quick": ".auto",
    "Rejection": ".rejection",
    "Sampler": "..kernel.samplers.sampler",
    "SequentialMonteCarlo": "..kernel.samplers.smc",
    "Twisted": ".twist.lessons",
    "WithoutReplacement": ".without_replacement",
    "keep_positive": "..kernel.samplers.smc",
}
# By name, those that pages recommend first: the class, or what was one, and its arguments.
NAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "auto": ("Auto", {}),
    "quick": ("Quick", {}),
    "exact": ("Enumeration", {}),
    "best-first": ("BestFirst", {}),
    "rejection": ("Rejection", {}),
    "twisted": ("Twisted", {}),
    "swor": ("WithoutReplacement", {}),
    "masked": ("Masking", {}),
    "smc": ("SequentialMonteCarlo", {}),
    "masked-is": ("SequentialMonteCarlo", {"ess_threshold": 0.0}),
    "lcr": ("LocallyConstrainedResampling", {}),
    "lcr-published": ("LocallyConstrainedResampling", {"as_published": True, "name": "lcr-published"}),
    "cars": ("AdaptiveRejection", {}),
    "ars": ("AdaptiveRejection", {"records": "failed"}),
    "oversampling": ("Oversampling", {}),
    "search": ("MostProbable", {}),
}
DEFAULT = "auto"
GROUP = "locore.samplers"  # entry points of other distributions: classes by the names of their samplers
# What others call them.
OTHERWISE = {"mask": "masked", "enumeration": "exact", "enumerate": "exact", "importance": "masked-is"}

RENAMED = {"greedy": "masked"}  # nothing decodes greedily: a masked text is drawn, token by token, from what is allowed


class _ByName(Mapping[str, "Sampler"]):
    """Samplers with their defaults, made when they are first asked for."""

    def __init__(self) -> None:
        self._samplers: dict[str, Sampler] = {}

    def __getitem__(self, name: str) -> Sampler:
        if name not in self._samplers:
            kind, options = NAMED[name]
            self._samplers[name] = _new(kind, **options)
        return self._samplers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*NAMED, *self._samplers]))

    def __len__(self) -> int:
        return len(NAMED.keys() | self._samplers.keys())

    def add(self, name: str, sampler: Sampler) -> None:
        """Of another distribution."""
        self._samplers[name] = sampler


def _new(kind: str, **options: Any) -> Sampler:
    sampler: Sampler = getattr(import_module(_HOME[kind], __name__), kind)(**options)
    return sampler


BY_NAME = _ByName()


def of_mode() -> Sampler:
    """What temperature 0 asks for: "search" for one text."""
    return _new("MostProbable", texts=1)


def register(name: str, sampler: Sampler) -> None:
    """Let a sampler be asked for by this name, in this process.

    Raises:
        InvalidArgument: another one has this name.
    """
    if name in BY_NAME and BY_NAME[name] != sampler:
        raise InvalidArgument(f"there is a sampler {name!r} already; choose another name.")
    BY_NAME.add(name, sampler)


def name_now(name: str) -> str:
    """Of a sampler, which may have had another name."""
    if name in RENAMED:
        renamed(f"sampler={name!r}", f"sampler={RENAMED[name]!r}")
    return RENAMED.get(name, name)


def sampler_by_name(sampler: str | Sampler | None) -> Sampler:
    """A sampler given by name or as an object; None is the default.

    Raises:
        InvalidArgument: no sampler has this name.
    """
    if sampler is None:
        return BY_NAME[DEFAULT]
    if not isinstance(sampler, str):
        kind = getattr(sampler, "__name__", "")
        if isinstance(sampler, type) or kind in _HOME:  # some of them are functions now
            raise InvalidArgument(f"sampler is the class {kind}; make an object of it: {kind}().")
        if not callable(sampler):
            raise InvalidArgument(f"sampler must be a name or an object of locore.samplers, got {sampler!r}.")
        return sampler
    sampler = name_now(sampler)
    if sampler not in BY_NAME:
        for point in entry_points(group=GROUP, name=sampler):
            register(sampler, point.load()())
    if sampler not in BY_NAME:
        near = OTHERWISE.get(sampler.lower()) or next(iter(get_close_matches(sampler.lower(), BY_NAME, n=1)), None)
        meant = f"did you mean {near!r}? Known" if near else "known"
        raise InvalidArgument(f"unknown sampler {sampler!r}; {meant} are {', '.join(BY_NAME)}.")
    return BY_NAME[sampler]


__getattr__ = lazy_names(__name__, _HOME)

__all__ = [
    "BY_NAME",
    "AdaptiveRejection",
    "Auto",
    "BestFirst",
    "Draws",
    "Enumeration",
    "LocallyConstrainedResampling",
    "Masking",
    "MostProbable",
    "Oversampling",
    "Promises",
    "Quick",
    "Rejection",
    "Sampler",
    "SequentialMonteCarlo",
    "Twisted",
    "WithoutReplacement",
    "keep_positive",
    "register",
    "sampler_by_name",
]
