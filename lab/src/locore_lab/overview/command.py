"""The paper's Figure 1 from a run, and its claim about the local distribution p̃_ỹ of a draft, measured."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor

import locore
from locore import ban
from locore.circuits import Circuit
from locore.io import Journal, Record, only_writer
from locore.kernel.errors import MissingExtra
from locore.kernel.numerics import is_end, make_generator
from locore.local import Exact, Kernel
from locore.models import LanguageModel
from locore.samplers.lcr import conditional, log_weights, padded_circuit
from locore_lab.fidelity.plots import DARK, new_figure, save, settings
from locore_lab.harness import Output, Quick, Seed, experiment, write_report


@dataclass(frozen=True)
class Fidelity:
    """Of one draft, in nats."""

    entropy: float  # of p̃_ỹ, in closed form
    surprise: float  # −log p(ỹ); its mean over drafts is the model's entropy
    divergence: float  # KL(p̃_ỹ ‖ p), from draws of p̃_ỹ
    error: float  # its standard error
    allowed: float  # p̃_ỹ(α)


@dataclass(frozen=True)
class Texts:
    """Some texts, in the order of a picture."""

    tokens: Tensor  # Long[text, time]
    distance: Tensor  # Long[text], tokens by which each differs from the draft
    log_model: Tensor  # f64[text]: log p
    log_local: Tensor  # f64[text]: log p̃_ỹ
    allowed: Tensor  # Bool[text], those that satisfy α
    draft: int  # number of ỹ


def fidelity(model: LanguageModel, local: Tensor, draft: Tensor, circuit: Circuit, draws: int, seed: int) -> Fidelity:
    """What the paper's Section 3.1 says of p̃_ỹ, measured."""
    tokens = drawn(local, draws, seed)
    gaps = of_tokens(local, tokens) - model.score(tokens).double()
    entropy = -(local.exp() * local.nan_to_num(neginf=0.0)).sum()
    return Fidelity(
        entropy=float(entropy),
        surprise=-float(model.score(draft[None])),
        divergence=float(gaps.mean()),
        error=float(gaps.std()) / draws**0.5,
        allowed=float(circuit.log_mass(local[None]).exp()),
    )


def drawn(local: Tensor, number: int, seed: int) -> Tensor:
    """Long[number, time] from a factorised law."""
    generator = make_generator(seed)
    return torch.stack([torch.multinomial(row.exp(), number, True, generator=generator) for row in local], 1)


def of_tokens(local: Tensor, tokens: Tensor) -> Tensor:
    """f64[batch]: log p̃_ỹ of sequences."""
    return local[torch.arange(len(local)), tokens].sum(-1)


def shown(
    model: LanguageModel, kernel: Kernel, draft: Tensor, circuit: Circuit, draws: int, least: float, seed: int
) -> tuple[Texts, Tensor]:
    """The texts that the model or p̃_ỹ gives at least so often, by their distance from ỹ, likely ones first.

    They are found by drawing from both.
    """
    local = kernel.distributions(model, draft[None])[0]
    found = torch.cat([draft[None], model.sample(draws, len(draft), seed=seed).tokens, drawn(local, draws, seed)])
    tokens = torch.unique(found, dim=0)
    log_model, log_local = model.score(tokens).double(), of_tokens(local, tokens)
    distance = (tokens != draft).sum(-1)
    kept = (torch.maximum(log_model, log_local).exp() >= least) | (distance == 0)
    order = sorted(kept.nonzero()[:, 0].tolist(), key=lambda i: (int(distance[i]), -float(log_model[i])))
    at = torch.tensor(order)
    allowed = circuit.accepts(tokens[at])
    return Texts(tokens[at], distance[at], log_model[at], log_local[at], allowed, int(distance[at].argmin())), local


ALLOWED, DRAFT, ANSWER = "#bcd9ee", "#d55e00", "#009e73"
LOWEST = 1e-5


def draw(path: Path, texts: Texts, conditioned: Tensor, answer: int, spelt: dict[int, str], log_weight: float) -> Path:
    """Write the three panels."""
    with settings():
        figure = new_figure(2.9)
        figure.set_dpi(200)
        panels = figure.subplots(1, 3, sharey=True)
        for panel, title in zip(
            panels, ("the model, and a draft ỹ", "the local law around ỹ", "given α, reweighted"), strict=True
        ):
            panel.set_yscale("log")
            panel.set_ylim(LOWEST, 1.5)
            panel.set_title(title)
            _distances(panel, texts)
            _bars(panel, texts.log_model, texts.allowed, ALLOWED, "p, satisfies α")
            _bars(panel, texts.log_model, ~texts.allowed, "#e4e4e4", "p, does not")
        panels[0].set_ylabel("probability")
        _bar(panels[0], texts, texts.log_model, texts.draft, DRAFT, f"ỹ = {spelt[texts.draft]!r}")
        _line(panels[1], texts.log_local, "p̃_ỹ")
        _bar(panels[1], texts, texts.log_model, texts.draft, DRAFT, None)
        _line(panels[2], conditioned, "p̃_ỹ( · | α)")
        _bar(panels[2], texts, conditioned, answer, ANSWER, f"y = {spelt[answer]!r}\nlog w = {log_weight:.2f}")
        for panel in panels:
            panel.legend(loc="upper right", fontsize=6.5, frameon=False)
        figure.tight_layout()
        return save(figure, path)


def _distances(panel: Any, texts: Texts) -> None:
    """Marks where texts begin that differ from ỹ by one token more."""
    sizes = torch.bincount(texts.distance)
    ends = sizes.cumsum(0)
    panel.set_xticks([float(end - size / 2) - 0.5 for end, size in zip(ends, sizes, strict=True) if size])
    panel.set_xticklabels([str(number) for number, size in enumerate(sizes) if size])
    panel.set_xlabel("tokens unlike ỹ")
    panel.grid(visible=False)
    for number, (end, size) in enumerate(zip(ends.tolist(), sizes.tolist(), strict=True)):
        if number % 2:
            panel.axvspan(end - size - 0.5, end - 0.5, color="#f4f4f4", linewidth=0, zorder=0)


def _bars(panel: Any, logs: Tensor, which: Tensor, colour: str, label: str) -> None:
    values = torch.where(which, logs.exp(), 0.0).clamp_min(LOWEST)
    panel.fill_between(range(len(values)), LOWEST, values.tolist(), step="mid", color=colour, linewidth=0, label=label)


def _bar(panel: Any, texts: Texts, logs: Tensor, number: int, colour: str, label: str | None) -> None:
    width = max(1.0, len(texts.tokens) / 60)
    panel.bar([number], [max(LOWEST, float(logs[number].exp()))], width=width, color=colour, label=label, zorder=3)


def _line(panel: Any, logs: Tensor, label: str) -> None:
    values = logs.exp().clamp_min(LOWEST / 10).tolist()
    panel.fill_between(
        range(len(values)), LOWEST, values, step="mid", color=DARK, alpha=0.45, linewidth=0, label=label, zorder=2
    )


PROMPT, WORDS = "The weather is", (" bad", " cold", " good")
COLUMNS = ["tokens", "drafts", "entropy of the model", "entropy of p̃", "KL(p̃ ‖ p)", "p(α)", "p̃(α)"]
TEXT = (
    "The bundled model behind {prompt!r}, α a ban of {words}; the paper's kernel over the whole vocabulary, without a floor. "
    "Means over drafts that do not end early, ± one standard error, nats. Section 3.1 says that the local distribution has "
    "low entropy and a low divergence from the model."
)


@dataclass(frozen=True)
class Effort:
    """How much is done."""

    lengths: tuple[tuple[int, int], ...] = ((2, 64), (4, 64), (8, 24), (16, 6))  # tokens of the texts, and how many drafts
    draws: int = 2000  # from each local distribution
    pictured: int = 2  # tokens of the texts of the picture
    least: float = 5e-4  # probability of what it shows


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
