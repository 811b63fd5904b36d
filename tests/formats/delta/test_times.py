"""Which version a time means, with times in commits, times of files, and both."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.formats.delta.errors import InvalidLog, VersionNotFound
from penstock.formats.delta.log.log_files import LogFile
from penstock.formats.delta.log.segments import LogSegment, find_segment, find_versions
from penstock.formats.delta.log.snapshot import load_snapshot, replay_segment
from penstock.formats.delta.log.version_times import version_at
from penstock.formats.delta.protocol.actions import Action
from penstock.formats.delta.protocol.names import ClassicName, CommitName, CompactionName
from penstock.storage.places import Places
from tests.formats.delta.logs import Listed, Table, add, checkpoint_bytes, commit_info, metadata, protocol

IN_COMMITS = {"delta_enableInCommitTimestamps": "true"}


def enabled_at(version: int, timestamp_ms: int) -> dict[str, str]:
    return {
        **IN_COMMITS,
        "delta_inCommitTimestampEnablementVersion": str(version),
        "delta_inCommitTimestampEnablementTimestamp": str(timestamp_ms),
    }


def commit(table: Table, version: int, file_ms: int, *actions: Action) -> None:
    table.commit(version, *actions)
    os.utime(table.root / str(CommitName(version)), ns=(0, file_ms * 1_000_000))


def beginning(version: int, *actions: Action) -> tuple[Action, ...]:
    return actions if version == 0 else ()


def at(table: Table, timestamp_ms: int, ratified: dict[int, int] | None = None) -> int:
    return version_at(table.files, load_snapshot(table.files), timestamp_ms, ratified)


def by_commits(table: Table, *times_ms: int) -> None:
    """A table whose files are all of one time, and whose commits are not."""
    for version, time_ms in enumerate(times_ms):
        first = beginning(version, protocol("inCommitTimestamp"), metadata(**IN_COMMITS))
        commit(table, version, 5, commit_info(time_ms), *first)


def by_files(table: Table, *times_ms: int) -> None:
    for version, time_ms in enumerate(times_ms):
        commit(table, version, time_ms, *beginning(version, protocol(), metadata()))


def test_times_in_commits_count_and_those_of_files_do_not(table: Table) -> None:
    by_commits(table, 1000, 2000, 3000, 4000)
    found = {time_ms: at(table, time_ms) for time_ms in (1000, 1999, 2000, 3500, 4000)}
    assert found == {1000: 0, 1999: 0, 2000: 1, 3500: 2, 4000: 3}


def test_times_of_files_count_where_commits_have_none(table: Table) -> None:
    by_files(table, 1000, 2000, 3000)
    assert [at(table, time_ms) for time_ms in (1000, 1500, 2999, 3000)] == [0, 0, 1, 2]


def test_a_file_that_is_older_than_the_one_before_is_taken_for_a_little_younger(table: Table) -> None:
    by_files(table, 1000, 700, 1001, 5000)
    assert [at(table, time_ms) for time_ms in (1000, 1001, 1002, 4999, 5000)] == [0, 1, 2, 2, 3]


def test_times_in_commits_count_from_the_version_on_that_brought_them(table: Table) -> None:
    # The last file without one is younger than the enablement: it stays on its own side.
    for version, file_ms in enumerate([1000, 2000, 9000]):
        commit(table, version, file_ms, *beginning(version, protocol(), metadata()))
    enabling = metadata(**enabled_at(3, 10_000))
    commit(table, 3, 50, commit_info(10_000), protocol("inCommitTimestamp"), enabling)
    commit(table, 4, 40, commit_info(11_000))
    found = {time_ms: at(table, time_ms) for time_ms in (1000, 2500, 9000, 9999, 10_000, 10_999, 11_000)}
    assert found == {1000: 0, 2500: 1, 9000: 2, 9999: 2, 10_000: 3, 10_999: 3, 11_000: 4}


@pytest.mark.parametrize(
    ("wanted_ms", "said"), [(999, "before the first version"), (4001, "after the latest version")]
)
def test_a_time_outside_is_refused_and_the_range_is_named(table: Table, wanted_ms: int, said: str) -> None:
    by_commits(table, 1000, 4000)
    with pytest.raises(VersionNotFound, match=said) as caught:
        at(table, wanted_ms)
    assert (
        "from 1970-01-01 00:00:01.000+00:00 (version 0) to 1970-01-01 00:00:04.000+00:00 (version 1)"
        in str(caught.value)
    )
    assert caught.value.details["earliest_ms"] == 1000
    assert caught.value.details["latest_ms"] == 4000


@pytest.mark.parametrize("wanted_ms", [-(2**62), 2**62])
def test_a_time_that_no_calendar_has_is_refused_too(table: Table, wanted_ms: int) -> None:
    by_files(table, 1000)
    with pytest.raises(VersionNotFound, match=f"at {wanted_ms} ms"):
        at(table, wanted_ms)


def test_what_was_cleaned_up_is_not_found(table: Table) -> None:
    by_files(table, 1000, 2000, 3000, 4000)
    table.write(str(ClassicName(2)), checkpoint_bytes([protocol(), metadata(), add("a")]))
    table.delete(CommitName(0))
    # The first version that is left could be read, but not from a beginning.
    with pytest.raises(VersionNotFound, match=r"(?s)before the first version.*\(version 2\)"):
        at(table, 2500)
    assert at(table, 3500) == 2


def test_versions_that_are_ratified_but_not_published_have_times_too(table: Table) -> None:
    by_commits(table, 1000, 2000)
    table.write("2.json", b'{"commitInfo":{"inCommitTimestamp":3000}}')
    table.write("3.json", b'{"commitInfo":{"inCommitTimestamp":4000}}')
    tip = replay_segment(table.files, load_snapshot(table.files).segment.append_commits(["2.json", "3.json"]))
    found = [version_at(table.files, tip, one, {2: 3000, 3: 4000}) for one in (1000, 2999, 3000, 4000)]
    assert found == [0, 1, 2, 3]


def test_a_table_of_which_nothing_is_published_has_times_too(table: Table) -> None:
    by_commits(table, 1000, 2000)
    names = [f"{version}.json" for version in range(2)]
    for version, name in enumerate(names):
        (table.root / str(CommitName(version))).rename(table.root / name)
    nothing = LogSegment(table="t", version=-1, checkpoint=None, names=(), newest="")
    tip = replay_segment(table.files, nothing.append_commits(names))
    found = [version_at(table.files, tip, one, {0: 1000, 1: 2000}) for one in (1000, 1999, 2000)]
    assert found == [0, 0, 1]


@pytest.mark.parametrize("data", [b'{"add":7}\n', b'{"commitInfo":{}}\n', b""])
def test_a_commit_without_its_time_is_named(table: Table, data: bytes) -> None:
    by_commits(table, 1000, 2000, 3000, 4000)
    tip = load_snapshot(table.files)
    table.write(str(CommitName(2)), data)
    with pytest.raises(InvalidLog, match=r"0002\.json .* has no timestamp"):
        version_at(table.files, tip, 2500)


def test_an_enablement_that_is_no_number_is_refused(table: Table) -> None:
    properties = {**enabled_at(0, 0), "delta_inCommitTimestampEnablementVersion": "one"}
    commit(table, 0, 0, commit_info(1000), protocol("inCommitTimestamp"), metadata(**properties))
    with pytest.raises(InvalidLog, match="are not numbers"):
        at(table, 1000)


@given(
    before=st.lists(st.integers(0, 50), max_size=4),
    steps=st.lists(st.integers(1, 20), min_size=1, max_size=5),
    wanted=st.integers(0, 300),
)
def test_any_time_means_the_last_version_that_was_not_later(
    places: Places, before: list[int], steps: list[int], wanted: int
) -> None:
    """Against the definition: all times in a row, and a look through them."""
    times: list[int] = []
    for file_ms in before:
        times.append(max(file_ms, times[-1] + 1 if times else 0))
    with TemporaryDirectory() as folder:
        table = Table(Path(folder), places)
        for version, file_ms in enumerate(before):
            commit(table, version, file_ms, *beginning(version, protocol(), metadata()))
        start_ms = times[-1] + 1 if times else 0
        for number, step in enumerate(steps, len(before)):
            times.append(max(start_ms, times[-1] if times else 0) + step)
            first: list[Action] = []
            if number == len(before):
                enabling = enabled_at(number, times[-1]) if number else IN_COMMITS
                first = [protocol("inCommitTimestamp"), metadata(**enabling)]
            commit(table, number, 7, commit_info(times[-1]), *first)
        if times[0] <= wanted <= times[-1]:
            assert at(table, wanted) == max(one for one, time_ms in enumerate(times) if time_ms <= wanted)
        else:
            with pytest.raises(VersionNotFound):
                at(table, wanted)


def listed(*names: object) -> list[LogFile]:
    return [LogFile(str(name), 1) for name in names]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([CommitName(0), CommitName(1)], range(2)),
        ([CommitName(0), CommitName(2), ClassicName(1)], range(1, 3)),
        ([CommitName(0), CommitName(3), ClassicName(1), ClassicName(2)], range(2, 4)),
        ([CommitName(1), CommitName(2), ClassicName(2)], range(2, 3)),
        ([ClassicName(4)], range(4, 5)),
        ([CommitName(0), CompactionName(0, 1), CommitName(1)], range(2)),
    ],
    ids=["whole", "gap", "two checkpoints", "cut", "a checkpoint", "compacted"],
)
def test_the_versions_of_a_log_are_those_that_can_be_read(names: list[object], expected: range) -> None:
    files = listed(*names)
    assert find_versions("t", files) == expected
    for version in expected:
        assert find_segment(Listed(files), version).version == version
