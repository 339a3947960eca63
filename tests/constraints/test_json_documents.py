"""Schemas of several documents: a part means what it would mean in the schema itself, and nothing else is read."""

from __future__ import annotations

import contextlib
import io
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locore.cli import main
from locore.constraints import from_json, json_schema
from locore.kernel.errors import BudgetExceeded, InvalidConstraint, UnsupportedKeyword

from .bytewise import holds
from .schemas import LOOSE, VALUES, any_schemas

PERSON = {
    "type": "object",
    "properties": {"name": {"enum": ["Ann", "Bo"]}, "home": {"$ref": "parts/address.json"}},
    "required": ["name", "home"],
    "additionalProperties": False,
}
ADDRESS = {"type": "object", "properties": {"city": {"$ref": "names.json#/$defs/city"}}, "required": ["city"]}
CITIES = {"$defs": {"city": {"enum": ["Paris", "Rome"]}}}
DOCUMENTS = {"parts/address.json": ADDRESS, "parts/names.json": CITIES}
VALID = b'{"name":"Ann","home":{"city":"Rome"}}'


@given(any_schemas(), st.lists(VALUES, min_size=1, max_size=4))
def test_another_document_is_as_good_as_a_part(schema, values):
    try:
        whole = json_schema(schema, **LOOSE)
    except (UnsupportedKeyword, InvalidConstraint, BudgetExceeded):
        return
    apart = json_schema({"$ref": "https://example.com/a.json"}, documents={"https://example.com/a.json": schema}, **LOOSE)
    for value in values:
        text = json.dumps(value)
        assert apart.accepts(text.encode()) == whole.accepts(text.encode()) == holds(apart, text)


@pytest.mark.parametrize("start", ["", "https://example.com/schemas/"])
def test_references_go_on_from_where_they_stand(start):
    schema = {"$id": f"{start}person.json", **PERSON} if start else PERSON
    leaf = json_schema(schema, documents={start + name: content for name, content in DOCUMENTS.items()})
    assert leaf.accepts(VALID) and not leaf.accepts(VALID.replace(b"Rome", b"Oslo"))


def test_they_come_along():
    leaf = json_schema(PERSON, documents=DOCUMENTS)
    assert leaf.to_json()["documents"] == DOCUMENTS
    for again in (from_json(json.loads(json.dumps(leaf.to_json()))), pickle.loads(pickle.dumps(leaf))):
        assert again == leaf and again.accepts(VALID)
    assert leaf != json_schema(PERSON, documents={**DOCUMENTS, "more.json": True})
    assert "documents" not in json_schema({"type": "null"}).to_json()


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([], "dict of schemas by URI, got list"),
        ("a.json", "dict of schemas by URI, got str"),
        ({1: {}}, "plain JSON values"),
        ({"parts/address.json": {"a", "b"}}, "plain JSON values"),
        ({**DOCUMENTS, "parts/names.json": {}}, "names.json#/\\$defs/city.*documents="),
        ({**DOCUMENTS, "parts/address.json": 5}, "a schema: an object, true or false"),
        ({**DOCUMENTS, "parts/address.json": {"type": "strin"}}, "strin"),
        ({**DOCUMENTS, "parts/address.json": {"$ref": "address.json"}}, "refers to itself"),
        ({"parts/names.json": CITIES}, "address.json.*nothing is fetched.*documents="),
    ],
)
def test_what_is_wrong_with_them_is_said(documents, message):
    with pytest.raises((InvalidConstraint, UnsupportedKeyword), match=message):
        json_schema(PERSON, documents=documents)


def _generated(path):
    printed, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
        options = ["--max-new-tokens=60", "--num-particles=2", "--seed=1", "--json"]
        code = main(["generate", "--model", "tiny", "--prompt", "Once", "--json-schema", str(path), *options])
    return code, json.loads(printed.getvalue())["texts"] if code == 0 else said.getvalue()


@pytest.mark.parametrize("start", ["", "https://example.com/schemas/"])
def test_the_shell_reads_files_beside_the_schema(tmp_path, start):
    (tmp_path / "parts").mkdir()
    (tmp_path / "person.json").write_text(json.dumps({"$id": f"{start}person.json", **PERSON} if start else PERSON))
    for name, content in DOCUMENTS.items():
        (tmp_path / name).write_text(json.dumps(content))
    code, texts = _generated(tmp_path / "person.json")
    assert code == 0 and all(json.loads(text)["home"]["city"] in ("Paris", "Rome") for text in texts)


def test_and_nothing_outside_of_its_folder(tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "a.json").write_text("true")
    (tmp_path / "inside" / "b.json").write_text(json.dumps({"$ref": "../a.json"}))
    code, said = _generated(tmp_path / "inside" / "b.json")
    assert code != 0 and "'../a.json' is not a part of this schema" in said


def test_a_file_that_is_no_json_is_told(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"$ref": "b.json"}))
    (tmp_path / "b.json").write_text('{"type": ')
    code, said = _generated(tmp_path / "a.json")
    assert code != 0 and "b.json" in said and "a schema is JSON" in said


@pytest.mark.parametrize("reference", ["http://[", "a\0b", "", "x" * 5_000, "%zz", "//", "http://x:y/"])
def test_what_is_no_address_is_told(tmp_path, reference):
    (tmp_path / "a.json").write_text(json.dumps({"$ref": reference}))
    code, said = _generated(tmp_path / "a.json")
    assert code != 0 and said.startswith("error: ")
    with pytest.raises((InvalidConstraint, UnsupportedKeyword)):
        json_schema({"$ref": "a"}, documents={reference: {"type": "strin"}})
