"""Pins: Lance's own clean-up leaves what the lake needs, and no more than that."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import lance
import lance_namespace as spec
import pytest

import penstock
from penstock.formats.lance.lake import pins
from penstock.formats.lance.names import PINS, REFS_OF_TAGS, make_manifest_path
from penstock.formats.lance.version_pins import make_pin_name
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.storage.places import Place
from tests.lance.tables import ids_at, ids_of, opened, written
from tests.lance.test_sweep import expire, place_of, swept
from tests.sweep.tables import LateClock

OLD_DAYS = 8


@pytest.fixture
def clock() -> LateClock:
    return LateClock()


@pytest.fixture
def lake(tmp_path: Path, clock: LateClock) -> Iterator[Lake]:
    patient = Settings(promote_wait_s=60.0)
    with penstock.open(tmp_path / "lake", author="tester", clock=clock, settings=patient) as lake:
        yield lake


def pinned(lake: Lake, ref: str | None = None) -> list[int]:
    """The versions that are pinned, as plain Lance lists them."""
    lake.finish_background()
    tags = lance.dataset(opened(lake.lance(ref), "a").uri).tags.list()
    return sorted(one["version"] for name, one in tags.items() if name.startswith(PINS))


def fill(lake: Lake, *, versions: int) -> None:
    """A table whose versions have one row each, and no file in common."""
    for number in range(1, versions + 1):
        written(lake.lance(), "a", ids=[number], mode="create" if number == 1 else "overwrite")


def clean_up(lake: Lake, ref: str | None = None) -> None:
    table = opened(lake.lance(ref), "a")
    table.cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)


def test_every_version_is_pinned_but_the_newest(lake: Lake) -> None:
    fill(lake, versions=3)
    assert pinned(lake) == [1, 2]
    lake.branch("dev").create()
    written(lake.lance("dev"), "a", ids=[4])
    written(lake.lance("dev"), "a", ids=[5])
    assert pinned(lake) == [1, 2, 3]  # which the branch reads
    assert pinned(lake, "dev") == [4]


def test_a_version_is_pinned_before_anybody_sees_its_successor(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake, versions=1)
    lake.finish_background()
    made: list[str] = []
    create = Place.create

    def watched(self: Place, name: str, data: bytes) -> bool:
        made.append(name)
        return create(self, name, data)

    monkeypatch.setattr(Place, "create", watched)
    written(lake.lance(), "a", ids=[2])
    with lake.transaction() as transaction:
        written(transaction.lance, "a", ids=[3])
        assert pinned(lake) == [1, 2]
        written(transaction.lance, "a", ids=[4])
        assert pinned(lake) == [1, 2]
    lake.finish_background()
    for number in (1, 2, 3):
        pin = made.index(f"{REFS_OF_TAGS}{make_pin_name('', number)}.json")
        assert pin < made.index(make_manifest_path("", "", number + 1))


def test_pins_go_when_nothing_is_at_their_versions_any_more(lake: Lake, clock: LateClock) -> None:
    fill(lake, versions=2)
    lake.branch("dev").create()
    fill_more(lake, 3)
    lake.tag("v3").create()
    fill_more(lake, 4, 5, 6)
    lake.keep_history(max_commits=1)
    clock.days = OLD_DAYS
    lake.sweep()
    swept(lake)
    assert pinned(lake) == [2, 3]
    clean_up(lake)
    assert ids_at(lake.lance("dev"), "a") == [2]
    assert ids_at(lake.lance("v3"), "a") == [3]
    lake.branch("dev").delete()
    lake.tag("v3").delete()
    expire(lake, clock)
    swept(lake)
    assert pinned(lake) == []
    clean_up(lake)
    assert ids_at(lake.lance(), "a") == [6]


def fill_more(lake: Lake, *numbers: int) -> None:
    for number in numbers:
        written(lake.lance(), "a", ids=[number], mode="overwrite")


def test_young_pins_stay(lake: Lake) -> None:
    fill(lake, versions=3)
    lake.keep_history(max_commits=1)
    lake.sweep()
    swept(lake)
    assert pinned(lake) == [1, 2]


def test_the_sweep_pins_what_an_earlier_penstock_has_not(lake: Lake) -> None:
    fill(lake, versions=3)
    remove_pins(lake)
    swept(lake, dry_run=True)
    assert pinned(lake) == []
    swept(lake)
    assert pinned(lake) == [1, 2]
    clean_up(lake)
    assert [ids_at(lake.lance(f"main~{back}"), "a") for back in range(3)] == [[3], [2], [1]]


def remove_pins(lake: Lake) -> None:
    for file in place_of(lake, "a").glob(f"{REFS_OF_TAGS}{PINS}*"):
        file.unlink()


def test_of_a_long_history_the_newest_versions_are_pinned_one_by_one(
    lake: Lake, clock: LateClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pins, "PINNED_MAX", 3)
    fill(lake, versions=3)
    lake.branch("dev").create()
    fill_more(lake, *range(4, 9))
    clock.days = OLD_DAYS
    swept(lake)
    assert pinned(lake) == [1, 3, 6, 7]
    with pytest.raises(OSError, match="tagged version"):
        opened(lake.lance(), "a").cleanup_old_versions(older_than=timedelta(0))
    assert [ids_at(lake.lance(f"main~{back}"), "a") for back in range(8)] == [[8 - back] for back in range(8)]
    clean_up(lake)
    assert ids_at(lake.lance("dev"), "a") == [3]


def test_a_pin_stays_by_which_alone_another_branch_has_its_files(lake: Lake, clock: LateClock) -> None:
    fill(lake, versions=2)
    lake.branch("dev").create()
    fill_more(lake, 3)
    for number in (10, 11):  # the branch's commits are all that is left of it
        written(lake.lance("dev"), "a", ids=[number])
    fill_more(lake, 4)
    expire(lake, clock)
    swept(lake)
    assert pinned(lake) == [2]
    clean_up(lake)
    assert ids_at(lake.lance("dev"), "a") == [2, 10, 11]


def test_a_registered_table_has_no_tags_from_the_lake_that_it_was_in(lake: Lake) -> None:
    fill(lake, versions=3)
    location = str(place_of(lake, "a"))
    namespace: Any = lake.lance()
    namespace.create_table_tag(spec.CreateTableTagRequest(id=["a"], tag="mine", version=2))
    lake.finish_background()
    namespace.deregister_table(spec.DeregisterTableRequest(id=["a"]))
    namespace.register_table(spec.RegisterTableRequest(id=["b"], location=location))
    assert list(namespace.list_table_tags(spec.ListTableTagsRequest(id=["b"])).tags) == ["mine"]
    assert ids_of(opened(namespace, "b")) == [3]


def test_whoever_cleans_up_while_others_write_takes_nothing_that_a_commit_is_at(lake: Lake) -> None:
    fill(lake, versions=1)
    is_over = Event()
    with ThreadPoolExecutor() as pool:
        cleaned = pool.submit(clean_up_until, lake, is_over)
        try:
            fill_more(lake, *range(2, 20))
            lake.branch("dev").create()
            fill_more(lake, *range(20, 30))
        finally:
            is_over.set()
        assert cleaned.result() > 1
    assert [ids_at(lake.lance(f"main~{back}"), "a") for back in range(29)] == [
        [29 - back] for back in range(29)
    ]
    assert ids_at(lake.lance("dev"), "a") == [19]
    assert lake.fsck().damages == ()


def clean_up_until(lake: Lake, is_over: Event) -> int:
    """How often it was done."""
    count = 0
    while not is_over.is_set():
        clean_up(lake)
        count += 1
    return count
