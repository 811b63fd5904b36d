"""Rows are merged into a table: what matches is changed, what does not is inserted, and nothing else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.spark.merge_builder import MergeBuilder, merge
from tests.spark.reading_tables import using
from tests.spark.writing_cases import delta_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY = "shop.stock"
SCHEMA = pa.schema([("k", pa.int64()), ("p", pa.string()), ("v", pa.int32())])
SOURCE = "k long, p string, v int"

Row = tuple[Any, ...]


@pytest.fixture
def create(lake: Lake) -> Callable[..., Table]:
    """Makes a table partitioned by ``p`` with rows, of which each list is written as files of its own."""

    def made(*files: Sequence[Row], **wanted: Any) -> Table:
        lake.delta.create(KEY, schema=SCHEMA, **{"partition_by": ["p"], **wanted})
        table = lake.table(KEY)
        for rows in files:
            table.append(pa.Table.from_pylist([dict(zip("kpv", one, strict=True)) for one in rows], SCHEMA))
        return table

    return made


@pytest.fixture
def source(spark: SparkSession) -> Callable[..., DataFrame]:
    return lambda *rows: spark.createDataFrame(list(rows), SOURCE)


def found(table: Table) -> Counter[Row]:
    """The rows, as the lake and deltalake both read them."""
    table.backfill_to_version()
    rows = Counter((one["k"], one["p"], one["v"]) for one in table.to_arrow().to_pylist())
    others = delta_table(table.location).to_pyarrow_table().to_pylist()
    assert Counter((one["k"], one["p"], one["v"]) for one in others) == rows
    return rows


def having(one: MergeBuilder, on: str) -> MergeBuilder:
    """A merge with another condition."""
    return one._replace(plan=one.plan._replace(on=on))


def fed(table: Table, version: int | None) -> Counter[Row]:
    """What the change data feed tells of a version."""
    feed = pa.table(delta_table(table.location).load_cdf(starting_version=version, ending_version=version))
    return Counter((one["_change_type"], one["k"], one["p"], one["v"]) for one in feed.to_pylist())


def paths(table: Table) -> set[str]:
    return {one.path for one in table.snapshot().files()}


def test_rows_that_match_are_updated_and_the_others_inserted_in_one_version(
    create: Callable[..., Table], source: Callable[..., DataFrame]
) -> None:
    table = create([(1, "a", 1), (2, "a", 2)], [(3, "b", 3)])
    before = paths(table)
    news = source((2, "a", 20), (4, "b", 40))
    done = (
        merge(news, KEY, "target.k = source.k", message="nightly")
        .when_matched_update({"v": "target.v + source.v"})
        .when_not_matched_insert_all()
        .commit()
    )
    assert done is not None
    assert done.version == 3
    assert done.commit is not None
    assert done.commit.message == "nightly"
    assert found(table) == Counter([(1, "a", 1), (2, "a", 22), (3, "b", 3), (4, "b", 40)])
    assert len(before & paths(table)) == 1
    (last,) = table.history(1)
    assert last.operation == "MERGE"
    assert last.info["isBlindAppend"] is False


def test_a_merge_that_only_inserts_replaces_no_file_even_of_an_append_only_table(
    create: Callable[..., Table], source: Callable[..., DataFrame]
) -> None:
    table = create([(1, "a", 1), (None, "a", 2)], properties={"delta.appendOnly": "true"})
    before = paths(table)
    news = source((1, "a", 10), (2, None, 20), (None, "a", 30))
    done = merge(news, KEY, "target.k = source.k").when_not_matched_insert_all("source.v > 10").commit()
    assert done is not None
    assert before < paths(table)
    # Nulls equal nothing, so the row without a key is a new one.
    assert found(table) == Counter([(1, "a", 1), (None, "a", 2), (2, None, 20), (None, "a", 30)])
    assert merge(news, KEY, "target.k = source.k").when_not_matched_insert_all("false").commit() is None


@pytest.mark.verify
def test_a_row_that_several_rows_of_the_source_would_change_is_refused(
    create: Callable[..., Table], source: Callable[..., DataFrame]
) -> None:
    table = create([(1, "a", 1), (2, "a", 2)])
    twice = merge(source((1, "a", 10), (1, "b", 11), (2, "a", 0)), KEY, "target.k = source.k")
    with pytest.raises(InvalidRequest, match=r"1 row of 'shop\.stock' would be changed by several"):
        twice.when_matched_update_all().commit()
    with pytest.raises(InvalidRequest, match="changed by several"):
        twice.when_matched_delete("source.v >= 10").commit()
    assert table.version == 1
    # One of the two is meant: the other one changes nothing, and is no new row either.
    assert twice.when_matched_update_all("source.v = 11").when_not_matched_insert_all().commit() is not None
    assert found(table) == Counter([(1, "b", 11), (2, "a", 2)])
    assert twice.when_matched_delete().commit() is not None
    assert found(table) == Counter()


@pytest.mark.verify
def test_nothing_to_do_commits_nothing(
    create: Callable[..., Table], source: Callable[..., DataFrame]
) -> None:
    table = create([(1, "a", 1)])
    one = merge(source((1, "a", 1), (5, "a", 1)), KEY, "target.k = source.k")
    assert one.when_matched_delete("source.v > 100").commit() is None
    assert (
        one.when_matched_update({"v": "0"}, "target.v > 100").when_not_matched_insert_all("false").commit()
        is None
    )
    assert merge(source(), KEY, "target.k = source.k").when_not_matched_insert_all().commit() is None
    assert table.version == 1


def test_a_merge_into_an_empty_table_inserts(
    create: Callable[..., Table], source: Callable[..., DataFrame]
) -> None:
    table = create()
    news = source((1, "a", 1), (1, "a", 1))
    merge(news, KEY, "target.k = source.k").when_matched_delete().when_not_matched_insert_all().commit()
    assert found(table) == Counter({(1, "a", 1): 2})


@pytest.mark.verify
def test_the_source_gives_the_same_rows_at_both_looks(
    spark: SparkSession, create: Callable[..., Table]
) -> None:
    table = create([(one, "a", 0) for one in range(200)])
    # Which keys it has is left to chance each time that it is evaluated.
    news = spark.range(400).selectExpr("cast(rand() * 400 as long) as k", "'a' as p", "1 as v").distinct()
    merge(news, KEY, "target.k = source.k").when_matched_update_all().when_not_matched_insert_all().commit()
    rows = found(table)
    assert set(rows.values()) == {1}
    assert len({k for k, _, _ in rows}) == len(rows)
    assert not news.is_cached


def test_a_source_that_is_not_the_same_twice_may_be_inserted_because_it_is_looked_at_once(
    spark: SparkSession, create: Callable[..., Table]
) -> None:
    table = create([(1, "a", 0)])
    firsts = (
        spark.range(1, 4).selectExpr("id as k", "'a' as p", "1 as v").groupBy("k", "p").agg({"v": "first"})
    )
    merge(firsts.toDF("k", "p", "v"), KEY, "target.k = source.k").when_not_matched_insert_all().commit()
    assert sorted(k for k, _, _ in found(table)) == [1, 2, 3]


def test_what_a_condition_says_of_the_target_alone_leaves_out_files(
    create: Callable[..., Table], source: Callable[..., DataFrame], lake: Lake
) -> None:
    table = create([(1, "a", 1)], [(1, "b", 2)])
    # A file that cannot hold a match is not even read.
    gone = next(one for one in table.snapshot().files() if one.partition_values["p"] == "b")
    lake.places.open_place(table.location).delete([gone.path])
    merge(source((1, "z", 9)), KEY, "target.k = source.k and target.p = 'a'").when_matched_update(
        {"v": "9"}
    ).commit()
    assert found_where(table, "p = 'a'") == [9]


def found_where(table: Table, where: str) -> list[int]:
    return list(table.to_arrow(columns=["v"], where=where)["v"].to_pylist())


@pytest.mark.parametrize(
    ("describe", "said"),
    [
        (lambda one: one, "no clause"),
        (lambda one: one.when_matched_update({"x": "1"}), "no column 'x'"),
        (lambda one: one.when_matched_update({"v": "source.x"}), "Spark does not accept it"),
        (lambda one: one.when_matched_update({"v": "'7'"}), "'v' has the type int"),
        (lambda one: one.when_not_matched_by_source_update({"v": "source.v"}), "with the table's columns"),
        (lambda one: one.when_not_matched_by_source_delete("source.v = 1"), "with the table's columns"),
        (
            lambda one: one.when_matched_delete().when_not_matched_insert({"k": "source.k", "v": "target.v"}),
            "with the source's columns",
        ),
        (
            lambda one: one.when_matched_delete().when_not_matched_insert_all("target.v is null"),
            "with the source's columns",
        ),
        (lambda one: one.when_matched_delete("max(target.v) over () = 1"), "computed from one row each"),
        (lambda one: one.when_matched_update({"v": "sum(source.v)"}), "computed from one row each"),
        (lambda one: one.when_matched_update({"v": "__penstock_file"}), "Spark does not accept it"),
        (lambda one: one.when_matched_delete("rand() > 0.5"), "is not deterministic"),
        (lambda one: one.when_matched_delete().when_matched_update({"v": "1"}), "never apply"),
        (lambda one: having(one, "target.k = source.x").when_matched_delete(), "Spark does not accept it"),
        (
            lambda one: having(one, "source.k = 1 and now() > 0").when_matched_delete(),
            "the time at which",
        ),
        (lambda one: having(one, "k = 1").when_matched_delete(), "mbiguous"),
    ],
    ids=[
        "no clause",
        "no such column",
        "no such column of the source",
        "a text",
        "a value of the source's without one",
        "a condition on the source's without one",
        "a value of the table's without one",
        "a condition on the table's without one",
        "a window",
        "an aggregate",
        "a column of the merge's own",
        "by chance",
        "twice",
        "no match",
        "the time",
        "ambiguous",
    ],
)
def test_what_cannot_be_is_refused_before_a_job(
    create: Callable[..., Table],
    source: Callable[..., DataFrame],
    describe: Callable[[MergeBuilder], MergeBuilder],
    said: str,
) -> None:
    table = create([(1, "a", 1)])
    with pytest.raises(InvalidRequest, match=said):
        describe(merge(source((1, "a", 1)), KEY, "target.k = source.k")).commit()
    assert table.version == 1


def test_all_columns_are_taken_from_a_source_that_has_exactly_these(
    spark: SparkSession, create: Callable[..., Table]
) -> None:
    create([(1, "a", 1)])
    news = spark.createDataFrame([(1, 1)], "k long, x int")
    with pytest.raises(InvalidRequest, match=r"no column 'p'.*no column 'v'.*table has no column 'x'"):
        merge(news, KEY, "target.k = source.k").when_matched_update_all().commit()


# -- held against a program that does the same, row by row ---------------------------------------------------


MATCHED, INSERTED, LEFT = "when_matched", "when_not_matched", "when_not_matched_by_source"


class Step(NamedTuple):
    """A clause, in SQL and in Python; there, ``t`` and ``s`` are the rows of the target and of the source."""

    kind: str
    action: str
    values: dict[str, str] | None
    condition: str | None
    holds: Callable[[Any, Any], bool]
    becomes: Callable[[Any, Any], Row] = lambda t, _s: t


def above(bound: int, value: Any) -> bool:
    return value is not None and value > bound


DELETED = Step(MATCHED, "delete", {}, "source.v > 60", lambda _, s: above(60, s[2]))
REPLACED = Step(MATCHED, "update_all", None, "target.v > 30", lambda t, _: above(30, t[2]), lambda _, s: s)
MOVED = Step(MATCHED, "update", {"p": "source.p"}, None, lambda *_: True, lambda t, s: (t[0], s[1], t[2]))
HALF_NEW = Step(
    INSERTED,
    "insert",
    {"k": "source.k", "v": "7"},
    "source.v > 50",
    lambda _, s: above(50, s[2]),
    lambda _, s: (s[0], None, 7),
)
NEW = Step(INSERTED, "insert_all", None, "source.p is not null", lambda _, s: bool(s[1]), lambda _, s: s)
COUNTED = Step(
    LEFT,
    "update",
    {"v": "target.v + 1"},
    "target.v > 80",
    lambda t, _: above(80, t[2]),
    lambda t, _: (*t[:2], t[2] + 1),
)
DROPPED = Step(LEFT, "delete", {}, "target.p = 'a'", lambda t, _: t[1] == "a")

CASES = {
    "everything that matches": (DELETED, REPLACED, MOVED, HALF_NEW, NEW),
    "what is left": (REPLACED, MOVED, COUNTED, DROPPED),
    "some of each": (DELETED, NEW, DROPPED),
    "nothing that matches": (HALF_NEW, NEW, COUNTED, DROPPED),
    "rows that move": (MOVED, HALF_NEW),
    "inserts alone": (HALF_NEW, NEW),
}
QUICK_CASES = ("everything that matches", "nothing that matches")


def expected(
    target: Sequence[Row], source: Sequence[Row], on: Callable[[Row, Row], bool], steps: Sequence[Step]
) -> tuple[Counter[Row], Counter[Row]] | None:
    """The rows of the table afterwards and what the feed tells; ``None`` if a row would be changed twice."""
    rows: Counter[Row] = Counter()
    feed: Counter[Row] = Counter()

    def first(kind: str, t: Row | None, s: Row | None) -> Step | None:
        return next((one for one in steps if one.kind == kind and one.holds(t, s)), None)

    for t in target:
        matches = [s for s in source if on(t, s)]
        meant = [(step, s) for s in matches if (step := first(MATCHED, t, s)) is not None]
        if len(meant) > 1:
            return None
        step, s = meant[0] if meant else (None if matches else first(LEFT, t, None), None)
        if step is None:
            rows[t] += 1
        elif step.action == "delete":
            feed["delete", *t] += 1
        else:
            rows[step.becomes(t, s)] += 1
            feed["update_preimage", *t] += 1
            feed["update_postimage", *step.becomes(t, s)] += 1
    for s in source:
        step = None if any(on(t, s) for t in target) else first(INSERTED, None, s)
        if step is not None:
            rows[step.becomes(None, s)] += 1
            feed["insert", *step.becomes(None, s)] += 1
    return rows, feed


def chosen(chance: random.Random, count: int, keys: int) -> list[Row]:
    """Rows by chance, with nulls."""
    return [
        (chance.choice([None, *range(keys)]), chance.choice(["a", "b c", None]), chance.randrange(100))
        for _ in range(count)
    ]


def check_merge(
    create: Callable[..., Table],
    source: Callable[..., DataFrame],
    case: str,
    chance: random.Random,
    has_feed: bool,
) -> None:
    steps = CASES[case]
    target = [chosen(chance, 12, 40) for _ in range(3)]
    given = list({one[0]: one for one in chosen(chance, 40, 60)}.values())
    if case == "some of each":  # keys come twice, and of the two rows at most one is meant
        given += [(k, "zz", 0) for k, _, _ in given[:20]]
    # Also with a part of the condition that speaks of the target alone, and of partitions.
    in_partition = chance.random() < 0.5
    text = "target.k = source.k" + (" and target.p = 'a'" if in_partition else "")

    def on(t: Row, s: Row) -> bool:
        return t[0] is not None and t[0] == s[0] and (not in_partition or t[1] == "a")

    wanted = expected([one for rows in target for one in rows], given, on, steps)
    assert wanted is not None
    table = create(*target, properties={"delta.enableChangeDataFeed": str(has_feed).lower()})
    described = merge(source(*given), KEY, text)
    for step in steps:
        values = [step.values] if step.action in {"update", "insert"} else []
        described = getattr(described, f"{step.kind}_{step.action}")(*values, step.condition)
    done = described.commit()
    assert found(table) == wanted[0]
    assert (done is None) == (not wanted[1])
    if has_feed and done is not None:
        assert fed(table, done.version) == wanted[1]


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in QUICK_CASES else pytest.mark.verify) for case in CASES]
)
def test_a_merge_does_what_a_program_does_row_by_row(
    create: Callable[..., Table], source: Callable[..., DataFrame], seed: int, case: str
) -> None:
    check_merge(create, source, case, random.Random(f"{seed} {case}"), has_feed=case != "rows that move")


@pytest.mark.verify
def test_a_merge_does_the_same_without_the_jar(
    spark: SparkSession, create: Callable[..., Table], source: Callable[..., DataFrame], seed: int
) -> None:
    using(spark, "fallback")
    check_merge(create, source, "some of each", random.Random(seed), has_feed=True)


@pytest.mark.reliability
def test_many_merges_do_what_a_program_does_row_by_row(
    create: Callable[..., Table], source: Callable[..., DataFrame], seed: int, lake: Lake
) -> None:
    chance = random.Random(seed)
    for _ in range(25):
        check_merge(create, source, chance.choice(list(CASES)), chance, chance.random() < 0.5)
        lake.branch().drop(KEY)
