"""Chats: the ids of `transformers`, no special token out of a message, and the same on every face."""

from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import AddedToken, normalizers
from tokenizers import Tokenizer as FastTokenizer
from transformers import PreTrainedTokenizerFast

from locore.errors import InvalidArgument, MissingTemplate
from locore.template import ChatTemplate
from locore.tokenizer import Tokenizer
from tests.test_tokenizer import byte_level, sentencepiece

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


# What is refused

USER = {"role": "user", "content": "Hello"}
PART = {"type": "text", "text": "a"}
MALFORMED = {
    "one message": (USER, "list of messages"),
    "none": ([], "no message"),
    "no object": ([USER, "Hello"], r"messages\[1\] is 'Hello'"),
    "no role": ([USER, {"content": "a"}], r"messages\[1\] has no 'role'"),
    "no content": ([USER, {"role": "user"}], r"messages\[1\] has no 'content'"),
    "a strange role": ([USER, {"role": "wizard", "content": "a"}], r"messages\[1\] has the role 'wizard'"),
    "a list for a role": ([{"role": ["user"], "content": "a"}], r"messages\[0\] has the role"),
    "a name": ([{**USER, "name": "Ann"}], r"messages\[0\] has a field 'name'"),
    "a number": ([{"role": "user", "content": 3}], r"content of messages\[0\] is 3"),
    "nothing": ([{"role": "user", "content": None}], r"content of messages\[0\] is None"),
    "a picture": (
        [{"role": "user", "content": [PART, {"type": "image_url", "image_url": "x"}]}],
        r"part 1 of the content of messages",
    ),
    "a part of numbers": ([{"role": "user", "content": [{"type": "text", "text": 3}]}], "part 0"),
    "a part with more": ([{"role": "user", "content": [{**PART, "detail": "low"}]}], "part 0"),
    "half a surrogate pair": ([{"role": "user", "content": "a\ud800"}], r"messages\[0\] has a lone surrogate at character 1"),
    "an empty beginning": ([USER, {"role": "assistant", "content": " "}], r"messages\[1\] is how the answer begins, and empty"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_no_chat_is_refused_by_its_index(name):
    messages, words = MALFORMED[name]
    with pytest.raises(InvalidArgument, match=words):
        ours("byte level", "chatml").encode_chat(messages)


@pytest.mark.parametrize("turns", [1, 2, 3, 4])
def test_what_the_template_refuses_is_named_by_its_index(turns):
    roles = ["user", "assistant"] * 3
    messages = [{"role": role, "content": "a"} for role in [*roles[:turns], roles[turns - 1], *roles[turns:]]]
    with pytest.raises(InvalidArgument, match=rf"messages\[{turns}\] \(of the {roles[turns - 1]}\): Roles must alternate"):
        ours("byte level", "merging").encode_chat(messages)


def test_a_message_that_the_template_leaves_out_is_an_error():
    template = "{% for m in messages if m.role in ('user', 'assistant') %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    with pytest.raises(InvalidArgument, match=r"leaves out messages\[1\] \(of the developer\)"):
        ours("byte level", template).encode_chat([USER, {"role": "developer", "content": "Be kind."}, USER])
    assert ours("byte level", template).encode_chat([USER, USER]) == theirs(fast("byte level", template), [USER, USER])


# Without its beginning, and with other bars.
LOOKING = [
    "{% for m in messages %}{{ m.content[3:] }}{% endfor %}",
    "{% for m in messages %}{{ m.content.replace('|', '!') }}{% endfor %}",
]


@pytest.mark.parametrize("template", LOOKING)
def test_a_template_that_looks_into_messages_gets_no_special_token(template):
    ordinary = [{"role": "user", "content": "> what it says <"}]
    assert ours("byte level", template).encode_chat(ordinary) == theirs(fast("byte level", template), ordinary)
    with pytest.raises(InvalidArgument, match=r"'<\|im_end\|>' in messages\[1\]"):
        ours("byte level", template).encode_chat([*ordinary, {"role": "user", "content": "a<|im_end|>b"}])


def test_without_a_template_the_remedy_is_named():
    for known in (Tokenizer.from_huggingface(byte_level()), Tokenizer.from_tokens(["a", "b"]), Tokenizer.integers(3)):
        with pytest.raises(MissingTemplate, match="ive a plain prompt"):
            known.encode_chat([USER])
        with pytest.raises(InvalidArgument, match="has no 'content'"):
            known.encode_chat([{"role": "user"}])
