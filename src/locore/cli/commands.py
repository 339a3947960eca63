"""`locore generate`, `check`, `compile`, `info` and `prepare`."""

from __future__ import annotations

import json
import math
import sys
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

import typer

import locore
from locore.cli.inputs import (
    MODEL_HELP,
    AbstainBelow,
    Asked,
    LimitList,
    Parse,
    Said,
    SteerDtype,
    ThreadNumber,
    grouped,
    parse_json,
    read_constraint,
    read_limits,
    read_prompt,
    read_record,
    read_text,
    write_text,
)
from locore.cli.output import Progress, Waiting, show_draws, show_particles, working
from locore.kernel.constraints.spelling import cut
from locore.kernel.errors import InvalidArgument, InvalidConstraint
from locore.kernel.request import help_of

if TYPE_CHECKING:
    from locore.compilers.stored import Compiled
    from locore.constraints import Constraint
    from locore.kernel.tokenizer import Tokenizer
    from locore.potentials import Target

PROMPT_HELP = "Text before the continuation; with --chat a message, or @FILE with messages."
WIDTH = 72  # characters of a part of the constraint
LONG_DIGITS = 12


@grouped
def generate(
    prompt: Annotated[str | None, typer.Argument(help=PROMPT_HELP, show_default=False)] = None,
    prompt_option: Annotated[str | None, typer.Option("--prompt", help="The same.")] = None,
    *,
    said: Said,
    model: Annotated[str, typer.Option(help=f"{MODEL_HELP} Or an engine.")] = "tiny",
    chat: Annotated[bool, typer.Option("--chat", help="The prompt is a message; the model's chat template writes it.")] = False,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="With --chat: a message of the system before it.")] = None,
    asked: Asked,
    seed: Annotated[int | None, typer.Option(help=help_of("seed"))] = None,
    threads: ThreadNumber = None,
    steer_dtype: SteerDtype = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds, after which what there is comes back.")] = None,
    resample: Annotated[int | None, typer.Option(metavar="N", help="Return N equally probable draws instead.")] = None,
    parse: Parse = False,
    abstain_below: AbstainBelow = None,
    full: Annotated[bool, typer.Option("--full", help="The whole report: bounds, cost, warnings.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print texts, tokens, weights and diagnostics as JSON.")] = False,
) -> None:
    """Sample continuations of a prompt from p(text | constraint).

    What the text must satisfy is said in a word (--contains, --ban, --regex, …), as JSON (--constraint), or both.

    A chat: --chat --prompt "Write one sentence about the sea.", or --chat --prompt @messages.json with a list such as
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]. An answer that the last message
    begins (role "assistant") goes on from there.
    """
    if (prompt is None) == (prompt_option is None):
        raise InvalidArgument('give one prompt: locore generate "The weather is" --contains " sun".')
    read, parsed, options = read_prompt(prompt or prompt_option or "", chat, system), said.read(), asked.read()
    if parse:
        from locore.parsing import suited

        names = ("max_new_tokens", "sampler", "budget", "temperature")
        options["sampler"], options["budget"] = suited(*(options[name] for name in names))
    waiting = Waiting()
    options |= {"seed": seed, "timeout": timeout, "progress": waiting.show}  # checked by `generate`, like all the rest
    with working("loading the model"):
        from locore.models.by_name import load_options

        loaded = locore.load(model, **load_options(threads=threads, steer_dtype=steer_dtype))
    with waiting.until_done():
        particles = locore.generate(loaded, read, parsed, **options)
    if resample is not None:
        # Another stream of random numbers than that of the sampler, and as repeatable.
        particles = particles.resample(resample, seed=particles.info["seed"] + 1)
    record = read_record(particles, parse, abstain_below)
    if as_json:
        record_field = {} if record is None else {"record": record.to_json()}
        print(json.dumps({**particles.to_json(), **record_field}, ensure_ascii=False, allow_nan=False))
    elif record is not None:
        print(f"{json.dumps(record.kept, ensure_ascii=False)}\n\n{record.report()}")
    else:
        (show_particles if resample is None else show_draws)(particles, full)
        print(f"Repeat this run with --seed {particles.info['seed']}")


def check(
    constraint: Annotated[str, typer.Option(metavar="JSON|@FILE", help="What the text should satisfy.")],
    text: Annotated[str, typer.Option(metavar="TEXT|-", help="The finished text; - reads stdin, nothing is stripped.")],
    model: Annotated[str | None, typer.Option(help="Whose tokens to use; needed for constraints on token ids only.")] = None,
    prompt: Annotated[str | None, typer.Option(help="What stands before the text, for constraints over both.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say what was found in the text, and where.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
) -> None:
    """Does a finished text satisfy a constraint? Exit code 0 if it does, 1 if not."""
    parsed = read_constraint(constraint)
    content = read_text("-") if text == "-" else text
    tokenizer = _bytes_tokenizer(parsed) if model is None else locore.load(model).tokenizer
    if explain or as_json:
        explanation = locore.explain(parsed, content, tokenizer, prompt)
        satisfied = explanation.holds
        print(json.dumps(explanation.to_json(), ensure_ascii=False) if as_json else explanation)
    else:
        satisfied = locore.holds(parsed, content, tokenizer, prompt)
        _show_check(parsed, content, tokenizer, satisfied, prompt)
    if satisfied:
        return
    if content.endswith("\n") and locore.holds(parsed, content.removesuffix("\n"), tokenizer, prompt):
        print("note: the text ends with a line break; without it the constraint holds.", file=sys.stderr)
    raise typer.Exit(1)


def _show_check(parsed: Constraint | Target, content: str, tokenizer: Tokenizer, satisfied: bool, prompt: str | None) -> None:
    """The answer, and that of each part."""
    print("yes" if satisfied else "no")
    for part in parsed.children() if isinstance(parsed, locore.Constraint) else ():
        answer = "yes" if locore.holds(part, content, tokenizer, prompt) else "no"
        print(f"  {answer:3}  {cut(json.dumps(part.to_json(), ensure_ascii=False), WIDTH)}")


def _bytes_tokenizer(parsed: Constraint | Target) -> Tokenizer:
    """One token for each byte: constraints on the text mean the same for every tokenizer that can spell it."""
    parts = [parsed] if isinstance(parsed, locore.Constraint) else parsed.constraints()
    leaves = [leaf for part in parts for leaf in part.leaves()]
    if not all(leaf.is_text or leaf.to_json()["type"] in ("true", "false") for leaf in leaves):
        raise InvalidArgument("the constraint speaks about token ids; add --model to say whose tokens they are.")
    return locore.Tokenizer.from_tokens([*(bytes([byte]) for byte in range(256)), None], eos_ids=[256])


def compile(
    constraint: Annotated[str, typer.Option(metavar="JSON|@FILE", help="What to compile; @- reads stdin.")],
    length: Annotated[int, typer.Option(help="Number of tokens.")],
    model: Annotated[str | None, typer.Option(help=f"Whose tokens: {MODEL_HELP}")] = None,
    vocab_size: Annotated[int | None, typer.Option(help="Instead of a model: so many bare token ids.")] = None,
    min_length: Annotated[int, typer.Option(help="The text has at least so many tokens.")] = 0,
    vtree: Annotated[str | None, typer.Option(metavar="JSON", help="Nested pairs of positions, as [[0, 1], [2, 3]].")] = None,
    cache: Annotated[bool, typer.Option(help="Look for a kept circuit, and keep this one if it took long.")] = True,
    limit: LimitList = None,
    dot: Annotated[str | None, typer.Option(metavar="FILE|-", help="Write a Graphviz drawing; - prints it.")] = None,
) -> None:
    """Compile a constraint to a circuit and print its size."""
    parsed = read_constraint(constraint)
    if not isinstance(parsed, locore.Constraint):
        raise InvalidConstraint("a product with bonuses has no circuit of its own; compile one of its constraints.")
    pairs = None if vtree is None else parse_json(vtree, "option --vtree", "write nested pairs such as [[0, 1], [2, 3]]")
    limits = read_limits(limit or [])
    tokenizer = _tokenizer(model, vocab_size)
    from locore.compilers.compile import compile_and_tell

    start = time.perf_counter()
    with working("compiling"):
        compiled = compile_and_tell(
            parsed, tokenizer, length, min_length=min_length, vtree=pairs, use_cache=cache, limits=limits
        )
    seconds = time.perf_counter() - start
    if dot is not None:
        write_text(dot, compiled.circuit.dot(tokenizer))
    _show_compiled(compiled, seconds, err=dot == "-")


def _tokenizer(model: str | None, vocab_size: int | None) -> Tokenizer:
    if (model is None) == (vocab_size is None):
        raise InvalidArgument("give either --model or --vocab-size: a circuit is compiled for one vocabulary.")
    if model is not None:
        return locore.load(model).tokenizer
    return locore.Tokenizer.integers(vocab_size or 0)


def _show_compiled(compiled: Compiled, seconds: float, err: bool) -> None:
    circuit = compiled.circuit
    rows = {
        "classes": f"{circuit.num_classes:,} of {circuit.vocab_size:,} tokens",
        "nodes": f"{circuit.num_nodes:,}",
        "edges": f"{circuit.num_edges:,}",
        "models": _count(circuit.count()) + (" of a relaxation, at most so many of the constraint" if circuit.relaxed else ""),
        "structured": "yes" if circuit.structured else "no",
        "seconds": f"{seconds:.3f}",
        "origin": "compiled" if compiled.origin == "compiled" else f"cache ({compiled.origin})",
    }
    for name, value in rows.items():
        print(f"{name:10}  {value}", file=sys.stderr if err else sys.stdout)


def _count(number: int) -> str:
    """All digits, and the order of magnitude where they are many. Decimal writes any number of digits, str does not."""
    digits = str(Decimal(number))
    return digits if len(digits) <= LONG_DIGITS else f"{digits} (≈ 10^{math.log10(number):.1f})"


def info(model: Annotated[str, typer.Argument(help=MODEL_HELP)] = "tiny") -> None:
    """Say what is known of a model: its size, where it comes from, its licence, and where its weights are kept."""
    with working("loading the model"):
        loaded = locore.load(model)
    print(loaded.info or f"{model}\n  an engine with {loaded.tokenizer.vocab_size:,} tokens, which says no more of itself")


def prepare(model: Annotated[str, typer.Argument(help=MODEL_HELP)] = "tiny") -> None:
    """Make the n-gram table of a model, once; the samplers "auto" and "twisted" are much more exact with it."""
    with Progress("LM tokens") as bar:
        prepared = locore.prepare(locore.load(model), progress=lambda done, all_: bar.show(done, 0, all_))
    table = prepared.table
    print(f"{table.num_contexts:,} contexts, {len(table.tokens):,} entries in {prepared.path}")
    if prepared.lm_tokens:
        print(f"made from {prepared.lm_tokens:,} LM tokens in {prepared.seconds:.1f} s")
    else:
        print("it was there already")
