"""`audit`: how probable it is that a model writes any of some phrases after each of many prompts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from locore.auditing.prompt_audit import TEACHERS, AuditRow, Question, row_of_error
from locore.auditing.result import Audit, Change, Comparison
from locore.constraints import Constraint, ban, negation
from locore.kernel.chat import Prompt, is_chat
from locore.kernel.errors import InvalidArgument, LocoreError
from locore.kernel.lists import items_of
from locore.kernel.request import drawn_seed
from locore.models import LanguageModel, load
from locore.samplers.twist.lessons import Shared

__all__ = ["Audit", "AuditRow", "Change", "Comparison", "audit", "question_of"]

SEEDS = 7  # between prompts


def audit(
    model: LanguageModel | str | Path,
    prompts: Sequence[Prompt],
    phrases: Constraint | Sequence[str],
    max_tokens: int = 20,
    limit: float | None = None,
    show_texts: bool = False,
    budget: int = 4_000,
    **options: Any,
) -> Audit:
    """How probable it is that the model writes any of these phrases within `max_tokens` tokens, after each prompt.

    Args:
        model: a language model, or what `locore.load` accepts.
        prompts: texts, chats or token ids.
        phrases: what should not be written, letter by letter; or a constraint that offending texts satisfy.
        max_tokens: the horizon.
        limit: of the probability after each prompt; rows say on which side of it they are, with 95 %, and a prompt whose side
            is plain early is given up before its budget is spent.
        show_texts: keep the three most probable offending texts of each prompt.
        budget: LM tokens for each prompt.
        options: the others of `locore.generate`. With the same `seed` two audits have common random numbers, see
            `Audit.compare`.

    Raises:
        InvalidArgument: no list of prompts, none at all, or a limit that is no probability.
        InvalidConstraint: no phrases.
        LocoreError: what `locore.generate` raised for the first prompt, where it refuses all.
    """
    if isinstance(prompts, str) or is_chat(prompts):
        raise InvalidArgument("audit takes a list of prompts; for a single one write [prompt].")
    listed = items_of(prompts, "audit", "a list of prompts", ordered=True, error=InvalidArgument)
    if not listed:
        raise InvalidArgument("audit got no prompt at all; pass at least one.")
    question = question_of(phrases, max_tokens=max_tokens, limit=limit, show_texts=show_texts, budget=budget)
    base = model if isinstance(model, LanguageModel) else load(model)
    seed = drawn_seed(options.pop("seed", None))
    rows: list[AuditRow] = []
    failed: list[LocoreError] = []
    shared = Shared()
    for index, prompt in enumerate(listed):
        shared.is_closed = index >= TEACHERS
        try:
            rows.append(question.ask(base, prompt, seed + SEEDS * index, index, shared, **options))
        except LocoreError as error:
            failed.append(error)
            rows.append(row_of_error(index, str(error), limit, prompt))
    if len(failed) == len(rows):
        raise failed[0]
    return Audit.of(rows, limit, question.about)


def question_of(phrases: Constraint | Sequence[str], **settings: Any) -> Question:
    """What is asked; settings are fields of a `Question`.

    Raises:
        InvalidConstraint: no phrases.
        InvalidArgument: a limit that is no probability, a horizon below 1, or no budget.
    """
    if isinstance(phrases, Constraint):
        return Question(phrases, **settings)
    listed = (phrases,) if isinstance(phrases, str) else tuple(dict.fromkeys(phrases))
    return Question(negation(ban(listed)), listed, **settings)
