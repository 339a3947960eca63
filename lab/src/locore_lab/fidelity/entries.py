"""The samplers that are compared. A new one in `locore.samplers.BY_NAME` is compared as well, under its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import locore_lab.baselines  # noqa: F401  # their names
from locore import samplers
from locore.kernel.errors import InvalidArgument
from locore.local import Exact
from locore.samplers import Auto, LocallyConstrainedResampling, Sampler, SequentialMonteCarlo, Twisted, WithoutReplacement
from locore.samplers.twist.ngram import NGramTable
from locore_lab.fidelity.peers import GenLM, TransformersMasking, missing
from locore_lab.harness import say
from locore_lab.shared import check_known


@dataclass(frozen=True)
class Entry:
    """A row of the benchmark."""

    name: str  # in tables
    sampler: Sampler | None = None  # what is called
    weighted: bool = True  # False takes the sequences without their weights, as masking engines do
    # makes the sampler from a table of the model; its cost is stated apart
    with_table: Callable[[NGramTable], Sampler] | None = None
    # LM tokens of one particle, from the length and the vocabulary, for a sampler that would rather refuse than buy fewer
    # particles; others are asked for more than the budget buys
    price: Callable[[int, int], int] | None = None
    package: str | None = None  # what has to be installed for it, where that is optional

    @property
    def reads_table(self) -> bool:
        """Whether its runs depend on a table of the model being there."""
        return self.with_table is not None or isinstance(self.sampler, Auto)

    def particles(self, length: int, vocab_size: int, budget: int) -> int:
        """How many to ask for."""
        return budget if self.price is None else max(1, budget // self.price(length, vocab_size))


def exact_price(length: int, vocab_size: int) -> int:
    """The exact neighbourhoods of ỹ and of y, and their scores."""
    return 2 * Exact().price(length, vocab_size) + 2 * length


LISTED = [
    Entry("masking, unweighted", samplers.BY_NAME["masked"], weighted=False),
    Entry("masked", samplers.BY_NAME["masked"]),
    Entry("rejection", samplers.BY_NAME["rejection"]),
    Entry("oversampling", samplers.BY_NAME["oversampling"]),
    Entry("lcr", samplers.BY_NAME["lcr"]),
    Entry("lcr-published", samplers.BY_NAME["lcr-published"]),
    Entry("lcr-exact", LocallyConstrainedResampling(kernel="exact"), price=exact_price),
    *(Entry(f"lcr-{kernel}", LocallyConstrainedResampling(kernel=kernel)) for kernel in ("window", "forward", "lazy")),
    Entry("lcr-forward, mixture", LocallyConstrainedResampling(kernel="forward", weights="mixture")),
    Entry("smc, 1 block", SequentialMonteCarlo(blocks=1)),
    Entry("swor", WithoutReplacement()),
    Entry("swor, 1 block", WithoutReplacement(blocks=1)),
    Entry("twisted, learned", Twisted(table=None)),
    Entry("twisted, learned, 1 block", Twisted(table=None, blocks=1)),
    Entry("twisted + table", with_table=lambda table: Twisted(table)),
    Entry("twisted + table, 1 block", with_table=lambda table: Twisted(table, blocks=1)),
    *(Entry(peer.name, peer, package="genlm-control") for peer in (GenLM(), GenLM(ess_threshold=0.0), GenLM(rejection=True))),
    Entry(TransformersMasking().name, TransformersMasking(), weighted=False),
]


SAME = {"twisted"}  # as a listed one of another name


def all_entries() -> dict[str, Entry]:
    """The listed ones, then every other sampler that has a name."""
    found = {entry.name: entry for entry in LISTED}
    for name, sampler in samplers.BY_NAME.items():
        if name not in SAME:
            found.setdefault(name, Entry(name, sampler))
    return found


def choose(names: list[str] | None, installed: bool = True) -> list[Entry]:
    """Entries by name; None for all. What is not installed is left out, and stderr says so, unless it need not be."""
    every = all_entries()
    check_known("samplers", names, every)
    found = [every[name] for name in names or every]
    for package in dict.fromkeys(entry.package for entry in found if entry.package) if installed else ():
        if problem := missing(package):
            say(f"left out {', '.join(entry.name for entry in found if entry.package == package)}: {problem}")
            found = [entry for entry in found if entry.package != package]
    if not found:
        raise InvalidArgument("none of these samplers is installed.")
    return found
