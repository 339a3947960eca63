"""What cannot be loaded is told why: an adapter, a package that is missing, a name that is not one. Without the network."""

import json
import re
import socket

import pytest
import transformers

from locore.kernel.errors import MissingExtra, ModelNotFound
from locore.models import load
from locore.models.loading import missing_package

from .test_huggingface import _edit_config, folder  # noqa: F401


def test_a_folder_of_an_adapter_says_what_to_do_with_it(tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "someone/base", "peft_type": "LORA"}))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(ModelNotFound, match=r"is an adapter of someone/base, not a model\. .*PeftModel.*from_module"):
        load(tmp_path)
    (tmp_path / "adapter_config.json").write_text("[]")
    with pytest.raises(ModelNotFound, match="is an adapter of its base model"):
        load(tmp_path)


# As transformers and others say it.
SAID = {
    "bitsandbytes": ImportError(
        "Using `bitsandbytes` 4-bit quantization requires bitsandbytes: `pip install -U bitsandbytes>=0.46.1`"
    ),
    "gptqmodel": ImportError("Loading a GPTQ quantized model requires gptqmodel (`pip install gptqmodel`)"),
    "compressed-tensors": ImportError("Using `compressed_tensors` quantized models requires the compressed-tensors library"),
    "sentencepiece": ImportError(
        "\nLlamaConverter requires the SentencePiece library but it was not found in your environment."
    ),
    "tiktoken": ValueError(
        "Couldn't instantiate the backend tokenizer: you need to have tiktoken installed to convert a slow tokenizer"
    ),
    "something_else": ModuleNotFoundError("No module named 'something_else.inner'", name="something_else.inner"),
}


@pytest.mark.parametrize("package", SAID)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_missing_package_is_named(package, wrapped, folder, monkeypatch):  # noqa: F811
    """Also where the error that says so is the cause of another one."""

    def fail(*_, **__):
        if not wrapped:
            raise SAID[package]
        try:
            raise SAID[package]
        except Exception as error:
            raise OSError("cannot load this") from error

    monkeypatch.setattr("locore.models.loading.find_spec", lambda _: None)
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", fail)
    with pytest.raises(MissingExtra, match=re.escape(f"pip install {package}")) as caught:
        load(folder)
    assert "network" not in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("error", [OSError("damaged header"), ValueError("requires more memory"), ImportError("no reason")])
def test_other_errors_name_no_package(error):
    assert missing_package(error) is None


def test_what_is_installed_is_not_asked_for(monkeypatch):
    monkeypatch.setattr("locore.models.loading.find_spec", lambda _: object())
    assert all(missing_package(error) is None for error in SAID.values())


@pytest.mark.parametrize(
    ("slip", "meant"), [("SmolLM2", "smollm2"), ("Tiny", "tiny"), ("tinny", "tiny"), ("smollm-2", "smollm2")]
)
def test_a_name_that_was_meant_is_told_without_the_network(slip, meant, monkeypatch):
    def refuse(*_):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(ModelNotFound, match=f"did you mean '{meant}'"):
        load(slip)
