"""One copy of the model, one row after the other: the same for every engine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from itertools import islice, starmap
from pathlib import Path

import torch
import transformers

import locore
from locore.auditing.prompt_audit import TEACHERS, Question
from locore.batch.batch_settings import Settings
from locore.batch.plan import DIED, Part, Span, lines_of, results_path, tally_of
from locore.batch.rows import Record, check_fields, digest_of, error_of, labels_of, prompt_of, read_object, result_of, seed_of
from locore.constraints import Constraint
from locore.kernel.errors import DeviceLost, Interrupted, InvalidArgument, LocoreError
from locore.models import LanguageModel
from locore.models.bundled import ELSEWHERE
from locore.models.by_name import load_options
from locore.models.meeting import together
from locore.parsing import suited
from locore.potentials import Target
from locore.samplers.twist.lessons import Shared
from locore.samplers.twist.ngram import prepared_table

MAX_DEATHS = 3  # of workers at one row, until the row is given up
KEPT_CONSTRAINTS = 64  # that were read from JSON

Watch = Callable[[Record], None]


class Worker:
    """Holds the model and works on shards."""

    def __init__(self, settings: Settings) -> None:
        """Load the model.

        Raises:
            ModelNotFound: there is none of this name.
        """
        self.settings = settings
        asked = settings.threads != Settings.threads or not settings.model.startswith(ELSEWHERE)
        threads = settings.threads if asked else None
        self.model = locore.load(settings.model, **load_options(settings.device, threads, settings.steer_dtype))
        self._table = prepared_table(self.model)
        self._constraint = lru_cache(KEPT_CONSTRAINTS)(_from_json)

    def facts(self) -> Record:
        """What results depend on beside the settings and the input; equal on every machine that takes part."""
        return {
            "model_fingerprint": self.model.fingerprint(),
            "chat_template": self.model.tokenizer.chat_fingerprint(),
            "ngram_table": None if self._table is None else self._table.fingerprint(),
            "locore": locore.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }

    def check(self, facts: Record) -> None:
        """Does this worker give the results that another one would?

        Raises:
            InvalidArgument: it has other weights, another chat template, another table or other versions than at the start.
        """
        mine = self.facts()
        differ = [f"{name} is {mine[name]!r} here and {facts[name]!r} there" for name in facts if mine[name] != facts[name]]
        if differ:
            raise InvalidArgument(
                f"a worker differs from the one that the run began with: {'; '.join(differ)}. Give all machines the "
                "same model, versions and $LOCORE_CACHE (where `locore prepare` keeps its table)."
            )

    def shard(self, path: Path, output: Path, span: Span, run: str, watch: Watch | None = None) -> Record:
        """Work on one shard until its file of results is there.

        Args:
            path: of the input.
            output: folder of the batch.
            span: of the shard.
            run: a name for the life of one driver.
            watch: is called with each row that is computed now.

        Returns:
            The tally of the shard, `shard`, `bytes`, and `adopted`: rows that earlier attempts had computed.
        """
        final = results_path(output, span.number)
        if final.exists() and (tally := tally_of(final, span)) is not None:  # an answer was lost, not the work
            return {"shard": span.number, "adopted": span.rows, **tally, "bytes": final.stat().st_size}
        with Part(output, span, run) as part:
            for row in self._rows(lines_of(path, span, skip=part.adopted), part, self._taught(path, span, part)):
                part.append(row)
                if watch is not None:
                    watch(row)
            return {"shard": span.number, "adopted": part.adopted, **part.finish()}

    def _taught(self, path: Path, span: Span, part: Part) -> Shared | None:
        """What the first rows of an audit's shard teach, where they are there already; they are asked once more."""
        if self.settings.audit is None:
            return None
        shared = Shared()
        for number, line in islice(lines_of(path, span, skip=0), min(TEACHERS, part.adopted)):
            if number not in part.died:
                self.row(number, line, shared=shared)
        return shared

    def _rows(self, lines: Iterator[tuple[int, bytes]], part: Part, shared: Shared | None) -> Iterator[Record]:
        """What is written for these lines. Where workers have died, one after the other, so that it shows at which row."""
        if part.deaths >= MAX_DEATHS:
            for number, line in islice(lines, 1):
                yield self._died(number, line, part.deaths)
        row = self.row if shared is None else partial(self.row, shared=shared)
        if shared is not None:
            yield from starmap(row, islice(lines, max(0, TEACHERS - part.tally.rows)))
            shared.is_closed = True
        if part.deaths or self.settings.together == 1:
            yield from starmap(row, lines)
        else:
            yield from together(self.model, (partial(row, number, line) for number, line in lines), self.settings.together)

    def row(self, number: int, line: bytes, model: LanguageModel | None = None, shared: Shared | None = None) -> Record:
        """What is written for one line of the input, by the model as others share it, if they do; `shared` in an audit.

        Raises:
            DeviceLost: the accelerator failed; every row after this one would fail too.
            Interrupted: a row beside this one has ended them all.
            InvalidArgument: somebody made an n-gram table of the model since this worker started.
        """
        start = time.perf_counter()
        labels: Record = {"id": None}
        try:
            fields = read_object(line)
            labels = labels_of(fields)
            check_fields(fields)
            result = self._result(fields, model or self.model, shared)
        except Interrupted:
            raise
        except torch.AcceleratorError as error:
            raise DeviceLost(f"the device failed in line {number} of the input: {error}. Start again with --resume.") from error
        except Exception as error:  # one row must not end the others
            result = error_of(error)
        if prepared_table(self.model) is not self._table:
            raise InvalidArgument("the n-gram table of the model was made while the run went on; begin in another folder.")
        return {"line": number, **labels, "digest": digest_of(line), **result, "seconds": time.perf_counter() - start}

    def _result(self, fields: Record, model: LanguageModel, shared: Shared | None) -> Record:
        options = {**self.settings.defaults(), **fields}
        for name in ("id", "meta", "prompt", "messages"):
            options.pop(name, None)
        if options["constraint"] is None:
            raise InvalidArgument('the row has no constraint; add one, or --constraint for all rows; {"type": "true"} is none.')
        constraint = self._constraint(json.dumps(options.pop("constraint")))
        seed = options.pop("seed", None)
        seed = seed_of(self.settings.seed, fields) if seed is None else seed
        resample = options.pop("resample")
        if resample is not None and (isinstance(resample, bool) or not isinstance(resample, int)):
            raise InvalidArgument(f"resample must be a whole number, got {resample!r}.")
        if self.settings.audit is not None:
            return self._audited(model, fields, constraint, {**options, "seed": seed, "shared": shared})
        if self.settings.parse:
            drawn = (options[name] for name in ("max_new_tokens", "sampler", "budget", "temperature"))
            options["sampler"], options["budget"] = suited(*drawn)
        particles = locore.generate(model, prompt_of(fields), constraint, seed=seed, limits=self.settings.limits, **options)
        if resample is not None:
            # Another stream of random numbers than that of the sampler, and as repeatable.
            particles = particles.resample(resample, seed=seed + 1)
        return result_of(particles, self.settings)

    def _audited(self, model: LanguageModel, fields: Record, event: Constraint | Target, options: Record) -> Record:
        """As `locore.audit`; the number of the prompt is that of its line."""
        if own := [name for name in ("constraint", "resample") if name in fields]:
            raise InvalidArgument(f"a row of an audit has no {own[0]}: all prompts are asked about the same phrases.")
        asked = {"max_tokens": options.pop("max_new_tokens"), "budget": options.pop("budget")}
        assert isinstance(event, Constraint)  # it was made of phrases
        question = Question(event, **{**asked, **(self.settings.audit or {})})
        row = question.ask(model, prompt_of(fields), limits=self.settings.limits, **options).to_json()
        del row["index"]
        return row

    def _died(self, number: int, line: bytes, deaths: int) -> Record:
        labels: Record = {"id": None}
        with suppress(LocoreError):
            labels = labels_of(read_object(line))
        error = {"type": DIED, "message": f"{deaths} workers died while they were at this row: too little memory?"}
        return {"line": number, **labels, "digest": digest_of(line), "error": error, "seconds": 0.0}


def _from_json(text: str) -> Constraint | Target:
    return locore.from_json(json.loads(text))
