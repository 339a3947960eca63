"""How close samplers come to p(y | α), at what price: `run` measures, for `locore bench fidelity`."""

from locore_lab.fidelity.command import run

__all__ = ["run"]
