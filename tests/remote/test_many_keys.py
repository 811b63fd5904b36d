"""Reading many keys at once: more than fit into one address, and still at one commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import pytest

from penstock.errors import ReferenceNotFound
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.calls import Call, GetContents, Resolve
from penstock.lake.catalogue import Catalogue
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue
from penstock.model.keys import Key
from penstock.model.operations import Put
from tests.remote.conftest import PATIENT
from tests.remote.scenarios import table
from tests.remote.serving import serving

R = TypeVar("R")
KEYS = tuple(Key(f"{'wide ü ' * 5}{number}") for number in range(300))


class Restless:
    """A catalogue of a lake whose tables all change between any two reads."""

    page_max: int | None = None

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.calls: list[Call[Any]] = []

    def do(self, call: Call[R], progress: Progress = show_no_progress) -> R:
        self.calls.append(call)
        found = self._lake.do(call, progress)
        self._lake.commit([Put(key, table(len(self.calls))) for key in KEYS])
        return found

    def close(self) -> None:
        pass


@pytest.fixture
def restless(embedded: Lake) -> Restless:
    embedded.commit([Put(key, table(0)) for key in KEYS])
    return Restless(embedded)


@pytest.fixture
def catalogue(restless: Restless) -> Iterator[Catalogue]:
    with serving(restless) as server:
        remote = RemoteCatalogue(server.url, patience=PATIENT)
        yield remote
        remote.close()


def _read(restless: Restless) -> list[GetContents]:
    return [call for call in restless.calls if isinstance(call, GetContents)]


@pytest.mark.parametrize("at", [None, "main", "main~0"])
def test_many_keys_are_read_at_one_commit_in_the_order_of_asking(
    catalogue: Catalogue, restless: Restless, at: str | None
) -> None:
    asked = (*KEYS[::-1], *KEYS)
    found = catalogue.do(GetContents(key=asked, at=at))
    assert [entry.key for entry in found] == list(KEYS[::-1])
    assert len({entry.content.snapshot_id for entry in found}) == 1  # type: ignore[attr-defined]
    assert len(_read(restless)) > 3
    assert {call.via for call in _read(restless)} == {"main"}


def test_keys_at_a_commit_need_no_further_question(
    catalogue: Catalogue, restless: Restless, embedded: Lake
) -> None:
    at = embedded.resolve()
    found = catalogue.do(GetContents(key=KEYS, at=at, via="main"))
    assert {entry.content.snapshot_id for entry in found} == {0}  # type: ignore[attr-defined]
    assert [call for call in restless.calls if isinstance(call, Resolve)] == []


def test_few_keys_are_read_by_one_request(catalogue: Catalogue, restless: Restless) -> None:
    catalogue.do(GetContents(key=KEYS[:5]))
    assert len(restless.calls) == 1


def test_no_keys_hold_nothing_at_a_commit_that_there_must_be(catalogue: Catalogue) -> None:
    assert catalogue.do(GetContents(key=())) == ()
    with pytest.raises(ReferenceNotFound):
        catalogue.do(GetContents(key=(), at="nobody"))
