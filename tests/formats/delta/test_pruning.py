"""Files that are left out, and rows that are: judged by a plain evaluation of the condition, row by row."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.formats.delta.log.file_index import FileIndex
from penstock.formats.delta.log.packed_lines import PackedLines
from penstock.formats.delta.protocol.actions import Add, write_action
from penstock.formats.delta.rows.file_writer import partition_text
from penstock.formats.delta.rows.pruning import FilePruner
from penstock.formats.delta.rows.stats import Statistics, indexed_leaves
from penstock.formats.rows.arrow_types import make_arrow_schema
from penstock.formats.rows.predicate_parser import parse_predicate
from penstock.formats.rows.predicates import (
    And,
    Column,
    ComparedValues,
    IsNull,
    Like,
    Not,
    OneOf,
    Or,
    Predicate,
)
from penstock.formats.rows.row_filter import select_matching_rows
from penstock.formats.rows.schema import Field, StructType, Type
from tests.chance import examples
from tests.formats.delta.logs import add
from tests.formats.delta.rows import metadata_for

LONG = "x" * 32
NAN, INF = math.nan, math.inf


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


def local(*parts: int) -> datetime:
    return datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001


POOLS: dict[str, tuple[Type, list[Any]]] = {
    "whole": ("long", [-(2**63), -1, 0, 1, 2, 300, 2**53 + 1, 2**63 - 1]),
    "small": ("byte", [-128, 0, 5, 127]),
    "text": (
        "string",
        ["", "a", "ab", "B", "ä", LONG + "a", LONG + "b", LONG + "\x7f", "\U0010ffff" * 70, "%"],
    ),
    "real": ("double", [NAN, INF, -INF, -0.0, 0.0, 0.1, 1e300, -2.5]),
    "single": ("float", [NAN, INF, 0.10000000149011612, 3.5, -2.5]),
    "money": ("decimal(10,2)", [Decimal("-0.01"), Decimal("0.00"), Decimal("10.55"), Decimal("99999999.99")]),
    "wide": ("decimal(38,2)", [Decimal("-12345678901234567.89"), Decimal("0.01"), Decimal("9" * 36 + ".99")]),
    "day": ("date", [date(1, 1, 1), date(1969, 12, 31), date(2026, 11, 14), date(9999, 12, 31)]),
    "moment": (
        "timestamp",
        [utc(1969, 12, 31, 23, 59, 59, 1), utc(2026, 1, 1), utc(2026, 1, 1, 0, 0, 0, 999)],
    ),
    "wall": ("timestamp_ntz", [local(1, 1, 1), local(2026, 1, 1, 0, 0, 0, 1), local(2026, 1, 1)]),
    "flag": ("boolean", [True, False]),
}
PARTITIONS = {f"p_{name}": kind for name, (kind, _) in POOLS.items()}
INNER = StructType((Field(name="text", type="string", nullable=True),))
SCHEMA = StructType(
    (
        *(Field(name=name, type=kind, nullable=True) for name, (kind, _) in POOLS.items()),
        *(Field(name=name, type=kind, nullable=True) for name, kind in PARTITIONS.items()),
        Field(name="inner", type=INNER, nullable=True),
    )
)
METADATA = metadata_for(SCHEMA, tuple(PARTITIONS))
LEAVES = indexed_leaves(METADATA)
SCHEMA_NAMES = [one.name for one in SCHEMA.fields]


def pool(name: str) -> list[Any]:
    return POOLS["text" if name == "inner" else name.removeprefix("p_")][1]


def column(name: str) -> Column:
    field = SCHEMA.field(name)
    assert field is not None
    return Column((field, *INNER.fields)) if name == "inner" else Column((field,))


NAMES = [*POOLS, *PARTITIONS, "inner"]


class Case(msgspec.Struct):
    """A condition on a few columns, a file's rows, and the partition that the file is of."""

    predicate: Predicate
    rows: list[dict[str, Any]]
    partition: dict[str, Any]

    @property
    def seen(self) -> list[dict[str, Any]]:
        """The rows as readers see them: an empty partition value is null."""
        values = {name: None if one == "" else one for name, one in self.partition.items()}
        return [row | values for row in self.rows]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    # Few columns at a time: conditions on many that have nothing to do with each other tell less.
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    values = {name: st.none() | st.sampled_from(pool(name)) for name in names}
    rows = draw(st.lists(st.fixed_dictionaries(values), min_size=1, max_size=3))
    nothing: dict[str, Any] = dict.fromkeys(SCHEMA_NAMES)
    if "inner" in names:
        rows = [row | {"inner": draw(st.sampled_from([None, {"text": row["inner"]}]))} for row in rows]
    return Case(
        draw(predicates(names)),
        [nothing | row for row in rows],
        {name: rows[0].get(name) for name in PARTITIONS},
    )


def predicates(names: list[str]) -> st.SearchStrategy[Predicate]:
    return st.recursive(
        column_tests(names),
        lambda inner: st.one_of(
            inner.map(Not),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts))),
        ),
        max_leaves=4,
    )


@st.composite
def column_tests(draw: st.DrawFn, names: list[str]) -> Predicate:
    name = draw(st.sampled_from(names))
    of, values = column(name), st.sampled_from(pool(name))
    kind = draw(st.sampled_from(["compare"] * 4 + ["in", "null", "like"]))
    if kind == "null":
        return IsNull(of)
    if kind == "in":
        return OneOf(of, tuple(draw(st.lists(values, min_size=1, max_size=3))))
    if kind == "like" and of.kind == "string":
        return Like(of, draw(st.sampled_from(["a%", "%", "", "x_%", LONG + "%", r"\%", "%b", "_"])))
    return ComparedValues(of, draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="])), draw(values))


def truth(predicate: Predicate, row: dict[str, Any]) -> bool | None:
    """What a condition comes to in a row, by the book."""
    match predicate:
        case Not():
            found = truth(predicate.inner, row)
            return None if found is None else not found
        case And():
            parts = [truth(one, row) for one in predicate.parts]
            return False if False in parts else None if None in parts else True
        case Or():
            parts = [truth(one, row) for one in predicate.parts]
            return True if True in parts else None if None in parts else False
    value: Any = row
    for name in predicate.column.path:
        value = None if value is None else value[name]
    match predicate:
        case IsNull():
            return value is None
        case _ if value is None:
            return None
        case OneOf():
            return any(compared(value, "=", one) for one in predicate.values)
        case Like():
            return pattern(predicate.pattern).fullmatch(value) is not None
        case ComparedValues():
            return compared(value, predicate.operator, predicate.value)
    raise AssertionError(predicate)


def compared(value: Any, operator: str, other: Any) -> bool:
    left, right = rank(value), rank(other)
    found: dict[str, Callable[[], bool]] = {
        "=": lambda: left == right,
        "!=": lambda: left != right,
        "<": lambda: left < right,
        "<=": lambda: left <= right,
        ">": lambda: left > right,
        ">=": lambda: left >= right,
    }
    return found[operator]()


def rank(value: Any) -> Any:
    """NaN is larger than all other numbers."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def pattern(like: str) -> re.Pattern[str]:
    parts = re.findall(r"\\.|.", like, re.DOTALL)
    words = {"%": ".*", "_": "."}
    return re.compile("".join(words.get(one, re.escape(one[-1])) for one in parts), re.DOTALL)


def batch_of(rows: list[dict[str, Any]]) -> Any:
    return pa.RecordBatch.from_pylist(rows, schema=make_arrow_schema(SCHEMA.fields))


def texts(value: dict[str, Any]) -> dict[str, str | None]:
    return {name: partition_text(PARTITIONS[name], one) for name, one in value.items()}


@settings(max_examples=examples(150), deadline=None)
@given(cases())
def test_rows_stay_for_which_the_condition_is_true(case: Case) -> None:
    found = select_matching_rows(case.predicate, batch_of(case.seen)).to_pylist()
    expected = [row for row in case.seen if truth(case.predicate, row)]
    assert repr(found) == repr(batch_of(expected).to_pylist())


@settings(max_examples=examples(250), deadline=None)
@given(cases(), st.sampled_from(["", "numRecords", "nullCount", "minValues", "maxValues"]))
def test_a_file_with_a_row_for_which_the_condition_is_true_is_never_left_out(case: Case, lost: str) -> None:
    statistics = Statistics(LEAVES)
    # By way of two batches, as files are written.
    statistics.add_batch(batch_of(case.seen[:1]))
    statistics.add_batch(batch_of(case.seen[1:]))
    stats = json.loads(statistics.encode_stats())
    stats.pop(lost, None)
    file = add("a", partition_values=texts(case.partition), stats=json.dumps(stats))
    if any(truth(case.predicate, row) for row in case.seen):
        assert FilePruner(case.predicate, METADATA).may_match(file)
        assert FilePruner(case.predicate, METADATA).may_match(msgspec.structs.replace(file, stats=None))
    assert is_found_alike(FilePruner(case.predicate, METADATA), file)


def is_found_alike(pruner: FilePruner, file: Add) -> bool:
    """Whether an index leaves out a file if, and only if, a look at it does."""
    unknown = msgspec.structs.replace(file, path="b", stats=None)
    files = [file, unknown, msgspec.structs.replace(file, path="c")]
    lines = PackedLines(Add, pack_bytes=1)
    for one in files:
        lines.add_line(write_action(one))
    index = FileIndex(lines, is_own=True)
    expected = [one for one in files if pruner.may_match(one)]
    return all(list(index.find_files(pruner)) == expected for _ in range(2))


@pytest.mark.parametrize(
    ("where", "stays"),
    [
        ("whole > 10", False),
        ("whole >= 10", True),
        ("whole < 1", False),
        ("whole = 11 or whole = 0", False),
        ("not whole <= 10", False),
        ("not (whole >= 1 and whole <= 10)", False),
        ("whole in (0, 11)", False),
        ("whole not in (1)", True),
        ("whole between 11 and 20", False),
        ("whole is null", False),
        ("whole is not null", True),
        ("text like 'n%'", False),
        ("text like 'm%'", True),
        ("text not like 'm%'", False),
        ("text = 'a'", False),
        ("small is not null", False),
        ("small = 1", False),
        ("small = 1 or small is null", True),
        ("not small = 1", False),
        ("real > 5", True),
        ("real < 1", False),
        ("moment > '2026-01-01 00:00:00.000999Z'", True),
        ("moment > '2026-01-01 00:00:00.001Z'", False),
        ("moment < '2025-12-31 23:59:59.999Z'", False),
        ("wall > '2026-01-02'", False),
        ("wall <= '2026-01-01 00:00:00.000500'", True),
        ("day != '2026-11-14'", False),
        ("money > 10.549", True),
        ("money > 10.551", False),
        ("p_text = 'ä/b'", True),
        ("p_text = 'other'", False),
        ("p_text is null", False),
        ("p_day is null", True),
        ("p_day = '2026-11-14'", False),
        ("p_whole > 6 and whole = 5", True),
        ("p_whole > 7 and whole = 5", False),
        ("p_real > 1e308", True),
        ("p_real < 1e308", False),
        ("flag = true", True),
        ("inner.text is null", True),
        ("inner.text = 'z'", False),
    ],
)
def test_a_file_is_left_out_when_it_can_be(where: str, stays: bool) -> None:
    stats = {
        "numRecords": 3,
        "minValues": {
            "whole": 1, "text": "ma", "real": 1.0, "moment": "2026-01-01T00:00:00.000Z",
            "wall": "2026-01-01T00:00:00.000", "day": "2026-11-14", "money": 1.00, "inner": {"text": "a"},
        },
        "maxValues": {
            "whole": 10, "text": "mz", "real": 2.0, "moment": "2026-01-01T00:00:00.000Z",
            "wall": "2026-01-01T00:00:00.000", "day": "2026-11-14", "money": 10.55, "inner": {"text": "b"},
        },
        "nullCount": {
            "whole": 0, "text": 0, "small": 3, "real": 0, "day": 0, "moment": 0, "inner": {"text": 0},
        },
    }  # fmt: skip
    values = dict.fromkeys(PARTITIONS) | {"p_text": "ä/b", "p_whole": "007", "p_real": "NaN"}
    file = add("a", partition_values=values, stats=json.dumps(stats))
    pruner = FilePruner(parse_predicate(where, SCHEMA), METADATA)
    assert pruner.may_match(file) is stays
    assert is_found_alike(pruner, file)


@pytest.mark.parametrize(
    "stats",
    [
        None,
        "",
        "not json",
        "[]",
        "{}",
        '{"minValues": 7, "maxValues": [], "nullCount": "x"}',
        '{"minValues": {"whole": "x", "text": 3, "day": "2026", "moment": 0, "flag": 1, "money": true}}',
        '{"minValues": {"moment": "+12026-01-01T00:00:00Z"}, "maxValues": {"real": "NaN", "day": "12026"}}',
        '{"minValues": {"wide": 1e99999999999}, "maxValues": {"wide": -1e99999999}}',
        '{"minValues": ' + "[" * 10_000 + "]" * 10_000 + "}",
    ],
    ids=["none", "empty", "text", "array", "nothing", "shapes", "types", "ranges", "exponents", "deep"],
)
def test_statistics_that_cannot_be_understood_leave_nothing_out(stats: str | None) -> None:
    file = add("a", partition_values=dict.fromkeys(PARTITIONS, "?"), stats=stats)
    for where in (
        "whole = 1", "text = 'a'", "text like 'a%'", "day = '2026-11-14'", "real > 5", "flag = false",
        "moment < '2026-01-01'", "money != 1", "whole is null", "p_day = '2026-11-14'", "p_whole is null",
        "p_real = 'NaN'",
    ):  # fmt: skip
        pruner = FilePruner(parse_predicate(where, SCHEMA), METADATA)
        assert pruner.may_match(file)
        assert is_found_alike(pruner, file)


def test_a_condition_with_thousands_of_parts_is_judged() -> None:
    for where in (
        " or ".join(f"whole = {number}" for number in range(1, 8_000)),
        f"whole in ({', '.join(map(str, range(1, 8_000)))})",
    ):
        predicate = parse_predicate(where, SCHEMA)
        rows = [dict.fromkeys(SCHEMA_NAMES) | {"whole": whole} for whole in (0, 7_999, 8_000, None)]
        assert select_matching_rows(predicate, batch_of(rows)).column("whole").to_pylist() == [7_999]
        for whole, stays in ((7_999, True), (8_000, False)):
            stats = {"minValues": {"whole": whole}, "maxValues": {"whole": whole}}
            file = add("a", partition_values=dict.fromkeys(PARTITIONS), stats=json.dumps(stats))
            assert FilePruner(predicate, METADATA).may_match(file) is stays


# -- statistics of others ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.decimal128(19, 2), pa.decimal128(38, 18), pa.decimal128(20, 0)], ids=str)
@pytest.mark.parametrize(
    "text",
    ["12345678901234567.89", "98765432109876543.21", "4503599627370497.51", "99999999999999999.99", "0.3"],
)
def test_decimals_are_found_whose_statistics_delta_rs_notes_as_doubles(
    tmp_path: Path, kind: Any, text: str
) -> None:
    for value in (Decimal(text), -Decimal(text)):
        number = value.quantize(Decimal(1).scaleb(-kind.scale), context=Context(prec=38))
        place = tmp_path / str(value)
        write_deltalake(str(place), pa.table({"d": pa.array([number], kind)}))
        table = penstock.read_delta(place)
        for operator in ("=", "<=", ">="):
            assert table.to_arrow(where=f"d {operator} {number:f}").num_rows == 1
        assert not list(table.files(where="d > 999999999999999990")), "others are left out"


@pytest.mark.parametrize("rest", ["\U0001f600", "\U0010ffff", "\ufffd\ufffe", "z"])
@pytest.mark.parametrize("before", [31, 32])
def test_texts_are_found_that_older_delta_spark_has_cut(before: int, rest: str) -> None:
    """It compares and cuts in the units of UTF-16, and writes half a character as a question mark."""
    text = "x" * before + rest * 5
    units = [text.encode("utf-16-le")[at : at + 2] for at in range(0, 2 * len(text), 2)]
    size = 32
    while size < len(units) and int.from_bytes(units[size], "little") >= ord("\ufffd"):
        size += 1
    cut = b"".join(units[:size]).decode("utf-16-le", "surrogatepass")
    largest = f"{cut}\ufffd".encode(errors="replace").decode()
    columns = {"minValues": {"text": "a"}, "maxValues": {"text": largest}, "nullCount": {"text": 0}}
    stats = json.dumps({"numRecords": 1, **columns})
    file = add("a", partition_values=dict.fromkeys(PARTITIONS), stats=stats)
    for where in (f"text = '{text}'", f"text >= '{text}'", f"text like '{text}%'"):
        assert FilePruner(parse_predicate(where, SCHEMA), METADATA).may_match(file)
    assert not FilePruner(parse_predicate("text > 'y'", SCHEMA), METADATA).may_match(file)
