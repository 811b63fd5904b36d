"""Which files of a log are chosen to make up a version."""

from __future__ import annotations

import pytest

from penstock.formats.delta.errors import LogGap, TableNotFound, VersionNotFound
from penstock.formats.delta.log import segments
from penstock.formats.delta.log.log_files import LogFile, OverlaidFiles
from penstock.formats.delta.log.segments import Checkpoint, LogSegment, find_segment
from penstock.formats.delta.protocol.names import END_OF_VERSIONS, LAST_CHECKPOINT, LOG, CommitName
from tests.formats.delta.logs import UUIDS, Listed, Table, add


def commits(*versions: int) -> list[str]:
    return [f"{version:020}.json" for version in versions]


def classic(version: int) -> str:
    return f"{version:020}.checkpoint.parquet"


def part(version: int, number: int, count: int) -> str:
    return f"{version:020}.checkpoint.{number:010}.{count:010}.parquet"


def second(version: int, which: int = 0, extension: str = "parquet") -> str:
    return f"{version:020}.checkpoint.{UUIDS[which]}.{extension}"


def compacted(first: int, last: int) -> str:
    return f"{first:020}.{last:020}.compacted.json"


def choose(names: list[str], version: int | None = None, empty: tuple[str, ...] = ()) -> LogSegment:
    listed = [LogFile(LOG + name, 0 if name in empty else 1) for name in sorted(names)]
    return find_segment(Listed(listed), version)


def chosen(names: list[str], version: int | None = None) -> tuple[list[str], list[str]]:
    """The files of the checkpoint, and what is replayed on it."""
    found = choose(names, version)
    below = found.checkpoint.names if found.checkpoint is not None else ()
    return [one.removeprefix(LOG) for one in below], [one.removeprefix(LOG) for one in found.names]


def test_without_a_checkpoint_all_commits_are_replayed() -> None:
    assert chosen(commits(0, 1, 2)) == ([], commits(0, 1, 2))


def test_an_older_version_needs_nothing_newer() -> None:
    assert chosen([*commits(0, 1, 2, 4), classic(4)], version=1) == ([], commits(0, 1))


def test_the_newest_checkpoint_that_is_not_too_new_is_the_base() -> None:
    names = [*commits(*range(9)), classic(2), classic(5), classic(7)]
    assert chosen(names, version=6) == ([classic(5)], commits(6))
    assert chosen(names, version=5) == ([classic(5)], [])
    assert choose(names, version=5).newest == "_delta_log/00000000000000000005.json"


def test_a_checkpoint_in_parts_counts_only_if_all_of_them_are_there() -> None:
    names = [*commits(0, 1, 2), part(2, 1, 2)]
    assert chosen(names) == ([], commits(0, 1, 2))
    assert chosen([*names, part(2, 2, 2)]) == ([part(2, 1, 2), part(2, 2, 2)], [])
    assert chosen([*names, part(2, 2, 3)]) == ([], commits(0, 1, 2)), "parts of two checkpoints"


def test_a_checkpoint_without_a_byte_is_none() -> None:
    names = [*commits(0, 1), classic(1), second(1, 3)]
    assert choose(names, empty=(classic(1), second(1, 3))).checkpoint is None
    assert choose(names, empty=(classic(1),)).checkpoint == Checkpoint(1, (LOG + second(1, 3),))


@pytest.mark.parametrize("extension", ["json", "parquet"])
def test_a_checkpoint_of_the_second_version_is_one(extension: str) -> None:
    names = [*commits(0, 1, 2), second(1, 0, extension), part(1, 1, 2), part(1, 2, 2)]
    assert chosen(names) == ([second(1, 0, extension)], commits(2))


def test_compactions_stand_in_for_commits_where_they_fit() -> None:
    names = [*commits(*range(10)), compacted(0, 3), compacted(4, 9), compacted(4, 6), classic(1)]
    assert chosen(names) == ([classic(1)], [*commits(*range(2, 4)), compacted(4, 9)])
    assert chosen(names, version=8) == ([classic(1)], [*commits(2, 3), compacted(4, 6), *commits(7, 8)])
    assert chosen(names, version=0) == ([], commits(0))


def test_a_checkpoint_is_enough_where_its_commits_have_been_cleaned_up() -> None:
    assert chosen([classic(5), *commits(6)]) == ([classic(5)], commits(6))
    assert chosen([classic(5)]) == ([classic(5)], [])


def test_r15_a_gap_is_named() -> None:
    with pytest.raises(LogGap, match=r"00000000000000000003\.json is missing") as caught:
        choose([*commits(0, 1, 2, 4), compacted(0, 1)])
    assert caught.value.details == {"table": "file:///t", "version": 3}
    with pytest.raises(LogGap, match=r"00000000000000000002\.json is missing"):
        choose([*commits(0, 1, 4, 5), compacted(1, 5)], version=4)
    with pytest.raises(LogGap):
        choose([classic(5), *commits(4, 7)])
    with pytest.raises(LogGap):
        choose(commits(1, 2))


def test_a_gap_that_a_checkpoint_or_a_compaction_covers_is_none() -> None:
    assert chosen([*commits(0, 1, 4, 5), classic(3)]) == ([classic(3)], commits(4, 5))
    assert chosen([*commits(0, 4), compacted(1, 3)]) == ([], [*commits(0), compacted(1, 3), *commits(4)])


def test_a_version_that_is_not_there_is_told_from_one_that_is_no_longer() -> None:
    with pytest.raises(VersionNotFound, match="the newest one is 6"):
        choose([classic(5), *commits(6)], version=7)
    with pytest.raises(VersionNotFound, match="begins at version 5"):
        choose([classic(5), *commits(3, 4, 5, 6)], version=4)
    with pytest.raises(VersionNotFound):
        choose(commits(0), version=-1)


def test_a_place_without_commits_is_no_table(table: Table) -> None:
    with pytest.raises(TableNotFound, match=f"no Delta table at {table.root}: "):
        find_segment(table.files)
    table.write(LOG + "00000000000000000000.crc", b"{}")
    with pytest.raises(TableNotFound):
        find_segment(table.files)


def test_commits_of_a_line_go_on_top_by_their_names_wherever_they_lie() -> None:
    names = ["_delta_log/_commits/a.json", "_penstock/line/b.json"]
    found = choose([*commits(0, 1, 2), classic(1)], version=1).append_commits(names)
    assert (found.version, found.names, found.newest) == (3, tuple(names), names[-1])
    assert found.append_commits([]) == found


HINTS = [
    b'{"version":4,"size":1}',
    b'{"version":2,"size":1,"parts":9}',
    b'{"version":3,"size":1}',
    b'{"version":900,"size":1}',
    b'{"version":-1}',
    b'{"version":1e999}',
    b'{"version":99999999999999999999999}',
    b'{"version":"4"}',
    b"{}",
    b"",
    b"\x00\xff{",
    b"[" * 100_000,
]


@pytest.mark.parametrize("hint", HINTS)
@pytest.mark.parametrize("version", [None, 1, 3, 6])
def test_whatever_the_hint_says_the_same_files_are_chosen(
    table: Table, hint: bytes, version: int | None
) -> None:
    names = [*commits(*range(7)), classic(2), classic(4), part(5, 1, 2)]
    for name in names:
        table.write(LOG + name, b"x")
    table.write(LAST_CHECKPOINT, hint)
    table.write(LOG + ".00000000000000000006.json.crc", b"x")
    table.write(LOG + "_sidecars/00000000000000000009.json", b"x")
    expected = choose(names, version)
    found = find_segment(table.files, version)
    assert (found.version, found.checkpoint, found.names) == (
        expected.version,
        expected.checkpoint,
        expected.names,
    )


@pytest.mark.parametrize(("version", "most"), [(9, 4), (8, 4), (11, 8), (12, None)])
def test_a_version_behind_the_newest_checkpoint_is_found_among_those_right_before_it(
    table: Table, monkeypatch: pytest.MonkeyPatch, version: int, most: int | None
) -> None:
    monkeypatch.setattr(segments, "NEAR_VERSIONS", (2, 3))
    for name in [*commits(*range(25)), classic(8), classic(20)]:
        table.write(LOG + name, b"x")
    expected = find_segment(table.files, version)
    table.write(LAST_CHECKPOINT, b'{"version":20}')
    seen: list[int] = []

    class Watched:
        url = table.files.url
        read_files = table.files.read_files

        def list_files(self, after: str, before: str = END_OF_VERSIONS):  # type: ignore[no-untyped-def]
            found = [*table.files.list_files(after, before)]
            seen.append(len(found))
            return iter(found)

    assert find_segment(Watched(), version) == expected
    assert (sum(seen) <= most) if most else (sum(seen) > 25)


def test_a_good_hint_saves_listing_what_is_older(table: Table) -> None:
    for name in [*commits(*range(7)), classic(4)]:
        table.write(LOG + name, b"x")
    table.write(LAST_CHECKPOINT, b'{"version":4}')
    table.write(LOG + second(2), b"x")
    seen = []

    class Watched:
        url = table.files.url
        read_files = table.files.read_files

        def list_files(self, after: str, before: str = END_OF_VERSIONS):  # type: ignore[no-untyped-def]
            seen.append(after)
            return table.files.list_files(after, before)

    find_segment(Watched())
    assert seen == [LOG + "00000000000000000004"]
    assert [one.name for one in table.files.list_files(seen[0])] == sorted(
        LOG + name for name in [*commits(4, 5, 6), classic(4)]
    )


def test_files_that_are_held_elsewhere_are_read_by_their_names_among_the_others(table: Table) -> None:
    table.create(add("a"))
    table.commit(1, add("b"))
    held = {"_delta_log/_commits/x.json": b"held", str(CommitName(1)): b"instead"}
    files = OverlaidFiles(table.files, held)
    names = [
        str(CommitName(0)),
        "_delta_log/_commits/x.json",
        "nowhere",
        str(CommitName(1)),
        str(CommitName(0)),
    ]
    first = (table.root / str(CommitName(0))).read_bytes()
    assert list(files.read_files(names)) == [first, b"held", None, b"instead", first]
    assert list(files.list_files("")) == list(table.files.list_files(""))
    assert files.url == table.files.url


def test_only_what_begins_with_a_version_is_listed(table: Table) -> None:
    table.create()
    for name in ("_commits/00000000000000000001.x.json", "_last_checkpoint", ".hidden", "0000.tmp"):
        path = table.root / LOG / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    (table.root / "part-0.parquet").write_bytes(b"")
    listed = list(table.files.list_files(""))
    assert [one.name for one in listed] == [LOG + "0000.tmp", str(CommitName(0))]
    assert listed[1].size > 0
    assert listed[1].modified_us > 0
    assert list(table.files.list_files(LOG + "0000.tmp")) == [listed[1]]
