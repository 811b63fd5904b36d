"""Tables of every format, brought back to what they were: by a commit, a time, a version."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import deltalake
import pytest

import penstock
from penstock import IcebergTable, Namespace
from penstock.errors import (
    HistoryExpired,
    InvalidName,
    InvalidRequest,
    MergeConflict,
    VersionNotFound,
)
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue
from penstock.model.nessie import IcebergView
from penstock.server.native import NATIVE
from tests.cli.conftest import Terminal
from tests.restore.tables import FORMATS, key_of, numbers, rows_for_others, rows_of, write
from tests.server.running import local


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", create=True, author="tester") as lake:
        yield lake


@pytest.fixture
def terminal(lake: Lake, tmp_path: Path) -> Terminal:
    return Terminal(tmp_path / "lake")


@pytest.fixture(params=["here", "behind a server"])
def any_lake(request: pytest.FixtureRequest, lake: Lake) -> Iterator[Lake]:
    if request.param == "here":
        yield lake
        return
    with (
        local(lake.catalogue, [NATIVE]) as server,
        Lake(RemoteCatalogue(server.url), author="tester") as remote,
    ):
        yield remote


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_table_goes_back_to_a_commit_and_forward_again(lake: Lake, format_name: str) -> None:
    key = key_of(format_name)
    first = write(lake, key, [1, 2])
    second = write(lake, key, [3])
    overwritten = write(lake, key, [9], mode="overwrite")
    for to, rows in ((second, [1, 2, 3]), (first, [1, 2]), (overwritten, [9]), (second, [1, 2, 3])):
        before = lake.branch().head
        result = lake.table(key).restore(ref=to)
        assert result.applied
        assert lake.show().parents == (before,)
        assert lake.show().message == f"restore {key} to {to[:8]}"
        assert rows_of(lake, key) == rows_for_others(lake, key) == rows
    write(lake, key, [4])
    assert rows_of(lake, key) == rows_for_others(lake, key) == [1, 2, 3, 4]
    assert rows_of(lake, key, overwritten) == [9]


@pytest.mark.parametrize("format_name", ["delta", "lance"])
def test_a_table_goes_back_to_each_of_its_versions(lake: Lake, format_name: str) -> None:
    key = key_of(format_name)
    first = 0 if format_name == "delta" else 1
    for number in range(4):
        write(lake, key, [number])
    lake.finish_background(30)
    for version in (3, 0, 2, 1):
        newest = lake.table(key).version
        result = lake.table(key).restore(version=first + version)
        expected = list(range(version + 1))
        assert rows_of(lake, key) == rows_for_others(lake, key) == expected
        assert lake.table(key).version == newest + result.applied
    with pytest.raises(VersionNotFound, match=f"'{key}' has no version 99"):
        lake.table(key).restore(version=99)
    with pytest.raises(InvalidRequest, match="version must be 0 or greater, got -1"):
        lake.table(key).restore(version=-1)


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_table_goes_back_to_a_time(lake: Lake, format_name: str) -> None:
    key = key_of(format_name)
    write(lake, key, [1])
    time.sleep(0.01)
    then = datetime.now(UTC)
    time.sleep(0.01)
    write(lake, key, [2])
    lake.table(key).restore(timestamp=then.isoformat())
    assert rows_of(lake, key) == [1]
    write(lake, key, [3])
    lake.table(key).restore(timestamp=then)
    assert rows_of(lake, key) == [1]
    with pytest.raises(HistoryExpired, match=r"the lake had no commits at that time(.|\n)*The oldest state"):
        lake.restore(all=True, to="main*1999-01-01")
    with pytest.raises(InvalidName, match="not a date or time"):
        lake.table(key).restore(timestamp="yesterday")


def test_exactly_one_thing_and_one_time_is_asked_for(any_lake: Lake) -> None:
    lake = any_lake
    head = write(lake, "delta.t", [1])
    table = lake.table("delta.t")
    with pytest.raises(InvalidRequest, match="give exactly one of version, timestamp and ref"):
        table.restore()
    with pytest.raises(InvalidRequest, match="give exactly one of version, timestamp and ref"):
        table.restore(0, ref=head)
    for what in ({}, {"keys": "delta.t", "all": True}, {"namespace": "delta", "all": True}):
        with pytest.raises(InvalidRequest, match="give exactly one of keys, a namespace, or all"):
            lake.restore(to=head, **what)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="a version belongs to one table"):
        lake.restore(all=True, version=1)
    with pytest.raises(InvalidRequest, match="give the state to restore"):
        lake.restore(all=True)
    with pytest.raises(InvalidRequest, match="twice"):
        lake.restore(["delta.t", "delta.t"], to=head)
    with pytest.raises(InvalidRequest, match="give only the keys"):
        lake.restore("delta.t", to=head, leave="delta.u")
    lake.tag("v1").create()
    with pytest.raises(InvalidRequest, match="is a tag"):
        lake.table("delta.t", "v1").restore(version=0)
    write(lake, "files.t", [1])
    with pytest.raises(
        MergeConflict,
        match=r"^cannot restore: 1 conflict\n.* has no version numbers of its own; restore",
    ):
        lake.table("files.t").restore(version=0)


def test_everything_goes_back_by_one_commit(any_lake: Lake) -> None:
    lake = any_lake
    for format_name in FORMATS:
        write(lake, key_of(format_name), [1])
        write(lake, key_of(format_name, "dropped"), [5])
    root = f"{lake.warehouse}/plain"
    lake.branch().put("plain.i", IcebergTable(metadata_location=f"{root}/1.json"))
    lake.branch().put("plain.v", IcebergView(metadata_location=f"{root}/v1.json"))
    lake.branch().create_namespace("kept", {"owner": "ada"})
    then = lake.branch().head
    entries = dict(lake.at(then).entries())
    for format_name in FORMATS:
        write(lake, key_of(format_name), [2], mode="overwrite")
        write(lake, key_of(format_name, "new"), [7])
        lake.branch().drop(key_of(format_name, "dropped"))
    lake.branch().put("plain.i", IcebergTable(metadata_location=f"{root}/2.json"))
    lake.branch().drop("plain.v")
    lake.branch().put("kept", Namespace(properties={"owner": "bob"}))
    lake.branch().create_namespace("later")
    now = lake.branch().head
    result = lake.restore(all=True, to=then)
    assert len(result.commits) == 1
    assert {str(one.key): one.action for one in result.keys} == {
        **{key_of(one): "changed" for one in FORMATS},
        **{key_of(one, "new"): "dropped" for one in FORMATS},
        **{key_of(one, "dropped"): "created" for one in FORMATS},
        "plain.i": "changed",
        "plain.v": "created",
        "kept": "changed",
        "later": "dropped",
    }
    found = dict(lake.branch().snapshot().entries())
    assert found.keys() == entries.keys()
    for key in ("plain.i", "plain.v", "kept", "files.t", "files.dropped"):
        path = penstock.Key.parse(key)
        assert found[path] == entries[path]
    for format_name in FORMATS:
        assert rows_for_others(lake, key_of(format_name)) == [1]
        assert rows_for_others(lake, key_of(format_name, "dropped")) == [5]
    lake.restore(all=True, to=now)
    assert {str(key) for key, _ in lake.branch().snapshot().entries()} == {
        str(key) for key, _ in lake.at(now).entries()
    }
    for format_name in FORMATS:
        assert rows_for_others(lake, key_of(format_name)) == [2]
        assert rows_for_others(lake, key_of(format_name, "new")) == [7]


def test_a_namespace_goes_back_and_others_stay(any_lake: Lake) -> None:
    lake = any_lake
    for name in ("delta.t", "delta.gone", "lance.t"):
        write(lake, name, [1])
    then = lake.branch().head
    for name in ("delta.t", "lance.t", "delta.new"):
        write(lake, name, [2])
    lake.branch().drop("delta.gone")
    lake.branch().restore(namespace="delta", to=then, leave="delta.new")
    assert [str(one.key) for one in lake.branch().tables()] == [
        "delta.gone",
        "delta.new",
        "delta.t",
        "lance.t",
    ]
    assert [rows_of(lake, one) for one in ("delta.t", "delta.gone", "lance.t")] == [[1], [1], [1, 2]]
    lake.branch().drop("delta.gone")
    lake.branch().drop("delta.new")
    lake.branch().drop("delta.t")
    lake.branch().drop("delta")
    lake.restore("delta.t", to=then)
    assert [str(one.key) for one in lake.branch().tables()] == ["delta.t", "lance.t"]


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_table_that_was_dropped_and_created_anew_gives_way_to_the_old_one(
    lake: Lake, format_name: str
) -> None:
    key = key_of(format_name)
    then = write(lake, key, [1, 2])
    old = lake.table(key).content.id
    lake.branch().drop(key)
    now = write(lake, key, [8])
    assert lake.table(key).content.id != old
    lake.restore(key, to=then)
    assert lake.table(key).content.id == old
    assert rows_of(lake, key) == rows_for_others(lake, key) == [1, 2]
    lake.restore(key, to=now)
    assert rows_of(lake, key) == rows_for_others(lake, key) == [8]


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_renamed_table_goes_back_where_it_is_or_with_all_to_where_it_was(
    lake: Lake, format_name: str
) -> None:
    from penstock import Delete, Put

    key, new = key_of(format_name), key_of(format_name, "renamed")
    then = write(lake, key, [1])
    content = lake.table(key).content
    lake.commit([Delete(penstock.Key.parse(key)), Put(penstock.Key.parse(new), content)], base=then)
    write(lake, new, [2])
    with pytest.raises(MergeConflict, match=f"already in the lake, as '{new}'"):
        lake.restore(key, to=then)
    lake.restore(new, to=then)
    assert rows_of(lake, new) == rows_for_others(lake, new) == [1]
    write(lake, new, [3])
    lake.restore(all=True, to=then)
    assert [str(one.key) for one in lake.branch().tables()] == [key]
    assert rows_of(lake, key) == rows_for_others(lake, key) == [1]


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_branch_goes_back_by_itself_and_takes_the_state_of_another(lake: Lake, format_name: str) -> None:
    key = key_of(format_name)
    base = write(lake, key, [1])
    lake.branch("dev").create()
    first = write(lake, key, [2], ref="dev")
    write(lake, key, [3], ref="dev")
    write(lake, key, [9])
    lake.table(key, "dev").restore(ref=first)
    assert rows_of(lake, key, "dev") == [1, 2]
    lake.branch("dev").restore(key, to=base)
    assert rows_of(lake, key, "dev") == [1]
    if format_name != "files":
        lake.table(key, "dev").restore(version=lake.at(first).table(key).version)
        assert rows_of(lake, key, "dev") == [1, 2]
    lake.branch("dev").restore(key, to=first)
    lake.restore(key, to="dev")
    assert rows_of(lake, key) == rows_for_others(lake, key) == [1, 2]
    write(lake, key, [4])
    lake.branch("dev").restore(key, to="main")
    assert rows_of(lake, key, "dev") == [1, 2, 4]
    write(lake, key, [5], ref="dev")
    assert rows_of(lake, key, "dev") == [1, 2, 4, 5]


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_restore_in_a_transaction_lands_with_it_or_not_at_all(lake: Lake, format_name: str) -> None:
    key = key_of(format_name)
    then = write(lake, key, [1])
    write(lake, key, [2])
    with lake.transaction() as tx:
        tx.table(key).restore(ref=then)
        tx.write({"id": [3]}, key)
        assert sorted(tx.table(key).to_arrow()["id"].to_pylist()) == [1, 3]
        assert rows_of(lake, key) == [1, 2]
    assert rows_of(lake, key) == rows_for_others(lake, key) == [1, 3]
    tx = lake.transaction()
    tx.table(key).restore(ref=then)
    tx.abort()
    assert rows_of(lake, key) == [1, 3]


def test_a_change_of_columns_and_properties_is_taken_back_with_the_rows(lake: Lake) -> None:
    import pyarrow as pa  # type: ignore[import-untyped]

    then = write(lake, "delta.t", [1])
    lake.table("delta.t").overwrite({"id": [2]})
    table = lake.table("delta.t")
    lake.finish_background()
    actions = deltalake.DeltaTable(table.location)
    assert actions.version() == 1
    lake.branch().drop("delta.t")
    lake.create_table("delta.t", data=pa.table({"name": ["a"]}), properties={"delta.appendOnly": "true"})
    lake.restore("delta.t", to=then)
    assert [one.name for one in lake.table("delta.t").schema.fields] == ["id"]
    assert "delta.appendOnly" not in lake.table("delta.t").properties


# -- what cannot be restored -------------------------------------------------------------------------------


def test_a_state_behind_the_horizon_has_expired_and_the_oldest_is_named(tmp_path: Path) -> None:
    from penstock.kernel.settings import Settings

    clock = [1_800_000_000_000_000]

    def now_us() -> int:
        clock[0] += 1000
        return clock[0]

    with penstock.open(
        tmp_path / "other", create=True, clock=now_us, settings=Settings(publish_wait_s=5)
    ) as lake:
        first = write(lake, "delta.t", [1])
        for number in range(2, 6):
            clock[0] += 3600_000_000
            write(lake, "delta.t", [number])
        lake.keep_history("*", max_commits=2)
        clock[0] += 40 * 86_400_000_000
        lake.sweep()
        oldest = lake.log(limit=10)[1]
        with pytest.raises(HistoryExpired) as expired:
            lake.table("delta.t").restore(ref=first)
        assert "The oldest state that can be restored on 'main' is of 20" in str(expired.value)
        assert expired.value.details["oldest"] == oldest.id
        with pytest.raises(HistoryExpired, match="The oldest state that can be restored on 'main'"):
            lake.table("delta.t").restore(timestamp="2020-01-01")
        lake.restore("delta.t", to=oldest)


@pytest.mark.parametrize("way", ["ref", "version"])
def test_data_files_that_are_gone_are_named_before_anything_is_written(lake: Lake, way: str) -> None:
    then = write(lake, "delta.t", [1, 2])
    write(lake, "delta.t", [3], mode="overwrite")
    write(lake, "delta.u", [1])
    lake.finish_background(30)
    (gone,) = [
        name for name in Path(lake.table("delta.t").location).glob("*.parquet") if _ids(name) == [1, 2]
    ]
    gone.unlink()
    head = lake.branch().head
    how = {"ref": then} if way == "ref" else {"version": 0}
    message = (
        r"'delta.t' cannot be restored to version 0: 1 of its data files are gone from storage "
        rf"\({gone.name}\), as after a VACUUM by another engine"
    )
    with pytest.raises(MergeConflict, match=message):
        lake.table("delta.t").restore(**how)
    assert gone.name in str(lake.table("delta.t").restore(**how, dry_run=True).conflicts)
    with pytest.raises(MergeConflict, match=message):
        lake.restore(all=True, to=then)
    assert lake.branch().head == head
    lake.restore(all=True, to=then, leave=["delta.t"])
    assert [str(one.key) for one in lake.branch().tables()] == ["delta.t"]
    assert rows_of(lake, "delta.t") == [3]


def _ids(path: Path) -> list[int]:
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    found: list[int] = pq.read_table(path)["id"].to_pylist()
    return found


def test_lance_files_that_are_gone_are_named(lake: Lake) -> None:
    write(lake, "lance.t", [1])
    then = write(lake, "lance.t", [2], mode="overwrite")
    write(lake, "lance.t", [3], mode="overwrite")
    lake.finish_background(30)
    place = Path(lake.table("lance.t").location)
    data = {one.name: one for one in (place / "data").iterdir()}
    assert len(data) == 3
    _, second, _ = sorted(data.values(), key=lambda one: one.stat().st_mtime_ns)
    second.unlink()
    with pytest.raises(MergeConflict, match=f"'lance.t' cannot be restored to version 2: .*{second.name}"):
        lake.restore("lance.t", to=then)
    lake.table("lance.t").restore(version=1)
    assert rows_of(lake, "lance.t") == [1]


def test_files_of_the_pool_that_are_gone_are_named(any_lake: Lake) -> None:
    lake = any_lake
    files = lake.table("files.t").files
    files.put("a/1.txt", b"one")
    then = lake.branch().head
    (entry,) = files.list()
    files.delete("a/1.txt")
    Path(entry.address).unlink()
    with pytest.raises(MergeConflict, match=r"1 of its data files are gone from storage \(a/1.txt\)"):
        lake.restore("files.t", to=then)


def test_a_table_that_was_adopted_since_goes_back_to_its_versions_only(lake: Lake, tmp_path: Path) -> None:
    place = tmp_path / "theirs"
    deltalake.write_deltalake(place, numbers(1))
    deltalake.write_deltalake(place, numbers(2), mode="append")
    lake.add_root(str(tmp_path))
    lake.branch().put("delta.t", penstock.DeltaTable(location=str(place)))
    then = lake.branch().head
    lake.branch().drop("delta.t")
    lake.delta.adopt(str(place), "delta.t")
    write(lake, "delta.t", [3])
    with pytest.raises(MergeConflict, match="was not managed by the lake at that time, but is now"):
        lake.restore("delta.t", to=then)
    lake.table("delta.t").restore(version=0)
    assert rows_of(lake, "delta.t") == rows_for_others(lake, "delta.t") == [1]


@pytest.mark.parametrize("again", [False, True], ids=["released", "adopted again"])
def test_a_table_that_was_released_since_is_not_restored(lake: Lake, tmp_path: Path, again: bool) -> None:
    place = tmp_path / "place"
    lake.add_root(str(tmp_path))
    lake.create_table("delta.t", data=numbers(1), location=str(place))
    then = lake.branch().head
    lake.delta.release("delta.t")
    if again:
        lake.delta.adopt(str(place), "delta.t")
    head = lake.branch().head
    with pytest.raises(MergeConflict, match=r"'delta\.t'"):
        lake.restore("delta.t", to=then)
    with pytest.raises(MergeConflict, match=r"'delta\.t'"):
        lake.restore(all=True, to=then)
    assert lake.branch().head == head
    assert lake.restore(all=True, to=then, leave="delta").applied in (True, False)


# -- the default branch is not assigned back ---------------------------------------------------------------


def test_the_advice_for_a_default_branch_that_cannot_be_assigned_gives_readers_the_same_rows(
    lake: Lake, terminal: Terminal
) -> None:
    for format_name in FORMATS:
        write(lake, key_of(format_name), [1])
    then = lake.branch().head
    for format_name in FORMATS:
        write(lake, key_of(format_name), [2])
    write(lake, "delta.new", [5])
    with pytest.raises(InvalidRequest) as refused:
        lake.branch().assign(then)
    (advice,) = re.findall(r"penstock (restore --all --to \S+ --branch main),", str(refused.value))
    terminal(*shlex.split(advice))
    for format_name in FORMATS:
        assert rows_of(lake, key_of(format_name)) == rows_for_others(lake, key_of(format_name)) == [1]
    assert [str(one.key) for one in lake.branch().tables()] == sorted(key_of(one) for one in FORMATS)
