"""Scorers of toxicity over models of others: Hugging Face classifiers and Detoxify, on a tiny random model."""

import math
import sys
import types
from importlib import metadata
from pathlib import Path

import pytest
import torch
from locore_lab.detox.scorers import Scorer
from locore_lab.detox.scorers.classifier import ClassifierScorer, DetoxifyScorer
from locore_lab.detox.scorers.local import LocalScorer
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

from locore.kernel.errors import InvalidArgument, MissingExtra, ModelNotFound

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "day", "you", "are"]
TEXTS = ["good day", "bad", "you are bad bad bad", "", "snow ☃", "\ud800 bad"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder with a random classifier of three labels."""
    folder = tmp_path_factory.mktemp("classifier")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=16)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    labels = {0: "toxicity", 1: "insult", 2: "neutral"}
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        id2label=labels,
        label2id={name: number for number, name in labels.items()},
        initializer_range=0.5,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
@pytest.mark.parametrize("label", ["toxicity", "neutral"])
def test_a_classifier_scores_as_its_model_says(tiny, activation, label):
    scorer = ClassifierScorer(tiny, label, activation, batch_size=2)
    model = BertForSequenceClassification.from_pretrained(tiny).eval()
    tokenizer = BertTokenizerFast.from_pretrained(tiny)
    for text, score in zip(TEXTS, scorer.score(TEXTS), strict=True):
        clean = text.replace("\ud800", "?")
        with torch.no_grad():
            logits = model(**tokenizer(clean, return_tensors="pt")).logits[0].double()
        odds = logits.exp() / (logits.exp().sum() if activation == "softmax" else 1 + logits.exp())
        assert score == pytest.approx(odds[model.config.label2id[label]].item(), abs=1e-6)


def test_a_classifier_refuses_what_it_cannot_read_whole(tiny):
    scorer = ClassifierScorer(tiny, "toxicity")
    first, fits, over = scorer.score(["good", "good " * 14, "good " * 15])
    assert over is None and scorer.refusals == {"TOO_LONG": 1}
    assert first is not None and fits is not None


def test_what_a_classifier_cannot_be(tiny, tmp_path):
    with pytest.raises(InvalidArgument, match="'toxicity', 'insult', 'neutral'"):
        ClassifierScorer(tiny, "toxic")
    with pytest.raises(InvalidArgument, match="softmax"):
        ClassifierScorer(tiny, "toxicity", "tanh")
    with pytest.raises(InvalidArgument, match="batch_size"):
        ClassifierScorer(tiny, "toxicity", batch_size=0)
    with pytest.raises(ModelNotFound):
        ClassifierScorer(tmp_path / "nothing", "toxicity")


def test_classifiers_are_told_apart_by_their_weights(tiny, tmp_path):
    one = ClassifierScorer(tiny, "toxicity")
    model = BertForSequenceClassification.from_pretrained(tiny)
    with torch.no_grad():
        model.classifier.bias[0] += 1
    model.save_pretrained(tmp_path)
    BertTokenizerFast.from_pretrained(tiny).save_pretrained(tmp_path)
    assert one.version == ClassifierScorer(tiny, "insult").version != ClassifierScorer(tmp_path, "toxicity").version


def checkpoint_of(folder: Path, path: Path) -> Path:
    """The classifier as Detoxify keeps its models."""
    model = BertForSequenceClassification.from_pretrained(folder)
    names = {"model_type": str(folder), "model_name": "BertForSequenceClassification", "tokenizer_name": "BertTokenizerFast"}
    config = {"dataset": {"args": {"classes": ["toxic", "insult", "neutral"]}}, "arch": {"args": {**names, "num_classes": 3}}}
    torch.save({"config": config, "state_dict": model.state_dict()}, path)
    return path


@pytest.fixture
def detoxify(monkeypatch, tiny):
    """The package; where it is not installed, one with its interface over the random classifier."""
    try:
        import detoxify
    except ImportError:
        detoxify = types.ModuleType("detoxify")
        detoxify.Detoxify = StandIn
        monkeypatch.setitem(sys.modules, "detoxify", detoxify)
        monkeypatch.setattr(metadata, "version", lambda name: "0.0")
    return detoxify


class StandIn:
    """What `DetoxifyScorer` uses of detoxify.Detoxify, as its version 0.5.4 has it."""

    def __init__(self, model_type, checkpoint=None, device="cpu", huggingface_config_path=None):
        if checkpoint is None:
            raise OSError("no network")
        loaded = torch.load(checkpoint, weights_only=False)
        folder = loaded["config"]["arch"]["args"]["model_type"]
        self.class_names = [{"toxic": "toxicity"}.get(name, name) for name in loaded["config"]["dataset"]["args"]["classes"]]
        self.model = BertForSequenceClassification.from_pretrained(folder).eval()
        self.tokenizer = BertTokenizerFast.from_pretrained(folder)

    @torch.no_grad()
    def predict(self, texts):
        inputs = self.tokenizer(texts, return_tensors="pt", truncation=True, padding=True)
        scores = self.model(**inputs).logits.sigmoid()
        return {name: scores[:, column].squeeze().tolist() for column, name in enumerate(self.class_names)}


def test_detoxify_scores_as_its_model_says(detoxify, tiny, tmp_path):
    scorer = DetoxifyScorer("original", checkpoint_of(tiny, tmp_path / "tiny.ckpt"), tiny, batch_size=2)
    expected = ClassifierScorer(tiny, "toxicity", "sigmoid").score(TEXTS)
    assert scorer.score(TEXTS) == pytest.approx(expected, abs=1e-6)
    assert scorer.score([]) == []
    assert scorer.score(["good", "good " * 15])[1] is None and scorer.refusals == {"TOO_LONG": 1}
    assert scorer.version.endswith("tiny.ckpt")


def test_what_detoxify_cannot_be(detoxify, monkeypatch, tmp_path):
    with pytest.raises(InvalidArgument, match="original"):
        DetoxifyScorer("best")
    with pytest.raises(ModelNotFound):
        DetoxifyScorer("original", tmp_path / "missing.ckpt")
    monkeypatch.setitem(sys.modules, "detoxify", None)
    with pytest.raises(MissingExtra, match=r"lab\[detox\]"):
        DetoxifyScorer("original")


def test_all_are_scorers(tiny):
    """Checked by mypy too; here, that the attributes are there at run time."""
    scorers: list[Scorer] = [LocalScorer(), ClassifierScorer(tiny, "toxicity")]
    for scorer in scorers:
        assert scorer.name and scorer.version and math.isfinite(scorer.score(["good"])[0])
