"""The comparison with Nessie sees what matters, and only that."""

from __future__ import annotations

import pytest

from tests.nessie.oracle.asking import EMPTY, Answer, Ask
from tests.nessie.oracle.deliberate import Deliberate
from tests.nessie.oracle.sameness import differences, normal
from tests.nessie.oracle.test_oracle import compare, unlike
from tests.nessie.oracle.words import get, scenario

ASK = get("trees")
A, B, C, D = (letter * 64 for letter in "abcd")


def said(body: object, status: int = 200) -> Answer:
    return Answer(status, body, is_json=True)


def refused(message: str, status: int = 400, code: str = "BAD_REQUEST") -> Answer:
    return said({"message": message, "errorCode": code}, status)


def told(theirs: list[object], ours: list[object]) -> list[str]:
    story = scenario("a story", *[ASK] * len(theirs))
    return compare(story, [said(each) for each in theirs], [said(each) for each in ours])


def test_hashes_and_ids_may_differ_but_not_what_they_name() -> None:
    assert told([{"hash": A}, [A, B]], [{"hash": C}, [C, D]]) == []
    assert told([{"hash": A}, [A, B]], [{"hash": C}, [D, C]]) != []


def test_a_hash_in_a_message_is_compared_as_well() -> None:
    assert told([A, f"not at {A}"], [B, f"not at {B}"]) == []
    assert told([A, f"not at {A}"], [B, f"not at {C}"]) != []


def test_the_empty_hash_is_the_same_everywhere() -> None:
    assert told([{"hash": EMPTY}], [{"hash": A}]) != []


def test_what_the_client_has_said_comes_back_as_it_was() -> None:
    ask = Ask("POST", "v2/trees", {"authorTime": "2020-02-03T04:05:06.789Z"})
    [kept] = normal([ask], [said("2020-02-03T04:05:06.789Z")])
    [with_zeros] = normal([ask], [said("2020-02-03T04:05:06.789000Z")])
    [other] = normal([ask], [said("2020-02-03T04:05:06Z")])
    assert (kept.body, with_zeros.body, other.body) == (kept.body, kept.body, "time")


def test_a_token_may_be_any_but_must_be_there() -> None:
    assert told([{"token": "61"}], [{"token": "other"}]) == []
    assert told([{"token": "61"}], [{"token": None}]) != []


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"a": None}, {}),
        ({}, {"a": None}),
        ({"a": True}, {"a": 1}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": [1]}, {"a": [1, 1]}),
        ({"a": {"b": "x"}}, {"a": {"b": "y"}}),
        ({"a": 9007199254740993}, {"a": 9007199254740992}),
    ],
)
def test_every_difference_of_bodies_is_seen(theirs: object, ours: object) -> None:
    assert differences(theirs, ours) != []


def test_only_lists_that_come_from_a_hash_table_have_no_order() -> None:
    one, other = ({"key": {"elements": [name]}} for name in "ab")
    assert told([{"addedContents": [one, other]}], [{"addedContents": [other, one]}]) == []
    assert told([{"entries": [one, other]}], [{"entries": [other, one]}]) != []


def test_a_message_of_a_library_may_be_said_in_other_words() -> None:
    theirs = refused('Unrecognized field "x" (class org.example.Y)')
    assert unlike(theirs, refused("there is no field x"), None) == []
    assert unlike(theirs, refused("there is no field x", code="UNKNOWN"), None) != []
    assert unlike(theirs, refused("there is no field x", status=404), None) != []
    assert unlike(refused("Expected hash must be provided."), refused("no hash"), None) != []


def test_an_internal_error_is_no_example_to_follow() -> None:
    assert unlike(refused("null", status=500), refused("say what is meant"), None) == []
    assert unlike(refused("null", status=500), refused("null", status=500), None) != []


def test_an_error_may_say_more_than_nothing() -> None:
    theirs = Answer(404, "", is_json=False)
    assert unlike(theirs, refused("there is nothing here", status=404), None) == []
    assert unlike(theirs, refused("there is nothing here", status=400), None) != []
    assert unlike(Answer(204, "", is_json=False), said({}, status=204), None) != []


def test_a_difference_that_is_listed_must_be_one() -> None:
    listed = Deliberate("a story", "v2/trees", 404, "it is safer")
    assert unlike(said({}), refused("no", status=404), listed) == []
    assert unlike(said({}), said({}), listed) != []
    assert unlike(refused("no", status=404), refused("no", status=404), listed) != []


def test_a_conversation_that_breaks_off_is_a_difference() -> None:
    story = scenario("a story", ASK, ASK)
    assert compare(story, [said(1), said(2)], [said(1)]) != []
