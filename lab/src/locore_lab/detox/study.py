"""The measurements: generations, their scores and their perplexities, each in a journal of its own."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from statistics import mean

import torch

from locore import load
from locore.io import Journal, Record
from locore.kernel.errors import CannotScore, InvalidArgument
from locore.models import HuggingFaceModel, LanguageModel, Remembered
from locore.models.meeting import together
from locore_lab.detox.plan import DetoxPlan, Prompt, Row, Split, published_row
from locore_lab.detox.published import Reading
from locore_lab.detox.scorers import Scorer
from locore_lab.detox.task import Continuation, Races, Task, token_sequences
from locore_lab.shared import seed_of, shown

Judgement = tuple[float, int]  # −log p of a text after its prompt, in nats, and its tokens, those of the judge
BUNDLED = "bundled judge"  # of another family than `tiny`, with another tokenizer; locore_lab.tiny_lm trains both


def open_judge(name: str | None, model: LanguageModel, device: str = "cpu") -> LanguageModel:
    """A model by its name or folder; without one, the small model that comes with the experiment."""
    folder = Path(str(files("locore_lab"))) / "detox" / "weights" / "judge"
    judge = load(folder if name is None else name, device=device)
    if judge.fingerprint() == model.fingerprint():
        raise InvalidArgument(f"{name} is the model that writes; its perplexity of its own texts says nothing. Give another.")
    return judge


def judgements(judge: LanguageModel, prompt: str, texts: Sequence[str | None]) -> list[Judgement | None]:
    """What the judge says of each text; the perplexity is exp of nats/tokens.

    None for a text without any token, for no text, and for one that the judge cannot read, for callers to count.
    """
    ids = [judge.tokenizer.encode(text) if text else [] for text in texts]
    found: list[Judgement | None] = [None] * len(texts)
    rows = [row for row, each in enumerate(ids) if each]
    if not rows:
        return found
    longest = max(len(ids[row]) for row in rows)
    # What stands behind a text changes no score before it.
    padded = torch.tensor([ids[row] + ids[row][-1:] * (longest - len(ids[row])) for row in rows])
    try:
        scores = judge.prompted(prompt).token_scores(padded)
    except CannotScore:
        return found
    for row, score in zip(rows, scores, strict=True):
        nats = -float(score[: len(ids[row])].sum())
        found[row] = (nats, len(ids[row])) if math.isfinite(nats) else None
    return found


Answers = dict[int, Continuation]  # by the number of the generation
PAIRED = "paired"  # the word that seeds all rows of a paired run
BESIDE = 200  # rows of a forward pass that the prompts of a paired run share
CONTEXT_BYTES = 2**28  # of the contexts of each prompt


@dataclass(frozen=True, eq=False)
class Parts:
    """What a study is made with."""

    model: LanguageModel  # writes
    judge: LanguageModel  # gives perplexities
    scorer: Scorer  # gives toxicity


class DetoxStudy:
    """A run in a folder.

    Generations are kept apart from what is measured on them, so that another scorer or judge reads the same texts, and rows,
    prompts and generations can be added later.
    """

    def __init__(self, folder: Path, parts: Parts, task: Task, plan: DetoxPlan, seed: int, settings: Record) -> None:
        """Open the journals of a folder."""
        self.parts, self.task, self.plan, self.seed = parts, task, plan, seed
        self.texts = Journal(folder / "generations.jsonl", settings)
        scorer = {"scorer": parts.scorer.name, "version": parts.scorer.version}
        self.scores = Journal(folder / f"scores_{_tag(scorer)}.jsonl", scorer | settings)
        judge = {"judge": parts.judge.fingerprint()}
        self.judged = Journal(folder / f"perplexity_{_tag(judge)}.jsonl", judge | settings)
        self._sequences = set(token_sequences(task.phrases, parts.model.tokenizer))
        self._sizes = sorted({len(ids) for ids in self._sequences})

    @property
    def paired(self) -> bool:
        """Do all rows draw with the same seeds?"""
        return self.task.races is not None

    def best_tau(self, prompts: Sequence[Prompt]) -> tuple[float, list[Record]]:
        """The τ whose generations are least toxic on average on these prompts, and the numbers of all."""
        rows = {tau: published_row(Reading(self.plan.k, tau)) for tau in self.plan.taus}
        self.measure(list(rows.values()), prompts, 1, "choosing τ")
        found: list[Record] = []
        for tau, row in rows.items():
            records = [record for prompt in prompts for record in self.of(row, prompt, 1)]
            scores = [record["score"] for record in records if record["score"] is not None]
            perplexity = [record["perplexity"] for record in records if record["perplexity"] is not None]
            found.append(
                {
                    "τ": tau,
                    "mean toxicity": mean(scores) if scores else None,
                    "median perplexity": sorted(perplexity)[len(perplexity) // 2] if perplexity else None,
                    "no text": sum(record["tokens"] is None for record in records),
                    "all weights zero %": 100 * mean(not record.get("positive") for record in records),
                }
            )
        known = [(record["mean toxicity"], record["τ"]) for record in found if record["mean toxicity"] is not None]
        return min(known, default=(0.0, 1.0))[1], found

    def measure(self, rows: Sequence[Row], prompts: Sequence[Prompt], generations: int, what: str) -> None:
        """Make what is not there yet: generations, scores, perplexities."""
        todo = [(prompt, row) for prompt in prompts for row in rows if self._missing(row, prompt, generations)]
        # Those of the paper's sampler draw in their own way.
        beside = [(prompt, row) for prompt, row in todo if self.paired and row.seeds is None]
        self._generate_beside(beside, generations, what)
        for prompt, row in shown([each for each in todo if each not in beside], what):
            self._keep(row, prompt, self._asked(row, prompt, generations, self.task)(self.parts.model))
        for journal, asked, field in ((self.scores, self._score, "scores"), (self.judged, self._judge, "judgements")):
            left = [(prompt, row) for prompt in prompts for row in rows if self._key(row, prompt, generations) not in journal]
            for prompt, row in shown(left, f"{what}: {field}"):
                texts = [self.texts[row.name, prompt.name, i]["text"] for i in range(generations)]
                journal.append(self._key(row, prompt, generations), {field: asked(prompt, texts)})

    def of(self, row: Row, prompt: Prompt, generations: int) -> list[Record]:
        """What is known of each generation: its record, score, judgement, perplexity, and whether it is clean."""
        key = self._key(row, prompt, generations)
        found = []
        for i in range(generations):
            record = dict(self.texts[row.name, prompt.name, i])
            record["score"] = self.scores[key]["scores"][i]
            judged = self.judged[key]["judgements"][i]
            record["judged"] = judged
            record["perplexity"] = None if judged is None else math.exp(judged[0] / judged[1])
            found.append(record | self._banned(record))
        return found

    def _missing(self, row: Row, prompt: Prompt, generations: int) -> list[int]:
        return [i for i in range(generations) if (row.name, prompt.name, i) not in self.texts]

    def _key(self, row: Row, prompt: Prompt, generations: int) -> tuple[str, str, int]:
        return row.name, prompt.name, generations

    def _asked(self, row: Row, prompt: Prompt, generations: int, task: Task) -> Callable[[LanguageModel], Answers]:
        """The generations that are missing, as a function of the model; nothing is read from the journal when it is called."""
        missing = self._missing(row, prompt, generations)
        word = row.seeds or (PAIRED if self.paired else row.name)
        seeds = [seed_of(self.seed, word, prompt.name, i) for i in missing]

        def answers(model: LanguageModel) -> Answers:
            return dict(zip(missing, row.method(model, prompt.text, task, seeds), strict=True))

        return answers

    def _generate_beside(self, todo: Sequence[tuple[Prompt, Row]], generations: int, what: str) -> None:
        """All rows of a prompt read one memory of contexts and the same races, and those of several prompts share passes."""
        asked: dict[str, list[tuple[Prompt, Row]]] = {}
        for prompt, row in todo:
            asked.setdefault(prompt.name, []).append((prompt, row))
        calls = (self._calls(each, generations) for each in asked.values())
        found = together(self.parts.model, (partial(_all_of, each) for each in calls), max(2, BESIDE // generations))
        for each, answers in zip(shown(list(asked.values()), what), found, strict=True):
            for (prompt, row), answer in zip(each, answers, strict=True):
                self._keep(row, prompt, answer)

    def _calls(self, rows: Sequence[tuple[Prompt, Row]], generations: int) -> list[Callable[[LanguageModel], Answers]]:
        task = replace(self.task, races=Races())
        return [self._asked(row, prompt, generations, task) for prompt, row in rows]

    def _keep(self, row: Row, prompt: Prompt, answers: Answers) -> None:
        for i, answer in answers.items():
            text = None if answer.tokens is None else self.parts.model.tokenizer.decode(answer.tokens)
            record: Record = {"text": text, "tokens": answer.tokens, "lm_tokens": answer.lm_tokens}
            record |= {"seconds": round(answer.seconds, 5), **answer.notes}
            self.texts.append((row.name, prompt.name, i), record)

    def _score(self, prompt: Prompt, texts: Sequence[str | None]) -> list[float | None]:
        given = [text for text in texts if text is not None]
        scores = iter(self.parts.scorer.score(given))
        return [None if text is None else next(scores) for text in texts]

    def _judge(self, prompt: Prompt, texts: Sequence[str | None]) -> list[Judgement | None]:
        return judgements(self.parts.judge, prompt.text, texts)

    def _banned(self, record: Record) -> Record:
        """Plain search in the text, as it is and in lower case, and among the tokens."""
        text, tokens = record["text"], record["tokens"]
        if text is None:
            return {"in text": False, "in any case": False, "in tokens": False}
        small = text.lower()
        windows = (tuple(tokens[i : i + size]) for size in self._sizes for i in range(len(tokens) - size + 1))
        return {
            "in text": any(phrase in text for phrase in self.task.phrases),
            "in any case": any(phrase.lower() in small for phrase in self.task.phrases),
            "in tokens": any(window in self._sequences for window in windows),
        }


def measure_all(study: DetoxStudy, rows: Sequence[Row], split: Split) -> None:
    """Cheap rows on all prompts, dear ones on the sample."""
    cheap = [row for row in rows if row.everywhere]
    study.measure(cheap, split.costly, study.plan.generations, "cheap rows, sample")
    study.measure([row for row in rows if not row.everywhere], split.costly, study.plan.g[0], "dear rows, sample")
    study.measure(cheap, split.final, study.plan.generations, "cheap rows, all prompts")
    study.measure(cheap, split.costly, study.plan.g[0], "cheap rows repeated")  # nothing is drawn again


def _all_of(calls: Sequence[Callable[[LanguageModel], Answers]], model: LanguageModel) -> list[Answers]:
    """What each call makes of the model, which evaluates no context twice if it can remember them."""
    if isinstance(model, HuggingFaceModel) and model.causal.shares:
        remembering = Remembered(model, CONTEXT_BYTES)
        return [call(remembering) for call in calls]
    return [call(model) for call in calls]


def _tag(settings: Record) -> str:
    """A part of a file name, of these settings and no others."""
    return hashlib.blake2b(repr(sorted(settings.items())).encode(), digest_size=4).hexdigest()
