"""`locore bench`: the benchmarks that ship with Locore."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

bench = typer.Typer(help="Measure Locore.", no_args_is_help=True, rich_markup_mode=None)


@bench.callback()
def _group() -> None:
    """Measure Locore."""


@bench.command(epilog="Example: locore bench fidelity --quick -o results")
def fidelity(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of results.json and table.md; a killed run goes on.")],
    quick: Annotated[bool, typer.Option("--quick", help="Few runs on models that need no data, in a few minutes.")] = False,
    data: Annotated[Path | None, typer.Option(help="Folder of models that the package does not have.")] = None,
    truths: Annotated[list[Path] | None, typer.Option(help="More folders of answers that were found before.")] = None,
    model: Annotated[str | None, typer.Option(help="Only problems of this model.")] = None,
    problem: Annotated[list[str] | None, typer.Option(help="Only these problems.")] = None,
    sampler: Annotated[list[str] | None, typer.Option(help="Only these samplers.")] = None,
    budget: Annotated[list[int] | None, typer.Option(help="LM tokens for one draw.")] = None,
    runs: Annotated[int | None, typer.Option(help="Runs in every cell; by default as many as the noise asks for.")] = None,
    drawn: Annotated[int | None, typer.Option(help="Problems drawn by the seed, for each model.")] = None,
    cell_seconds: Annotated[float | None, typer.Option(help="CPU seconds for a sampler on a problem at a budget.")] = None,
    seed: Annotated[int, typer.Option(help="Of everything.")] = 0,
    threads: Annotated[int, typer.Option(help="Of the model's arithmetic.")] = 1,
) -> None:
    """Who samples from p(y | constraint), at what price: distance from the truth against LM tokens."""
    # By name: the benchmarks stand above the shell, and nothing else should pay for loading them.
    command = import_module("locore_lab.fidelity.command")
    command.run(
        output,
        quick,
        model,
        problem or None,
        sampler or None,
        runs,
        seed,
        budgets=budget or None,
        drawn=drawn,
        models=data,
        truths=truths or None,
        cell_seconds=cell_seconds,
        threads=threads,
    )
    print((output / "table.md").read_text())


@bench.command(epilog="Example: locore bench tasks -o results --family json --sampler auto --budget 1000")
def tasks(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the results; a killed run goes on.")],
    quick: Annotated[bool, typer.Option("--quick", help="A few problems, small budgets, in five minutes.")] = False,
    model: Annotated[str | None, typer.Option(help='Another name or a folder of the weights of "smollm2".')] = None,
    problem: Annotated[list[str] | None, typer.Option(help="Only these problems.")] = None,
    family: Annotated[
        list[str] | None,
        typer.Option(help="Only these: keywords, ban, ending, infilling, count, json, format, choice."),
    ] = None,
    sampler: Annotated[list[str] | None, typer.Option(help="Only these samplers.")] = None,
    budget: Annotated[list[int] | None, typer.Option(help="LM tokens of a run.")] = None,
    runs: Annotated[int | None, typer.Option(help="Of each sampler at each budget.")] = None,
    seed: Annotated[int, typer.Option(help="Of everything; other seeds than 0 draw problems whose truth takes hours.")] = 0,
    truths: Annotated[bool, typer.Option("--truths", help="Make the truths that are missing, and stop.")] = False,
    threads: Annotated[int, typer.Option(help="Of the model's arithmetic.")] = 1,
    device: Annotated[str | None, typer.Option(help="Where the model computes, such as cuda.")] = None,
    dtype: Annotated[str, typer.Option(help="Of the weights, such as bfloat16; the truths stay those of 32 bits.")] = "float32",
    tables: Annotated[bool, typer.Option("--tables", help="Measure nothing: write the tables of what is there.")] = False,
    temperature: Annotated[float, typer.Option(help="Another than 1: the written problems there; .7 has truths.")] = 1.0,
) -> None:
    """What users ask of a real language model: evidence, features, verdicts and texts of every sampler against the truth."""
    import_module("locore_lab.tasks.command").run(
        output,
        quick,
        model,
        problem or None,
        family or None,
        sampler or None,
        budget or None,
        runs,
        seed,
        truths_only=truths,
        threads=threads,
        device=device,
        dtype=dtype,
        measure=not tables,
        temperature=temperature,
    )
    if not truths:
        print((output / "table.md").read_text())


@bench.command(epilog="Example: locore bench people write -o results --wish tweet --seed 1")
def people(
    step: Annotated[str, typer.Argument(help="write: ask the model. sheet: shuffle the texts. table: read the grades.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of all files; a killed run goes on.")],
    wish: Annotated[list[str] | None, typer.Option(help="Only these.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="A text of each tool for each; 1 and 2 by default.")] = None,
    model: Annotated[str, typer.Option(help="As locore.load knows it.")] = "smollm2",
    temperatures: Annotated[bool, typer.Option("--temperatures", help="Of Locore alone, at several temperatures.")] = False,
) -> None:
    """Twenty wishes of people by Locore, masking and transformers: texts, a sheet to be graded blind, and the table."""
    command = import_module("locore_lab.people.command")
    print(command.run(step, output, temperatures, wish or (), seed or (1, 2), model))


@bench.command(epilog="Example: locore bench speed --quick -o results")
def speed(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of results.json and table.md; a killed run goes on.")],
    quick: Annotated[bool, typer.Option("--quick", help="The same rows with small models, in a few minutes.")] = False,
    model: Annotated[list[str] | None, typer.Option(help='Only these: "tiny", "small", "large".')] = None,
    part: Annotated[
        list[str] | None,
        typer.Option(help="Only these: sampling, neighbours, circuits, masks, footprint, scaling, accelerator."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help='Where "accelerator" computes, such as cuda; without it, it is left out.')
    ] = None,
) -> None:
    """What Locore costs: CPU seconds as ratios to what it is compared with in the same run."""
    import_module("locore_lab.speed.command").run(output, quick, model or (), part or (), device)
    print((output / "table.md").read_text())


@bench.command(
    "json", epilog="Example: locore bench json --data ../shared/data/json --tokenizer smollm2/tokenizer.json -o results"
)
def json_suites(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of results.json and table.md.")],
    data: Annotated[Path, typer.Option(help="Folder with test-suite/ and maskbench_dev.jsonl.xz.")],
    tokenizer: Annotated[Path, typer.Option(help="A tokenizer.json, of a byte-level BPE.")],
    cases: Annotated[int, typer.Option(help="Of MaskBench, drawn by the seed.")] = 300,
    engine: Annotated[
        list[str] | None,
        typer.Option(help="Only these: locore, locore-schema, llguidance, xgrammar, xgrammar-strict, outlines-core."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 0,
) -> None:
    """JSON Schema beside other engines: schemas taken, instances judged rightly, seconds of compiling and of masks."""
    command = import_module("locore_lab.json_suites.command")
    command.run(output, data, cases, engine or list(command.MAKERS), seed, tokenizer)
    print((output / "table.md").read_text())


@bench.command("json-samples", epilog="Example: locore bench json-samples --data ../shared/data/json -o results")
def json_samples(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the results; a killed run goes on.")],
    data: Annotated[Path, typer.Option(help="Folder with maskbench_dev.jsonl.xz.")],
    schemas: Annotated[int, typer.Option(help="Of MaskBench, drawn by the seed.")] = 200,
    tokens: Annotated[int, typer.Option(help="The horizon.")] = 512,
    sampler: Annotated[str, typer.Option(help="By name.")] = "quick",
    particles: Annotated[int, typer.Option(help="Of each schema; one text is drawn of them by weight.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the schemas and the texts.")] = 0,
    model: Annotated[str, typer.Option(help="As locore.load knows it.")] = "smollm2",
    together: Annotated[int, typer.Option(help="Schemas that are written for beside each other.")] = 16,
) -> None:
    """A real model writes a text for each of many real schemas: how many are answered, valid and whole, and the seconds."""
    command = import_module("locore_lab.json_suites.samples")
    command.run(output, data, schemas, command.SamplesPlan(tokens, sampler, particles, seed, model, together))
    print((output / "samples.md").read_text())
