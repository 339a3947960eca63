"""The CNN-LSTM of the Warcraft experiment: a language model like any other, whose prompt is a picture."""

import dataclasses
import json

import pytest
import torch
from locore_lab.shared import CHECKPOINT, LOG
from locore_lab.warcraft.dataset import Maps, generate_maps
from locore_lab.warcraft.model import IMAGE_SIZE, PathModel, PathNetwork, save_weights
from locore_lab.warcraft.paths import ARROWS, EDGES, MOVES_TO_8, STOP, moves_of
from locore_lab.warcraft.training import ROUNDED, WEIGHTS, Settings, Trainer, draw, train, validate
from scipy import stats

import locore
from locore.kernel.errors import CannotScore, InvalidArgument, ModelNotFound
from locore.samplers import sampler_by_name
from locore.testing import proper_weighting
from tests.effort import THOROUGH, some
from tests.models import test_laws as laws
from tests.models import zoo

SIDE = 3  # cells
FALSE_ALARM = 1e-6
VOCAB_SIZE = MOVES_TO_8.vocab_size
TOY = Settings(epochs=3, batch=4, warmup=2, draws=2, bfloat16=False, target=2.0)


def network(seed: int = 0, side: int = SIDE) -> PathNetwork:
    """Random weights whose next move is far from uniform."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        made = PathNetwork(side, side)
        made.head.weight *= 12
        made.project.weight *= 4
    return made


@pytest.fixture(scope="module")
def maps() -> Maps:
    return generate_maps(8, seed=0, height=SIDE, width=SIDE)


@pytest.fixture(scope="module")
def model(maps) -> PathModel:
    return PathModel(network()).prompted(maps.images[0])


@pytest.fixture(scope="module")
def sequences(model) -> torch.Tensor:
    return zoo.ending_sequences(model, num=12, length=zoo.LENGTH)


# The laws of every language model, for this one; the law of its samples is below.
globals().update({name: law for name, law in vars(laws).items() if name.startswith("test_") and not hasattr(law, "pytestmark")})


@pytest.mark.slow
def test_samples_have_the_law_of_the_model(model):
    length, num = 3, 20_000
    probability = model.score(zoo.all_sequences(VOCAB_SIZE, length)).exp()
    assert float(probability.sum()) == pytest.approx(1, abs=1e-5)
    tokens = model.sample(num, length, seed=8).tokens
    counts = torch.bincount(tokens @ torch.tensor([VOCAB_SIZE**2, VOCAB_SIZE, 1]), minlength=VOCAB_SIZE**length)
    assert counts[probability == 0].sum() == 0
    common = probability * num >= 10
    observed = torch.cat([counts[common], counts[~common].sum()[None]])
    expected = torch.cat([probability[common], probability[~common].sum()[None]])
    result = stats.chisquare(observed.numpy(), (expected / expected.sum() * num).numpy())
    assert result.pvalue > FALSE_ALARM


@pytest.mark.slow
def test_weights_of_a_sampler_are_proper(model):
    """The sampler of the paper on this model: three moves at most, the first to the east or south-east."""
    circuit = locore.compile(locore.token(0, [4, 7]) & locore.token(2, [STOP, 6]), model, 3)
    assert proper_weighting(sampler_by_name("lcr"), model, circuit, num_particles=4, runs=200).holds(FALSE_ALARM)


def test_generate_takes_a_picture_for_a_prompt(maps):
    model = PathModel(network())
    particles = locore.generate(model, maps.images[0], locore.token(0, [7]), max_new_tokens=3, num_particles=4, seed=0)
    assert (particles.tokens[:, 0] == 7).all()
    assert particles.texts[0].startswith(ARROWS[7])


def test_the_picture_matters_and_nothing_of_an_earlier_one_is_left(maps, model):
    other = model.unprompted().prompted(maps.images[1])
    tokens = torch.tensor([[7, 7, STOP]])
    assert not torch.allclose(other.score(tokens), model.score(tokens))
    again = other.unprompted().prompted(torch.from_numpy(maps.images[0]))
    assert torch.equal(again.score(tokens), model.score(tokens))
    assert again.fingerprint() == model.fingerprint() != other.fingerprint()
    assert PathModel(network(1)).fingerprint() != PathModel(network()).fingerprint()


def test_prompts_that_are_no_picture_are_refused(maps, model):
    bare = model.unprompted()
    for prompt in ("", "a map", [1, 2], maps.images[0].astype(float), maps.images[0][:-1], maps.images):
        with pytest.raises(CannotScore, match="picture"):
            bare.prompted(prompt)
    with pytest.raises(CannotScore, match="already"):
        model.prompted(maps.images[1])
    assert model.prompted("") is model
    for ask in (lambda: bare.log_probs(torch.tensor([[1]])), lambda: bare.begin(1), lambda: bare.sample(1, 2)):
        with pytest.raises(CannotScore, match="picture"):
            ask()


def test_a_cursor_needs_a_token_for_each_row(model):
    with pytest.raises(InvalidArgument, match="2 tokens for 3 rows"):
        model.begin(3).advance(torch.tensor([1, 2]))


def test_weights_come_back_from_a_file(tmp_path, maps):
    first = PathModel(network())
    first.save(tmp_path / "weights.safetensors")
    loaded = PathModel.load(tmp_path / "weights.safetensors")
    tokens = torch.tensor([[7, 7, STOP]])
    near = (first.prompted(maps.images[0]).score(tokens), loaded.prompted(maps.images[0]).score(tokens))
    assert torch.allclose(*near, atol=0.05), "matrices are rounded to 16 bits"
    loaded.save(tmp_path / "again.safetensors")
    assert PathModel.load(tmp_path / "again.safetensors").fingerprint() == loaded.fingerprint()


def test_files_without_weights_are_refused(tmp_path):
    with pytest.raises(ModelNotFound, match="no file"):
        PathModel.load(tmp_path / "weights.safetensors")
    (tmp_path / "text").write_text("no weights")
    with pytest.raises(ModelNotFound, match="no weights"):
        PathModel.load(tmp_path / "text")
    save_weights(network(), tmp_path / "whole")
    (tmp_path / "half").write_bytes((tmp_path / "whole").read_bytes()[:-100])
    with pytest.raises(ModelNotFound, match="no weights"):
        PathModel.load(tmp_path / "half")


def test_the_network_is_that_of_the_paper(published_size):
    whole = PathNetwork()
    assert whole.embed(torch.zeros(2, 96, 96, 3, dtype=torch.uint8)).shape == (2, 128)
    assert (whole.lstm.num_layers, whole.lstm.hidden_size) == (1, 512)
    kernels = [w for name, w in whole.encoder.named_parameters() if w.ndim == 4 and "shortcut" not in name]
    assert len(kernels) == 17, "ResNet-18: 17 convolutions and one linear layer"
    assert sum(w.numel() for w in whole.encoder.parameters()) == 11_176_512, "torchvision's resnet18 without its classifier"


def test_pictures_are_normalised_by_the_training_set(maps):
    made = network()
    images = torch.from_numpy(maps.images)
    made.set_normalisation(images)
    assert torch.allclose(made.mean, images.float().mean((0, 1, 2)), atol=1e-3)
    assert torch.allclose(made.std, images.float().flatten(0, 2).std(0, correction=0), atol=1e-3)


@pytest.mark.slow
def test_training_goes_on_exactly_after_a_kill(tmp_path, maps):
    whole = Trainer(TOY, maps, maps)
    for _ in range(3):
        whole.look()
    train(dataclasses.replace(TOY, epochs=3), maps, maps, tmp_path / "straight")
    killed = Trainer(TOY, maps, maps)
    killed.look()
    (tmp_path / "killed").mkdir()
    killed.save(tmp_path / "killed" / CHECKPOINT)
    seen = []
    train(TOY, maps, maps, tmp_path / "killed", seen.append)
    assert [report["epoch"] for report in seen] == [2, 3]
    resumed = Trainer(TOY, maps, maps)
    resumed.load(tmp_path / "killed" / CHECKPOINT)
    for (name, a), b in zip(whole.network.state_dict().items(), resumed.network.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    lines = [json.loads(line) for line in (tmp_path / "killed" / LOG).read_text().splitlines()]
    assert lines[0]["settings"]["epochs"] == 3 and [line["epoch"] for line in lines[1:]] == [1, 2, 3]
    assert PathModel.load(tmp_path / "killed" / WEIGHTS).network.height == SIDE


def test_an_epoch_in_parts_shows_every_map_once(maps, monkeypatch):
    seen = []
    trainer = Trainer(dataclasses.replace(TOY, batch=2, looks=2, epochs=2), maps, maps)
    monkeypatch.setattr(trainer, "_step", lambda chosen, _: seen.extend(chosen.tolist()) or 0.0)
    epochs = [trainer.look()["epoch"] for _ in range(4)]
    assert epochs == [0.5, 1.0, 1.5, 2.0] and trainer.finished
    assert sorted(seen[:8]) == sorted(seen[8:]) == list(range(8)) and seen[:8] != seen[8:]


@pytest.fixture(scope="module")
def bits():
    """A model of edge bits of 3 × 3 maps with random weights, prompted."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        made = PathNetwork(SIDE, SIDE, EDGES)
    return PathModel(made).prompted(generate_maps(1, 0, "test", SIDE, SIDE, encoding=EDGES).images[0])


def test_edge_bits_have_a_law_that_the_cursor_agrees_with(bits, tmp_path):
    every = torch.cartesian_prod(*[torch.arange(2)] * 6)
    assert float(bits.score(every).exp().sum()) == pytest.approx(1, abs=1e-5)
    cursor = bits.begin(1)
    for position, token in enumerate(every[37]):
        assert torch.allclose(cursor.log_probs[0], bits.log_probs(every[37:38])[0, position], atol=1e-5)
        cursor = cursor.advance(token[None])
    bits.unprompted().save(tmp_path / "bits.safetensors")
    assert PathModel.load(tmp_path / "bits.safetensors").network.encoding == EDGES


def test_a_model_of_edge_bits_learns_a_few_maps_by_heart():
    maps = generate_maps(4, seed=0, height=SIDE, width=SIDE, encoding=EDGES)
    epochs = 60 if THOROUGH else 15
    trainer = Trainer(dataclasses.replace(TOY, epochs=epochs, batch=4, symmetries=1, learning_rate=3e-3), maps, maps)
    reports = [trainer.look() for _ in range(epochs)]
    assert reports[-1]["nats"] < reports[0]["nats"] * (0.2 if THOROUGH else 0.8)
    if THOROUGH:
        assert reports[-1]["rounded_exact"] > 0.5 and reports[-1]["exact"] > 0.5


@pytest.mark.parametrize("encoding", some([EDGES, MOVES_TO_8]))
def test_the_encoder_learns_alone_and_goes_on_after_a_kill(tmp_path, encoding):
    """The LSTM does not move before its time, and the head is part of a checkpoint."""
    maps = generate_maps(8, seed=0, height=SIDE, width=SIDE, encoding=encoding)
    settings = dataclasses.replace(TOY, epochs=1, aside=0.5, encoder_epochs=2)
    whole = Trainer(settings, maps, maps)
    start = {name: values.clone() for name, values in whole.network.state_dict().items()}
    reports = [whole.look(), whole.look()]
    assert reports[1]["train_loss"] < reports[0]["train_loss"] and "exact" not in reports[1]
    assert not whole.is_closest() and not whole.finished
    moved = {name for name, values in whole.network.state_dict().items() if not torch.equal(values, start[name])}
    assert moved and all(name.split(".")[0] in ("encoder", "project") for name in moved)
    whole.save(tmp_path / CHECKPOINT)
    assert "exact" in whole.look() and whole.is_closest()
    assert whole.finished and not torch.equal(whole.network.state_dict()["head.weight"], start["head.weight"])
    resumed = Trainer(settings, maps, maps)
    resumed.load(tmp_path / CHECKPOINT)
    resumed.look()
    for name, values in whole.network.state_dict().items():
        assert torch.equal(values, resumed.network.state_dict()[name]), name


def test_a_checkpoint_of_other_settings_is_refused(tmp_path, maps):
    Trainer(TOY, maps, maps).save(tmp_path / CHECKPOINT)
    with pytest.raises(InvalidArgument, match="other settings"):
        train(dataclasses.replace(TOY, seed=1), maps, maps, tmp_path)


def test_training_stops_at_the_target_and_keeps_the_closest_epoch(tmp_path, maps, monkeypatch):
    shares = iter([0.2, 0.55, 0.5, 0.9, 1.0])
    reports = lambda *_: {"nats": 1.0, "consistent": 1.0, "exact": next(shares), "rounded_exact": 0.0}  # noqa: E731
    monkeypatch.setattr("locore_lab.warcraft.training.validate", reports)
    kept = []
    monkeypatch.setattr("locore_lab.warcraft.training.save_weights", lambda _, path: kept.append(path.name))
    settings = dataclasses.replace(TOY, epochs=5, target=0.62)
    history = train(settings, maps, maps, tmp_path, lambda report: kept.append(report["exact"]))
    assert [report["exact"] for report in history] == [0.2, 0.55, 0.5, 0.9]
    kept = [one for one in kept if one != ROUNDED]
    assert kept == [0.2, WEIGHTS, 0.55, WEIGHTS, 0.5, 0.9]


@pytest.mark.slow
def test_training_learns_a_few_maps_by_heart(maps):
    """From over two nats a path to less than one, on the maps that it saw."""
    trainer = Trainer(dataclasses.replace(TOY, epochs=25, symmetries=1), maps, maps)
    reports = [trainer.look() for _ in range(25)]
    assert reports[0]["train_loss"] > 2 and reports[-1]["train_loss"] < 1
    assert reports[-1]["equal"] > 0.5 and reports[-1]["nats"] < 1


def test_wrong_settings_are_refused(maps):
    for wrong in ({"batch": 9}, {"symmetries": 3}, {"encoder_epochs": 1}):
        with pytest.raises(InvalidArgument):
            Trainer(dataclasses.replace(TOY, **wrong), maps, maps)


def test_validation_measures_the_model(maps, model):
    """Nats are those of the model's own scores, shares those of samples of its own law (5 standard errors)."""
    many = Maps(*(part[[0] * 400] for part in (maps.images, maps.weights, maps.labels)))
    measured = validate(model.network, many, draws=5, seed=1)
    label = torch.tensor([moves_of(maps.paths[0])])
    assert measured["nats"] == pytest.approx(-float(model.score(label)), abs=1e-3)
    truth = model.score(label).exp().item()
    assert abs(measured["equal"] - truth) < 5 * (truth * (1 - truth) / 2000) ** 0.5 + 1e-9
    tokens = draw(model.network, torch.zeros(3, IMAGE_SIZE), 6, torch.Generator().manual_seed(0))
    ended = (tokens == STOP).cumsum(1) > 0
    assert (tokens[ended] == STOP).all()
