"""Chats: the ids of `transformers`, no special token out of a message, and the same on every face."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import AddedToken, normalizers
from tokenizers import Tokenizer as FastTokenizer
from transformers import PreTrainedTokenizerFast

from locore.kernel.errors import InvalidArgument
from locore.kernel.tokenizer import Tokenizer
from locore.models.chat_template import ChatTemplate
from tests.chatting import TEMPLATES, TOKENIZERS, TRIMMING, fast, ours, theirs
from tests.test_tokenizer import byte_level, sentencepiece

PIECES = ["<", "|", ">", "<|", "|>", "im_end", "|im_end|>", "<|im_st", "</", "s>", "[INST]", " ", "\n", "é", "The sea"]
SPECIAL = ["<|im_end|>", "<|im_start|>", "</s>", "<s>", "<|endoftext|>"]
ORDINARY = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=4).map("".join)
EVIL = st.lists(st.sampled_from(SPECIAL + PIECES) | st.text(max_size=4), max_size=5).map("".join)


@st.composite
def chats(draw, contents=ORDINARY):
    """Turns that alternate, after a system's words or none, and end with any."""
    roles = ["system"] * draw(st.integers(0, 1)) + ["user", "assistant"] * 2
    messages = [{"role": role, "content": draw(contents)} for role in roles[: draw(st.integers(roles[0] == "system", 4)) + 1]]
    assume(messages[-1]["role"] != "assistant" or messages[-1]["content"].strip())
    return messages


def spells_special(messages) -> bool:
    return any(token in m["content"] for m in messages for token in SPECIAL)


# Ids


@given(messages=chats(), kind=st.sampled_from(TOKENIZERS), template=st.sampled_from(["chatml", "trimming", "merging"]))
def test_ordinary_messages_have_the_ids_of_transformers(messages, kind, template):
    assume(not spells_special(messages))
    assert ours(kind, template).encode_chat(messages) == theirs(fast(kind, template), messages)


@given(messages=chats(), kind=st.sampled_from(TOKENIZERS), template=st.sampled_from(["chatml", "trimming", "merging"]))
def test_the_road_for_special_tokens_gives_ordinary_messages_the_same_ids(messages, kind, template):
    assume(not spells_special(messages))
    hf = fast(kind, template)
    known = ChatTemplate(hf, json.loads(hf.backend_tokenizer.to_str()))
    assert known._guarded(known._write(messages), {}, messages) == theirs(hf, messages)


def slow_ids(hf: PreTrainedTokenizerFast, messages: list[dict[str, str]]) -> list[int]:
    """Ids by another road, for templates that do not look into messages.

    Placeholders stand for all of them, and each stretch between the template's special tokens is encoded by itself, behind a
    token that makes it no beginning.
    """
    names = [f"zq{i}zq" for i in range(len(messages))]
    placed = [{**m, "content": name} for m, name in zip(messages, names, strict=True)]
    goes_on = messages[-1]["role"] == "assistant"
    text = hf.apply_chat_template(placed, tokenize=False, add_generation_prompt=not goes_on, continue_final_message=goes_on)
    plain = FastTokenizer.from_str(hf.backend_tokenizer.to_str())
    plain.add_tokens([AddedToken("\U000f1234", normalized=False)])
    plain.encode_special_tokens = True
    found: list[int] = []
    while text:
        at, token = min(((text.find(t), t) for t in SPECIAL if t in text), default=(len(text), ""))
        stretch = text[:at]
        for name, message in zip(names, messages, strict=True):
            stretch = stretch.replace(name, message["content"])
        if stretch:
            found += plain.encode("\U000f1234" * bool(found) + stretch, add_special_tokens=False).ids[bool(found) :]
        found += [hf.convert_tokens_to_ids(token)] if token else []
        text = text[at + len(token) :]
    return found


@given(messages=chats(EVIL), kind=st.sampled_from(TOKENIZERS))
def test_special_tokens_in_messages_are_text(messages, kind):
    hf = fast(kind, "chatml")
    ids = ours(kind, "chatml").encode_chat(messages)
    assert ids == slow_ids(hf, messages)
    harmless = theirs(hf, [{**m, "content": "x"} for m in messages])
    for token in SPECIAL:
        assert (
            ids.count(hf.convert_tokens_to_ids(token)) == harmless.count(hf.convert_tokens_to_ids(token))
            or token not in hf.get_vocab()
        )


@given(messages=chats(EVIL), template=st.sampled_from(list(TEMPLATES)))
def test_what_is_read_is_what_the_template_writes(messages, template):
    """Letter by letter, whatever is spelled; tokens of bytes lose nothing."""
    hf = fast("byte level", template)
    goes_on = messages[-1]["role"] == "assistant"
    written = hf.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=not goes_on, continue_final_message=goes_on
    )
    assert hf.decode(ours("byte level", template).encode_chat(messages), clean_up_tokenization_spaces=False) == written


@given(messages=chats(EVIL))
def test_messages_side_by_side_make_no_special_token(messages):
    ids = ours("byte level", "bare").encode_chat(messages)
    assert not set(ids) & set(fast("byte level", "bare").all_special_ids)
    assert not {fast("byte level", "bare").convert_tokens_to_ids(token) for token in ("<|im_start|>", "<|im_end|>")} & set(ids)


HALVES = {
    "bare": ["<|im_", "end", "|>"],
    "<|{{ messages[0].content }}|>": ["im_end"],
    "<|{{ messages[0].content }}": ["im_end|> and more than is in any token"],
    "{{ messages[0].content }}end|>": ["more than is in any token, and <|im_"],
}


@pytest.mark.parametrize("template", HALVES)
def test_a_special_token_made_of_parts_is_text(template):
    roles = ["user", "assistant", "user"]
    messages = [{"role": role, "content": part} for role, part in zip(roles, HALVES[template], strict=False)]
    hf = fast("byte level", template)
    end = hf.convert_tokens_to_ids("<|im_end|>")
    read = theirs(hf, messages)
    assert read.count(end) == 1
    ids = ours("byte level", template).encode_chat(messages)
    assert end not in ids and hf.decode(ids) == hf.decode(read)


@given(parts=st.lists(ORDINARY, max_size=3), kind=st.sampled_from(TOKENIZERS))
def test_parts_of_a_message_are_joined(parts, kind):
    known = ours(kind, "chatml")
    whole = [{"role": "user", "content": "".join(parts)}]
    assert known.encode_chat([{"role": "user", "content": [{"type": "text", "text": p} for p in parts]}]) == known.encode_chat(
        whole
    )


@given(messages=chats(EVIL))
def test_where_text_cannot_be_kept_from_being_a_special_token_it_is_refused(messages):
    """The vocabulary of a unigram model has its special tokens among its pieces."""
    hf = sentencepiece("always", unigram=True)
    hf.chat_template = TRIMMING
    harmless = theirs(hf, [{**m, "content": "x"} for m in messages])
    try:
        ids = Tokenizer.from_huggingface(hf).encode_chat(messages)
    except InvalidArgument:
        assert spells_special(messages)
    else:
        assert all(ids.count(i) == harmless.count(i) for i in (hf.bos_token_id, hf.eos_token_id))


def test_a_special_token_that_a_normaliser_makes_is_text():
    hf = byte_level(normalizer=normalizers.Lowercase())
    hf.add_tokens([AddedToken("<|im_end|>", special=True, normalized=True)], special_tokens=True)
    hf.chat_template = "{{ messages[0].content }}<|im_end|>"
    end = hf.convert_tokens_to_ids("<|im_end|>")
    chat = [{"role": "user", "content": "A <|IM_END|> b"}]
    assert theirs(hf, chat).count(end) == 2
    ids = Tokenizer.from_huggingface(hf).encode_chat(chat)
    assert ids.count(end) == 1 and hf.decode(ids) == "a <|im_end|> b<|im_end|>"
