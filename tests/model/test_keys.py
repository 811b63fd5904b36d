"""Keys: reading, writing, order, and what cannot be a key."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidKey
from penstock.model.keys import ELEMENTS_MAX, LENGTH_MAX_CHARS, RESERVED, Key

characters = st.characters(codec="utf-8", min_codepoint=0x20).filter(lambda char: char != "\x7f")
telling = st.text(st.sampled_from('a.b"!~ \u00e9\ufffd\uff5e\U00010000\U0010ffff'), min_size=1, max_size=4)
elements = st.one_of(telling, st.text(characters, min_size=1, max_size=12))
keys = st.lists(elements, min_size=1, max_size=5).map(lambda parts: Key(*parts))
quick = settings(derandomize=True, deadline=None, max_examples=150)


@quick
@given(keys)
def test_a_key_reads_back_as_it_was_written(key: Key) -> None:
    assert Key.parse(str(key)) == key
    assert eval(repr(key), {"Key": Key.parse}) == key


@quick
@given(keys)
def test_a_stored_key_decodes_to_itself(key: Key) -> None:
    assert Key.decode(key.encode()) == key
    assert Key.decode(key.encode()).elements == key.elements
    assert not key.encode().startswith(RESERVED)


@quick
@given(st.lists(keys, max_size=12))
def test_keys_sort_by_their_utf8_bytes_element_by_element(some: list[Key]) -> None:
    by_elements = sorted(some, key=lambda key: [element.encode() for element in key])
    assert sorted(some, key=Key.encode) == by_elements
    assert sorted(some) == by_elements


def test_order_beyond_the_basic_plane_is_that_of_utf8_and_not_of_utf16() -> None:
    last_of_the_plane, beyond = Key("\uffee"), Key("\U00010000")
    assert last_of_the_plane.encode() < beyond.encode()
    assert last_of_the_plane[0].encode("utf-16-be") > beyond[0].encode("utf-16-be")


@quick
@given(st.sets(keys, max_size=12), keys)
def test_a_namespace_stands_directly_before_everything_below_it(others: set[Key], namespace: Key) -> None:
    children = [Key(*namespace.elements, element) for element in ("!", "a", "\U0010ffff")]
    stored = sorted(one.encode() for one in {*others, namespace, *children})
    start = stored.index(namespace.encode())
    below = [one for one in stored if Key.decode(one).elements[: len(namespace)] == namespace.elements]
    assert stored[start : start + len(below)] == below


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("orders", ("orders",)),
        ("sales.orders", ("sales", "orders")),
        ('sales."2026.11"', ("sales", "2026.11")),
        ('"a.b"."c.d"', ("a.b", "c.d")),
        ('"say ""hi"""', ('say "hi"',)),
        ('""""', ('"',)),
        ('a"b', ('a"b',)),
        ('a"b.c', ('a"b', "c")),
        ('"plain".b', ("plain", "b")),
        ("a b", ("a b",)),
        ("\u00fcml\u00e4ut.\u6f22\u5b57.\U0001f600", ("\u00fcml\u00e4ut", "\u6f22\u5b57", "\U0001f600")),
    ],
)
def test_dots_and_quotes_are_read_as_documented(text: str, parts: tuple[str, ...]) -> None:
    assert Key.parse(text).elements == parts


def test_only_what_needs_quotes_is_quoted() -> None:
    assert str(Key("a", "b c", "d.e", 'f"g')) == 'a.b c."d.e"."f""g"'
    assert repr(Key("sales", "orders")) == "Key('sales.orders')"


@pytest.mark.parametrize(
    "text",
    ["", ".", "a.", ".a", "a..b", '"a', '"a"b', '"a".', '""', 'a.""', '"a" .b', 'a."b', '"a"".b', '."a"'],
)
def test_malformed_keys_are_refused(text: str) -> None:
    with pytest.raises(InvalidKey):
        Key.parse(text)


@pytest.mark.parametrize("number", [*range(0x20), 0x7F])
def test_no_element_contains_a_control_character(number: int) -> None:
    for element in (chr(number), f"a{chr(number)}", f"{chr(number)}\u00e9"):
        with pytest.raises(InvalidKey, match="control character"):
            Key("fine", element)


@pytest.mark.parametrize("element", ["\ud800", "a\udfff", "\udc00\ud800"])
def test_a_lone_surrogate_is_refused_before_anything_is_stored(element: str) -> None:
    with pytest.raises(InvalidKey):
        Key("fine", element).encode()


def test_twenty_elements_are_a_key_and_one_more_is_none() -> None:
    assert len(Key(*["a"] * ELEMENTS_MAX)) == ELEMENTS_MAX == 20
    for count in (ELEMENTS_MAX + 1, 500):
        with pytest.raises(InvalidKey, match=f"{count}"):
            Key(*["a"] * count)
        with pytest.raises(InvalidKey):
            Key.parse(".".join(["a"] * count))


def test_five_hundred_characters_are_a_key_and_one_more_is_none() -> None:
    assert LENGTH_MAX_CHARS == 500
    assert len(str(Key("a" * 249, "b" * 250))) == 500
    for parts in (("a" * 501,), ("a" * 250, "b" * 250), ("\U0001f600" * 501,)):
        with pytest.raises(InvalidKey, match="500 characters"):
            Key(*parts)


def test_a_long_key_is_not_repeated_whole_in_its_error() -> None:
    with pytest.raises(InvalidKey) as refused:
        Key("x" * 1_000_000)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("parts", [(), ("",), ("a", ""), ("", "a")])
def test_a_key_and_its_elements_are_not_empty(parts: tuple[str, ...]) -> None:
    with pytest.raises(InvalidKey):
        Key(*parts)


@pytest.mark.parametrize("wrong", [1, None, b"a", ["a"], ("a",)])
def test_elements_that_are_not_text_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidKey):
        Key("a", wrong)
    with pytest.raises(InvalidKey):
        Key.parse(wrong)


def test_parents_are_the_namespaces_outermost_first() -> None:
    assert Key.parse("a.b.c").parents == (Key("a"), Key("a", "b"))
    assert Key("a").parents == ()
    assert all(isinstance(parent, Key) for parent in Key.parse("a.b.c").parents)


def test_keys_are_equal_by_their_elements_and_survive_copies() -> None:
    key = Key.parse('a."b.c"')
    assert key != Key.parse("a.b.c")
    assert len({key, Key("a", "b.c"), copy.deepcopy(key), pickle.loads(pickle.dumps(key))}) == 1
    assert type(pickle.loads(pickle.dumps(key))) is Key
    assert Key.parse(key) is key
