"""`locore audit`."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

import locore
from locore.batch.batch_settings import Settings
from locore.cli.batch_command import Workers, rows_are_kept
from locore.cli.inputs import MODEL_HELP, grouped, read_constraint, read_text, write_text
from locore.cli.output import Progress
from locore.kernel.errors import InvalidArgument, InvalidConstraint
from locore.kernel.request import help_of

if TYPE_CHECKING:
    from locore.auditing.result import Audit, Comparison
    from locore.constraints import Constraint

ABOVE, NOT_SETTLED = 1, 3


@grouped
def audit(
    prompts: Annotated[Path, typer.Option(metavar="FILE.jsonl", help='A JSON object a line, such as {"prompt": "text"}.')],
    ban_list: Annotated[
        Path | None, typer.Option(metavar="FILE", help="One phrase a line, as it is written, spaces too.")
    ] = None,
    constraint: Annotated[
        str | None, typer.Option(metavar="JSON|@FILE", help="What offending texts satisfy, in place of a list.")
    ] = None,
    model: Annotated[str, typer.Option(help=MODEL_HELP)] = Settings.model,
    max_tokens: Annotated[int, typer.Option(help="The horizon.")] = 20,
    limit: Annotated[float | None, typer.Option(help="Of the probability after each prompt.")] = None,
    budget: Annotated[int, typer.Option(help="LM tokens for each prompt.")] = 4_000,
    sampler: Annotated[str | None, typer.Option(help=help_of("sampler"))] = None,
    temperature: Annotated[float, typer.Option(help=help_of("temperature"))] = Settings.temperature,
    top_p: Annotated[float, typer.Option(help=help_of("top_p"))] = Settings.top_p,
    top_k: Annotated[int, typer.Option(help=help_of("top_k"))] = Settings.top_k,
    seed: Annotated[int, typer.Option(help="Of the run; each row gets its own from it.")] = Settings.seed,
    show_texts: Annotated[bool, typer.Option("--show-texts", help="Show offending texts.")] = False,
    as_json: Annotated[str | None, typer.Option("--json", metavar="FILE|-", help="Write the audit as JSON.")] = None,
    html: Annotated[str | None, typer.Option("--html", metavar="FILE", help="Write a page with plots.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Keep each row once it is known.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what is in the folder.")] = False,
    against: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Compare with an earlier audit (its --out).")] = None,
    *,
    by: Workers,
) -> None:
    """How probable it is that a model writes any of some phrases, or a text that satisfies a constraint, after each prompt.

    Exit code 1 where a prompt is above the limit, 3 where that is not settled or a prompt could not be run, and 0 elsewhere.
    """
    from locore.audit import question_of
    from locore.auditing.prompt_audit import PARTICLES
    from locore.batch import Engine
    from locore.batch.audits import audit_file, read_audit

    if resume and out is None:
        raise InvalidArgument("--resume goes on with the rows of a folder; give it with --out.")
    asked = _event(ban_list, constraint)
    before = None if against is None else read_audit(against)
    question = question_of(asked, max_tokens=max_tokens, limit=limit, show_texts=show_texts, budget=budget)
    settings = Settings(
        model=model,
        **by.settings(),
        seed=seed,
        constraint=question.event.to_json(),
        max_new_tokens=max_tokens,
        num_particles=PARTICLES,
        sampler=sampler,
        budget=budget,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        audit={"phrases": list(question.phrases), "limit": limit, "show_texts": show_texts},
    )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory())) if out is None else out
        progress = stack.enter_context(Progress("prompts"))
        stack.enter_context(rows_are_kept(out is not None))
        chosen = Engine(by.engine, by.workers)  # type: ignore[arg-type]  # it checks
        audited = audit_file(prompts, folder, question, settings, chosen, resume=resume, progress=progress.show)
    what = "a constraint" if constraint is not None else f"{len(question.phrases):,} phrases"
    about = f"Audit of {model}, {max_tokens} tokens, {what}"
    _tell(audited, None if before is None else audited.compare(before), about, as_json, html)
    if audited.settled == "above":
        raise typer.Exit(ABOVE)
    if audited.settled == "not settled" or audited.failed:
        raise typer.Exit(NOT_SETTLED)


def _tell(audited: Audit, comparison: Comparison | None, about: str, as_json: str | None, html: str | None) -> None:
    print(audited if comparison is None else f"{audited}\nagainst the earlier audit: {comparison}")
    if as_json is not None:
        more = {} if comparison is None else {"against": comparison.to_json()}
        write_text(as_json, json.dumps({**audited.to_json(), **more}, ensure_ascii=False, allow_nan=False))
    if html is not None:
        from locore.auditing.page import page

        write_text(html, page(audited, about, comparison))


def _event(ban_list: Path | None, constraint: str | None) -> Constraint | list[str]:
    """What is asked after: a constraint, or phrases."""
    if ban_list is not None and constraint is None:
        return [line for line in read_text(str(ban_list)).split("\n") if line.strip()]
    if ban_list is not None or constraint is None:
        raise InvalidArgument("an audit needs either --ban-list, a file of phrases, or --constraint, and not both.")
    event = read_constraint(constraint)
    if not isinstance(event, locore.Constraint):
        raise InvalidConstraint("a product with bonuses holds of every text; audit one of its constraints.")
    return event
