"""Lists that come in several pages are of one commit, whatever happens between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from penstock import Delete, IcebergTable, Key, Put
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.calls import Call, Diff, GetChanges, ListCommits
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.lake.remote import RemoteCatalogue
from penstock.server.limits import Limits
from tests.remote.serving import serving

R = TypeVar("R")
COUNT = 250
PAGE = 100


class Interfering(RemoteCatalogue):
    """Lets somebody else do something between the first page of a list and the next."""

    def __init__(self, url: str, between: Callable[[], object]) -> None:
        super().__init__(url)
        self._between = between
        self.pages = 0

    def do(self, call: Call[R], progress: Progress = show_no_progress) -> R:
        answer = super().do(call, progress)
        if isinstance(call, GetChanges | Diff | ListCommits):
            self.pages += 1
            if self.pages == 1:
                self._between()
        return answer


def puts(version: int, count: int = COUNT) -> list[Put]:
    return [
        Put(Key(f"t{number:04}"), IcebergTable(metadata_location=f"s3://lake/{number}/{version}.json"))
        for number in range(count)
    ]


@pytest.fixture
def lake() -> Iterator[Lake]:
    with open_lake("memory:", author="ada") as lake:
        lake.tag("start").create()
        for version in range(3):
            lake.commit(puts(version, 5 if version < 2 else COUNT), message=f"version {version}")
        yield lake


def _asked(lake: Lake, between: Callable[[], object], ask: Callable[[Lake], Any]) -> tuple[Any, int]:
    with serving(lake.catalogue, limits=Limits(page_max=PAGE)) as server:
        catalogue = Interfering(server.url, between)
        with Lake(catalogue, author="bob") as remote:
            return ask(remote), catalogue.pages


def test_the_changes_of_a_commit_are_all_of_that_commit(lake: Lake) -> None:
    expected = lake.changes("main")
    found, pages = _asked(
        lake, lambda: lake.commit([Delete(Key("t0200"))]), lambda remote: remote.changes("main")
    )
    assert found == expected
    assert pages > 2


def test_differences_are_between_two_commits(lake: Lake) -> None:
    expected = lake.diff("start", "main")
    found, pages = _asked(lake, lambda: lake.commit(puts(9)), lambda remote: remote.diff("start", "main"))
    assert found == expected
    assert pages > 2


def test_a_log_goes_on_from_where_it_began_though_the_branch_has_moved_back(lake: Lake) -> None:
    for number in range(COUNT):
        lake.commit(puts(10 + number, 1), message=str(number))
    expected = lake.log("main", limit=None)
    found, pages = _asked(
        lake, lambda: lake.branch().assign("start"), lambda remote: remote.log("main", limit=None)
    )
    assert found == expected
    assert pages > 2
