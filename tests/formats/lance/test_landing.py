"""What a merge puts into table storage, and when: staged before its turn, copied where it must be (K4)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Lake
from penstock.errors import MergeConflict, Unavailable
from penstock.formats.lance import version_writer
from penstock.formats.lance.chains import WaitingVersion
from penstock.formats.lance.names import STAGING
from penstock.formats.lance.plugin import LancePlugin
from penstock.formats.lance.promoter import Promoter
from penstock.formats.lance.relocation import BASE_OF_INDEX
from penstock.model.keys import Key
from penstock.testing.faults import Gate
from tests.formats.lance.tables import (
    ITEMS,
    content,
    delete,
    embedded,
    filtered,
    keys_of,
    keys_seen,
    manifest,
    newest,
    opened,
    rows,
    write,
)
from tests.plugins import plugin_of

lance = pytest.importorskip("lance")


def staged_by_merges(lake: Lake) -> set[str]:
    folder = Path(content(lake).location)
    return {str(one.relative_to(folder)) for one in folder.glob(f"{STAGING}merge-*/*")}


@pytest.fixture
def elsewhere(forked: Lake, tmp_path: Path) -> Iterator[Lake]:
    """The lake as another process has it, whose requests wait for none of this one's."""
    with penstock.open(tmp_path / "lake") as opened_again:
        yield opened_again


class Meddling:
    """Does something when a merge has put its first manifests into storage, before its turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *work: Any) -> None:
        self._create, self._work, self.seen = version_writer._create_file, list(work), 0
        monkeypatch.setattr(version_writer, "_create_file", self)

    def __call__(self, place: Any, name: str, data: bytes) -> None:
        self._create(place, name, data)
        self.seen += 1
        if self._work:
            self._work.pop(0)()


def test_k4_a_merge_that_was_overtaken_is_prepared_once_more(
    forked: Lake, elsewhere: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(forked, "dev", 10)
    delete(forked, "dev", 4)
    meddling = Meddling(monkeypatch, *(partial(write, elsewhere, "main", key) for key in (20, 21)))
    forked.merge("dev", "main")
    assert meddling.seen >= 3
    assert keys_of(forked) == keys_seen(forked) == [1, 2, 3, 5, 10, 20, 21]
    assert newest(forked)[0] == 5


def test_a_merge_that_is_overtaken_again_and_again_lands_in_the_end(
    forked: Lake, elsewhere: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(forked, "dev", 10)
    meddling = Meddling(monkeypatch, *(partial(write, elsewhere, "main", key) for key in range(20, 28)))
    forked.merge("dev", "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 10, *range(20, 28)]
    assert meddling.seen > 8


def test_a_merge_that_dies_when_its_manifest_is_staged_leaves_the_table_as_it_was(
    forked: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(forked, "dev", 10)

    def die() -> None:
        raise Unavailable("the process died")

    with monkeypatch.context() as patched:
        Meddling(patched, die)
        with pytest.raises(Unavailable):
            forked.merge("dev", "main")
    assert keys_of(forked) == keys_seen(forked) == [1, 2, 3, 4, 5]
    assert len(staged_by_merges(forked)) == 1, "what it staged is there, and nothing names it"
    forked.merge("dev", "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 10]


def test_two_merges_that_were_prepared_on_the_same_state_both_land(
    forked: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked.branch("other").create()
    write(forked, "dev", 10)
    write(forked, "other", 11)
    Meddling(monkeypatch, lambda: forked.merge("other", "main"))
    forked.merge("dev", "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 10, 11]
    assert newest(forked)[0] == 4


def test_no_manifest_is_where_everybody_looks_before_the_merge_is_decided(
    forked: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(forked, "dev", 10)
    seen: list[list[int]] = []
    Meddling(monkeypatch, lambda: seen.append(keys_seen(forked)))
    forked.merge("dev", "main")
    assert seen == [[1, 2, 3, 4, 5]]


# -- indexes -----------------------------------------------------------------------------------------------


def test_an_index_that_was_made_on_a_branch_lies_in_the_tables_own_folder_afterwards(forked: Lake) -> None:
    opened(forked, "dev").create_scalar_index("k", "BTREE")
    forked.merge("dev", "main")
    (index,) = manifest(forked).indexes
    assert index.get_number(BASE_OF_INDEX) is None
    assert len(list((Path(content(forked).location) / "_indices").iterdir())) == 1
    write(forked, "main", 6)
    opened(forked).optimize.compact_files()
    assert opened(forked).to_table(filter="k = 4")["k"].to_pylist() == [4]
    opened(forked, "dev").create_scalar_index("v", "BTREE")
    with pytest.raises(MergeConflict, match="create index"):
        forked.merge("dev", "main")


def test_an_index_is_copied_once_however_often_its_branch_is_merged(forked: Lake) -> None:
    opened(forked, "dev").create_scalar_index("k", "BTREE")
    forked.merge("dev", "main")
    write(forked, "dev", 6)
    forked.merge("dev", "main")
    assert [one.get_number(BASE_OF_INDEX) for one in manifest(forked).indexes] == [None]
    assert opened(forked).to_table(filter="k = 6 or k = 1")["k"].to_pylist() == [1, 6]
    assert len(list((Path(content(forked).location) / "_indices").iterdir())) == 1


def test_indexes_beyond_the_limit_are_refused_with_a_way_out(
    forked: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(forked, "dev").create_scalar_index("k", "BTREE")
    monkeypatch.setattr(version_writer, "INDEXES_MAX_BYTES", 100)
    with pytest.raises(MergeConflict, match=r"k_idx.*drop them on the other side"):
        forked.merge("dev", "main")
    opened(forked, "dev").drop_index("k_idx")
    forked.merge("dev", "main")
    assert keys_seen(forked) == [1, 2, 3, 4, 5]


def test_a_branch_reads_the_index_that_it_has_from_the_default_branch(forked: Lake) -> None:
    opened(forked).create_scalar_index("k", "BTREE")
    forked.merge("main", "dev")
    write(forked, "dev", 10)
    assert manifest(forked, "dev").indexes[0].get_number(BASE_OF_INDEX) is not None
    assert opened(forked, "dev").to_table(filter="k = 4 or k = 10")["k"].to_pylist() == [4, 10]


def test_an_index_that_compaction_renewed_on_a_branch_is_found_where_it_is(forked: Lake) -> None:
    opened(forked).create_scalar_index("k", "BTREE")
    forked.merge("main", "dev")
    write(forked, "dev", 10)
    table = opened(forked, "dev")
    table.optimize.compact_files()
    assert manifest(forked, "dev").indexes[0].get_number(BASE_OF_INDEX) is None
    assert filtered(forked, "dev", 4, 10) == [4, 10]
    lance.write_dataset(rows(11), table, mode="append")
    assert filtered(forked, "dev", 4, 11) == [4, 11]
    forked.merge("dev", "main")
    assert filtered(forked, "main", 4, 11) == [4, 11]
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 10, 11]


def test_a_reader_that_was_sent_to_a_merged_version_still_finds_it_once_it_is_promoted(forked: Lake) -> None:
    write(forked, "dev", 10)
    write(forked, "main", 20)
    forked.merge("dev", "main")
    waiting = WaitingVersion("", *newest(forked))
    name = plugin_of(embedded(forked), LancePlugin).parts.promoter.find_private_path(content(forked), waiting)
    forked.finish_background()
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 10, 20]
    place = embedded(forked).places.open_place(content(forked).location)
    assert name != waiting.version.staged
    assert place.size(name) is not None
    assert place.size(waiting.version.staged) is None


def test_a_reader_that_was_sent_to_a_version_of_a_transaction_still_finds_it_once_it_is_promoted(
    forked: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, work = Gate(), Promoter.publish_task
    opening = plugin_of(embedded(forked), LancePlugin).answers._opening

    def gated(self: Promoter, told: Any) -> None:
        gate()
        work(self, told)

    with forked.transaction() as transaction:
        write(forked, transaction.branch, 10)
        number, version = newest(forked, transaction.branch)
        inside = opening.open_table(transaction.branch, Key(ITEMS))
        assert opening.place_version(inside, "", number, version).name == version.staged, "nothing is copied"
        monkeypatch.setattr(Promoter, "publish_task", gated)
    assert newest(forked) == (number, version), "it landed as it was written"
    outside = opening.open_table("main", Key(ITEMS))
    sent_to = [
        opening.place_after_commit(outside, "", number, version).name,
        plugin_of(embedded(forked), LancePlugin).parts.promoter.find_private_path(
            outside.content, WaitingVersion("", number, version)
        ),
    ]
    gate.open()
    forked.finish_background()
    place = embedded(forked).places.open_place(outside.content.location)
    assert place.size(version.staged) is None
    for name in sent_to:
        assert place.size(name) == version.size
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 10]
