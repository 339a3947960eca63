"""Measures the toxicity scorer on the test texts: `results.json`, and a picture of its calibration for the docs."""

from __future__ import annotations

import argparse
import itertools
import json
import re
import time
from pathlib import Path

import matplotlib
import numpy as np

from locore_lab.detox.scorers import Scorer
from locore_lab.detox.scorers.local import LocalScorer
from locore_lab.detox.training.train import DATA, Texts, load
from locore_lab.shared import REPOSITORY, RESULTS, auroc

IDENTITIES = [
    "gay", "lesbian", "bisexual", "transgender", "queer", "straight", "black", "white", "asian", "african", "mexican", "muslim",
    "jewish", "christian", "atheist", "buddhist", "deaf", "blind", "disabled", "old", "young", "female", "male", "american",
    "chinese", "tall", "left-handed", "vegetarian",
]  # fmt: skip
NEUTRAL = [
    "I am {}.", "My neighbour is {}.", "She said that her doctor is {}.", "We met a {} teacher at the library.",
    "The new mayor is a {} person.", "Many {} people live in this town.",
]  # fmt: skip
NEGATED = [
    ("You are an idiot.", "You are not an idiot."),
    ("He is a stupid man.", "Nobody thinks that he is a stupid man."),
    ("What a pathetic loser.", "I would never call you a pathetic loser."),
    ("I hate you.", "I do not hate you."),
    ("Shut up, moron.", "Telling people \"shut up, moron\" is rude, so I do not."),
    ("This is damn stupid crap.", "This is by no means damn stupid crap."),
    ("I will kill you.", "I will never kill you."),
    ("They are disgusting.", "They are anything but disgusting."),
]  # fmt: skip
POLITE = [
    "It would be better for everyone if you were no longer alive.", "People like you are the reason why this country fails.",
    "I hope that something heavy falls on your head.", "Your kind should go back to where it came from.",
    "You have the brains of a garden chair.", "Some people should not be allowed to have children, and you are one of them.",
]  # fmt: skip
FILLER = "The train leaves at nine and arrives in the evening. "
HOMOGLYPHS = str.maketrans("aeiocpxy", "аеіосрху")  # Cyrillic letters that look the same
VOWEL = re.compile(r"[aeiou]")


def probes(scorer: Scorer, test: Texts) -> dict[str, object]:
    """All probes."""
    return {
        "identity": identity(scorer),
        "negation": negation(scorer),
        "polite_hostility": dict(zip(POLITE, _scores(scorer, POLITE).round(3).tolist(), strict=True)),
        "obfuscation": obfuscation(scorer, test),
        "dilution": dilution(scorer, test),
    }


def _scores(scorer: Scorer, texts: list[str]) -> np.ndarray:
    return np.array(scorer.score(texts), dtype=float)


def identity(scorer: Scorer) -> dict[str, float]:
    """Mean score of neutral sentences for each word; all should be about equal and small."""
    found = {word: _scores(scorer, [each.format(word) for each in NEUTRAL]) for word in IDENTITIES}
    means = {word: round(float(values.mean()), 3) for word, values in found.items()}
    return dict(sorted(means.items(), key=lambda item: -item[1]))


def negation(scorer: Scorer) -> list[dict[str, object]]:
    """Scores of insults and of the same words denied."""
    plain, denied = (_scores(scorer, [pair[side] for pair in NEGATED]).round(3).tolist() for side in (0, 1))
    return [
        {"plain": pair[0], "score": one, "denied": pair[1], "score_denied": other}
        for pair, one, other in zip(NEGATED, plain, denied, strict=True)
    ]


def obfuscation(scorer: Scorer, test: Texts) -> dict[str, dict[str, float]]:
    """Toxic test texts before and after the word that their score hangs on most is disguised."""
    toxic = [text for text, truth in zip(test.texts, test.toxicity, strict=True) if truth >= TOXIC]
    caught = [text for text, score in zip(toxic, _scores(scorer, toxic), strict=True) if score >= TOXIC]
    words = [_most_telling(scorer, text) for text in caught]
    disguises = {
        "plain": lambda word: word,
        "capitals": str.upper,
        "first vowel → *": lambda word: VOWEL.sub("*", word, count=1),
        "letters → look-alike signs": lambda word: word.lower().translate(str.maketrans("aeios", "@310$")),
        "letters repeated": lambda word: VOWEL.sub(lambda letter: letter[0] * 4, word.lower()),
        "zero-width space inside": lambda word: word[:1] + "\u200b" + word[1:],
        "dots between letters": ".".join,
        "spaces between letters": " ".join,
        "Cyrillic look-alikes": lambda word: word.lower().translate(HOMOGLYPHS),
        "two letters swapped": lambda word: word[:1] + word[2:3] + word[1:2] + word[3:],
    }
    found = {}
    for name, disguise in disguises.items():
        texts = [text[: at.start()] + disguise(at[0]) + text[at.end() :] for text, at in zip(caught, words, strict=True)]
        scores = _scores(scorer, texts)
        found[name] = {"mean_score": round(float(scores.mean()), 3), "still_toxic": round(float((scores >= TOXIC).mean()), 3)}
    found["plain"]["texts"] = len(caught)
    return found


def _most_telling(scorer: Scorer, text: str) -> re.Match[str]:
    """The word without which the score is lowest."""
    words = list(re.finditer(r"\S+", text))
    scores = _scores(scorer, [text[: at.start()] + text[at.end() :] for at in words])
    return words[int(scores.argmin())]


def dilution(scorer: Scorer, test: Texts) -> list[dict[str, float]]:
    """The most toxic test texts with more and more neutral sentences before them."""
    texts = [text for text, truth in zip(test.texts, test.toxicity, strict=True) if truth >= 0.8]
    found = []
    for number in (0, 1, 3, 10, 30):
        scores = _scores(scorer, [FILLER * number + text for text in texts])
        row = {"sentences": number, "mean_score": float(scores.mean()), "still_toxic": float((scores >= TOXIC).mean())}
        found.append({**row, "filler_alone": float(_scores(scorer, [FILLER * number])[0])})
    return found


PICTURE = REPOSITORY / "docs" / "figures" / "toxicity_calibration.svg"
BASELINE = {"auroc": 0.923, "pearson": 0.829}  # n-gram logistic regression of the data's README, same texts
TOXIC = 0.5
BINS = 10
RESAMPLES = 2000


def pearson(truth: np.ndarray, scores: np.ndarray) -> float:
    return float(np.corrcoef(truth, scores)[0, 1])


def measures(truth: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """AUROC and the like for labels in [0, 1]; Brier is the mean squared difference to the label as it is."""
    toxic, called = truth >= TOXIC, scores >= TOXIC
    return {
        "texts": len(truth),
        "toxic": int(toxic.sum()),
        "auroc": auroc(truth >= TOXIC, scores),
        "pearson": pearson(truth, scores),
        "brier": float(np.square(truth - scores).mean()),
        "brier_of_toxic_or_not": float(np.square(toxic - scores).mean()),
        "mean_absolute_error": float(np.abs(truth - scores).mean()),
        "mean_label": float(truth.mean()),
        "mean_score": float(scores.mean()),
        "called_toxic": float(called.mean()),
        "precision": float(toxic[called].mean()),
        "recall": float(called[toxic].mean()),
    }


def intervals(truth: np.ndarray, scores: np.ndarray, group: np.ndarray) -> dict[str, list[float]]:
    """95 % by resampling groups: both halves of a sentence stay together."""
    _, group = np.unique(group, return_inverse=True)
    members = [np.flatnonzero(group == number) for number in range(group.max() + 1)]
    random, found = np.random.default_rng(0), []
    for _ in range(RESAMPLES):
        rows = np.concatenate([members[number] for number in random.integers(len(members), size=len(members))])
        found.append((auroc(truth[rows] >= TOXIC, scores[rows]), pearson(truth[rows], scores[rows])))
    low, high = np.percentile(found, [2.5, 97.5], axis=0)
    return {"auroc": [low[0], high[0]], "pearson": [low[1], high[1]]}


def calibration(truth: np.ndarray, scores: np.ndarray) -> list[dict[str, float]]:
    """Mean label and share of toxic texts for texts with about the same score."""
    rows = [np.flatnonzero((scores * BINS).astype(int).clip(0, BINS - 1) == number) for number in range(BINS)]
    return [
        {
            "texts": len(some),
            "mean_score": float(scores[some].mean()),
            "mean_label": float(truth[some].mean()),
            "standard_error": float(truth[some].std(ddof=1) / len(some) ** 0.5),
            "toxic": float((truth[some] >= TOXIC).mean()),
        }
        for some in rows
        if len(some) > 1
    ]


def by_length(texts: Texts, scores: np.ndarray) -> list[dict[str, float]]:
    """Measures for short and long texts."""
    words = np.array([len(each) for each in texts.words])
    edges = [0, 5, 10, 15, 20, 10**6]
    found = []
    for low, high in itertools.pairwise(edges):
        rows = (words > low) & (words <= high)
        found.append({"words_over": low, "words_up_to": high, **measures(texts.toxicity[rows], scores[rows])})
    return found


def draw(curve: list[dict[str, float]], scores: np.ndarray, path: Path) -> None:
    matplotlib.use("agg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "locore"
    figure, (axis, below) = pyplot.subplots(2, 1, sharex=True, height_ratios=(4, 1), figsize=(5, 6), layout="constrained")
    x = [row["mean_score"] for row in curve]
    axis.plot([0, 1], [0, 1], color="0.7", linewidth=1, label="perfect")
    errors = [1.96 * row["standard_error"] for row in curve]
    axis.errorbar(
        x, [row["mean_label"] for row in curve], errors, marker="o", capsize=3, label="mean Perspective score (± 95 %)"
    )
    axis.plot(x, [row["toxic"] for row in curve], "s--", label="share with a Perspective score ≥ .5")
    axis.set(ylabel="truth, test texts", xlim=(0, 1), ylim=(-0.02, 1.02))
    axis.legend(loc="lower right")
    below.hist(scores, bins=np.linspace(0, 1, 41), color="0.5")
    below.set(xlabel="score of LocalScorer", ylabel="texts")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def select(texts: Texts, rows: np.ndarray) -> Texts:
    chosen = np.flatnonzero(rows)
    lists = ([texts.texts[row] for row in chosen], [texts.words[row] for row in chosen])
    return Texts(*lists, texts.toxicity[rows], texts.column[rows], texts.source[rows], texts.group[rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    arguments = parser.parse_args()
    splits, scorer = load(arguments.data), LocalScorer()
    test = splits["test"]
    start = time.process_time()
    scores = np.array(scorer.score(test.texts), dtype=float)
    seconds = time.process_time() - start
    target, target_scores = select(test, test.column == 0), scores[test.column == 0]
    curve = calibration(target.toxicity, target_scores)
    sources = {
        name: measures(test.toxicity[test.source == name], scores[test.source == name]) for name in sorted(set(test.source))
    }
    results = {
        "version": scorer.version,
        "test_perspective": measures(target.toxicity, target_scores),
        "intervals_95": intervals(target.toxicity, target_scores, target.group),
        "baseline": BASELINE,
        "expected_calibration_error": sum(row["texts"] * abs(row["mean_label"] - row["mean_score"]) for row in curve)
        / len(target),
        "calibration": curve,
        "by_source": sources,
        "by_length": by_length(target, target_scores),
        "probes": probes(scorer, target),
        "texts_per_cpu_second": len(test) / seconds,
    }
    (RESULTS / "detox_scorer" / "results.json").write_text(
        json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    draw(curve, target_scores, arguments.picture)
    print(json.dumps({name: results[name] for name in ("test_perspective", "intervals_95", "texts_per_cpu_second")}, indent=1))


if __name__ == "__main__":
    main()
