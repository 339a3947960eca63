"""The texts: each wish by Locore's default call, by masking, and by transformers alone; a line of JSON for each as it comes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

import locore
from locore.kernel.errors import InvalidArgument, LocoreError
from locore.models import HuggingFaceModel
from locore.models.quiet import quiet
from locore_lab.people.wishes import TEMPERATURE, Wish
from locore_lab.shared import counted, shown


def by_locore(model: HuggingFaceModel, wish: Wish, seed: int, **more: Any) -> dict[str, Any]:
    """`locore.sample(model, prompt, constraint, …)`, taken apart for what the particles say."""
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


BY: dict[str, Callable[[HuggingFaceModel, Wish, int], dict[str, Any]]] = {
    "Locore": by_locore,
    "masking": partial(by_locore, sampler="masked", num_particles=1),  # what maskers do
    "transformers": by_transformers,
}
TOOLS = tuple(BY)


def write(output: Path, wishes: Sequence[Wish], seeds: Sequence[int], model_name: str) -> None:
    """Append a line for each wish, seed and tool that the file does not have."""
    model = locore.load(model_name)
    if not isinstance(model, HuggingFaceModel):
        raise InvalidArgument(f"{model_name} is in an engine; transformers needs a model in this process.")
    there = {(row["wish"], row["seed"], row["tool"]) for row in read(output)}
    todo = [(wish, seed, tool) for seed in seeds for wish in wishes for tool in TOOLS if (wish.name, seed, tool) not in there]
    for wish, seed, tool in shown(todo, "texts"):
        fresh = model.unprompted()
        with quiet(), counted(fresh.causal.module) as cost:
            try:
                answer = BY[tool](fresh, wish, seed)
            except LocoreError as error:
                answer = {"text": None, "error": str(error)}
        kept = answer["text"] is not None and locore.holds(wish.constraint, answer["text"], model)
        append(output, [{"wish": wish.name, "seed": seed, "tool": tool, **answer, "kept": kept, **cost}])


def append(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def read(path: Path) -> list[dict[str, Any]]:
    """The rows that are there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
