"""From a task, checked in its form, to texts: what a worker computes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from torch import Tensor

import locore
from locore.answering import drawn_from
from locore.automata.stops import sure_before
from locore.circuits import Circuit
from locore.compilers.stored import Compilations
from locore.constraints import before
from locore.evidence import Particles
from locore.kernel.certain import listening
from locore.kernel.chat import is_chat
from locore.kernel.limits import Limits
from locore.kernel.numerics import is_end, live_lengths
from locore.kernel.request import cut_before
from locore.kernel.tokenizer import Tokenizer
from locore.models import LanguageModel, prompt_ids
from locore.parsing import Answer, suited
from locore.potentials import Target, target_of
from locore.samplers import BY_NAME, Quick, Sampler
from locore.samplers.twist.ngram import settle
from locore.server.scoring import Scorer
from locore.server.task import NO_LOGPROBS, Json, Result, Task, Text
from locore.shaping import checked_with_prompt, shaped
from locore.stopping import ending_of, is_finished, stopped
from locore.streaming import Certain


class Computer:
    """A model, and what requests ask of it.

    Attributes:
        model: as it was loaded.
        limits: of compiling one constraint.
        fingerprint: the beginning of the model's, or of its tokenizer's.
        table: is there a table of the model that steers? What is prepared later steers nothing: answers stay as they are.
    """

    def __init__(self, model: LanguageModel, limits: Limits, table: bool = True) -> None:
        """Of a model; `table`: may a prepared table steer?"""
        self.model = model
        self.table = settle(model, table)
        self.limits = limits
        self.fingerprint = (model.fingerprint() or model.tokenizer.fingerprint())[:16]

    def facts(self) -> Json:
        """What the server tells of the model."""
        tokenizer = self.model.tokenizer
        chat = tokenizer.chat_fingerprint() is not None
        basics = {"fingerprint": self.fingerprint, "vocab_size": tokenizer.vocab_size, "samplers": sorted(BY_NAME)}
        return {**basics, "chat": chat, "table": self.table}


class Run:
    """One task on one model, which may be that of a meeting.

    Attributes:
        prompt: the ids of its prompt.
        aim: what the whole text must satisfy, a stop string included, with its bonuses.
    """

    def __init__(self, computer: Computer, task: Task, model: LanguageModel, aim: Target | None = None) -> None:
        self.task = task
        self.limits = computer.limits
        self._fingerprint = computer.fingerprint
        self.tokenizer = model.tokenizer
        self.prompt = _ids(model, task)
        self.aim = read(task, model.tokenizer, computer.limits) if aim is None else aim
        law = task.law.suggested({} if model.info is None else model.info.sampling)
        self._model = shaped(model, law, tuple(task.stop))
        self._compilations = Compilations()
        self._stops = [stop.encode() for stop in task.stop]

    @property
    def circuit(self) -> Circuit:
        """Of the constraint; the one with which texts are drawn."""
        task, size = self.task, self.task.max_tokens
        with self._compilations.shared():
            return locore.compile(self.aim.constraint, self._model, size, min_length=task.min_tokens, limits=self.limits)

    @property
    def target(self) -> LanguageModel:
        """The model after the prompt, as every sampler reads it."""
        model = self._model.prompted(self.prompt)
        return stopped(model, self.circuit) if ending_of(self.task.ending, self.circuit, model) == "complete" else model

    def particles(self, sampler: str | None = None) -> Particles:
        """Weighted texts: by the sampler of the task or its effort, or by this one without a budget."""
        task = self.task
        chosen: str | Sampler | None = task.sampler if sampler is None else sampler
        budget = task.budget if sampler is None else None
        if chosen is None and task.is_free and task.effort in (("low",) if task.return_fields else ("low", "normal")):
            chosen = Quick(draws=task.n) if task.wants_draws_alone and not self.aim.factors else "quick"
        elif task.return_fields and sampler is None:
            chosen, budget = suited(task.max_tokens, chosen, budget)
        return self._generated(sampler=chosen, budget=budget)

    def most_probable(self) -> Particles:
        """The most probable text found; it alone."""
        task = self.task
        chosen, budget = task.sampler, task.budget
        if task.return_fields:
            chosen, budget = suited(task.max_tokens, chosen, budget, 0)
        return self._generated(sampler=chosen, budget=budget, temperature=0)

    def _generated(self, **options: Any) -> Particles:
        """As the task says, and with these options."""
        task = self.task
        with self._compilations.shared():
            return locore.generate(
                self._model,
                self.prompt,
                self.aim,
                max_new_tokens=task.max_tokens,
                min_new_tokens=task.min_tokens,
                num_particles=task.particles,
                seed=task.seed,
                canonical=task.canonical,
                ending=task.ending,
                limits=self.limits,
                **options,
            )

    def result(self, tell: Callable[[str], None] = lambda piece: None) -> Result:
        """Texts drawn in proportion to the weights, and what they are worth.

        Args:
            tell: is given what has become certain of all the texts, where the client wants to hear it.

        Raises:
            LocoreError: as `locore.generate`.
        """
        task = self.task
        certain = Certain(self.tokenizer, sure_before(tuple(task.stop)), tell) if task.comes_in_pieces else None
        if certain is not None and task.echo:
            tell(self._echoed)
        with nullcontext() if certain is None else listening(certain):
            particles = self.most_probable() if task.law.most_probable else self.particles()
        drawn = drawn_from(particles, task.n)
        ended = is_end(drawn.tokens, self.tokenizer.eos_ids).any(-1)
        lengths = (live_lengths(drawn.tokens, self.tokenizer.eos_ids) - ended.long()).tolist()
        finished = is_finished(self.circuit, drawn.tokens, self.tokenizer.eos_ids)
        scorer = None if task.logprobs == NO_LOGPROBS else Scorer(self.target, self.circuit, task.logprobs)
        texts = [
            self._text(y[:length].tolist(), y, done, scorer, particles.log_evidence)
            for y, length, done in zip(drawn.tokens, lengths, finished.tolist(), strict=True)
        ]
        ids = self.prompt if task.return_ids else None
        return Result(texts, len(self.prompt), self.diagnostics(particles), self._fingerprint, ids)

    def diagnostics(self, particles: Particles) -> Json:
        """The `locore` object of an answer."""
        return {**diagnostics(particles, self.task), "compile_seconds": self._compilations.seconds}

    @property
    def _echoed(self) -> str:
        """The prompt as text."""
        return self.task.prompt if isinstance(self.task.prompt, str) else self.tokenizer.decode(self.prompt)

    def _text(self, ids: list[int], tokens: Tensor, finished: bool, scorer: Scorer | None, log_evidence: float) -> Text:
        task = self.task
        content = self.tokenizer.text_bytes(ids)
        shown, stops = content, bool(task.stop) and (cut := cut_before(content, self._stops)) != content
        if stops:
            shown = cut
        if stops and task.include_stop:
            stop = max((s for s in task.stop if content[len(cut) :].startswith(s.encode())), key=len)
            shown = cut + stop.encode()
        log_z = log_evidence - self.aim.bonus_of(tokens.tolist(), self.tokenizer)
        scored, scores = (None, None) if scorer is None else scorer.scored(tokens, len(ids), len(shown), log_z)
        text = shown.decode("utf-8", errors="replace")
        if task.echo:
            text = self._echoed + text
        finish = "stop" if finished or stops else "length"
        return Text(text, len(ids), finish, ids if task.return_ids else None, scored, scores)  # type: ignore[arg-type]


def _ids(model: LanguageModel, task: Task) -> list[int]:
    if task.template_options and is_chat(task.prompt):
        return model.tokenizer.encode_chat(task.prompt, task.template_options)
    return list(prompt_ids(model.tokenizer, task.prompt))


def read(task: Task, tokenizer: Tokenizer, limits: Limits) -> Target:
    """What the whole text must satisfy, a stop string and what follows it included.

    Args:
        task: which may want its stop string constrained; that takes a model that ends there.
        tokenizer: of the model.
        limits: reading a constraint may take as long as compiling it.
    """
    with limits.enforced():
        return _aim(task, tokenizer)


def _aim(task: Task, tokenizer: Tokenizer) -> Target:
    wanted = target_of(locore.from_json(task.constraint))
    assert wanted is not None  # a constraint or a product
    wanted = checked_with_prompt(wanted, tokenizer, task.prompt)
    if task.stop and not (task.constrains_stop and tokenizer.eos_ids):
        wanted = wanted.read_with(lambda constraint: before(task.stop, constraint))
    if task.bad_words:
        banned = locore.ban(task.bad_words)
        wanted = wanted * (before(task.stop, banned) if task.stop else banned)
    return wanted * locore.finished() if task.finished else wanted


def diagnostics(particles: Particles, task: Task) -> Json:
    """What is known of particles."""
    plain = particles.to_json()
    names = ("log_evidence", "log_evidence_error", "log_evidence_interval", "log_evidence_bounds", "ess", "pareto_k")
    summary: dict[str, Any] = {name: plain[name] for name in names}
    info = plain["info"]
    summary |= {
        "verdict": plain["verdict"],
        "report": plain["report"],
        "guarantee": info["guarantee"],
        "sampler": info.get("chosen", info["sampler"]),
        "effort": task.effort if task.is_free else None,
        "num_particles": len(particles),
        "distinct_texts": plain["distinct_texts"],
        "zero_weights": plain["zero_weights"],
        "seed": particles.run.seed,
        "lm_tokens": info["lm_tokens"],
        "seconds": info["seconds"],
    }
    if task.return_particles:
        summary["particles"] = [
            {"text": text, "log_weight": weight} for text, weight in zip(plain["texts"], plain["log_weights"], strict=True)
        ]
    if task.return_fields:
        summary["record"] = Answer(particles, abstain_below=task.abstain_below).to_json()
    return summary
