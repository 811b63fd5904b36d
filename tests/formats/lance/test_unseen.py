"""What has not landed is where nobody looks, whoever reads it and by whatever name."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock import Lake
from penstock.formats.lance.lake.calls import ListLanceVersions
from penstock.formats.lance.names import make_manifest_path
from penstock.model.keys import Key
from tests.formats.lance.tables import content, keys_of, keys_seen, newest, rows, state, write

lance = pytest.importorskip("lance")


def plain(lake: Lake, chain: str = "") -> list[int]:
    """The keys that a reader sees who knows nothing of the lake, as it is now."""
    folder = f"{content(lake).location}/{chain}".rstrip("/")
    found: list[int] = lance.dataset(folder).to_table()["k"].to_pylist()
    return sorted(found)


def test_what_a_transaction_wrote_is_seen_by_nobody_until_it_lands(forked: Lake) -> None:
    before = keys_seen(forked)
    tx = forked.transaction()
    made = tx.table("items").append(rows(10))
    assert plain(forked) == before
    tx.table("items").overwrite(rows(11))
    assert plain(forked) == before
    assert tx.table("items").to_lance().count_rows() == 1
    assert tx.table("items").to_arrow()["k"].to_pylist() == [11]
    assert keys_of(forked, made.commit.id) == [*before, 10]
    for via in (None, "main", tx.branch):
        (found,) = forked.do(ListLanceVersions(key=Key("items"), at=made.commit.id, via=via, limit=1))
        assert Path(found.manifest).exists()
    assert plain(forked) == before
    tx.abort()
    assert plain(forked) == before
    write(forked, "main", 12)
    assert keys_of(forked) == plain(forked) == [*before, 12]


def test_a_commit_that_a_branch_was_moved_back_from_is_read_apart(forked: Lake, tmp_path: Path) -> None:
    """Whoever reads it must not take the name that the branch's next version needs."""
    write(forked, "dev", 6)
    write(forked, "dev", 7)
    left, chain = forked.branch("dev").head, state(forked, "dev").chain
    name = Path(content(forked).location) / make_manifest_path(chain, "", 4)
    staged = Path(content(forked).location) / newest(forked, "dev")[1].staged
    forked.finish_background()
    assert (name.exists(), staged.exists()) == (True, False)
    forked.branch("dev").assign(f"dev@{forked.log('dev')[1].id}")
    name.rename(staged)  # as if it had never been promoted
    with penstock.open(tmp_path / "lake") as other:
        for via in (None, "dev", "gone"):
            (found,) = other.do(ListLanceVersions(key=Key("items"), at=left, via=via, version=4))
            assert not name.exists()
            assert Path(found.manifest).exists()
