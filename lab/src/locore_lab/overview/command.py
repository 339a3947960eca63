"""The paper's Figure 1 from a run, and its claim about the local distribution, measured."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev

import torch

import locore
from locore import ban
from locore.circuits import Circuit
from locore.io import Journal, Record, only_writer
from locore.kernel.ending import is_end
from locore.kernel.errors import MissingExtra
from locore.local import Exact
from locore.models import LanguageModel
from locore.samplers.lcr import conditional, log_weights, padded_circuit
from locore_lab.harness import Output, Quick, Seed, experiment, write_report
from locore_lab.overview.figure import draw
from locore_lab.overview.local_law import Texts, fidelity, shown

PROMPT, WORDS = "The weather is", (" bad", " cold", " good")
COLUMNS = ["tokens", "drafts", "entropy of the model", "entropy of p̃", "KL(p̃ ‖ p)", "p(α)", "p̃(α)"]
TEXT = (
    "The bundled model behind {prompt!r}, α a ban of {words}; the paper's kernel over the whole vocabulary, without a floor. "
    "Means over drafts that do not end early, ± one standard error, nats. Section 3.1 says that the local distribution has "
    "low entropy and a low divergence from the model."
)


@dataclass(frozen=True)
class Effort:
    """How much is done.

    Attributes:
        lengths: tokens of the texts, and how many drafts.
        draws: from each local distribution.
        pictured: tokens of the texts of the picture; least: probability of what it shows.
    """

    lengths: tuple[tuple[int, int], ...] = ((2, 64), (4, 64), (8, 24), (16, 6))
    draws: int = 2000
    pictured: int = 2
    least: float = 5e-4


QUICK = Effort(lengths=((2, 8), (4, 4)), draws=200, least=2e-3)


@experiment("locore reproduce overview -o results")
def run(output: Output, quick: Quick = False, seed: Seed = 0) -> list[Record]:
    """The paper's Figure 1 from a run of the bundled model; entropy and divergence of the local distribution."""
    effort = QUICK if quick else Effort()
    model = locore.load("tiny").prompted(PROMPT)
    with only_writer(output):
        try:
            _picture(output / "overview.png", model, effort, seed)
        except MissingExtra as error:
            print(f"No picture: {error}", file=sys.stderr)
        journal = Journal(output / "rows.jsonl", {"what": "overview", "seed": seed, "effort": asdict(effort)})
        for length, drafts in effort.lengths:
            if (length,) not in journal:
                journal.append((length,), _row(model, length, drafts, effort.draws, seed))
        rows = [row for _, row in journal.items()]
        text = TEXT.format(prompt=PROMPT, words=", ".join(repr(word) for word in WORDS))
        write_report(output, "The local distribution", text, rows, COLUMNS, effort=asdict(effort), seed=seed)
    return rows


def _row(model: LanguageModel, length: int, number: int, draws: int, seed: int) -> Record:
    """Of drafts of one length."""
    kernel, circuit = Exact(floor=0.0), locore.compile(ban(WORDS), model, length)
    drafts = model.sample(4 * number, length, seed=seed).tokens
    # Around a text that ends early p̃ gives texts with words behind an end, which no model gives: the divergence is infinite.
    drafts = drafts[~is_end(drafts[:, :-1], model.tokenizer.eos_ids).any(1)][:number]
    found = [
        fidelity(model, kernel.distributions(model, draft[None])[0], draft, circuit, draws, seed + place)
        for place, draft in enumerate(drafts)
    ]
    return {
        "tokens": length,
        "drafts": len(drafts),
        "entropy of the model": _mean([one.surprise for one in found]),
        "entropy of p̃": _mean([one.entropy for one in found]),
        "KL(p̃ ‖ p)": _mean([one.divergence for one in found]),
        "p(α)": f"{float(circuit.accepts(model.sample(4000, length, seed=seed).tokens).double().mean()):.3f}",
        "p̃(α)": _mean([one.allowed for one in found]),
    }


def _mean(values: list[float]) -> str:
    return f"{fmean(values):.3g} ± {stdev(values) / len(values) ** 0.5:.1g}"


def _picture(path: Path, model: LanguageModel, effort: Effort, seed: int) -> None:
    """Of the likeliest of some drafts that violate α, and of one text that is drawn given α."""
    circuit = locore.compile(ban(WORDS), model, effort.pictured)
    drafts = model.sample(512, effort.pictured, seed=seed).tokens
    wrong = drafts[~circuit.accepts(drafts)]
    draft = wrong[model.score(wrong).argmax()]
    texts, local = shown(model, Exact(floor=0.0), draft, circuit, 20 * effort.draws, effort.least, seed)
    conditioned = conditional(circuit, local[None].expand(len(texts.tokens), -1, -1), texts.tokens)
    conditioned = torch.where(texts.allowed, conditioned, -torch.inf)
    answer = int(torch.multinomial(conditioned.exp(), 1, generator=torch.Generator().manual_seed(seed)))
    spelt = {number: model.tokenizer.decode(texts.tokens[number].tolist()) for number in (texts.draft, answer)}
    draw(path, texts, conditioned, answer, spelt, _weight(model, texts, answer, float(conditioned[answer])))


def _weight(model: LanguageModel, texts: Texts, answer: int, log_proposal: float) -> float:
    """log w of the pair, the paper's (8); both laws are conditioned on padding after the end."""
    y, draft = texts.tokens[answer][None], texts.tokens[texts.draft][None]
    padded: Circuit = padded_circuit(model, y.shape[1])
    reverse = conditional(padded, Exact(floor=0.0).distributions(model, y), draft)
    found = log_weights(
        texts.log_model[answer][None], texts.log_model[texts.draft][None], torch.tensor([log_proposal]).double(), reverse
    )
    return float(found)
