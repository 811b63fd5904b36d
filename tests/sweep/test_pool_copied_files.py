"""Files that a write takes from another commit: only while a sweep surely leaves them there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import penstock
from penstock.errors import CommitNotFound
from penstock.lake.lake import Lake
from penstock.storage.places import Place
from tests.sweep.pool import Pool, names, swept
from tests.sweep.tables import LateClock


@pytest.fixture
def lake(tmp_path: Path, later: LateClock) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", create=True, author="tester", clock=later) as lake:
        yield lake


@pytest.fixture
def pool(lake: Lake) -> Pool:
    return Pool(lake)


def test_a_file_of_a_commit_that_no_branch_leads_to_any_more_cannot_be_copied(
    lake: Lake, pool: Pool, later: LateClock
) -> None:
    """The commit may be known for longer than its files are there."""
    pool.write("t", "kept")
    lake.branch("dev").create()
    pool.write("t", "x", branch="dev")
    dropped = lake.resolve("dev")
    files = lake.table("t").files
    files.copy("x", "from-a-branch", at="dev")
    lake.branch("dev").delete()
    files.copy("x", "lately-dropped", at=dropped)
    later.days = 3
    with pytest.raises(CommitNotFound, match="not on any branch or tag"):
        files.copy("x", "y", at=dropped)
    assert names(lake, "t") == {"kept", "from-a-branch", "lately-dropped"}


def test_a_copy_while_a_sweep_removes_what_it_would_copy_is_refused(
    lake: Lake, pool: Pool, later: LateClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.write("t", "kept")
    lake.branch("dev").create()
    left = pool.write("t", "x", branch="dev")
    dropped = lake.resolve("dev")
    lake.branch("dev").delete()
    later.days = 8
    removing, met = Place.delete, list[str]()

    def delete(place: Place, doomed: Sequence[str]) -> None:
        met.extend(doomed)
        with pytest.raises(CommitNotFound):
            lake.table("t").files.copy("x", "y", at=dropped)
        removing(place, doomed)

    monkeypatch.setattr(Place, "delete", delete)
    assert swept(lake).data_files == 1
    assert met == [f"{left}x"]
    assert names(lake, "t") == {"kept"}
    assert lake.fsck().damages == ()
