"""What may be asked for beside a model, a prompt and a constraint: one record, from which every face takes its options.

`locore.generate`, the command line, batches and the server have the same options; their names, defaults, allowed values and
help stand here and nowhere else. Nothing heavy is imported: the shell shows its help at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Literal, get_args

from locore.errors import InvalidArgument
from locore.limits import Limits

Stop = Literal["eos", "complete"]
Canonical = Literal["alpha", "only"]
SAMPLERS = (  # by name, those that pages recommend first
    *("auto", "quick", "exact", "best-first", "rejection", "twisted", "swor", "masked", "smc", "masked-is", "lcr"),
    *("lcr-published", "cars", "ars", "oversampling", "awrs", "mcmc", "isir", "particle-gibbs", "asap"),
)
# What others call it, or how it is done here.
SLIPS = {
    **dict.fromkeys(("max_tokens", "max_length", "max_gen_tokens", "length", "horizon"), "did you mean max_new_tokens?"),
    **dict.fromkeys(("min_tokens", "min_length"), "did you mean min_new_tokens?"),
    **dict.fromkeys(
        ("n", "best_of", "num_samples", "num_return_sequences", "particles"),
        "did you mean num_particles? So many weighted texts come back; .resample(n) draws n equally probable ones from them.",
    ),
    **dict.fromkeys(("method", "strategy", "algorithm"), "did you mean sampler?"),
    "random_state": "did you mean seed?",
    "temperature": "another distribution is another model: give locore.models.Tempered(model, temperature).",
    "top_p": "another distribution is another model: give locore.models.TopP(model, top_p).",
    "top_k": "another distribution is another model: give locore.models.TopK(model, top_k).",
    "min_p": "another distribution is another model: give locore.models.MinP(model, min_p).",
    "logit_bias": "another distribution is another model: give locore.models.Biased(model, bias).",
    "do_sample": "Locore always samples.",
}
MOST_TOKENS = 2**32  # of all particles together


def _says(help: str, least: int | None = None) -> dict[str, Any]:
    """Of a field; `least` is the smallest whole number it may be, None for what is no number."""
    return {"help": help, "least": least}


@dataclass(frozen=True)
class Request:
    """How to sample; the meaning of each is in the docstring of `locore.generate`.

    Raises:
        InvalidArgument: one is of the wrong kind or out of range.
    """

    max_new_tokens: int = field(default=20, metadata=_says("A text has at most so many tokens.", least=1))
    min_new_tokens: int = field(default=0, metadata=_says("It has at least so many.", least=0))
    num_particles: int = field(default=32, metadata=_says("Weighted sequences to draw.", least=1))
    sampler: Any = field(  # a name, or an object of `locore.samplers`
        default=None, metadata=_says("Its name, such as masked, lcr or rejection.")
    )
    budget: int | None = field(default=None, metadata=_says("LM tokens that may be spent.", least=1))
    seed: int | None = field(default=None, metadata=_says("Makes the run repeatable.", least=0))
    canonical: Canonical | None = field(default=None, metadata=_says("Demand canonical tokenisations."))
    stop: Stop | None = field(
        default=None,
        metadata=_says(
            "complete: a text ends for free once no longer one can satisfy the constraint (default, if possible). eos: it pays."
        ),
    )
    limits: Limits = field(
        default_factory=Limits,
        metadata=_says("What compiling may use: states, nodes, seconds or memory (bytes); may be given several times."),
    )

    def __post_init__(self) -> None:
        if self.canonical not in (None, *get_args(Canonical)):
            raise InvalidArgument(f"canonical must be None, 'alpha' or 'only', got {self.canonical!r}.")
        if self.stop not in (None, *get_args(Stop)):
            raise InvalidArgument(
                f"stop must be 'eos' or 'complete', or None for 'complete' where that is possible, got {self.stop!r}."
            )
        for option in fields(Request):
            least, value = option.metadata.get("least"), getattr(self, option.name)
            if least is None or (value is None and option.default is None):
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise InvalidArgument(f"{option.name} must be a whole number, got {value!r}.")
            if not least <= value < 2**63:
                raise InvalidArgument(f"{option.name} must be at least {least} and below 2**63, got {value}.")
        # Better refused than begun: a token of a particle takes an id and a score, of 8 bytes each.
        tokens = self.num_particles * self.max_new_tokens
        if tokens > MOST_TOKENS:
            raise InvalidArgument(
                f"num_particles={self.num_particles} with max_new_tokens={self.max_new_tokens} would take "
                f"{tokens * 16 / 1e9:,.0f} GB at the end; ask for fewer, and call again with another seed for more."
            )


def require_known(asked: Iterable[str], known: Collection[str], where: str) -> None:
    """Refuse arguments that there are none of, with what was meant.

    Raises:
        InvalidArgument: the first of them.
    """
    for name in asked:
        if name not in known:
            raise InvalidArgument(f"{where} has no argument {name!r}; {_meant(name, known)}")


def _meant(name: str, known: Collection[str]) -> str:
    if name in SLIPS:
        return SLIPS[name]
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."


def help_of(name: str) -> str:
    """What the shell and the server say of an option."""
    return str(next(option.metadata["help"] for option in fields(Request) if option.name == name))
