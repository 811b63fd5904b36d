"""Content keys as Nessie's clients write them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidKey
from penstock.model.keys import Key
from penstock.server.nessie.keys import quote_key, read_key, write_separated_key

telling = st.text(st.sampled_from("a.*/\\%{}[ \u00e9\U0001f600"), min_size=1, max_size=5)
plain = st.text(st.sampled_from("ab*{}[-_ \u00e9"), min_size=1, max_size=5)
quick = settings(derandomize=True, deadline=None, max_examples=300)


ESCAPED = str.maketrans({".": "*.", "*": "**", "/": "*{", "\\": "*}", "%": "*["})


def keys(elements: st.SearchStrategy[str]) -> st.SearchStrategy[Key]:
    return st.lists(elements, min_size=1, max_size=4).map(lambda parts: Key(*parts))


def write_key(key: Key) -> str:
    """The key as newer clients write it."""
    if set("./\\%").isdisjoint("".join(key)):
        return ".".join(key)
    return "".join(f".{element.translate(ESCAPED)}" for element in key)


@quick
@given(keys(telling))
def test_a_key_reads_back_as_newer_clients_write_it(key: Key) -> None:
    assert read_key(write_key(key)) == key


@quick
@given(keys(st.text(st.sampled_from("ab.*/\\%"), min_size=1, max_size=5)))
def test_a_key_reads_back_as_older_clients_write_it(key: Key) -> None:
    assert read_key(write_separated_key(key)) == key
    assert read_key(write_separated_key(key).replace("\x1d", "\0")) == key


@quick
@given(keys(plain))
def test_a_plain_key_is_its_elements_with_dots_between_them(key: Key) -> None:
    assert write_key(key) == quote_key(key) == ".".join(key)


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("sales", ["sales"]),
        ("sales.orders", ["sales", "orders"]),
        ("a\x1db.c\0d", ["a.b", "c.d"]),
        (".foo*..*.bar.a*{*}*[aa", ["foo.", ".bar", "a/\\%aa"]),
        (".with*.dot", ["with.dot"]),
        (".plain**star", ["plain*star"]),
        ("plain*star", ["plain*star"]),
        ("ends.", ["ends"]),
    ],
)
def test_each_way_to_write_a_key_is_read(text: str, elements: list[str]) -> None:
    assert list(read_key(text)) == elements


@pytest.mark.parametrize("text", ["", ".", "a..b", ".a*x", ".a*", "..", ".a..b", "a\x01b"])
def test_what_cannot_be_a_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidKey):
        read_key(text)


@quick
@given(st.text(st.sampled_from("a.*{}[\x1d\0\x01/"), max_size=12))
def test_any_text_is_a_key_or_refused(text: str) -> None:
    try:
        key = read_key(text)
    except InvalidKey:
        return
    assert read_key(write_key(key)) == key
