"""Lake, Branch, Tag, Snapshot and Table, as a user holds them."""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

import penstock
from penstock import (
    Delete,
    DeltaTable,
    FilesTable,
    IcebergTable,
    IcebergView,
    Key,
    LanceTable,
    Namespace,
    Put,
    Udf,
    Unknown,
)
from penstock.errors import CommitConflict, KeyNotFound, ReferenceNotFound
from penstock.lake.lake import Lake
from penstock.model.commits import EMPTY_COMMIT_ID
from tests.queue.hooks import table


def test_reprs_tell_what_a_thing_is(lake: Lake) -> None:
    main = lake.branch()
    commit = main.put("sales.orders", table("s3://x"), message="first\nsecond line")
    assert repr(lake) == f"<Lake {lake.url} default branch 'main'>"
    assert repr(main) == "<Branch main>"
    assert repr(lake.tag("v1").create()) == "<Tag v1>"
    assert repr(commit) == f"<Commit {commit.id[:8]} 'first' by tester>"
    assert repr(lake.at("main")) == f"<Snapshot {commit.id[:8]} of {lake.url}>"
    assert repr(main.table("sales.orders")) == "<Table sales.orders at main>"
    assert repr(lake.at("main").table("sales.orders")) == f"<Table sales.orders at {commit.id[:8]}>"
    assert repr(lake.branches()) == "[<Branch main>]"
    changes = [repr(change) for change in lake.changes()]
    assert changes == ["<+ sales NAMESPACE>", "<+ sales.orders ICEBERG_TABLE>"]
    assert repr(lake.merge("v1", "main")).startswith("<MergeResult nothing to do")
    assert repr(Key("a", "b.c")) == "Key('a.\"b.c\"')"


def test_a_new_lake_is_empty(lake: Lake) -> None:
    assert lake.branch().head == EMPTY_COMMIT_ID
    assert lake.log() == []
    assert lake.tables() == []
    assert lake.changes() == []
    assert lake.tags() == []
    assert list(lake.at().entries()) == []
    assert [line.event for line in lake.reflog()] == ["create"]


def test_views_are_equal_by_what_they_name(lake: Lake) -> None:
    assert lake.branch("dev") == lake.branch("dev")
    assert lake.branch("dev") != lake.branch("main")
    assert lake.branch("x") != lake.tag("x")
    assert len({lake.branch("dev"), lake.branch("dev"), lake.tag("dev")}) == 2
    assert lake.branch() == lake.branch("main")
    with penstock.open("memory:") as other:
        assert other.branch() != lake.branch()


def test_a_view_asks_for_its_reference_when_it_is_used(lake: Lake) -> None:
    dev = lake.branch("dev")
    for do in (lambda: dev.head, dev.snapshot, dev.tables, dev.log, dev.delete, lambda: dev.assign("main")):
        with pytest.raises(ReferenceNotFound, match="'dev'"):
            do()
    assert dev.create() is dev
    assert dev.head == EMPTY_COMMIT_ID
    dev.delete()
    with pytest.raises(ReferenceNotFound, match="'dev'"):
        _ = dev.head


def test_a_view_knows_whether_it_exists(lake: Lake) -> None:
    lake.branch("dev").create()
    assert [lake.branch(name).exists for name in ("main", "dev", "nosuch")] == [True, True, False]
    lake.branch("dev").delete()
    assert [lake.branch(name).exists for name in ("main", "dev", "nosuch")] == [True, False, False]


@pytest.mark.parametrize(
    ("content", "type_name"),
    [
        (
            IcebergTable(metadata_location="x", snapshot_id=5, schema_id=1, spec_id=2, sort_order_id=3),
            "ICEBERG_TABLE",
        ),
        (IcebergView(metadata_location="x", sql_text="SELECT 1", dialect="spark"), "ICEBERG_VIEW"),
        (DeltaTable(metadata_location_history=("m",), last_checkpoint="c"), "DELTA_LAKE_TABLE"),
        (LanceTable(), "LANCE_TABLE"),
        (FilesTable(), "FILES_TABLE"),
        (Udf(sql_text="x + 1"), "UDF"),
        (Namespace(properties={"owner": "anna"}), "NAMESPACE"),
        (Unknown(type_name="FANCY", payload=b"\x00\xff" * 10), "FANCY"),
    ],
)
def test_what_is_put_is_what_is_read(lake: Lake, content: object, type_name: str) -> None:
    lake.branch().put("a.b.c", content)  # type: ignore[arg-type]
    found = lake.at("main").get("a.b.c")
    assert found is not None
    assert found.id is not None
    assert found.type == type_name
    for name in content.__struct_fields__:  # type: ignore[attr-defined]
        if name != "id":
            assert getattr(found, name) == getattr(content, name)


def test_a_put_creates_the_namespaces_above_it(lake: Lake) -> None:
    lake.branch().put("a.b.c", table())
    assert lake.at().namespaces() == [Key("a"), Key("a", "b")]
    lake.branch().create_namespace("x.y", {"owner": "anna"})
    assert lake.at().namespaces("x") == [Key("x"), Key("x", "y")]
    assert lake.at().get("x.y").properties == {"owner": "anna"}  # type: ignore[union-attr]
    with pytest.raises(CommitConflict, match="'n' does not exist"):
        lake.branch().commit([Put(Key("n", "t"), table())])
    lake.branch().commit([Put(Key("n", "t"), table())], create_namespaces=True)
    assert lake.at().get("n.t") is not None


def test_tables_and_namespaces_below_a_prefix(lake: Lake) -> None:
    main = lake.branch()
    for key in ("a.one", "a.b.two", "ab.three", "four"):
        main.put(key, table())
    assert [str(one.key) for one in lake.tables()] == ["a.b.two", "a.one", "ab.three", "four"]
    assert [str(one.key) for one in main.tables("a")] == ["a.b.two", "a.one"]
    assert [str(one.key) for one in lake.tables("a.b")] == ["a.b.two"]
    assert [str(one.key) for one in lake.tables("a.one")] == ["a.one"]
    assert lake.tables("nosuch") == []
    assert lake.at().namespaces("a") == [Key("a"), Key("a", "b")]
    assert [one.ref for one in main.tables("four")] == ["main"]
    assert [one.ref for one in lake.at().tables("four")] == [main.head]


def test_entries_go_on_after_a_key(lake: Lake) -> None:
    main = lake.branch()
    main.commit([Put(Key(f"k{number:02}"), table()) for number in range(25)])
    found: list[Key] = []
    while page := [key for key, _ in islice(lake.at().entries(after=found[-1] if found else None), 10)]:
        found += page
    assert found == [Key(f"k{number:02}") for number in range(25)]
    assert [key for key, _ in lake.at().entries(after="k23")] == [Key("k24")]
    assert next(key for key, _ in lake.at().entries(after="k10x")) == Key("k11")


def test_many_keys_are_read_at_once(lake: Lake) -> None:
    lake.branch().commit([Put(Key(f"k{number:03}"), table(str(number))) for number in range(600)])
    found = lake.at().get_many(["k001", Key("k250"), "nosuch"])
    assert set(found) == {Key("k001"), Key("k250")}
    assert found[Key("k250")].metadata_location == "250"  # type: ignore[attr-defined]


def test_a_snapshot_stays_while_the_branch_moves(lake: Lake) -> None:
    main = lake.branch()
    main.put("a", table("1"))
    pinned, head = main.snapshot(), main.head
    tables = pinned.table("a")
    for number in range(2, 300):
        main.put("a", table(str(number)))
    main.drop("a")
    assert pinned.id == head
    assert pinned.get("a").metadata_location == "1"  # type: ignore[union-attr]
    assert tables.content.metadata_location == "1"  # type: ignore[attr-defined]
    assert [commit.id for commit in pinned.log()] == [head]
    assert not main.table("a").exists
    lake.branch("dev").create(at=head)
    assert lake.at("dev").get("a") == pinned.get("a")


def test_a_table_follows_its_branch(lake: Lake) -> None:
    main = lake.branch()
    orders = lake.table("sales.orders")
    assert not orders.exists
    with pytest.raises(KeyNotFound, match=r"no 'sales.orders' at 'main'") as caught:
        _ = orders.content
    assert caught.value.details == {"key": "sales.orders", "ref": "main"}
    main.put("sales.orders", table("1"))
    assert (orders.exists, orders.type) == (True, "ICEBERG_TABLE")
    main.put("sales.other", table())
    main.put("sales.orders", table("2"))
    assert orders.content.metadata_location == "2"  # type: ignore[attr-defined]
    assert [commit.message for commit in orders.log()] == ["put sales.orders"] * 2
    assert lake.table("sales.orders", ref="main~1").content.metadata_location == "1"  # type: ignore[attr-defined]


def test_a_content_keeps_its_id_when_it_is_renamed_and_loses_it_when_it_is_dropped(lake: Lake) -> None:
    main = lake.branch()
    main.put("old", table("1"))
    born = lake.at().get("old")
    assert born is not None
    main.put("old", table("2"))
    content = lake.at().get("old")
    assert content is not None
    assert content.id == born.id
    main.commit([Delete(Key("old")), Put(Key("new"), content)])
    assert lake.at().get("new") == content
    main.drop("new")
    main.put("new", table("2"))
    again = lake.at().get("new")
    assert again is not None
    assert again.id != born.id


def test_commits_tell_who_when_what_and_why(lake: Lake) -> None:
    before = datetime.now(UTC)
    commit = lake.branch().commit(
        [Put(Key("a"), table())],
        message="why",
        author="anna",
        properties={"job": "nightly", "tables": ["a", "b"]},
    )
    assert (commit.message, commit.author, commit.parents) == ("why", "anna", ())
    assert commit.properties == {"job": ("nightly",), "tables": ("a", "b")}
    assert before - timedelta(seconds=1) < commit.time < datetime.now(UTC) + timedelta(seconds=1)
    assert commit.committer == "tester"
    assert lake.show() == lake.show("main") == lake.show(commit.id) == commit
    assert lake.at(commit).id == commit.id
    second = lake.branch().put("b", table())
    assert second.parents == (commit.id,)
    assert (commit.generation, second.generation) == (1, 2)


def test_changes_and_differences_tell_before_and_after(lake: Lake) -> None:
    main = lake.branch()
    main.put("same", table())
    main.put("changed", table("1"))
    main.put("dropped", table())
    lake.branch("dev").create()
    lake.branch("dev").commit(
        [Put(Key("changed"), table("2")), Delete(Key("dropped")), Put(Key("added"), table())]
    )
    assert [repr(change) for change in lake.changes("dev")] == [
        "<+ added ICEBERG_TABLE>",
        "<~ changed ICEBERG_TABLE>",
        "<- dropped ICEBERG_TABLE>",
    ]
    there, back = lake.diff("main", "dev"), lake.diff("dev", "main")
    assert there == lake.changes("dev")
    assert [(one.key, one.after, one.before) for one in back] == [
        (one.key, one.before, one.after) for one in there
    ]
    assert [one.sign for one in lake.diff("main", "dev", prefix="changed")] == ["~"]
    assert lake.diff("main", "main") == []
    assert len(lake.diff(EMPTY_COMMIT_ID, "main")) == 3


def test_a_branch_is_merged_rebased_and_previewed_by_its_own_methods(lake: Lake) -> None:
    main = lake.branch()
    main.put("base", table())
    dev = lake.branch("dev").create()
    dev.put("mine", table())
    main.put("theirs", table())
    preview = dev.merge_into("main", dry_run=True)
    assert (preview.applied, [str(one.key) for one in preview.keys]) == (False, ["mine"])
    assert not main.table("mine").exists
    rebased = dev.rebase("main")
    assert rebased.applied
    assert dev.table("theirs").exists
    merged = dev.merge_into(main)
    assert merged.commit == main.head
    assert merged.head == main.head
    assert not dev.merge_into().applied
    assert lake.show().is_merge


def test_transplants_take_revisions_or_a_range(lake: Lake) -> None:
    lake.branch().put("base", table())
    dev = lake.branch("dev").create()
    commits = [dev.put(f"d{number}", table()) for number in range(4)]
    assert len(lake.transplant("dev~2..dev", "main").commits) == 2
    assert [commit.message for commit in lake.log(limit=2)] == ["put d3", "put d2"]
    assert len(lake.transplant([commits[0].id, "dev~2"], "main").commits) == 2
    assert [key for key, _ in lake.at().entries()] == [Key("base"), *(Key(f"d{n}") for n in range(4))]
    assert len(lake.transplant(f"{EMPTY_COMMIT_ID}..dev~3", "dev").commits) == 0


def test_a_revert_undoes_one_commit(lake: Lake) -> None:
    main = lake.branch()
    main.put("a", table("1"))
    main.put("a", table("2"), message="a mistake")
    main.put("b", table())
    lake.revert("main~1")
    assert lake.at().get("a").metadata_location == "1"  # type: ignore[union-attr]
    assert lake.at().get("b") is not None
    assert lake.show().message.startswith("revert ")
    assert lake.show().message.endswith(": a mistake")


def test_outcomes_can_be_asked_for(lake: Lake) -> None:
    assert lake.outcome("k") is None
    commit = lake.branch().put("a", table(), idempotency_key="k")
    found = lake.outcome("k")
    assert found is not None
    assert found == commit
    lake.branch("dev").create()
    assert lake.outcome("k", "dev") is None
