"""What callers hand to a model, and what models give: prompts as ids, and checks whose errors name cause and remedy."""

from __future__ import annotations

from collections.abc import Sequence
from reprlib import repr as shortened

import torch
from torch import Tensor

from locore.kernel.chat import Prompt, is_chat
from locore.kernel.errors import BrokenModel, CannotScore, InvalidArgument
from locore.kernel.numerics import rows_at_once
from locore.kernel.tokenizer import Tokenizer

MASS_ROUNDING = 1e-3  # by which the sum of a whole distribution may miss 1
_LOOK_AT_THE_MODEL = (
    "Nothing was sampled. Weights that are damaged, or that overflow in 16 bits, do this: get a fresh copy, or load it with "
    "dtype=torch.float32; a model of your own must return normalised natural logs."
)
REMEDY = (
    "load one by its name with locore.load, or make one of what transformers has in memory with "
    "locore.models.HuggingFaceModel.from_module(module, tokenizer)"
)


def tokenizer_of(given: object, asking: str) -> Tokenizer:
    """A tokenizer that was given, or the tokenizer of a model.

    Args:
        given: either of them.
        asking: the name of the function that needs it, for the message.

    Raises:
        InvalidArgument: it is neither; what transformers calls a tokenizer or a model is none of Locore.
    """
    tokenizer = given if isinstance(given, Tokenizer) else getattr(given, "tokenizer", None)
    if not isinstance(tokenizer, Tokenizer):
        raise InvalidArgument(
            f"{asking} needs a model or a tokenizer of Locore, got {type(given).__name__}; {REMEDY}, or "
            "locore.Tokenizer.from_huggingface(tokenizer)."
        )
    return tokenizer


def prompt_ids(tokenizer: Tokenizer, prompt: Prompt) -> list[int]:
    """The ids that a model reads of a prompt: the one road from texts and chats to ids, wherever they come from.

    Args:
        tokenizer: of the model.
        prompt: a text, which gets the special tokens that the tokenizer puts at a start; messages, which are written by the
            chat template (see `Tokenizer.encode_chat`); or ids, which are taken as they are.

    Raises:
        InvalidArgument: none of these, an id that is not of this vocabulary, or messages that the template does not take.
        MissingTemplate: messages, for a model without a chat template.
    """
    if isinstance(prompt, str):
        return tokenizer.encode_prompt(prompt)
    return plain_ids(tokenizer.encode_chat(prompt) if is_chat(prompt) else prompt, tokenizer.vocab_size)


def plain_ids(prompt: object, vocab_size: int) -> list[int]:
    """The ids of a prompt that is no text and no chat; none at all is the empty prompt.

    Raises:
        InvalidArgument: not one flat list of integers, or an id out of range.
    """
    try:
        ids = torch.as_tensor(prompt)
    except (RuntimeError, TypeError, ValueError):
        ids = None
    if ids is None or ids.ndim != 1:
        raise InvalidArgument(
            f"a prompt is a text, a list of token ids, or a chat (a list of messages {{'role': ..., 'content': ...}}), got "
            f"{shortened(prompt)}; several prompts are asked one at a time, or by `locore batch`."
        )
    return token_ids(ids if len(ids) else ids.long(), "prompt", vocab_size).tolist()


def positive(value: int, name: str) -> int:
    """The value, if it is an integer of at least 1.

    Raises:
        InvalidArgument: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgument(f"{name} is {value!r}; give an integer of at least 1.")
    return value


def token_ids(tokens: Tensor | Sequence[object], shape: str, vocab_size: int) -> Tensor:
    """Token ids as a Long tensor on the CPU.

    Args:
        tokens: ids as a tensor or nested sequences.
        shape: names of its axes, such as "batch time".
        vocab_size: ids go from 0 to this, exclusive.

    Raises:
        InvalidArgument: not integers, other axes than these, no position, or an id out of range.
    """
    ids = torch.as_tensor(tokens)
    axes = shape.split()
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise InvalidArgument(f"Token ids are integers, not {ids.dtype}.")
    if ids.ndim != len(axes):
        raise InvalidArgument(f"Token ids have the shape {tuple(ids.shape)}; give one with the axes ({shape}).")
    if "time" in axes and ids.shape[axes.index("time")] == 0:
        raise InvalidArgument("The sequences have no position; the length is at least 1.")
    wrong = ids[(ids < 0) | (ids >= vocab_size)]
    if wrong.numel():
        raise InvalidArgument(f"Token id {int(wrong[0])} is out of range: ids go from 0 to {vocab_size - 1}.")
    return ids.to("cpu", torch.int64)


def row_indices(parents: Tensor | Sequence[int] | None, count: int, batch: int) -> Tensor:
    """Which rows of a cursor go on; all of them, in order, by default.

    Args:
        parents: Long[count] in 0 … batch−1.
        count: how many rows go on.
        batch: how many rows there are.

    Raises:
        InvalidArgument: of another number than the tokens, or out of range.
    """
    if parents is None:
        if count != batch:
            raise InvalidArgument(f"{count} tokens for {batch} rows; give one for each, or name their parents.")
        return torch.arange(batch)
    rows = torch.as_tensor(parents, dtype=torch.int64, device="cpu")
    if rows.shape != (count,):
        raise InvalidArgument(f"{count} tokens need {count} parents, not {tuple(rows.shape)}.")
    if rows.numel() and not 0 <= int(rows.min()) <= int(rows.max()) < batch:
        raise InvalidArgument(f"Parents are rows 0 to {batch - 1} of the cursor.")
    return rows


def checked_distributions(log_probs: Tensor) -> Tensor:
    """The rows Float[…, vocab] of a model, if each is a distribution; looked at once, a few at a time, near the processor.

    Raises:
        BrokenModel: a row has a NaN, or its probabilities do not sum to 1.
    """
    rows = log_probs.reshape(-1, log_probs.shape[-1])
    if not len(rows):
        return log_probs
    at_once = rows_at_once(rows.shape[1], rows.device)
    mass = torch.cat([part.exp().sum(-1) for part in torch.split(rows, at_once)])
    wrong = mass[~((mass - 1).abs() <= MASS_ROUNDING)]
    if len(wrong):
        raise BrokenModel(
            f"{len(wrong)} of {len(rows)} next-token distributions of the model are invalid: the probabilities of one sum "
            f"to {float(wrong[0]):.6g}, not to 1. {_LOOK_AT_THE_MODEL}"
        )
    return log_probs


def checked_log_probs(scores: Tensor) -> Tensor:
    """Natural logs Float[…] of probabilities that a model gave for single tokens or sequences, if they are some.

    Raises:
        BrokenModel: one is NaN, or above 0 by more than rounding.
    """
    wrong = scores[~(scores <= MASS_ROUNDING)]
    if len(wrong):
        raise BrokenModel(
            f"The model gave {float(wrong[0]):.6g} for the logarithm of a probability, {len(wrong)} times. {_LOOK_AT_THE_MODEL}"
        )
    return scores


def within_context(prompt: int, length: int, limit: int | None) -> None:
    """Refuse what the model cannot read.

    Raises:
        CannotScore: prompt and continuation are longer than the context.
    """
    if limit is not None and prompt + length > limit:
        raise CannotScore(
            f"The prompt has {prompt} tokens and the continuation {length}, together "
            f"{prompt + length}, but the context of this model ends at {limit}. "
            "Shorten the prompt or ask for fewer new tokens."
        )
