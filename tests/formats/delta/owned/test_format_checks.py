"""What is refused before it can break a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import InvalidContent, InvalidRequest, NotManaged, Throttled
from penstock.formats.delta.protocol.actions import CommitInfo, Metadata, write_commit
from penstock.stores.port import Store
from tests.formats.delta.managed import Owner, add, remove


@pytest.mark.parametrize("version", [None, 1], ids=["assigned", "given"])
def test_r11_everything_that_is_wrong_is_told_with_the_writers_line_and_nothing_is_ratified(
    owner: Owner, version: int | None
) -> None:
    owner.create(partition_by=["day"])
    lines = write_commit([add("a", "x"), add("../b", "x")]) + b"no action\n" + write_commit([add("c")])
    with pytest.raises(InvalidContent) as error:
        owner.commit(lines, version=version)
    assert [line for line, _, _ in error.value.details["problems"]] == [2, 3, 4]
    assert "'orders'" in str(error.value)
    assert owner.line().latest == 0


def test_a_commit_info_that_does_not_come_first_is_refused(owner: Owner) -> None:
    owner.create()
    with pytest.raises(InvalidContent, match="line 2, commitInfo"):
        owner.commit([add("a"), CommitInfo({"operation": "WRITE"})])


def test_a_file_that_is_not_there_cannot_be_removed(owner: Owner) -> None:
    owner.create()
    owner.commit([add("a")])
    for version in (None, 2):
        with pytest.raises(InvalidContent, match="is not in the table"):
            owner.commit([remove("b")], version=version)
    owner.commit([remove("a")])
    with pytest.raises(InvalidContent, match="is not in the table"):
        owner.commit([remove("a")], version=3)
    assert owner.paths() == set()


@pytest.mark.parametrize(
    "name",
    ["delta.managedCommitOwnerName", "delta.managedCommitOwnerConf", "delta.enableInCommitTimestamps"],
)
@pytest.mark.parametrize("version", [None, 1], ids=["assigned", "given"])
def test_a_writer_does_not_change_who_owns_the_table(owner: Owner, name: str, version: int | None) -> None:
    owner.create()
    was = owner.snapshot().metadata
    for value in ("other", None):
        configuration = {**was.configuration, **({name: value} if value else {})}
        if value is None:
            del configuration[name]
        wanted = Metadata(
            id=was.id, schema_string=was.schema_string, partition_columns=(), configuration=configuration
        )
        with pytest.raises(InvalidContent):
            owner.commit([wanted], version=version, read_version=None if version else 0)
    assert owner.line().latest == 0


def test_a_change_of_the_metadata_says_which_version_it_read(owner: Owner) -> None:
    owner.create()
    was = owner.snapshot().metadata
    with pytest.raises(InvalidRequest, match="the version it read"):
        owner.commit([was])


def test_a_table_of_another_lake_is_only_read(store: Store, tmp_path: Path) -> None:
    owner = Owner(store, tmp_path)
    owner.create()
    other = Owner(store, tmp_path, lake="another-lake")
    with pytest.raises(NotManaged, match="only reads"):
        other.commit([add("a")])
    assert other.paths() == set()
    owner.close()
    other.close()


def test_r22_commits_wait_when_publishing_lags_too_far_behind_on_the_default_branch(
    store: Store, tmp_path: Path
) -> None:
    owner = Owner(store, tmp_path, unpublished_max=3)
    owner.create()
    owner.branch("dev")
    owner.commit([add("a")])
    owner.commit([add("b")])
    with pytest.raises(Throttled, match="wait to be published"):
        owner.commit([add("c")])
    for number in range(4):
        owner.commit([add(f"{number}")], branch="dev")
    owner.published()
    assert owner.commit([add("c")]) == 3
    owner.close()
