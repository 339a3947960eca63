"""Samplers of p(y | α): one file for each algorithm; those that no page recommends are in `baselines`."""

from difflib import get_close_matches

from locore.errors import InvalidArgument
from locore.evidence import Draws, keep_positive
from locore.samplers.auto import Auto
from locore.samplers.base import Sampler
from locore.samplers.baselines.adaptive_rejection import AdaptiveRejection
from locore.samplers.baselines.asap import ASAp
from locore.samplers.baselines.awrs import AWRS
from locore.samplers.baselines.isir import IteratedSIR
from locore.samplers.baselines.mcmc import MarkovChain
from locore.samplers.baselines.particle_gibbs import ParticleGibbs
from locore.samplers.best_first import BestFirst
from locore.samplers.enumeration import Enumeration
from locore.samplers.lcr import LocallyConstrainedResampling
from locore.samplers.masking import Masking
from locore.samplers.quick import Quick
from locore.samplers.rejection import Oversampling, Rejection
from locore.samplers.smc import SequentialMonteCarlo
from locore.samplers.swor import WithoutReplacement
from locore.samplers.twisted import Twisted

BY_NAME: dict[str, Sampler] = {
    "auto": Auto(),
    "quick": Quick(),
    "masked": Masking(),
    "lcr": LocallyConstrainedResampling(),
    "lcr-published": LocallyConstrainedResampling(as_published=True, name="lcr-published"),
    "rejection": Rejection(),
    "oversampling": Oversampling(),
    "exact": Enumeration(),
    "best-first": BestFirst(),
    "cars": AdaptiveRejection(),
    "ars": AdaptiveRejection("failed"),
    "smc": SequentialMonteCarlo(),
    "masked-is": SequentialMonteCarlo(ess_threshold=0.0),
    "swor": WithoutReplacement(),
    "twisted": Twisted(),
    "mcmc": MarkovChain(),
    "isir": IteratedSIR(),
    "particle-gibbs": ParticleGibbs(),
    "asap": ASAp(),
    "awrs": AWRS(),
}
DEFAULT = "auto"
# What others call them. Nothing here decodes greedily: a masked text is drawn, token by token, from what is allowed.
OTHERWISE = {"greedy": "masked", "mask": "masked", "enumeration": "exact", "enumerate": "exact", "importance": "masked-is"}


def sampler_by_name(sampler: str | Sampler | None) -> Sampler:
    """A sampler given by name or as an object; None is the default.

    Raises:
        InvalidArgument: no sampler has this name.
    """
    if sampler is None:
        return BY_NAME[DEFAULT]
    if not isinstance(sampler, str):
        if isinstance(sampler, type):
            raise InvalidArgument(f"sampler is the class {sampler.__name__}; make an object of it: {sampler.__name__}().")
        if not callable(sampler):
            raise InvalidArgument(f"sampler must be a name or an object of locore.samplers, got {sampler!r}.")
        return sampler
    if sampler not in BY_NAME:
        near = OTHERWISE.get(sampler.lower()) or next(iter(get_close_matches(sampler.lower(), BY_NAME, n=1)), None)
        meant = f"did you mean {near!r}? Known" if near else "known"
        raise InvalidArgument(f"unknown sampler {sampler!r}; {meant} are {', '.join(BY_NAME)}.")
    return BY_NAME[sampler]


__all__ = [
    "AWRS",
    "BY_NAME",
    "ASAp",
    "AdaptiveRejection",
    "Auto",
    "BestFirst",
    "Draws",
    "Enumeration",
    "IteratedSIR",
    "LocallyConstrainedResampling",
    "MarkovChain",
    "Masking",
    "Oversampling",
    "ParticleGibbs",
    "Quick",
    "Rejection",
    "Sampler",
    "SequentialMonteCarlo",
    "Twisted",
    "WithoutReplacement",
    "keep_positive",
    "sampler_by_name",
]
