"""Row tracking: the owner gives ids to rows when a commit becomes a version, no id twice in a log, and what
is brought back, merged or given another deletion vector keeps those that it has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import InvalidContent, InvalidRequest, MergeConflict
from penstock.formats.delta.branch_log.composed_commit import HELD_MAX_BYTES
from penstock.formats.delta.branch_log.replacements import make_remove
from penstock.formats.delta.lake.calls import CommitTables, WriterReads
from penstock.formats.delta.lake.table import table_commit
from penstock.formats.delta.protocol.actions import Action, Add, CommitInfo
from penstock.formats.delta.protocol.features import complete_protocol, supported_features
from penstock.formats.delta.protocol.row_ids import (
    ENABLED,
    ID_COLUMN,
    PRESERVED,
    PROVISIONAL,
    SUSPENDED,
    VERSION_COLUMN,
    high_water_mark,
    name_row_columns,
)
from penstock.formats.delta.rows.vectors import DeletedRows, inline_vector
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from tests.formats.delta.row_id_log import check_row_ids

KEY = "shop.tracked"
TRACKED = {ENABLED: "true"}
RowIds = dict[int, tuple[int, int]]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        lake.add_root(str(tmp_path))
        yield lake


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


def create(lake: Lake, *numbers: int, **properties: str) -> Table:
    return lake.delta.create(KEY, data=rows(*numbers), properties={**TRACKED, **properties})


def ids_of(table: Table) -> RowIds:
    """The id and the version of each row, by its number; no id is there twice."""
    found = table.to_arrow(columns=["id", "_row_id", "_row_commit_version"]).to_pylist()
    assert len({one["_row_id"] for one in found}) == len(found)
    return {one["id"]: (one["_row_id"], one["_row_commit_version"]) for one in found}


def publish(table: Table) -> int:
    table.backfill_to_version()
    return check_row_ids(table.location)


def files(table: Table) -> list[Add]:
    return sorted(table.snapshot().files(), key=lambda one: one.base_row_id or 0)


def read_deletion_vectors(file: Add, *numbers: int) -> list[Action]:
    """What deletes rows of a file by a deletion vector, as a writer says it that knows nothing of ids."""
    total = json.loads(file.stats or "{}")["numRecords"]
    vector = inline_vector(DeletedRows(sum(1 << one for one in numbers), total))
    plain = msgspec.structs.replace(file, base_row_id=None, default_row_commit_version=None)
    return [make_remove(plain, 1), msgspec.structs.replace(plain, deletion_vector=vector)]


# -- what the owner gives ----------------------------------------------------------------------------------


def test_a_table_is_created_with_all_that_row_tracking_takes(lake: Lake) -> None:
    table = create(lake, 1, 2)
    snapshot = table.snapshot()
    assert {"rowTracking", "domainMetadata"} <= supported_features(snapshot.protocol)
    names = {snapshot.properties[name] for name in (ID_COLUMN, VERSION_COLUMN)}
    assert len(names) == 2
    table.append(rows(3))
    assert ids_of(table) == {1: (0, 0), 2: (1, 0), 3: (2, 1)}
    assert publish(table) == 2
    assert table.history(1)[0].info["tags"] == {PRESERVED: "true"}


def test_ids_are_given_but_not_shown_where_the_feature_is_only_supported(lake: Lake) -> None:
    table = lake.delta.create(KEY, data=rows(1, 2), properties={"delta.feature.rowTracking": "supported"})
    table.append(rows(3))
    assert publish(table) == 2
    assert ID_COLUMN not in table.properties
    with pytest.raises(InvalidRequest, match="does not track rows"):
        table.to_arrow(columns=["_row_id"])


def test_no_ids_are_given_while_they_are_suspended(lake: Lake) -> None:
    properties = {"delta.feature.rowTracking": "supported", SUSPENDED: "true"}
    table = lake.delta.create(KEY, data=rows(1), properties=properties)
    table.append(rows(2))
    assert {one.base_row_id for one in files(table)} == {None}
    with pytest.raises(InvalidContent, match="cannot both"):
        lake.delta.create("other", data=rows(1), properties={**TRACKED, SUSPENDED: "true"})


def test_a_column_of_the_tables_own_is_read_before_ids(lake: Lake) -> None:
    table = lake.delta.create(KEY, data=pa.table({"_row_id": ["mine"]}), properties=TRACKED)
    assert table.to_arrow(columns=["_row_id"]).to_pylist() == [{"_row_id": "mine"}]


def test_what_a_writer_says_of_ids_does_not_count(lake: Lake) -> None:
    table = create(lake, 1, 2)
    file = msgspec.structs.replace(
        files(table)[0], path="more.parquet", base_row_id=0, default_row_commit_version=0
    )
    Path(table.location, "more.parquet").write_bytes(Path(table.location, files(table)[0].path).read_bytes())
    table.append_actions([file, high_water_mark(77)])
    assert [(one.base_row_id, one.default_row_commit_version) for one in files(table)] == [(0, 0), (2, 1)]
    table.commit(2, [msgspec.structs.replace(file, path="last.parquet")])
    assert (files(table)[2].base_row_id, files(table)[2].default_row_commit_version) == (4, 2)
    assert publish(table) == 5


def test_a_file_that_is_added_once_more_keeps_its_ids(lake: Lake) -> None:
    table = create(lake, 1, 2)
    again = msgspec.structs.replace(files(table)[0], base_row_id=None, default_row_commit_version=None)
    table.append_actions([again])
    assert ids_of(table) == {1: (0, 0), 2: (1, 0)}
    assert publish(table) == 1


def test_a_file_that_does_not_say_how_many_rows_it_has_is_refused(lake: Lake) -> None:
    table = create(lake, 1)
    bare = Add(path="x.parquet", partition_values={}, size=1, modification_time=1, data_change=True)
    with pytest.raises(InvalidContent, match="'numRecords', which a table with row tracking"):
        table.append_actions([bare])


def test_a_commit_that_is_too_large_to_be_held_has_ids(lake: Lake) -> None:
    table = create(lake, 1, 2)
    file = files(table)[0]
    many = [msgspec.structs.replace(file, path=f"{number:0100}.parquet") for number in range(600)]
    assert sum(len(one.path) for one in many) > HELD_MAX_BYTES / 3
    table.append_actions(many)
    table.append_actions([msgspec.structs.replace(file, path="last.parquet")])
    assert publish(table) == 2 + 1200 + 2 - 1


def test_large_and_small_commits_at_once_get_ids_that_do_not_meet(lake: Lake) -> None:
    table = create(lake, 1, 2)
    file, barrier = files(table)[0], Barrier(3)

    def commit(writer: int) -> None:
        barrier.wait()
        for number in range(4):
            count = 1 if writer else 500
            names = (f"{writer}-{number}-{part:0100}.parquet" for part in range(count))
            table.append_actions([msgspec.structs.replace(file, path=name) for name in names])

    with ThreadPoolExecutor(3) as threads:
        assert [*threads.map(commit, range(3))] == [None] * 3
    assert table.version == 12
    assert publish(table) == 2 + 2 * (4 * 500 + 8) - 1


def test_a_metadata_that_renames_the_columns_of_ids_is_refused(lake: Lake) -> None:
    table = create(lake, 1)
    about = table.snapshot().metadata
    for name, reason in ((ID_COLUMN, "cannot change"), (VERSION_COLUMN, "cannot change")):
        changed = {**about.configuration, name: "other"}
        with pytest.raises(InvalidContent, match=reason):
            table.commit(1, [msgspec.structs.replace(about, configuration=changed)])


# -- turned on later ----------------------------------------------------------------------------------------


def turn_on(table: Table, between: Callable[[], object] = lambda: None) -> None:
    """Let a table track rows, as an engine does that knows how; others may come ``between``."""
    snapshot, now = table.snapshot(), table.get_commits()
    properties = name_row_columns({**snapshot.properties, **TRACKED})
    about = msgspec.structs.replace(snapshot.metadata, configuration=properties)
    between()
    wanted = msgspec.structs.replace(
        table_commit(table, [CommitInfo({}), complete_protocol(snapshot.protocol, about), about]),
        read_version=snapshot.version,
        read_tip=now.tip,
        reads=WriterReads(),
    )
    table.lake.do(CommitTables(tables=(wanted,), branch=table.require_branch()))


def test_a_table_that_comes_to_track_rows_gets_ids_for_all_that_are_there(lake: Lake) -> None:
    table = lake.delta.create(KEY, data=rows(1, 2))
    table.append(rows(3))
    dev = lake.branch("dev").create()
    lake.table(KEY, "dev").append(rows(4))
    turn_on(table)
    assert sorted(ids_of(table).values()) == [(0, 2), (1, 2), (2, 2)]
    before = ids_of(table)
    dev.merge_into("main")
    assert ids_of(table) == {**before, 4: (3, 3)}
    table.restore(version=0)
    table.restore(version=3)
    assert ids_of(table) == {**before, 4: (3, 3)}


def test_a_branch_on_which_rows_come_to_be_tracked_merges_if_no_files_came_meanwhile(lake: Lake) -> None:
    table = lake.delta.create(KEY, data=rows(1, 2))
    dev = lake.branch("dev").create()
    turn_on(lake.table(KEY, "dev"))
    lake.table(KEY, "dev").append(rows(3))
    late = lake.branch("late").create()
    lake.table(KEY, "late").append(rows(9))
    dev.merge_into("main")
    assert ids_of(table) == {1: (0, 1), 2: (1, 1), 3: (2, 1)}
    late.merge_into("main")
    assert ids_of(table)[9] == (3, 2)
    other = lake.delta.create("other", data=rows(1))
    side = lake.branch("side").create()
    turn_on(lake.table("other", "side"))
    other.append(rows(2))
    with pytest.raises(MergeConflict, match="1 files that were added on the other side have no row ids"):
        side.merge_into("main")
    lake.delta.set_properties("other", TRACKED)  # as the conflict advises
    assert sorted(ids_of(other).values()) == [(0, 2), (1, 2)]


def test_a_commit_that_turns_tracking_on_counts_in_what_lands_just_before_it(lake: Lake) -> None:
    table = lake.delta.create(KEY, data=rows(1))
    turn_on(table, lambda: table.append(rows(2)))
    assert sorted(ids_of(table).values()) == [(0, 2), (1, 2)]


def test_row_tracking_is_turned_on_off_and_on_again_by_a_property(lake: Lake) -> None:
    table = lake.delta.create(KEY, data=rows(1, 2))
    lake.delta.set_properties(KEY, TRACKED)
    before, names = ids_of(table), (table.properties[ID_COLUMN], table.properties[VERSION_COLUMN])
    assert sorted(before.values()) == [(0, 1), (1, 1)]
    lake.delta.set_properties(KEY, {ENABLED: "false"})
    table.append(rows(3))
    with pytest.raises(InvalidRequest, match="does not track rows"):
        ids_of(table)
    lake.delta.set_properties(KEY, TRACKED)
    assert (table.properties[ID_COLUMN], table.properties[VERSION_COLUMN]) == names
    assert ids_of(table) == {**before, 3: (2, 3)}
    other = lake.delta.create("other", data=rows(1))
    lake.delta.set_properties("other", {"delta.feature.rowTracking": "supported"})
    other.append(rows(2))
    assert sorted(one.base_row_id or 0 for one in files(other)) == [0, 0]


# -- branches ----------------------------------------------------------------------------------------------


def test_two_branches_that_append_get_ids_that_do_not_meet(lake: Lake) -> None:
    table = create(lake, 1)
    sides = [lake.branch(name).create() for name in ("one", "two")]
    for number, side in enumerate(sides, 2):
        lake.table(KEY, side.name).append(rows(number))
        assert ids_of(lake.table(KEY, side.name)) == {1: (0, 0), number: (PROVISIONAL, 1)}
    for side in sides:
        side.merge_into("main")
    assert ids_of(table) == {1: (0, 0), 2: (1, 1), 3: (2, 2)}
    assert publish(table) == 2


def test_a_table_that_came_on_a_branch_arrives_with_ids_from_the_first_on(lake: Lake) -> None:
    dev = lake.branch("dev").create()
    made = lake.delta.create(KEY, data=rows(1, 2), properties=TRACKED, branch="dev")
    made.append(rows(3))
    dev.merge_into("main")
    table = lake.table(KEY)
    assert sorted(one for one, _ in ids_of(table).values()) == [0, 1, 2]
    table.append(rows(4))
    assert publish(table) == 3


def test_a_branch_that_takes_main_in_has_the_ids_of_main(lake: Lake) -> None:
    table = create(lake, 1)
    lake.branch("dev").create()
    there = lake.table(KEY, "dev")
    there.append(rows(2, 3))
    table.append(rows(4))
    lake.branch("main").merge_into("dev")
    assert ids_of(there)[4] == ids_of(table)[4] == (1, 1)
    assert min(ids_of(there)[number][0] for number in (2, 3)) == PROVISIONAL
    lake.branch("dev").merge_into("main")
    assert ids_of(table) == {1: (0, 0), 4: (1, 1), 2: (2, 2), 3: (3, 2)}
    assert publish(table) == 3


@pytest.mark.parametrize("has_vectors", [False, True])
def test_rows_of_main_that_a_branch_took_by_a_restore_keep_their_ids(lake: Lake, has_vectors: bool) -> None:
    """Also where main has them no more, and though its versions are higher than the branch's."""
    table = create(lake, 1, **{"delta.enableDeletionVectors": str(has_vectors).lower()})
    lake.branch("dev").create()
    lake.table(KEY, "dev").append(rows(40))
    for number in range(2, 8):
        table.append(rows(number, number + 10))
    on_main, head = ids_of(table), lake.branch().head
    table.delete("id > 1")
    lake.restore([KEY], to=head, branch="dev")
    there = lake.table(KEY, "dev")
    there.append(rows(30))
    assert on_main.items() <= ids_of(there).items()
    there.delete("id = 7")
    there.delete("id = 5")
    assert any(file.deletion_vector for file in files(there)) is has_vectors
    assert {n: one for n, one in on_main.items() if n not in (5, 7)}.items() <= ids_of(there).items()
    there.optimize()
    there.append(rows(31))
    kept = {number: ids for number, ids in on_main.items() if number not in (5, 7)}
    assert kept.items() <= ids_of(there).items()
    lake.merge("dev", "main", default="force")
    assert kept.items() <= ids_of(table).items()
    publish(table)


def test_a_file_that_has_landed_keeps_its_ids_when_the_branch_changes_it_once_more(lake: Lake) -> None:
    table = create(lake, 1, 2, **{"delta.enableDeletionVectors": "true"})
    dev = lake.branch("dev").create()
    there = lake.table(KEY, "dev")
    there.append(rows(3, 4, 5))
    table.append(rows(6))
    dev.merge_into("main")
    landed = ids_of(table)
    assert landed[3] != ids_of(there)[3]
    for file in files(there):
        there.append_actions(read_deletion_vectors(file, 0))
    assert ids_of(there).keys() == {2, 4, 5}
    dev.merge_into("main")
    assert ids_of(table) == {number: landed[number] for number in (2, 4, 5, 6)}
    assert publish(table) == 5


# -- what is brought back ----------------------------------------------------------------------------------


def test_restored_and_reverted_rows_have_the_ids_that_they_had(lake: Lake) -> None:
    table = create(lake, 1, 2)
    table.append(rows(3))
    before = ids_of(table)
    gone = table.overwrite(rows(4))
    table.append(rows(5))
    lake.revert(gone.commit.id)
    after = ids_of(table)
    assert {number: after[number] for number in before} == before
    assert after.keys() == {1, 2, 3, 5}
    table.restore(version=1)
    assert ids_of(table) == before
    table.append(rows(6))
    assert ids_of(table)[6][0] == 5
    assert publish(table) == 5


def test_a_merge_that_is_reverted_and_reverted_again_brings_the_ids_back(lake: Lake) -> None:
    table = create(lake, 1)
    dev = lake.branch("dev").create()
    lake.table(KEY, "dev").append(rows(2, 3))
    table.append(rows(4))
    dev.merge_into("main")
    landed = ids_of(table)
    main = lake.branch("main")
    lake.revert(main.head)
    assert ids_of(table).keys() == {1, 4}
    lake.revert(main.head)
    assert ids_of(table) == landed
    assert publish(table) == 3


def test_a_checkpoint_keeps_ids_and_how_far_they_were_given(lake: Lake, tmp_path: Path) -> None:
    table = create(lake, 1, 2)
    table.append(rows(3))
    table.overwrite(rows(4))
    publish(table)
    lake.delta.checkpoint(KEY)
    location = table.location
    lake.delta.release(KEY)
    for log in Path(location, "_delta_log").glob("*[012].json"):
        log.unlink()
    with penstock.open(tmp_path / "other", author="tester") as other:
        other.add_root(str(tmp_path))
        other.delta.adopt(location, KEY)
        adopted = other.table(KEY)
        adopted.append(rows(5))
        assert ids_of(adopted)[4] == (3, 2)
        assert ids_of(adopted)[5] == (4, adopted.version)


def test_reading_only_ids_reads_all_rows(lake: Lake) -> None:
    table = create(lake, 1, 2, **{"delta.enableDeletionVectors": "true"})
    table.append_actions(read_deletion_vectors(files(table)[0], 0))
    assert table.to_arrow(columns=["_row_id"]).to_pylist() == [{"_row_id": 1}]
    wanted: Any = [{"_row_commit_version": 0, "id": 2}]
    assert table.to_arrow(columns=["_row_commit_version", "id"], where="id > 1").to_pylist() == wanted
