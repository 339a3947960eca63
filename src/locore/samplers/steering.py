"""Which samplers can carry potentials, and how: by what they foresee, by a product of models, or by their weights alone."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace

from locore.circuits import Circuit
from locore.errors import InvalidArgument
from locore.models import LanguageModel
from locore.potentials import Scorer
from locore.samplers.auto import Auto
from locore.samplers.base import Sampler, Worth
from locore.samplers.baselines.asap import ASAp
from locore.samplers.baselines.isir import IteratedSIR
from locore.samplers.baselines.mcmc import MarkovChain
from locore.samplers.baselines.particle_gibbs import ParticleGibbs
from locore.samplers.best_first import BestFirst
from locore.samplers.enumeration import Enumeration
from locore.samplers.masking import Masking
from locore.samplers.smc import SequentialMonteCarlo
from locore.samplers.swor import WithoutReplacement
from locore.samplers.twisted import Twisted

NOT_PROPER = (ASAp, IteratedSIR, MarkovChain, ParticleGibbs)
READS_PREFIXES = (Auto, BestFirst, Enumeration, Masking, SequentialMonteCarlo, Twisted, WithoutReplacement)


def steered(sampler: Sampler, model: LanguageModel, circuit: Circuit, scorer: Scorer) -> tuple[Sampler, LanguageModel]:
    """A sampler and a model that carry the factors as far as they can; what is left to do is to weigh the draws.

    Experts become a part of the model where the sampler weighs prefixes by what the model says of them, be that normalised or
    not; elsewhere they are factors of finished texts.

    Raises:
        InvalidArgument: the sampler's draws have no proper weights that potentials could multiply.
    """
    known = told(sampler, scorer)
    if isinstance(sampler, READS_PREFIXES) and circuit.reader is not None:
        return known, scorer.tilted(model)
    return known, model


def told(sampler: Sampler, worth: Worth) -> Sampler:
    """A sampler that knows what texts are worth, where it has a place for it; others are weighed when they are done.

    Raises:
        InvalidArgument: its draws have no proper weights that potentials could multiply.
    """
    check_proper(sampler)
    places = {"worth": worth, "ahead": worth.ahead, "keep_all": True}
    own: set[str] = {part.name for part in fields(sampler)} if is_dataclass(sampler) else set()
    if "worth" in own:  # it asks what is known of beginnings itself, and keeps a foresight of its own
        del places["ahead"]
    known = {name: value for name, value in places.items() if name in own}
    return replace(sampler, **known) if known else sampler  # type: ignore[type-var]


def check_proper(sampler: Sampler) -> None:
    """Refuse a sampler whose draws have no proper weights.

    Raises:
        InvalidArgument: it is one of those.
    """
    if isinstance(sampler, NOT_PROPER):
        raise InvalidArgument(
            f"sampler={sampler.name!r} has no proper weights, so it cannot carry potentials; use 'auto', 'twisted', 'swor', "
            "'smc', 'exact', 'rejection' or 'awrs'."
        )
