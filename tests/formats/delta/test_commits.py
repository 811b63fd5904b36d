"""The bytes of commits are found wherever they are, and what they come to is not read anew each time."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from deltalake import DeltaTable as Reader
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidLog, VersionNotFound
from penstock.formats.delta.branch_log.branch_log import CommitTerms
from penstock.formats.delta.branch_log.commits import CommitReader, parse_terms
from penstock.formats.delta.protocol.actions import Action, Add, CommitInfo, DeletionVector, FileKey, Remove
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.delta.protocol.transaction import DeltaReads
from penstock.kernel.format import PrepareAgain, Table
from penstock.model.nessie import DeltaTable
from penstock.stores.memory import MemoryStore
from tests.formats.delta.managed import Owner, add, days, remove


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(MemoryStore(), tmp_path)
    yield owner
    owner.close()


def fresh(owner: Owner, **how: int) -> CommitReader:
    """What another process knows: nothing."""
    return CommitReader(owner.places, **how)


def data(owner: Owner, commits: CommitReader, version: int, *, may_read: bool = True) -> bytes:
    content, entry = owner.content(), owner.line().find_entry(version, owner.read)
    return commits.read_commit_bytes(owner.table(may_read=may_read), content.location, version, entry)


# --- bytes ------------------------------------------------------------------------------------------------


def test_what_the_kernel_holds_is_known_without_storage(owner: Owner) -> None:
    content = owner.create()
    owner.commit([add("a")])
    expected = owner.data(1)
    shutil.rmtree(content.location, ignore_errors=True)
    assert data(owner, fresh(owner), 1, may_read=False) == expected


def test_a_file_that_its_writer_staged_is_read_where_that_may_be_done_and_then_known(owner: Owner) -> None:
    owner.create()
    owner.commit([add("a")], version=1)
    commits = fresh(owner)
    with pytest.raises(PrepareAgain):
        data(owner, commits, 1, may_read=False)
    assert data(owner, commits, 1) == owner.data(1)
    assert data(owner, commits, 1, may_read=False) == owner.data(1)


def test_a_staged_file_that_was_cleaned_up_is_read_from_the_log(owner: Owner) -> None:
    content = owner.create()
    owner.commit([add("a")], version=1)
    expected = owner.data(1)
    entry = owner.line().find_entry(1, owner.read)
    assert entry is not None
    owner.published()
    (Path(content.location) / entry.get_staged_path(1)).unlink()
    assert data(owner, fresh(owner), 1) == expected
    (Path(content.location) / str(CommitName(1))).write_bytes(b"{}")
    with pytest.raises(InvalidLog, match="2 bytes"):
        data(owner, fresh(owner), 1)
    (Path(content.location) / str(CommitName(1))).unlink()
    with pytest.raises(InvalidLog, match="is missing"):
        data(owner, fresh(owner), 1)


def test_a_published_version_is_read_from_the_log_as_long_as_that_has_it(owner: Owner) -> None:
    content = owner.create()
    owner.commit([add("a")])
    expected = owner.data(1)
    owner.published()
    owner.commit([add("b")])
    assert owner.line().find_entry(1, owner.read) is None
    commits = fresh(owner)
    with pytest.raises(PrepareAgain):
        data(owner, commits, 1, may_read=False)
    assert data(owner, commits, 1) == expected
    (Path(content.location) / str(CommitName(1))).unlink()
    assert data(owner, commits, 1) == expected
    with pytest.raises(VersionNotFound):
        data(owner, fresh(owner), 1)


def test_what_landed_here_is_known_by_its_version_once_the_line_has_forgotten_it(owner: Owner) -> None:
    owner.create()
    owner.commit([add("a")])
    expected = owner.data(1)
    owner.published()
    owner.commit([add("b")])
    assert owner.line().find_entry(1, owner.read) is None
    assert data(owner, owner.commits, 1, may_read=False) == expected


def test_memory_is_bounded_and_what_was_used_last_stays(owner: Owner) -> None:
    content = owner.create()
    for number in range(8):
        owner.commit([add(f"{number}-{'x' * 1000}")], version=number + 1)
    commits = fresh(owner, memory_max_bytes=6 * 2000)
    for version in range(1, 9):
        data(owner, commits, version)
    shutil.rmtree(Path(content.location))
    assert data(owner, commits, 8, may_read=False) == owner.data(8)
    with pytest.raises(PrepareAgain):
        data(owner, commits, 1, may_read=False)


def test_another_table_at_the_same_place_is_another_table(owner: Owner) -> None:
    first = owner.create()
    owner.commit([add("a")])
    owner.published()
    owner.commit([add("b")])
    table, location = owner.table(), first.location
    assert b'"a"' in owner.commits.read_commit_bytes(table, location, 1, None)
    shutil.rmtree(location)
    Path(location, "_delta_log").mkdir(parents=True)
    Path(location, str(CommitName(1))).write_bytes(b"{}")
    second = Table(table.key, DeltaTable(id=uuid4(), location=location), owner.read)
    assert owner.commits.read_commit_bytes(second, location, 1, None) == b"{}"


def test_terms_are_those_held_and_of_a_forgotten_version_what_it_says_of_itself(owner: Owner) -> None:
    content = owner.create(partition_by=["day"])
    owner.commit([add("a", "1")])
    owner.commit([CommitInfo({"operation": "DELETE"}), remove("a", "1")])
    owner.commit([add("b", "1")], replaces=())
    owner.commit(
        [add("c", "1")], read_version=3, reads=DeltaReads(whole_table=True), replaces=(days("1", "2"),)
    )
    table, location = owner.table(), content.location
    for commits in (owner.commits, fresh(owner)):
        held = [
            commits.read_commit_terms(table, location, v, owner.line().find_entry(v, owner.read))
            for v in (1, 2, 3, 4)
        ]
        whole, part = (
            CommitTerms(DeltaReads(), ()),
            CommitTerms(DeltaReads(whole_table=True), (days("1", "2"),)),
        )
        assert held == [CommitTerms(DeltaReads()), CommitTerms(), whole, part]
        owner.published()
        assert [commits.read_commit_terms(table, location, version, None) for version in (1, 2, 3, 4)] == held


def test_whether_a_forgotten_version_picked_what_it_removed_is_not_guessed(owner: Owner) -> None:
    content = owner.create()
    owner.commit([add("a")])
    owner.commit([CommitInfo({"operation": "WRITE"}), remove("a"), add("b")])
    owner.commit([CommitInfo({"operation": "DELETE", "penstockReplaces": {"partitions": 7}}), remove("b")])
    owner.published()
    assert [owner.commits.read_commit_terms(owner.table(), content.location, v, None) for v in (2, 3)] == [
        None,
        CommitTerms(),
    ]
    assert parse_terms(CommitInfo({"operation": "DELETE", "penstockReplaces": {"partitions": 7}})) is None
    assert parse_terms(None) is None


# --- what they come to --------------------------------------------------------------------------------------


def test_a_table_is_not_read_again_for_each_commit(owner: Owner) -> None:
    content = owner.create()
    owner.commit([add(f"file-{number}") for number in range(2000)])
    owner.commit([add("a")])
    owner.published()
    owner.commit([remove("file-0")])
    log = Path(content.location) / "_delta_log"
    log.rename(log.with_name("hidden"))
    for number in range(1, 20):
        owner.commit([remove(f"file-{number}")])
    assert len(owner.paths()) == 2001 - 20
    log.with_name("hidden").rename(log)
    again = fresh(owner).read_snapshot(owner.content(), owner.read)
    assert {one.path for one in again.read_files()} == owner.paths()


def test_a_log_that_was_cleaned_up_in_between_is_read_anew(owner: Owner) -> None:
    content = owner.create()
    owner.commit([add("a")])
    other = fresh(owner)
    assert len(list(other.read_snapshot(owner.content(), owner.read).read_files())) == 1
    assert other.make_active_file_lookup(owner.content(), owner.read)({"a", "b"}) == {"a": None}
    owner.commit([add("b")])
    owner.commit([remove("a")])
    owner.published()
    owner.commit([add("c")])
    Reader(content.location).create_checkpoint()
    for version in range(3):
        (Path(content.location) / str(CommitName(version))).unlink()
    found = other.read_snapshot(owner.content(), owner.read)
    assert {one.path for one in found.read_files()} == {"b", "c"}
    assert other.make_active_file_lookup(owner.content(), owner.read)({"a", "b", "c"}) == {
        "b": None,
        "c": None,
    }


def test_an_older_version_can_be_asked_for(owner: Owner) -> None:
    owner.create()
    for number in range(5):
        owner.commit([add(f"{number}")])
    owner.published()
    owner.commit([add("5")])
    owner.commit([add("6")])
    for version in range(8):
        found = owner.commits.read_snapshot(owner.content(), owner.read, version)
        assert found.version == version
        assert {one.path for one in found.read_files()} == {f"{number}" for number in range(version)}
        assert found.in_commit_timestamp == owner.info(version).in_commit_timestamp
    with pytest.raises(VersionNotFound, match="the newest one is 7"):
        owner.commits.read_snapshot(owner.content(), owner.read, 8)


def test_a_branch_reads_nothing_of_what_the_default_branch_became_later(owner: Owner) -> None:
    content = owner.create()
    owner.commit([add("a")])
    owner.branch("dev")
    owner.commit([add("b")])
    owner.commit([remove("a")])
    owner.published()
    Reader(content.location).create_checkpoint()
    owner.commit([add("dev")], branch="dev")
    for commits in (owner.commits, fresh(owner)):
        found = commits.read_snapshot(owner.content(branch="dev"), owner.read)
        assert {one.path for one in found.read_files()} == {"a", "dev"}
        assert commits.make_active_file_lookup(owner.content(branch="dev"), owner.read)(
            {"a", "b", "dev"}
        ).keys() == {"a", "dev"}


PATHS = [f"file-{number}" for number in range(6)]
VECTORS = [None, "aaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbb"]
Step = tuple[str, list[tuple[str, str | None]], bool]
"""On which branch, what its files become, and whether all is published then."""
STEPS = st.tuples(
    st.sampled_from(["main", "dev"]),
    st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from(VECTORS)), max_size=4),
    st.booleans(),
)


def _vector(name: str | None) -> DeletionVector | None:
    if name is None:
        return None
    return DeletionVector(storage_type="u", path_or_inline_dv=name, size_in_bytes=1, cardinality=1, offset=1)


def _step(files: dict[str, str | None], wanted: list[tuple[str, str | None]]) -> list[Action]:
    """Let each path be a file with that vector, or go if it is so already."""
    actions: list[Action] = [CommitInfo({"operation": "TEST"})]
    for path, name in dict(wanted).items():
        if path in files:
            removed = Remove(path=path, data_change=True, deletion_vector=_vector(files[path]))
            actions.append(removed)
        if path in files and files[path] == name:
            del files[path]
            continue
        files[path] = name
        actions.append(
            Add(
                path=path,
                partition_values={},
                size=1,
                modification_time=1,
                data_change=True,
                stats='{"numRecords":9}',
                deletion_vector=_vector(name),
            )
        )
    return actions


@given(st.lists(STEPS, min_size=1, max_size=14))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_lines_come_to_what_a_plain_dictionary_would(tmp_path: Path, steps: list[Step]) -> None:
    owner = Owner(MemoryStore(), tmp_path)
    owner.create(properties={"delta.enableDeletionVectors": "true"})
    owner.branch("dev")
    files: dict[str, dict[str, str | None]] = {"main": {}, "dev": {}}
    older: list[tuple[DeltaTable, dict[str, str | None]]] = []
    for branch, wanted, publishes in steps:
        owner.commit(_step(files[branch], wanted), branch=branch)
        if publishes:
            owner.published()
        content = owner.content(branch=branch)
        known = {path: name and f"u{name}@1" for path, name in files[branch].items()}
        assert owner.commits.make_active_file_lookup(content, owner.read)(PATHS) == known
        for commits in (owner.commits, fresh(owner)):
            found = {one.key for one in commits.read_snapshot(content, owner.read).read_files()}
            assert found == {FileKey(path, name) for path, name in known.items()}
            assert commits.read_snapshot(content, owner.read).find_active_files(PATHS) == known
        older.append((content, known))
        for past, was in older:
            assert owner.commits.make_active_file_lookup(past, owner.read)(PATHS) == was
    owner.close()
