"""The advice of every conflict of a Delta table is followed to its end: of merges, transplants and reverts,
and of writers that were overtaken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

import penstock
from penstock import Delete, DeltaTable, IcebergTable, Key, Lake, Put
from penstock.errors import CommitConflict, MergeConflict
from penstock.formats.delta.branch_log import replacements
from penstock.formats.delta.protocol import conflicts
from penstock.kernel.description import make_description, write_description
from penstock.kernel.kernel import Kernel
from penstock.model.encoding import NO_COMMIT
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from tests.formats.delta.sides import KEY, Side, create
from tests.formats.refusals import fits, refusals

SERIALIZABLE = MappingProxyType({"delta.isolationLevel": "Serializable"})
NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})
Work = Callable[[Side], object]


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    """A lake that any number of processes may open."""
    store = MemoryStore()
    Kernel(store).references.create_reference("main", Kind.BRANCH, NO_COMMIT)
    write_description(store, make_description(0, "main", str(tmp_path), ()))
    return store


@pytest.fixture
def lake(store: MemoryStore) -> Iterator[Lake]:
    with penstock.open(store) as lake:
        yield lake


def state(side: Side) -> object:
    now = side.table.snapshot()
    files = sorted(add.path for add in now.files())
    return files, now.metadata.configuration.get("owner"), now.metadata.schema_string


# --- the rules of commits that were overtaken ---------------------------------------------------------------


class Rule(NamedTuple):
    """What main did, and what a branch, or a writer that was overtaken, did that does not go with it."""

    main: Work
    dev: Work
    before: Work = Side.ids
    """What main did before the branch left."""
    properties: Mapping[str, str] = NO_PROPERTIES
    merges: bool = True
    """Whether a merge can meet it, and not only a writer."""


RULES = {
    1: Rule(
        lambda main: main.bring_feature("changeDataFeed"),
        lambda dev: dev.bring_feature("checkConstraints"),
        merges=False,  # the features of both sides come together
    ),
    2: Rule(lambda main: main.bring_feature("changeDataFeed"), lambda dev: dev.add_rows(7)),
    4: Rule(lambda main: main.set_property("owner", "etl"), lambda dev: dev.set_property("owner", "ada")),
    6: Rule(lambda main: main.set_property("owner", "etl"), lambda dev: dev.add_rows(7)),
    7: Rule(
        lambda main: main.write_domain("team", "a"),
        lambda dev: dev.write_domain("team", "b"),
        before=lambda main: main.bring_feature("domainMetadata"),
    ),
    8: Rule(lambda main: main.batch("a", 1, 7), lambda dev: dev.batch("a", 2, 8)),
    9: Rule(lambda main: main.append(7), lambda dev: dev.delete(1, where_day="mon"), properties=SERIALIZABLE),
    10: Rule(lambda main: main.delete(1), lambda dev: dev.delete(3, where_day="mon")),
    11: Rule(lambda main: main.delete(1), lambda dev: dev.delete(2)),
    12: Rule(lambda main: main.remove_unread(1), lambda dev: dev.add_rows(7, whole_table=True)),
    13: Rule(lambda main: main.remove_unread(1), lambda dev: dev.remove_unread(1, 5)),
}
TAKEOVER = 16
"""A table is being taken over from the file system: ``test_conversion.py`` is about that."""


def test_every_rule_that_conflicts_has_a_case() -> None:
    assert {*RULES, TAKEOVER} == conflicts._TOLD.keys()


@pytest.mark.parametrize("way", ["force", "drop", "redo"])
@pytest.mark.parametrize("number", [number for number, rule in RULES.items() if rule.merges])
def test_the_ways_out_of_a_merge_that_a_rule_forbids_lead_out(lake: Lake, number: int, way: str) -> None:
    rule = RULES[number]
    main = create(lake, "unused", properties=rule.properties)
    rule.before(main)
    lake.branch("dev").create()
    dev = Side(lake, "dev")
    rule.dev(dev)
    rule.main(main)
    before, theirs = state(main), state(dev)
    with pytest.raises(MergeConflict, match=rf"\(rule {number}\)"):
        dev.merge()
    if way != "redo":
        dev.merge(keys={KEY: way})
        assert state(main) == (theirs if way == "force" else before)
        return
    assert lake.rebase("dev", "main", keys={KEY: "drop"}).head
    assert state(dev) == before, "all that main has is kept"
    if number == 13:
        dev.remove_unread(5)  # the rest of it is done already
    else:
        rule.dev(dev)
    assert dev.merge().applied
    assert state(main) == state(dev)


@pytest.mark.parametrize("number", RULES)
def test_a_writer_that_was_overtaken_reads_again_and_repeats_its_work(lake: Lake, number: int) -> None:
    rule = RULES[number]
    main = create(lake, properties=rule.properties)
    rule.before(main)
    late = Side(lake, "main")
    late.seen = late.table.snapshot()
    rule.main(main)
    before, version = state(main), main.table.version
    with pytest.raises(CommitConflict, match=f"read version {version} or a later one and repeat the work"):
        rule.dev(late)
    assert state(main) == before
    if number == 13:
        main.remove_unread(5)
    else:
        rule.dev(main)
    assert main.table.version == version + 1


# --- other conflicts ----------------------------------------------------------------------------------------


class Case(NamedTuple):
    """How a conflict comes about, what is asked for then, and each way out with what follows from it."""

    kind: str
    work: Callable[[Lake, Side, Side], object]
    ways: Mapping[str, Callable[[Lake, Side, Side], object]]
    ask: Callable[[Lake], object] = lambda lake: lake.merge("dev")


def rename(lake: Lake, branch: str, new: str = "sales.renamed") -> None:
    content = lake.at(branch).get(KEY)
    assert content is not None
    lake.commit([Delete(Key.parse(KEY)), Put(Key.parse(new), content)], branch=branch)


def by(mode: str, ids: list[int] | None) -> Callable[[Lake, Side, Side], object]:
    """A way out that takes a side."""

    def follow(lake: Lake, main: Side, dev: Side) -> None:
        had = lake.at("main").get(KEY)
        lake.merge("dev", keys={KEY: mode})
        if ids is None:
            assert lake.at("main").get(KEY) == had
        else:
            assert main.ids() == ids

    return follow


def redo(ids: list[int], work: Work) -> Callable[[Lake, Side, Side], object]:
    def follow(lake: Lake, main: Side, dev: Side) -> None:
        lake.rebase("dev", "main", keys={KEY: "drop"})
        work(dev)
        dev.merge()
        assert main.ids() == ids

    return follow


def lose_the_log(lake: Lake, main: Side, dev: Side) -> None:
    """Somebody removes a version from the log that a merge has to look at."""
    dev.append(7)
    main.append(8)
    main.append(9)
    main.table.backfill_to_version()
    main.append(10)  # the lake forgets what is published
    main.table.backfill_to_version()
    lake.delta.checkpoint(KEY)
    log = Path(main.table.location) / "_delta_log"
    (log / f"{4:020}.json").unlink()


def drop_there(lake: Lake, main: Side, dev: Side) -> None:
    lake.commit([Delete(Key.parse(KEY))], branch="dev")
    main.append(7)


def dropped_here_too(lake: Lake, main: Side, dev: Side) -> None:
    lake.commit([Delete(Key.parse(KEY))])
    lake.merge("dev")
    assert not lake.table(KEY).exists


def drop_here(lake: Lake, main: Side, dev: Side) -> None:
    dev.append(7)
    lake.commit([Delete(Key.parse(KEY))])


def transplant_rows_alone(lake: Lake, main: Side, dev: Side) -> None:
    dev.add_column("note")
    dev.append(7)


def transplant_columns_too(lake: Lake, main: Side, dev: Side) -> None:
    lake.transplant("dev~2..dev")
    assert main.ids() == [1, 2, 3, 4, 5, 6, 7]


def put_something_else(lake: Lake, main: Side, dev: Side) -> None:
    dev.append(7)
    lake.commit([Delete(Key.parse(KEY))])
    lake.branch().put(KEY, IcebergTable(metadata_location="s3://lake/v1.json"))


def rename_something_else(lake: Lake, main: Side, dev: Side) -> None:
    rename(lake, "main")
    with pytest.raises(MergeConflict, match="was dropped or renamed here, and changed on the other side"):
        lake.merge("dev")
    by("force", [1, 2, 3, 4, 5, 6, 7])(lake, main, dev)


def own_what_was_a_pointer(lake: Lake, main: Side, dev: Side) -> None:
    schema = main.table.to_arrow().schema
    lake.commit([Delete(Key.parse(KEY))])
    lake.branch().put(KEY, DeltaTable(metadata_location_history=("v1.json",)))
    lake.branch("dev").delete()
    lake.branch("dev").create()
    lake.commit([Delete(Key.parse(KEY))], branch="dev")
    lake.create_table(KEY, schema=schema, branch="dev")
    dev.append(7)


def rename_the_pointer(lake: Lake, main: Side, dev: Side) -> None:
    rename(lake, "main")
    lake.merge("dev")
    assert main.ids() == [7]


def create_anew(lake: Lake, main: Side, dev: Side) -> None:
    dev.append(7)
    lake.commit([Delete(Key.parse(KEY))])
    lake.create_table(KEY, schema=dev.table.to_arrow().schema)
    main.append(8)


def rename_the_new_one(lake: Lake, main: Side, dev: Side) -> None:
    rename_something_else(lake, main, dev)
    assert lake.table("sales.renamed").to_arrow().column("id").to_pylist() == [8]


def adopt_again(lake: Lake, main: Side, dev: Side) -> None:
    dev.append(7)
    location = main.table.location
    lake.delta.release(KEY)
    lake.delta.adopt(location, KEY)


def branch_off_anew(lake: Lake, main: Side, dev: Side) -> None:
    by("drop", None)(lake, main, dev)
    lake.branch("again").create()
    Side(lake, "again").append(7)
    lake.merge("again")
    assert main.ids() == [1, 2, 3, 4, 5, 6, 7]


def release(lake: Lake, main: Side, dev: Side) -> None:
    dev.append(7)
    lake.delta.release(KEY)


def force(lake: Lake) -> object:
    return lake.merge("dev", keys={KEY: "force"})


def leave_and_adopt(lake: Lake, main: Side, dev: Side) -> None:
    location = dev.table.location
    by("drop", None)(lake, main, dev)
    lake.delta.adopt(location, KEY)
    assert main.ids() == [1, 2, 3, 4, 5, 6]


def write_anew_often(lake: Lake, main: Side, dev: Side) -> None:
    for number in range(7, 11):
        dev.overwrite(number)
    main.append(20)


def bring_fewer(lake: Lake, main: Side, dev: Side) -> None:
    for back in (3, 2, 1):
        lake.merge(f"dev~{back}", "main")
    lake.merge("dev")
    assert main.ids() == [10]


def transplant_a_delete_alone(lake: Lake, main: Side, dev: Side) -> None:
    dev.append(7, 8)
    dev.delete(7)


def transplanted(mode: str, ids: list[int]) -> Callable[[Lake, Side, Side], object]:
    def follow(lake: Lake, main: Side, dev: Side) -> None:
        lake.transplant("dev", keys={KEY: mode})
        assert main.ids() == ids

    return follow


def undo_what_was_compacted(lake: Lake, main: Side, dev: Side) -> None:
    main.append(7)
    main.compact("mon")


def redo_what_was_compacted(lake: Lake, main: Side, dev: Side) -> None:
    main.delete(1)
    lake.revert("main")
    main.compact("mon")


def undo_under_a_drop(lake: Lake, main: Side, dev: Side) -> None:
    main.append(7)
    lake.commit([Delete(Key.parse(KEY))])


def undo_under_another_table(lake: Lake, main: Side, dev: Side) -> None:
    schema = main.table.to_arrow().schema
    main.append(7)
    lake.commit([Delete(Key.parse(KEY))])
    lake.create_table(KEY, schema=schema)


def undo_a_drop_under_another_table(lake: Lake, main: Side, dev: Side) -> None:
    schema = main.table.to_arrow().schema
    lake.commit([Delete(Key.parse(KEY))])
    lake.create_table(KEY, schema=schema)


def undo_a_new_table(lake: Lake, main: Side, dev: Side) -> None:
    lake.commit([Delete(Key.parse(KEY))])
    lake.create_table(KEY, schema=dev.table.to_arrow().schema)
    main.append(7)


def first(undone: str) -> Callable[[Lake, Side, Side], object]:
    """Revert the commit on top first, and then the one that was to be undone."""

    def follow(lake: Lake, main: Side, dev: Side) -> None:
        commit = lake.resolve(undone)
        lake.revert("main")
        lake.revert(commit)
        assert main.ids() == ALL

    return follow


def undone_by(mode: str, undone: str, ids: list[int] | None) -> Callable[[Lake, Side, Side], object]:
    """Undo it with a mode; ``None`` for no table."""

    def follow(lake: Lake, main: Side, dev: Side) -> None:
        lake.revert(undone, keys={KEY: mode})
        assert (main.ids() if lake.tables() else None) == ids

    return follow


def make_way(undone: str) -> Callable[[Lake, Side, Side], object]:
    """Drop what is in the way, and revert again; where the commit was under a drop, that comes first."""

    def follow(lake: Lake, main: Side, dev: Side) -> None:
        commits = [lake.resolve(one) for one in (undone, "main~1")]
        lake.commit([Delete(Key.parse(KEY))])
        for commit in dict.fromkeys(reversed(commits)):
            lake.revert(commit)
        assert main.ids() == ALL

    return follow


def redo_after_the_compaction(lake: Lake, main: Side, dev: Side) -> None:
    commit = lake.resolve("main~2")
    lake.revert("main")
    lake.transplant(commit)
    assert main.ids() == [2, 3, 4, 5, 6]


def redone_by(mode: str, ids: list[int]) -> Callable[[Lake, Side, Side], object]:
    def follow(lake: Lake, main: Side, dev: Side) -> None:
        lake.transplant("main~2", keys={KEY: mode})
        assert main.ids() == ids

    return follow


def no_table_again(lake: Lake, main: Side, dev: Side) -> None:
    commit = lake.resolve("main~1")
    lake.revert("main")
    lake.revert(commit)
    assert not lake.tables()


ALL = [1, 2, 3, 4, 5, 6]
CASES = [
    Case(
        "was changed on both sides, and {}",
        lose_the_log,
        {
            "drop": by("drop", None),
            "redo": redo([*ALL, 7, 8, 9, 10], lambda dev: dev.append(7)),
        },
    ),
    Case(
        "cannot be {} alone ({} became {}, and the table is at {} now): {}",
        undo_what_was_compacted,
        {
            "the named one first": first("main~1"),
            "force": undone_by("force", "main~1", ALL),
            "drop": undone_by("drop", "main~1", [*ALL, 7]),
        },
        lambda lake: lake.revert("main~1"),
    ),
    Case(
        "cannot be {} alone ({} became {}, and the table is at {} now): {}",
        redo_what_was_compacted,
        {
            "the named one first": redo_after_the_compaction,
            "force": redone_by("force", [2, 3, 4, 5, 6]),
            "drop": redone_by("drop", ALL),
        },
        lambda lake: lake.transplant("main~2"),
    ),
    Case(
        "was dropped or renamed after the commit to be reverted",
        undo_under_a_drop,
        {"revert the drop": first("main~1"), "drop": undone_by("drop", "main~1", None)},
        lambda lake: lake.revert("main~1"),
    ),
    Case(
        "is a different table now ({}){}",
        undo_under_another_table,
        {"drop that one": make_way("main~2"), "drop": undone_by("drop", "main~2", [])},
        lambda lake: lake.revert("main~2"),
    ),
    Case(
        "was dropped by this commit, and another table was created with this name since ({}){}",
        undo_a_drop_under_another_table,
        {"drop that one": make_way("main~1"), "drop": undone_by("drop", "main~1", [])},
        lambda lake: lake.revert("main~1"),
    ),
    Case(
        "was created by this commit, and written to since{}",
        undo_a_new_table,
        {
            "revert those first": no_table_again,
            "force": undone_by("force", "main~1", None),
            "drop": undone_by("drop", "main~1", [7]),
        },
        lambda lake: lake.revert("main~1"),
    ),
    Case(
        "was dropped or renamed on the other side, and is at version {} here, changed{}",
        drop_there,
        {"drop": by("drop", None), "drop it here too": dropped_here_too},
    ),
    Case(
        "was dropped or renamed here, and changed on the other side: version {} has become {} there",
        drop_here,
        {"force": by("force", [*ALL, 7]), "drop": by("drop", None)},
    ),
    Case(
        "lacks columns of the rows to be merged: {}",
        transplant_rows_alone,
        {"columns too": transplant_columns_too},
        lambda lake: lake.transplant("dev"),
    ),
    Case(
        "is not a table of the lake here, but is one on the other side",
        put_something_else,
        {"rename": rename_something_else, "drop": by("drop", None)},
    ),
    Case(
        "is not a table of the lake here, but is one on the other side",
        own_what_was_a_pointer,
        {"rename": rename_the_pointer, "drop": by("drop", None)},
    ),
    Case(
        "is another table here ({}) than on the other side ({})",
        create_anew,
        {"drop": by("drop", None), "rename": rename_the_new_one},
    ),
    Case(
        "was released and adopted again since ({}), so the two sides have no common history",
        adopt_again,
        {"branch off anew": branch_off_anew},
    ),
    Case(
        "{}was released from the lake, which no longer commits to it",
        release,
        {"adopt again": leave_and_adopt},
        force,
    ),
    Case(
        "was overwritten too many times on the other side for one merge",
        write_anew_often,
        {"fewer commits": bring_fewer},
    ),
    Case(
        "cannot get the changes of the other side: {}{}",
        transplant_a_delete_alone,
        {
            "drop": transplanted("drop", [1, 2, 3, 4, 5, 6]),
            "force": transplanted("force", [1, 2, 3, 4, 5, 6, 8]),
        },
        lambda lake: lake.transplant("dev"),
    ),
]
OTHERWISE = {
    "was changed on both sides: {} (rule {})": "the rules, above",
    "{}is being adopted, and the outcome is not known yet": "owned/test_format_custody.py",
    "has {}, and the rows to be merged were not checked against it": "test_constraints.py",
    "was partitioned by the column '{}' at that version": "test_mapped_columns.py",
    (
        "got a new column on both sides, and both columns have the column mapping id {}, "
        "by which readers find them in files"
    ): ("test_mapped_columns.py"),
    "would track rows ('{ENABLED}'), but {} files that were added on the other side have no row ids": (
        "test_row_tracking.py"
    ),
    "is not managed by the lake on both sides": "a safeguard: only what the lake owns is asked about",
    "was created by the same request": "a safeguard: no request is known that meets it",
}
FOLLOWED = [pytest.param(case, way, id=f"{case.kind[:40]}: {way}") for case in CASES for way in case.ways]


def test_every_kind_of_conflict_has_a_case() -> None:
    lines = ("merge_rules", "next_versions", "merge_conflict", "prepared_table", "undo")
    kinds = {kind for name in lines for kind in refusals(f"delta/branch_log/{name}.py")}
    kinds |= set(refusals("delta/format.py", ("merge", "restore", "revert", "_require_managed")))
    assert kinds == {case.kind for case in CASES} | OTHERWISE.keys()


@pytest.mark.parametrize(("case", "way"), FOLLOWED)
def test_the_advice_of_a_conflict_leads_out_of_it(
    store: MemoryStore, case: Case, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replacements, "NAMED_MAX_BYTES", 150)
    with penstock.open(store) as lake:
        case.work(lake, create(lake), Side(lake, "dev"))
    with penstock.open(store) as lake:  # which remembers nothing
        lake.finish_background()  # but knows what is published
        _follow(lake, case, way)


def _follow(lake: Lake, case: Case, way: str) -> None:
    main, dev = Side(lake, "main"), Side(lake, "dev")
    before = {ref: lake.resolve(ref) for ref in ("main", "dev")}
    with pytest.raises(MergeConflict) as caught:
        case.ask(lake)
    conflict = caught.value.conflicts[0]
    assert fits(case.kind, conflict.why), conflict.why
    assert {ref: lake.resolve(ref) for ref in before} == before
    case.ways[way](lake, main, dev)
