"""Small tokenizers and a model that read chats."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from locore.kernel.tokenizer import Tokenizer
from locore.models.bundled import _bundled_folder
from tests.test_tokenizer import byte_level, sentencepiece

TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"


def talking(folder: Path) -> Path:
    """A copy of the bundled model in a new folder, with this template."""
    copy = Path(shutil.copytree(str(_bundled_folder("tiny")), folder))
    (copy / "chat_template.jinja").write_text(TEMPLATE)
    return copy


CHATML = (
    "{% for m in messages %}"
    "{% if loop.first and m.role != 'system' %}<|im_start|>system\nYou are a tokenizer.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TRIMMING = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role | upper }}] {{ m.content | trim }} "
    "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}[ASSISTANT]{% endif %}"
)
MERGING = (  # the system's words go into the first turn, as for Llama 2, and turns alternate
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content ~ '\n\n' %}{% set turns = messages[1:] %}"
    "{% else %}{% set system = '' %}{% set turns = messages %}{% endif %}{% for m in turns %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate.') }}{% endif %}"
    "{% set text = (system ~ m.content) if loop.first else m.content %}"
    "{% if m.role == 'user' %}{{ bos_token ~ '[INST] ' ~ text.strip() ~ ' [/INST]' }}"
    "{% else %}{{ ' ' ~ text.strip() ~ ' ' ~ eos_token }}{% endif %}{% endfor %}"
)
BARE = "{% for m in messages %}{{ m.content }}{% endfor %}"  # nothing stands between two messages
TEMPLATES = {"chatml": CHATML, "trimming": TRIMMING, "merging": MERGING, "bare": BARE}
TOKENIZERS = ("byte level", "always", "first", "never")


@cache
def fast(kind: str, template: str) -> PreTrainedTokenizerFast:
    """A small tokenizer with ChatML's special tokens and a template."""
    hf = byte_level() if kind == "byte level" else sentencepiece(kind)
    hf.add_tokens(
        [AddedToken(token, special=True, normalized=False) for token in ("<|im_start|>", "<|im_end|>")], special_tokens=True
    )
    hf.chat_template = TEMPLATES.get(template, template)
    return hf


@cache
def ours(kind: str, template: str) -> Tokenizer:
    return Tokenizer.from_huggingface(fast(kind, template))


def theirs(hf: PreTrainedTokenizerFast, messages: list[dict[str, str]]) -> list[int]:
    """The ids of transformers."""
    goes_on = messages[-1]["role"] == "assistant"
    return hf.apply_chat_template(messages, add_generation_prompt=not goes_on, continue_final_message=goes_on)["input_ids"]
