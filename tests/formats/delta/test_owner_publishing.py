"""Which versions there are, and how far they are published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import (
    InvalidRequest,
    KeyNotFound,
    NotManaged,
    OutcomeUnknown,
)
from penstock.formats.delta.branch_log.branch_log import OwnershipPhase, replace_branch_log
from penstock.formats.delta.ownership.handover import Handover
from penstock.formats.delta.protocol.actions import CommitInfo, parse_commit
from penstock.formats.delta.protocol.names import LOG, CommitName
from penstock.kernel.three_way import MergeOptions
from penstock.model.commits import CommitMeta
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.model.operations import Put
from penstock.storage.places import Place
from penstock.stores.memory import MemoryStore
from tests.formats.delta.lakes import (
    DeltaLake,
    Died,
    create,
    create_branch,
    data_file,
    dying,
    foreign_append,
    foreign_ids,
    log_bytes,
    opened,
    staged_names,
)
from tests.formats.delta.logs import add
from tests.formats.delta.ratified import WAIT_S

T = Key("t")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def lake(store: MemoryStore) -> Iterator[DeltaLake]:
    """A lake in which nothing is published unless somebody asks for it."""
    with opened(store, publishes=False) as lake:
        yield lake


@pytest.fixture
def tracked(lake: DeltaLake, tmp_path: Path) -> DeltaLake:
    """A table with the versions 0 to 15, of which the lake has forgotten those up to 9."""
    create(lake, tmp_path)
    for _ in range(15):
        lake.append("t")
    lake.owner.publish_table("main", T, 9)
    return lake


@pytest.mark.parametrize(
    ("start", "end", "versions"),
    [
        (None, None, range(10, 16)),
        (9, None, range(10, 16)),
        (11, 14, range(11, 15)),
        (12, 12, range(12, 13)),
        (None, 14, range(10, 15)),
        (0, 5, range(0)),
        (16, None, range(0)),
        (14, 99, range(14, 16)),
    ],
)
def test_r13_commits_are_told_in_order_from_one_version_to_another(
    tracked: DeltaLake, start: int | None, end: int | None, versions: range
) -> None:
    content = replace_branch_log(tracked.content("t"), tracked.line("t").drop_published_entries(9))
    got = tracked.owner.list_commits(T, content, start, end)
    assert [one.version for one in got.commits] == list(versions)
    assert (got.latest_version, got.published) == (15, 9)
    root = Path(content.location)
    for one in got.commits:
        data = (root / one.name).read_bytes()
        assert len(data) == one.size
        info = next(parse_commit(data)).action
        assert isinstance(info, CommitInfo)
        assert info.in_commit_timestamp == one.timestamp_ms


def test_r13_commits_are_those_of_one_moment(tracked: DeltaLake) -> None:
    content = tracked.content("t")
    tracked.append("t")
    tracked.owner.publish_table("main", T)
    got = tracked.owner.list_commits(T, content)
    assert got.latest_version == 15
    assert [one.version for one in got.commits] == list(range(got.published + 1, 16))
    assert all((Path(content.location) / one.name).is_file() for one in got.commits)


def test_a_range_that_ends_before_it_begins_is_refused(tracked: DeltaLake) -> None:
    with pytest.raises(InvalidRequest, match="5 to 4"):
        tracked.owner.list_commits(T, tracked.content("t"), 5, 4)


def test_r14_the_latest_version_never_goes_back(lake: DeltaLake, tmp_path: Path) -> None:
    create(lake, tmp_path)
    latest = []
    for number in range(4):
        latest.append(lake.owner.list_commits(T, lake.content("t")).latest_version)
        lake.append("t")
        lake.owner.publish_table("main", T, number)
        latest.append(lake.owner.list_commits(T, lake.content("t")).latest_version)
    assert latest == [0, 1, 1, 2, 2, 3, 3, 4]


def test_the_commits_of_a_branch_are_its_own(lake: DeltaLake, tmp_path: Path) -> None:
    root = create(lake, tmp_path)
    lake.append("t")
    create_branch(lake.kernel, "dev")
    lake.append("t")
    lake.append("t", add("branch.parquet"), branch="dev")
    got = lake.owner.list_commits(T, lake.content("t", "dev"), 2)
    (only,) = got.commits
    assert (only.version, got.latest_version) == (2, 2)
    assert only.name.startswith("_penstock/")
    assert b"branch.parquet" in (root / only.name).read_bytes()


def test_r21_what_was_answered_as_published_is_there(lake: DeltaLake, tmp_path: Path) -> None:
    root = create(lake, tmp_path)
    for _ in range(5):
        lake.append("t")
    assert lake.owner.publish_table("main", T, 3) >= 3
    assert all(log_bytes(root, version) is not None for version in range(4))
    assert lake.owner.publish_table("main", T, 2) >= 2
    assert lake.owner.publish_table("main", T) == 5
    assert lake.owner.publish_table("main", T) == 5


@pytest.mark.parametrize("version", [-1, 2, 99])
def test_r20_no_more_is_published_than_was_ratified(lake: DeltaLake, tmp_path: Path, version: int) -> None:
    root = create(lake, tmp_path)
    lake.append("t")
    with pytest.raises(InvalidRequest, match="the latest is 1"):
        lake.owner.publish_table("main", T, version)
    assert log_bytes(root, 0) is None


def test_r22_another_process_publishes_what_was_left(store: MemoryStore, tmp_path: Path) -> None:
    with opened(store, publishes=False) as lake:
        root = create(lake, tmp_path)
        lake.append("t", data_file(root, 1))
    assert log_bytes(root, 0) is None
    with opened(store) as lake:
        assert lake.owner.catch_up() == 1
        content = lake.content("t")
        assert content.id is not None
        assert lake.publisher.wait_for_version(content.id, 1, WAIT_S)
    assert foreign_ids(root) == [1]


def test_catching_up_with_an_empty_lake_does_nothing(lake: DeltaLake) -> None:
    assert lake.owner.catch_up() == 0
    assert lake.owner.list_statuses() == ()


def test_one_table_that_cannot_go_on_keeps_no_other_from_it(
    store: MemoryStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Unanswered(Handover):
        def _put_conversion(self, place: Place, name: str, data: bytes) -> bool:
            raise OutcomeUnknown("no answer")

    foreign_append(tmp_path / "a", 1)
    with opened(store, publishes=False, handover=Unanswered) as lake:
        with pytest.raises(OutcomeUnknown):
            lake.owner.adopt_table(str(tmp_path / "a"))
        for key in ("b", "c"):
            create(lake, tmp_path, key)
        caplog.clear()
        assert lake.owner.catch_up() == 2
        assert lake.owner.list_statuses()[0].phase is OwnershipPhase.ADOPTING
    assert "'a' at" in caplog.text
    assert "no answer" in caplog.text


def test_the_status_tells_how_far_each_table_is_published(lake: DeltaLake, tmp_path: Path) -> None:
    create(lake, tmp_path, "b")
    create(lake, tmp_path, "a")
    for _ in range(6):
        lake.append("a")
    lake.owner.publish_table("main", Key("a"), 2)
    lake.owner.publish_table("main", Key("b"))
    first, second = lake.owner.list_statuses()
    assert (str(first.key), first.latest_version, first.published, first.backlog) == ("a", 6, 2, 4)
    assert first.oldest_s is not None
    assert 0 <= first.oldest_s < 60
    assert (str(second.key), second.backlog, second.oldest_s, second.alarm) == ("b", 0, None, "")
    assert lake.owner.list_statuses(Key("b")) == (second,)


def test_the_status_sees_what_another_process_published(store: MemoryStore, tmp_path: Path) -> None:
    with opened(store, publishes=False) as one, opened(store, publishes=False) as other:
        create(one, tmp_path)
        for _ in range(9):
            one.append("t")
        other.owner.publish_table("main", T, 7)
        assert one.owner.list_statuses()[0].published == 7


def test_the_status_is_right_for_a_log_that_was_cleaned_up(store: MemoryStore, tmp_path: Path) -> None:
    with opened(store, publishes=False) as lake, opened(store, publishes=False) as other:
        root = create(lake, tmp_path)
        for _ in range(9):
            lake.append("t")
        other.owner.publish_table("main", T, 7)
        for version in range(6):
            (root / str(CommitName(version))).unlink()
        assert lake.owner.list_statuses()[0].published == 7


@pytest.mark.parametrize("catches_up", [True, False])
@pytest.mark.parametrize("version", [0, 2, 3])
def test_the_status_does_not_count_a_foreign_file_as_published(
    store: MemoryStore, tmp_path: Path, catches_up: bool, version: int
) -> None:
    with opened(store, publishes=False) as lake:
        root = create(lake, tmp_path)
        for _ in range(3):
            lake.append("t")
        if version:
            lake.owner.publish_table("main", T, version - 1)
    (root / LOG).mkdir(parents=True, exist_ok=True)
    (root / str(CommitName(version))).write_bytes(b'{"commitInfo":{}}\n')
    with opened(store, publishes=False) as lake:
        if catches_up:
            lake.owner.catch_up()
            identity = lake.content("t").id
            assert identity is not None
            assert not lake.publisher.wait_for_version(identity, 3, WAIT_S)
        (status,) = lake.owner.list_statuses()
    assert (status.latest_version, status.published, status.backlog) == (3, version - 1, 4 - version)
    what = f"version {version} at {root}/{CommitName(version)} is not the one that the lake has"
    assert f"'t' is out of sync: {what}" in status.alarm
    assert "'penstock resync t'" in status.alarm


def test_a_promise_to_adopt_is_not_counted_as_published(store: MemoryStore, tmp_path: Path) -> None:
    foreign_append(tmp_path / "a", 1)
    with opened(store, publishes=False, handover=dying("_put_conversion", before=True)) as lake:
        with pytest.raises(Died):
            lake.owner.adopt_table(str(tmp_path / "a"))
        (status,) = lake.owner.list_statuses()
    assert (status.phase, status.latest_version, status.published) == (OwnershipPhase.ADOPTING, 1, 0)


def test_the_status_tells_what_stands_against_publishing(lake: DeltaLake, tmp_path: Path) -> None:
    root = create(lake, tmp_path)
    path = root / str(CommitName(0))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'{"commitInfo":{}}\n')
    lake.owner.catch_up()
    with pytest.raises(Exception, match="00000000000000000000"):
        lake.owner.publish_table("main", T)
    assert lake.owner.list_statuses()[0].alarm != ""


def test_only_managed_tables_are_asked_about(lake: DeltaLake, tmp_path: Path) -> None:
    lake.kernel.commit("main", [Put(Key("iceberg"), IcebergTable(metadata_location="1"))])
    with pytest.raises(NotManaged, match="'iceberg' is an Iceberg table; the lake reads and writes rows of"):
        lake.owner.list_statuses(Key("iceberg"))
    with pytest.raises(KeyNotFound):
        lake.owner.publish_table("main", Key("nothing"))
    with pytest.raises(NotManaged):
        lake.owner.release_table(Key("iceberg"))
    assert tmp_path.is_dir()


def test_of_a_long_backlog_only_the_commits_that_are_asked_for_get_files(
    lake: DeltaLake, tmp_path: Path
) -> None:
    root = create(lake, tmp_path)
    for _ in range(40):
        lake.append("t")
    (only,) = lake.owner.list_commits(T, lake.content("t"), 7, 7).commits
    assert staged_names(root) == [Path(only.name).name]


def test_a_version_of_a_branch_is_not_told_by_the_name_of_the_default_branchs(
    lake: DeltaLake, tmp_path: Path
) -> None:
    lake.kernel.commit("main", [Put(Key("other"), IcebergTable(metadata_location="1"))])
    create_branch(lake.kernel, "dev")
    create(lake, tmp_path, branch="dev")
    lake.kernel.merge(lake.tables.find_head("dev"), "main", CommitMeta(message="merge"), MergeOptions())
    for _ in range(2):
        lake.append("t")
    lake.owner.publish_table("main", T)
    assert lake.append("t", branch="dev").name == ""
