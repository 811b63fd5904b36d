"""A call carries what is known about it; a class that leaves out what nobody else can know is no call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.formats.delta.lake.calls import CleanLog
from penstock.lake.answers import LandedRequest
from penstock.lake.call import Ask, Call, RetrySafety, WriteCall, find_retry_safety
from penstock.lake.calls import CALLS, Merge, Sweep
from penstock.model.keys import Key


def _calls(kind: type[Call[Any]] = Call) -> Iterator[type[Call[Any]]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _calls(subclass)


def test_every_call_of_penstock_that_travels_is_in_the_list_of_all() -> None:
    travelling = {
        kind for kind in _calls() if kind.__module__.startswith("penstock.") and hasattr(kind, "path")
    }
    assert travelling == set(CALLS)
    assert len(CALLS) == len(travelling)


def test_a_call_that_changes_something_says_how_it_may_be_repeated_and_whether_it_makes_a_lake() -> None:
    with pytest.raises(TypeError, match="Unsaid does not declare its retry and makes_lake"):

        class Unsaid(Call[None], frozen=True, kw_only=True):
            method = "POST"
            path = "/unsaid"
            answer = None


def test_a_call_with_many_items_says_which_a_server_counts() -> None:
    with pytest.raises(TypeError, match="Uncounted does not declare its counted"):

        class Uncounted(Call[None], frozen=True, kw_only=True):
            method = "POST"
            path = "/uncounted"
            answer = None
            retry = RetrySafety.SAFE
            makes_lake = False

            items: tuple[str, ...]


def test_a_write_says_what_makes_it_the_same_request_and_what_decides_it() -> None:
    with pytest.raises(TypeError, match="Unhashed does not declare its unhashed and revisions"):

        class Unhashed(WriteCall[None], frozen=True, kw_only=True):
            path = "/unhashed"
            answer = None
            target = "branch"
            makes_lake = False

            branch: str | None = None


def test_a_write_says_what_it_is_answered_with_once_it_has_landed() -> None:
    with pytest.raises(TypeError, match="Lost must define recover"):

        class Lost(WriteCall[None], frozen=True, kw_only=True):
            path = "/lost"
            answer = None
            target = "branch"
            makes_lake = False
            unhashed = ("branch",)
            revisions = ()

            branch: str | None = None


def test_what_a_class_says_is_about_fields_that_it_has() -> None:
    with pytest.raises(TypeError, match="Mistyped has no field brunch"):

        class Mistyped(WriteCall[None], frozen=True, kw_only=True):
            path = "/mistyped"
            answer = None
            target = "branch"
            makes_lake = False
            unhashed = ("brunch",)
            revisions = ()

            branch: str | None = None

            def recover(self, ask: Ask, landing: LandedRequest) -> None: ...


def test_only_a_write_is_known_by_its_key() -> None:
    with pytest.raises(TypeError, match="a call has an idempotency key if and only if it is a Write"):

        class Keyless(Call[None], frozen=True, kw_only=True):
            method = "POST"
            path = "/keyless"
            answer = None
            retry = RetrySafety.BY_KEY
            makes_lake = False


def test_a_get_changes_nothing() -> None:
    with pytest.raises(TypeError, match="Changing is a GET, so it must not change anything"):

        class Changing(Call[None], frozen=True, kw_only=True):
            path = "/changing"
            answer = None
            retry = RetrySafety.SAFE


@pytest.mark.parametrize("call", [Merge(source="dev"), Sweep(), CleanLog(key=Key("a"))], ids=str)
def test_a_dry_run_is_a_read(call: Any) -> None:
    dry = type(call)(**{name: getattr(call, name) for name in call.__struct_fields__} | {"dry_run": True})
    assert find_retry_safety(call) is not RetrySafety.READ
    assert find_retry_safety(dry) is RetrySafety.READ
