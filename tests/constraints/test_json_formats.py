"""`format`: what a third party's suite calls valid or not, and automata that say what Python's `re` says."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locore.constraints import Constraint, json_schema
from locore.constraints.json_schema.formats import FORMATS, is_of_format
from tests.effort import THOROUGH, some

from .bytewise import accepts, holds

SUITE = Path(__file__).resolve().parents[3] / "shared" / "data" / "json" / "test-suite" / "tests" / "draft2020-12" / "optional"
# What is narrower than the standard: valid by the suite, and refused.
NARROWER = {
    "hostname": r"xn--.*",
    "idn-email": "user@cafe\u0301.com",  # as two characters, which RFC 5891 does not have either
    "regex": ".*<(name|n)>.*",
}
SOME = {
    "date": (["2024-02-29", "2000-02-29", "2023-12-31"], ["2023-02-29", "1900-02-29", "2023-13-01", "23-01-01", "2023-1-1"]),
    "time": (["23:59:59Z", "08:30:06.283185+01:00"], ["24:00:00Z", "08:30:06", "8:30:06Z"]),
    "date-time": (["1963-06-19T08:30:06Z"], ["1963-06-19 08:30:06Z", "1963-06-19"]),
    "duration": (["P4DT12H30M5S", "P2W", "PT36H"], ["P", "PT", "P1Y2W", "4D"]),
    "email": (["joe.bloggs@example.com", "a@b"], ["a", "@b", "a@", ".a@b", "a..b@c", "a@-b"]),
    "hostname": (["www.example.com", "a", "a-b", "a." * 9 + "a"], ["", "-a", "a-", "a..b", "a_b", "a" * 64, "ab--c"]),
    "ipv4": (["192.168.0.1", "255.255.255.255"], ["256.0.0.1", "1.2.3", "01.2.3.4"]),
    "ipv6": (["::1", "2001:db8::ff00:42:8329", "::ffff:1.2.3.4"], ["::1::", "1:2:3:4:5:6:7", "12345::", ""]),
    "uri": (["https://example.org/a?b=c#d", "urn:isbn:1", "mailto:a@b"], ["//example.org", "abc", "http://a b", "\\\\x"]),
    "uri-reference": (["/abc", "#frag", "", "https://example.org"], ["a b", "\\x"]),
    "iri": (["http://ƒøø.ßår/?∂éœ=πîx#πîüx", "urn:isbn:1"], ["/abc", "http://a b", "http://ƒ\ue000"]),
    "iri-reference": (["/âππ", "http://ƒ/?\ue000"], ["\\ƒ"]),
    "uri-template": (["a/{b:3}/{+c,d*}", "{a.b}", ""], ["{", "{}", "{a..b}", "{a:0}", "a b", "{,a}"]),
    "idn-email": (["실례@실례.테스트", "δοκιμή@example.com"], ["a@É.com", "é" * 33 + "@a"]),
    "regex": (
        [
            "",
            "a|b",
            "^[A-Za-z_]+$",
            r"(a|(b+?)){2,30}\.[^]",
            r"[\w.-]+@(?:\u0041)",
            "(?<=a+)b(?!c)",
            "x{10,}y{3}z{0,1}",
            "[-a]",
        ],
        ["(", "^(abc]", r"\a", "a**", "(?i)a", "(?P<n>a)", "[b-a]", "x{3,2}", "[", "]", "(?=a)*", r"\u12", "{"],
    ),
    "uuid": (
        ["2eb8aa08-aa98-11ea-b4aa-73b441d16380"],
        ["2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-aa98-11ea-b4aa-73b441d1638"],
    ),
    "json-pointer": (["", "/a~0b/~1", "/a//b"], ["a", "/~", "/~2"]),
    "relative-json-pointer": (["1", "0/foo", "2#"], ["/foo", "01", "-1"]),
}


@cache
def leaf_of(name: str) -> Constraint:
    return json_schema({"type": "string", "format": name}, whitespace="compact", escapes="minimal")


WIDE = {"iri", "iri-reference", "uri-template", "idn-email"}  # with classes of so many characters that drawing takes minutes


@pytest.mark.parametrize("name", some(FORMATS, 2))
def test_some_of_each(name):
    valid, invalid = SOME[name]
    for text, wanted in [*((text, True) for text in valid), *((text, False) for text in invalid)]:
        written = json.dumps(text, ensure_ascii=False)
        assert accepts(leaf_of(name), written) == holds(leaf_of(name), written) == wanted, text


@pytest.mark.skipif(not SUITE.exists(), reason="the JSON Schema test-suite is not there")
@pytest.mark.parametrize("name", FORMATS)
def test_the_official_suite(name):
    """Nothing that is invalid passes, and what is valid does but for what is stated."""
    seen = 0
    files = [f"{name}.json", "ecmascript-regex.json"] if name == "regex" else [f"{name}.json"]
    for file in files:
        for test in (test for group in json.loads((SUITE / "format" / file).read_text()) for test in group["tests"]):
            text = test["data"]
            if not isinstance(text, str):
                continue
            written, seen = json.dumps(text, ensure_ascii=False), seen + 1
            narrower = name in NARROWER and re.fullmatch(NARROWER[name], text)
            assert accepts(leaf_of(name), written) == (test["valid"] and not narrower), test["description"]
            assert holds(leaf_of(name), written) == (test["valid"] and not narrower), test["description"]
    assert seen > 5


@settings(max_examples=100 if THOROUGH else 6)
@given(st.data())
@pytest.mark.parametrize("name", some((name for name in FORMATS if name != "regex"), 5))
def test_automata_say_what_python_says(name, data):
    made = (
        st.sampled_from(SOME[name][0]) if name in WIDE else st.from_regex(re.compile(FORMATS[name], re.ASCII), fullmatch=True)
    )
    text = data.draw(made)
    assert is_of_format(name, text)
    assert accepts(leaf_of(name), json.dumps(text, ensure_ascii=False))
    place = data.draw(st.integers(0, max(0, len(text) - 1)))
    changed = text[:place] + data.draw(st.characters(codec="utf-8" if name in WIDE else "ascii")) + text[place + 1 :]
    assert accepts(leaf_of(name), json.dumps(changed, ensure_ascii=False)) == is_of_format(name, changed)


def test_a_format_stands_beside_a_pattern_and_lengths():
    leaf = json_schema({"type": "string", "format": "date", "pattern": "^20", "maxLength": 10, "minLength": 3})
    assert accepts(leaf, '"2024-02-29"')
    assert not accepts(leaf, '"1924-02-29"')
    assert not accepts(json_schema({"type": "string", "format": "date", "maxLength": 9}), '"2024-02-29"')


@given(st.text("ab09|()[]{}*+?^$\\.-,:=!<dz", max_size=12))
def test_what_passes_as_a_regular_expression_is_one(text):
    """In Python's eyes too, but for what only ECMA-262 has."""
    if accepts(leaf_of("regex"), json.dumps(text)) and "[]" not in text and "[^]" not in text and "?<" not in text:
        re.compile(text)
