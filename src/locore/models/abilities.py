"""What a module can do, found out by trying it: each shortcut is compared with plain reading, and what cannot be used is said.

Nothing is decided by the name of a parameter alone: versions of `transformers` rename them, and wrappers such as peft's take
them without naming them. An error that nobody foresaw is told from a "no": a "no" is a property of the architecture, an error
may be one of the versions that are installed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from locore.kernel.errors import CannotScore
from locore.models.attention import KeyValues, SharedCache, Tails, sharing_twin
from locore.models.hardware import is_out_of_memory
from locore.models.joined import Part

if TYPE_CHECKING:
    from locore.models.causal import CausalLM

# Under which a cache is handed over: the name since transformers 5.24, and the one before.
_CACHE_NAMES = ("cache", "past_key_values")
# Optional arguments that are certainly no cache.
_OTHER_ARGUMENTS = {
    *("input_ids", "inputs_embeds", "attention_mask", "position_ids", "token_type_ids", "labels", "use_cache", "return_dict"),
    *("encoder_hidden_states", "encoder_attention_mask", "logits_to_keep", "cache_position"),
}
NO_CACHE = "no cache: each step reads everything anew"
NO_SHARING = "no shared prompt: each row has a copy of its keys and values"
NO_PACKING = "no packing: what differs in one place is read in rows of its own"
NO_JOINING = "no joint passes: requests with other prompts are read one after the other"


@dataclass(frozen=True)
class Hindrance:
    """A shortcut that cannot be taken.

    Attributes:
        what: which, and what it costs.
        because: why.
        failed: did the self-check end in an error that nobody foresaw?
    """

    what: str
    because: str
    failed: bool = False

    def __str__(self) -> str:
        return f"{self.what}, because {self.because}"

    @property
    def is_worth_a_warning(self) -> bool:
        """Does it cost orders of magnitude, or may it be a fault of what is installed?"""
        return self.failed or self.what == NO_CACHE


class CheckFailed(Exception):
    """A self-check ended in an error that nobody foresaw; the message says in which."""


def hindrance(what: str, check: Callable[[], None]) -> Hindrance | None:
    """What keeps a shortcut from being taken; None if the check passes."""
    try:
        check()
    except CannotScore as no:
        return Hindrance(what, str(no).rstrip("."))
    except CheckFailed as failed:
        return Hindrance(what, str(failed), failed=True)
    except Exception as error:  # architectures that cannot do something fail in ways of their own
        return Hindrance(what, f"its self-check ended in an error, {said(error)}", failed=True)
    return None


def remedy_of(obstacle: Hindrance) -> str:
    """What to do about it, in a sentence."""
    if obstacle.failed:
        return f"Another version of transformers may do better (here it is {transformers.__version__})."
    return "Every answer is right, only slow: long prompts and many tokens cost most."


def said(error: Exception) -> str:
    """An error in one line."""
    first = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def learn_options(causal: CausalLM) -> dict[str, str]:
    """Which options of a pass do what they should; of each that does not, why.

    `logits_to_keep` has to spare the logits of other positions; `position_ids` has to be heeded, or it says nothing.
    """
    tokens = causal.trial()[:, :2]
    plain = causal.read(tokens, keep=2)
    lacks = {}
    for name, value in (("logits_to_keep", 1), ("position_ids", torch.arange(2, device=causal.device).expand(2, -1))):
        try:
            logits = causal.module(tokens.to(causal.device), use_cache=False, **{name: value}).logits
        except Exception as error:
            lacks[name] = f"given {name} it ends in {said(error)}"
            continue
        if name == "logits_to_keep" and logits.shape[1] != 1:
            lacks[name] = "it computes logits of all positions, whatever logits_to_keep says"
        elif not causal.agree(logits[:, -1].to(plain.dtype), plain[:, -1]):
            lacks[name] = f"it takes {name} for something else"
    return lacks


def check_cache(causal: CausalLM) -> None:
    """Reading in two parts gives what reading at once gives, if the cache is handed over under the right name.

    Raises:
        CannotScore: under none.
    """
    tokens, tried = causal.trial(), {}
    if causal.context is not None and causal.context < tokens.shape[1]:
        raise CannotScore(f"its context of {causal.context} tokens is too short for a trial")
    whole = causal.read(tokens, keep=4)
    for name in _cache_names(causal.module):
        causal.cache_name = name
        try:
            past = causal.read_on(tokens[:, :4])[1]
            if not past.layers:
                raise CannotScore("stores nothing")
            parts = causal.read(tokens[:, 4:], past, keep=4)
            if past.length != 4 or not causal.agree(whole, parts):
                raise CannotScore("gives a text that is read in two parts other numbers than one that is read at once")
        except Exception as error:
            tried[name] = error
            continue
        causal.bytes_per_token = past.bytes_per_token
        return
    causal.cache_name = ""
    if _has_states(causal.module):
        raise CannotScore("some of its layers keep a recurrent state, not keys and values of each token")
    arguments = inspect.signature(causal.module.forward).parameters
    unforeseen = any(name in arguments and not isinstance(error, CannotScore) for name, error in tried.items())
    reasons = "; ".join(f"{name}: {_why(error)}" for name, error in tried.items())
    reason = f"its forward takes none that works ({reasons or 'it has no optional argument'})"
    raise CheckFailed(reason) if unforeseen else CannotScore(reason)


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, CannotScore) else f"an error, {said(error)}"


def _has_states(module: Any) -> bool:
    """Has a layer another memory than keys and values?"""
    return any(not isinstance(layer, DynamicLayer) for layer in DynamicCache(config=module.config).layers)


def _cache_names(module: Any) -> list[str]:
    """Names under which a module may take a cache, the likeliest first: all that it does not need."""
    arguments = inspect.signature(module.forward).parameters
    usual_names = sorted(_CACHE_NAMES, key=lambda name: name not in arguments)
    takes_all = any(each.kind is each.VAR_KEYWORD for each in arguments.values())
    optional = [
        name
        for name, each in arguments.items()
        if each.default is None and name not in {*usual_names, *_OTHER_ARGUMENTS} and not name.startswith("output_")
    ]
    return [name for name in usual_names if takes_all or name in arguments] + optional


def check_packing(causal: CausalLM) -> None:
    """Two continuations in one row get what they get in rows of their own.

    Raises:
        CannotScore: they do not.
    """
    # A window counts keys, not positions, so layers with one need rows of their own.
    require_all_kept(causal)
    if "position_ids" in causal.lacks:
        raise CannotScore(causal.lacks["position_ids"])
    # Other implementations of attention take no mask of this shape, or crash on it.
    implementation = causal.module.config._attn_implementation
    if implementation not in ("eager", "sdpa"):
        raise CannotScore(f"attn_implementation={implementation!r} takes no mask for single tokens")
    tokens = causal.trial()
    past = causal.read_on(tokens[:1, :4])[1]
    # The first three tokens continue all four, the last three only three of them.
    owner = torch.tensor([0, 0, 0, 1, 1, 1])
    new = (owner[:, None] == owner) & torch.ones(6, 6, dtype=torch.bool).tril()
    old = torch.arange(4) < (4 - owner)[:, None]
    positions = torch.tensor([4, 5, 6, 3, 4, 5])
    together = torch.cat([tokens[0, 4:7], tokens[1, 4:7]])
    visible = torch.cat([old, new], 1)
    try:
        packed = causal.read_packed(together[None], past, positions[None], visible[None])[0]
    except Exception as error:  # of all options a mask for each pair of tokens is the one that fewest can take
        raise CannotScore(f"a mask for single tokens ends in {said(error)}") from error
    first = causal.read(tokens[:1, 4:7], past, keep=3)[0]
    second = causal.read(tokens[1:, 4:7], past.first(3), keep=3)[0]
    if not causal.agree(packed, torch.cat([first, second])):
        raise CannotScore("two continuations in one row do not get what they get in rows of their own")


def check_sharing(causal: CausalLM) -> None:
    """Rows behind one copy of a prompt, at once and step by step, get what they get in rows of their own.

    Raises:
        CannotScore: they do not, or more than plain attention is asked for.
    """
    require_all_kept(causal)
    causal.twin, causal.head = sharing_twin(causal.module)
    tokens = causal.trial()
    # The third row goes on from the second after two tokens.
    rows = torch.stack([tokens[0, 4:], tokens[1, 4:], torch.cat([tokens[1, 4:6], tokens[0, 6:]])])
    expected = causal.read(torch.cat([tokens[:1, :4].expand(3, -1), rows], 1), keep=4)
    prompt = causal.read_on(tokens[:1, :4])[1]
    at_once = _read_by_interface(causal, rows, prompt)
    tails, logits = Tails.empty(1, causal.device), at_once
    for time, (parents, going) in enumerate((([0, 0], [1, 0]), ([1, 0], [0, 1]), ([0, 1, 1], [0, 1, 2]), ([0, 1, 2],) * 2)):
        tails = tails.rows(torch.tensor(parents))
        logits, step = causal.read_shared(rows[going, time][:, None], prompt, tails, keeps_step=True)
        tails = tails.then(step)
    # By the same product, so to the last bit; a head of which only a part was seen is another function.
    hidden = None if causal.head is None else step.hidden
    causal.recomputes = hidden is not None and torch.equal(causal.read_hidden(hidden), logits[:, 0])
    if not (causal.agree(expected, at_once) and causal.agree(expected[:, -1], logits[:, 0])):
        raise CannotScore("rows behind one copy of a prompt do not get what they get in rows of their own")


def _read_by_interface(causal: CausalLM, rows: Tensor, prompt: KeyValues) -> Tensor:
    """Logits of rows behind a prompt.

    Raises:
        CannotScore: it ends in an error before any layer has asked for attention where `transformers` lets it be replaced.
    """
    cache = SharedCache(prompt, None, keeps=False)
    try:
        return causal.read_by(cache, rows, keep=4)
    except Exception as error:
        if isinstance(error, CannotScore) or cache.was_asked or is_out_of_memory(error):
            raise
        raise CannotScore("its attention cannot be replaced by the interface of transformers") from error


def check_joining(causal: CausalLM) -> None:
    """Rows behind prompts of different lengths get in one pass what they get in two, after one token and after two.

    Raises:
        CannotScore: they do not.
    """
    tokens, parts = causal.trial(), []
    for row, length, first in ((0, 4, tokens[1, 4:6]), (1, 3, tokens[0, 4:5])):
        prompt = causal.read_on(tokens[row : row + 1, :length])[1]
        parts.append(Part(prompt, Tails.empty(len(first), causal.device), first))
    for _ in range(2):
        alone = [causal.next_step(part.prompt, part.tails, part.tokens) for part in parts]
        joined = causal.next_steps(parts)
        if not all(causal.agree(lone[0], other[0]) for lone, other in zip(alone, joined, strict=True)):
            raise CannotScore("rows behind prompts of different lengths do not get in one pass what they get in two")
        after = [part.tails.then(step) for part, (_, step) in zip(parts, joined, strict=True)]
        parts = [Part(part.prompt, tails, part.tokens) for part, tails in zip(parts, after, strict=True)]


def require_all_kept(causal: CausalLM) -> None:
    """`CannotScore` if a layer forgets keys that are far back."""
    if not causal.keeps_all():
        raise CannotScore("some of its layers do not attend to all that was read (a window, chunks, or a recurrent state)")
