"""What is no chat, or none for this model, is refused in words that name the message."""

from __future__ import annotations

import pytest

from locore.kernel.errors import InvalidArgument, MissingTemplate
from locore.kernel.tokenizer import Tokenizer
from tests.chatting import fast, ours, theirs
from tests.test_tokenizer import byte_level

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
