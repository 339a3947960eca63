"""What may be asked for beside a model, a prompt and a constraint: one record, from which every face takes its options.

`locore.generate`, the command line, batches and the server have the same options; their names, defaults, allowed values and
help stand here and nowhere else. Nothing heavy is imported: the shell shows its help at once.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Literal, get_args

from locore.kernel.errors import InvalidArgument
from locore.kernel.limits import Limits
from locore.kernel.lists import items_of
from locore.kernel.plugins import renamed

Ending = Literal["eos", "complete"]
Canonical = Literal["alpha", "only"]
# What others call it, or how it is done here.
SLIPS = {
    **dict.fromkeys(("max_tokens", "max_length", "max_gen_tokens", "length", "horizon"), "did you mean max_new_tokens?"),
    **dict.fromkeys(("min_tokens", "min_length"), "did you mean min_new_tokens?"),
    **dict.fromkeys(
        ("n", "best_of", "num_samples", "num_return_sequences", "particles"),
        "did you mean num_particles? So many weighted texts come back; locore.sample(…, n=…) gives n draws.",
    ),
    **dict.fromkeys(("method", "strategy", "algorithm"), "did you mean sampler?"),
    "random_state": "did you mean seed?",
    **dict.fromkeys(("stop_strings", "stop_sequences", "until"), "did you mean stop? Texts end before these strings."),
    "repetition_penalty": "it depends on logits that have no fixed zero, so it has no density; frequency_penalty has one.",
    "do_sample": "Locore always samples.",
}
MOST_TOKENS = 2**32  # of all particles together
MOST_STOPS = 64
OF_WHOLE_TEXTS = ("finished", "min_new_tokens", "canonical")  # options that leave texts out, beside a constraint
SEED_RANGE = 2**31
OWN = "the model's own"  # law


@dataclass(frozen=True)
class Seconds:
    """A budget of seconds on the clock for sampling; compiling and reading the prompt come on top. As a text, "5s".

    It becomes one of LM tokens before anything is drawn, by the pace of the model (`locore.models.hardware`), so weights stay
    proper and the call takes about so long; `timeout` ends it for certain.

    Raises:
        InvalidArgument: no positive number.
    """

    seconds: float

    def __post_init__(self) -> None:
        if not is_number(self.seconds) or self.seconds <= 0:
            raise InvalidArgument(f"Seconds must be a positive number, got {self.seconds!r}.")

    def __str__(self) -> str:
        return f"{self.seconds:g}s"


Budget = int | Seconds


def read_budget(given: Any) -> Any:
    """A budget that may be written as a text: "1000" LM tokens or "5s"; anything else as it is."""
    if not isinstance(given, str):
        return given
    try:
        return Seconds(float(given.removesuffix("s"))) if given.endswith("s") else int(given)
    except ValueError:
        raise InvalidArgument(f"budget must be LM tokens, as 1000, or seconds, as 5s; got {given!r}.") from None


def _says(help: str, least: int | None = None, between: tuple[float, float] | None = None) -> dict[str, Any]:
    """Of a field; `least` is the smallest whole number it may be, `between` holds the numbers it may be; None for others."""
    return {"help": help, "least": least, "between": between}


@dataclass(frozen=True)
class Law:
    """How the law that is sampled from differs from the model's own; each change is a model with its own density.

    In this order: penalties, biases, temperature, min-p, top-k, nucleus.

    Attributes:
        temperature: 0 asks for the most probable text under the law at temperature 1, and not for draws.

    Raises:
        InvalidArgument: one is of the wrong kind or out of range.
    """

    temperature: float = field(
        default=1.0,
        metadata=_says("p^(1/T), token by token: below 1 likelier texts. 0: the most probable text.", between=(0, 100)),
    )
    top_p: float = field(
        default=1.0, metadata=_says("Only the likeliest tokens that make up this probability at each place.", between=(0, 1))
    )
    top_k: int = field(default=0, metadata=_says("Only the k likeliest tokens at each place; 0 or -1 for all.", least=-1))
    min_p: float = field(
        default=0.0, metadata=_says("Only tokens at least so many times as likely as the likeliest.", between=(0, 1))
    )
    frequency_penalty: float = field(
        default=0.0, metadata=_says("Nats, for each time a token has occurred in the text.", between=(-100, 100))
    )
    presence_penalty: float = field(
        default=0.0, metadata=_says("Nats, for tokens that have occurred in the text.", between=(-100, 100))
    )
    logit_bias: Mapping[int, float] | None = field(default=None, metadata=_says("Nats, for each token id."))
    sampling: Literal["model"] | None = field(
        default=None,
        metadata=_says(
            "model: what the model's own generation configuration suggests, for each option that has its default value here."
        ),
    )

    def __post_init__(self) -> None:
        _check_numbers(self, Law)
        if self.sampling not in (None, "model"):
            raise InvalidArgument(f"sampling must be None or 'model', got {self.sampling!r}.")
        if self.top_p == 0:
            raise InvalidArgument("top_p must be above 0; temperature=0 gives the most probable text.")
        bias: Any = self.logit_bias or {}
        if not isinstance(bias, Mapping) or not all(str(id).isdecimal() and is_number(nats) for id, nats in bias.items()):
            raise InvalidArgument(f"logit_bias must give a number of nats for each token id, as {{11: -5.0}}, got {bias!r}.")
        object.__setattr__(self, "logit_bias", {int(id): nats for id, nats in bias.items() if nats} or None)

    def suggested(self, suggestions: Mapping[str, Any]) -> Law:
        """This law; with sampling="model" that of a generation configuration in all options that have their default value.

        Raises:
            InvalidArgument: what it suggests has no density.
        """
        if self.sampling is None:
            return self.law
        if "repetition_penalty" in suggestions:
            raise InvalidArgument(
                f"the model suggests repetition_penalty={suggestions['repetition_penalty']:g}, which "
                f"{SLIPS['repetition_penalty'].removeprefix('it ')} Give the options one by one instead of sampling='model'."
            )
        given = {name: value for name, value in vars(self.law).items() if value != Law.__dataclass_fields__[name].default}
        return Law(**{**suggestions, **given, "sampling": None})

    @property
    def law(self) -> Law:
        """These options alone."""
        return Law(**{option.name: getattr(self, option.name) for option in fields(Law)})

    @property
    def most_probable(self) -> bool:
        """Is the most probable text asked for, and no draw?"""
        return self.temperature == 0

    def __str__(self) -> str:
        """What is changed, in the words of the options; `OWN` where nothing is."""
        changed = [option.name for option in fields(Law) if getattr(self, option.name) != option.default]
        changed = [name for name in changed if not (name == "top_k" and self.top_k <= 0)]
        return ", ".join(f"{name} {_shown(getattr(self, name))}" for name in changed) or OWN


def _check_numbers(options: Law, kind: type[Law]) -> None:
    """Those that this kind of record has, as it declares them."""
    for option in fields(kind):
        least, between, value = option.metadata.get("least"), option.metadata.get("between"), getattr(options, option.name)
        if (least is None and between is None) or (value is None and option.default is None):
            continue
        if between is None:
            _check_whole(option.name, value, least)
        elif not is_number(value) or not between[0] <= value <= between[1]:
            raise InvalidArgument(f"{option.name} must be a number from {between[0]} to {between[1]}, got {value!r}.")


def _check_whole(name: str, value: object, least: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"{name} must be a whole number, got {value!r}.")
    if least is not None and not least <= value < 2**63:
        raise InvalidArgument(f"{name} must be at least {least} and below 2**63, got {value}.")


def is_number(value: object) -> bool:
    """Is it one that a float can be?"""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _shown(value: float | Mapping[int, float]) -> str:
    if isinstance(value, Mapping):
        return f"of {len(value)} token{'s' * (len(value) != 1)}"
    return f"{value:g}"


@dataclass(frozen=True)
class Request(Law):
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
    budget: Budget | None = field(default=None, metadata=_says("LM tokens that may be spent, or seconds, as 5s."))
    seed: int | None = field(default=None, metadata=_says("Makes the run repeatable.", least=0))
    canonical: Canonical | None = field(default=None, metadata=_says("Demand canonical tokenisations."))
    stop: tuple[str, ...] = field(default=(), metadata=_says("A text ends before the first of these strings; several times."))
    ending: Ending | None = field(
        default=None,
        metadata=_says(
            "complete: a text ends for free once no longer one can satisfy the constraint (default, if possible). eos: it pays."
        ),
    )
    finished: bool = field(default=False, metadata=_says("Only texts that end before the horizon cuts them off."))
    limits: Limits = field(
        default_factory=Limits,
        metadata=_says("What compiling may use: states, nodes, seconds or memory (bytes); may be given several times."),
    )

    @property
    def lm_tokens(self) -> int | None:
        """The budget of a run, for which seconds have become LM tokens."""
        assert not isinstance(self.budget, Seconds)
        return self.budget

    def __post_init__(self) -> None:
        self._read_stop()
        super().__post_init__()
        _check_numbers(self, Request)
        object.__setattr__(self, "budget", read_budget(self.budget))
        if not isinstance(self.budget, Seconds | None):
            _check_whole("budget", self.budget, 1)
        if self.canonical not in (None, *get_args(Canonical)):
            raise InvalidArgument(f"canonical must be None, 'alpha' or 'only', got {self.canonical!r}.")
        if self.ending not in (None, *get_args(Ending)):
            raise InvalidArgument(
                f"ending must be 'eos' or 'complete', or None for 'complete' where that is possible, got {self.ending!r}."
            )
        if not isinstance(self.finished, bool):
            raise InvalidArgument(f"finished must be True or False, got {self.finished!r}.")
        # Better refused than begun: a token of a particle takes an id and a score, of 8 bytes each.
        tokens = self.num_particles * self.max_new_tokens
        if tokens > MOST_TOKENS:
            raise InvalidArgument(
                f"num_particles={self.num_particles} with max_new_tokens={self.max_new_tokens} would take "
                f"{tokens * 16 / 1e9:,.0f} GB at the end; ask for fewer, and call again with another seed for more."
            )

    def _read_stop(self) -> None:
        """A string alone is a list of one; what `ending` is called now was once said by `stop`."""
        given: Any = self.stop
        if isinstance(given, str) and given in get_args(Ending) and self.ending is None:
            renamed(f"stop={given!r}", f"ending={given!r}")
            object.__setattr__(self, "ending", given)
            given = ()
        given = () if given is None else given
        listed = (given,) if isinstance(given, str) else tuple(items_of(given, "stop", "strings", error=InvalidArgument))
        if not all(isinstance(stop, str) and stop for stop in listed) or len(listed) > MOST_STOPS:
            raise InvalidArgument(f"stop takes up to {MOST_STOPS} strings, none of them empty, got {given!r}.")
        object.__setattr__(self, "stop", listed)


def require_known(asked: Iterable[str], arguments: Collection[str], where: str) -> None:
    """Refuse unknown arguments and suggest the intended one.

    Raises:
        InvalidArgument: the first of them.
    """
    for name in asked:
        if name not in arguments:
            raise InvalidArgument(f"{where} has no argument {name!r}; {_meant(name, arguments)}")


def _meant(name: str, arguments: Collection[str]) -> str:
    if name in SLIPS:
        return SLIPS[name]
    near = get_close_matches(name, arguments, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(arguments)}."


def help_of(name: str) -> str:
    """What the shell and the server say of an option."""
    return str(next(option.metadata["help"] for option in fields(Request) if option.name == name))


def drawn_seed(given: int | None) -> int:
    """The seed that was given, or one that is drawn, which makes the run repeatable all the same."""
    if given is not None:
        _check_whole("seed", given, 0)
    return secrets.randbelow(SEED_RANGE) if given is None else given


def cut_before(text: bytes, stops: Iterable[bytes]) -> bytes:
    """A text before the string that ends first in it, of several that end there the longest; all of it if it holds none."""
    ends = [(start + len(stop), start) for stop in stops if (start := text.find(stop)) >= 0]
    return text[: min(ends)[1]] if ends else text
