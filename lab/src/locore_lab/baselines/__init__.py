"""Samplers that no page recommends, to compare with: Markov chains, ASAp, AWRS. They have names where the lab is installed."""

from locore.samplers import register
from locore_lab.baselines.asap import ASAp
from locore_lab.baselines.awrs import AWRS
from locore_lab.baselines.chains import IteratedSIR, ParticleGibbs
from locore_lab.baselines.mcmc import MarkovChain

for _sampler in (MarkovChain(), IteratedSIR(), ParticleGibbs(), ASAp(), AWRS()):
    register(_sampler.name, _sampler)

__all__ = ["AWRS", "ASAp", "IteratedSIR", "MarkovChain", "ParticleGibbs"]
