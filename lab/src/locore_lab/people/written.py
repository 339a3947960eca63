"""The texts: each wish by Locore's default call, by masking, and by transformers alone; a line of JSON for each as it comes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

import locore
from locore.kernel.errors import LocoreError
from locore.models import HuggingFaceModel
from locore.models.quiet import quiet
from locore_lab.people.wishes import TEMPERATURE, Wish
from locore_lab.shared import shown

TOOLS = ("Locore", "masking", "transformers")


@dataclass
class Cost:
    """What a text took: passes of the model, tokens it read in them, seconds of the processor and of the clock."""

    passes: int = 0
    tokens: int = 0
    cpu_seconds: float = 0.0
    seconds: float = 0.0


@contextmanager
def counting(module: Any) -> Iterator[Cost]:
    """Counts at the module itself, alike for all tools."""
    cost = Cost()

    def read(_: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        ids = named["input_ids"] if "input_ids" in named else given[0]
        cost.passes += 1
        cost.tokens += ids.numel()

    hook = module.register_forward_pre_hook(read, with_kwargs=True)
    clock, cpu = time.perf_counter(), time.process_time()
    try:
        yield cost
    finally:
        cost.seconds, cost.cpu_seconds = time.perf_counter() - clock, time.process_time() - cpu
        hook.remove()


def by_locore(model: HuggingFaceModel, wish: Wish, seed: int) -> dict[str, Any]:
    """`locore.sample(model, prompt, constraint, …)`, taken apart for what the particles say."""
    return _sampled(model, wish, seed)


def by_masking(model: HuggingFaceModel, wish: Wish, seed: int) -> dict[str, Any]:
    """The same call with another sampler, and one particle: what maskers do."""
    return _sampled(model, wish, seed, sampler="masked", num_particles=1)


def _sampled(model: HuggingFaceModel, wish: Wish, seed: int, **more: Any) -> dict[str, Any]:
    asked = {"max_new_tokens": wish.tokens, "temperature": TEMPERATURE, "seed": seed, **wish.options, **more}
    p = locore.generate(model, wish.prompt, wish.constraint, **asked)
    text = p.resample(1, seed=seed + 1).texts[0]  # as `sample` does
    told = {name: p.info.get(name) for name in ("lm_tokens", "chosen", "compile_seconds", "model_seconds")}
    return {"text": text, "verdict": p.verdict.level, "log_evidence": p.log_evidence, **told}


def by_transformers(model: HuggingFaceModel, wish: Wish, seed: int) -> dict[str, Any]:
    """`model.generate` of transformers as it is, and its list of banned tokens where that says the wish."""
    place = model.info.place if model.info is not None else ""
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(place)
    if wish.chat:
        inputs = tokenizer.apply_chat_template(wish.prompt, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    else:
        inputs = tokenizer(wish.prompt, return_tensors="pt")
    spellings = [each for word in wish.banned for each in {word, f" {word}", word.capitalize(), f" {word.capitalize()}"}]
    banned = [tokenizer.encode(each, add_special_tokens=False) for each in sorted(spellings)]
    torch.manual_seed(seed)
    asked = {"max_new_tokens": wish.tokens, "do_sample": True, "temperature": TEMPERATURE}
    out = model.causal.module.generate(**inputs, **asked, bad_words_ids=banned or None)
    return {"text": tokenizer.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)}


BY: dict[str, Callable[[HuggingFaceModel, Wish, int], dict[str, Any]]] = dict(
    zip(TOOLS, (by_locore, by_masking, by_transformers), strict=True)
)


def write(output: Path, wishes: Sequence[Wish], seeds: Sequence[int], model_name: str) -> None:
    """Append a line for each wish, seed and tool that the file does not have."""
    model = locore.load(model_name)
    if not isinstance(model, HuggingFaceModel):
        raise locore.kernel.errors.InvalidArgument(f"{model_name} is in an engine; transformers needs a model in this process.")
    there = {(row["wish"], row["seed"], row["tool"]) for row in read(output)}
    todo = [(wish, seed, tool) for seed in seeds for wish in wishes for tool in TOOLS if (wish.name, seed, tool) not in there]
    output.parent.mkdir(parents=True, exist_ok=True)
    for wish, seed, tool in shown(todo, "texts"):
        fresh = model.unprompted()
        with quiet(), counting(fresh.causal.module) as cost:
            try:
                answer = BY[tool](fresh, wish, seed)
            except LocoreError as error:
                answer = {"text": None, "error": str(error)}
        kept = answer["text"] is not None and locore.holds(wish.constraint, answer["text"], model)
        spent = {name: round(value, 2) for name, value in vars(cost).items()}
        row = {"wish": wish.name, "seed": seed, "tool": tool, **answer, "kept": kept, **spent}
        with output.open("a") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """The rows that are there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
