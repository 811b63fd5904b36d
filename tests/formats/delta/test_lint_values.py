"""The check of a commit, value by value: what some reader could not take never gets into the log."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from penstock.formats.delta.errors import MalformedAction
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    Metadata,
    Protocol,
    commit_lines,
    parse_action,
    write_action,
    write_commit,
)
from penstock.formats.delta.protocol.lint import (
    AHEAD_MAX_MS,
    PROBLEMS_MAX,
    LintProblem,
    LintRules,
    LintState,
    check_bytes,
    check_commit,
)
from penstock.formats.delta.protocol.lint_files import PATH_MAX, path_fault
from penstock.formats.delta.protocol.lint_lines import UNREAD_MAX
from penstock.formats.delta.protocol.lint_metadata import metadata_faults
from penstock.formats.rows.schema import DEPTH_MAX, parse_schema
from tests.formats.delta.legal_commits import PREVIOUS_MS, metadata_of, numbered, protocol_of

TABLE = LintState(version=7, protocol=protocol_of(), metadata=metadata_of(("n",)), timestamp_ms=PREVIOUS_MS)
INFO: dict[str, Any] = {"inCommitTimestamp": PREVIOUS_MS + 1}
ADD = {"path": "a", "partitionValues": {"n": "1"}, "size": 1, "modificationTime": 1, "dataChange": True}
VECTOR = {"storageType": "u", "pathOrInlineDv": "x" * 20, "sizeInBytes": 1, "cardinality": 1}
STATS = '{"numRecords":1}'


def told(*lines: Any, before: LintState = TABLE, info: dict[str, Any] = INFO) -> list[str]:
    data = "\n".join(json.dumps(one) for one in ({"commitInfo": info}, *lines)).encode()
    return [one.reason for one in check_bytes(data, before)]


# --- numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "action",
    [
        {"add": {**ADD, "size": 2**63}},
        {"add": {**ADD, "size": 10**40}},
        {"add": {**ADD, "modificationTime": 2**63}},
        {"add": {**ADD, "baseRowId": 2**63}},
        {"add": {**ADD, "stats": STATS, "deletionVector": {**VECTOR, "sizeInBytes": 2**63}}},
        {"add": {**ADD, "stats": STATS, "deletionVector": {**VECTOR, "cardinality": 2**63}}},
        {"remove": {"path": "a", "dataChange": True, "deletionTimestamp": 2**63}},
        {"remove": {"path": "a", "dataChange": True, "size": 2**63}},
        {"cdc": {"path": "a", "partitionValues": {"n": "1"}, "size": 2**63, "dataChange": False}},
        {"txn": {"appId": "a", "version": 2**63}},
        {"txn": {"appId": "a", "version": -(2**63) - 1}},
        {"txn": {"appId": "a", "version": 1, "lastUpdated": 2**63}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2**63}},
    ],
    ids=lambda one: "-".join((*one, *map(str, next(iter(one.values())).values())))[:80],
)
def test_a_number_that_has_too_many_bits_is_refused(action: dict[str, Any]) -> None:
    (reason,) = told(action)
    assert "Expected `int`" in reason


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sizeInBytes": 2**31}, "32 bits"),
        ({"offset": 2**31}, "32 bits"),
        ({"pathOrInlineDv": "../" + "x" * 20}, "contains the step"),
        ({"pathOrInlineDv": "/etc" + "x" * 20}, "is absolute"),
    ],
    ids=["size", "offset", "out of the table", "absolute"],
)
def test_a_deletion_vector_is_where_a_reader_finds_it(fields: dict[str, Any], words: str) -> None:
    (reason,) = told({"add": {**ADD, "stats": STATS, "deletionVector": {**VECTOR, **fields}}})
    assert words in reason


def test_the_largest_numbers_are_taken() -> None:
    assert told({"txn": {"appId": "a", "version": 2**63 - 1}}, {"add": {**ADD, "size": 2**63 - 1}}) == []


# --- commitInfo ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timestamp", "1"),
        ("timestamp", True),
        ("timestamp", 2**63),
        ("inCommitTimestamp", 2**63),
        ("operation", 1),
        ("operationParameters", []),
        ("operationMetrics", "x"),
        ("readVersion", "1"),
        ("isolationLevel", 1),
        ("isolationLevel", "serializable"),
        ("isBlindAppend", "true"),
        ("isBlindAppend", 1),
        ("engineInfo", {}),
        ("txnId", 5),
    ],
)
def test_a_field_of_a_commit_info_that_readers_type_has_that_type(name: str, value: Any) -> None:
    (reason,) = told({"add": ADD}, info={**INFO, name: value})
    assert f"'{name}' " in reason


def test_other_fields_of_a_commit_info_are_free() -> None:
    free = {"operation": "WRITE", "operationParameters": {"mode": "x"}, "readVersion": None, "mine": [1, {}]}
    assert told({"add": ADD}, info={**INFO, **free}) == []


@pytest.mark.parametrize("previous_ms", [PREVIOUS_MS, PREVIOUS_MS + 5 * AHEAD_MAX_MS])
def test_a_time_from_far_ahead_is_refused_unless_the_table_is_there_already(previous_ms: int) -> None:
    before = msgspec.structs.replace(TABLE, timestamp_ms=previous_ms)
    rules = LintRules(now_ms=PREVIOUS_MS)
    latest = previous_ms + AHEAD_MAX_MS

    def check(time_ms: int) -> tuple[LintProblem, ...]:
        return check_commit(numbered(CommitInfo({"inCommitTimestamp": time_ms})), before, rules)

    assert check(latest) == ()
    (problem,) = check(latest + 2)
    assert str(latest + 2) in problem.reason
    assert f"the owner's clock, which says {PREVIOUS_MS}" in problem.reason


# --- metadata -----------------------------------------------------------------------------------------------


def column(name: str = "a", kind: Any = "long") -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def schema(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "struct", "fields": list(fields)})


def nested(depth: int) -> str:
    array = '{"type":"array","containsNull":true,"elementType":'
    return schema(column(kind="X")).replace('"X"', array * depth + '"long"' + "}" * depth)


SCHEMAS = {
    "unknown type": (schema(column(kind="nope")), "'a' has the type 'nope', which does not exist"),
    "unknown type inside": (
        schema(column(kind={"type": "array", "elementType": "int", "containsNull": True})),
        "'int', which does not exist",
    ),
    "unknown key type": (
        schema(
            column(kind={"type": "map", "keyType": "x", "valueType": "long", "valueContainsNull": True}),
        ),
        "'x', which does not exist",
    ),
    "too precise": (schema(column(kind="decimal(39,2)")), "1 to 38 digits"),
    "immensely precise": (schema(column(kind=f"decimal({10**40},2)")), "which does not exist"),
    "scale": (schema(column(kind="decimal(4,5)")), "1 to 38 digits"),
    "no precision": (schema(column(kind="decimal(0,0)")), "1 to 38 digits"),
    "no name": (schema(column("")), "a column without a name"),
    "NUL": (schema(column("a\0b")), "control character"),
    "line end": (schema(column("a\nb")), "control character"),
    "long name": (schema(column("a" * 70_000)), "70000 characters"),
    "twice": (schema(column("a"), column("A")), "'a' more than once"),
    "twice inside": (
        schema(column("s", json.loads(schema(column("b"), column("B"))))),
        "'s' has the column 'b' more than once",
    ),
    "no metadata": (
        schema(column("s", json.loads(schema({"name": "b", "type": "long", "nullable": True})))),
        "'b' lacks 'metadata'",
    ),
    "empty struct": (schema(column("s", json.loads(schema()))), "'s' has no fields"),
    "deep": (nested(DEPTH_MAX), f"nested more than {DEPTH_MAX} deep"),
    "very deep": (nested(50_000), "cannot be understood"),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_that_readers_do_not_understand_is_refused(name: str) -> None:
    text, words = SCHEMAS[name]
    first: list[Action] = [
        Protocol(min_reader_version=1, min_writer_version=2),
        Metadata(id="x", schema_string=text, partition_columns=()),
    ]
    (problem,) = check_commit(numbered(*first), LintState())
    assert words in problem.reason
    assert len(problem.reason) < 500


def test_a_schema_as_deep_as_may_be_is_taken() -> None:
    assert parse_schema(nested(DEPTH_MAX - 2)).fields[0].name == "a"
    with pytest.raises(MalformedAction, match="nested"):
        parse_schema(nested(DEPTH_MAX - 1))


def test_a_table_may_begin_without_columns_but_holds_no_file_then_and_never_loses_all() -> None:
    protocol = Protocol(min_reader_version=1, min_writer_version=2)
    empty = Metadata(id="x", schema_string=schema(), partition_columns=())
    assert check_commit(numbered(protocol, empty), LintState()) == ()
    begun = LintState(version=0, protocol=protocol, metadata=empty)
    add = Add(path="a", partition_values={}, size=1, modification_time=1, data_change=True)
    (problem,) = check_commit(numbered(add), begun)
    assert "no columns yet" in problem.reason
    filled = msgspec.structs.replace(empty, schema_string=schema(column()))
    assert check_commit(numbered(filled, add), begun) == ()
    (problem,) = check_commit(numbered(empty), msgspec.structs.replace(begun, metadata=filled))
    assert "no columns left" in problem.reason


@pytest.mark.parametrize(
    ("partitions", "words"),
    [
        (("a", "b"), ["every column is a partition column, so data files would have no columns"]),
        (("a", "x"), ["the partition column 'x' is not in the schema"]),
        (("a",), []),
    ],
    ids=["all", "one and one that is not there", "one"],
)
def test_columns_are_left_for_the_files(partitions: tuple[str, ...], words: list[str]) -> None:
    text = schema(column("a"), column("b"))
    metadata = msgspec.structs.replace(metadata_of(("n",)), schema_string=text, partition_columns=partitions)
    assert list(metadata_faults(metadata, None)) == words


def test_a_table_keeps_its_id() -> None:
    other = msgspec.structs.replace(metadata_of(("n",)), id="another")
    (problem,) = check_commit(numbered(CommitInfo(INFO), other), TABLE)
    assert "to 'another'" in problem.reason


@pytest.mark.parametrize("gone", ["format", "provider", "configuration"])
def test_metadata_that_lacks_what_strict_readers_want_is_refused(gone: str) -> None:
    whole = json.loads(write_action(metadata_of(("n",))))
    (whole["metaData"]["format"] if gone == "provider" else whole["metaData"]).pop(gone)
    (reason,) = told(whole)
    assert f"missing required field `{gone}`" in reason
    assert parse_action(json.dumps(whole).encode()) is not None, "though a table that has it is read"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta.logRetentionDuration", "nope"),
        ("delta.logRetentionDuration", "interval " + "9" * 400 + " days"),
        ("delta.deletedFileRetentionDuration", "7"),
        ("delta.setTransactionRetentionDuration", ""),
        ("delta.checkpointInterval", "0"),
        ("delta.checkpointInterval", "-1"),
        ("delta.checkpointInterval", "1e99"),
        ("delta.checkpointInterval", "9" * 5000),
        ("delta.checkpointInterval", "٣"),
        ("delta.dataSkippingNumIndexedCols", "-2"),
        ("delta.isolationLevel", "Perfect"),
        ("delta.enableDeletionVectors", "maybe"),
        ("delta.appendOnly", "1"),
        ("delta.columnMapping.mode", "both"),
        ("delta.checkpointPolicy", "v3"),
    ],
    ids=lambda text: text[:40],
)
def test_a_property_with_a_meaning_has_a_value_that_has_one(name: str, value: str) -> None:
    was = metadata_of(("n",))
    odd = msgspec.structs.replace(was, configuration={**was.configuration, name: value})
    (problem,) = check_commit(numbered(CommitInfo(INFO), odd), TABLE)
    assert name in problem.reason
    assert len(problem.reason) < 500
    had = msgspec.structs.replace(TABLE, metadata=odd)
    assert check_commit(numbered(CommitInfo(INFO), odd), had) == (), "what the table had does no new harm"


def test_other_properties_are_free() -> None:
    was = metadata_of(("n",))
    free = {"owner": "", "delta.mine": "x", "delta.checkpointInterval": "7", "delta.appendOnly": "FALSE"}
    new = msgspec.structs.replace(was, configuration={**was.configuration, **free})
    assert check_commit(numbered(CommitInfo(INFO), new), TABLE) == ()


# --- addresses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("_penstock/x", "'_penstock'"),
        ("_delta_log/x", "'_delta_log'"),
        ("_delta%5Flog/x", "'_delta_log'"),
        ("other/_delta_log/00000000000000000000.json", "'_delta_log'"),
        ("other/_penstock/x", "'_penstock'"),
        ("_penstock/data", "'_penstock'"),
        ("_penstock/bodies/x", "'_penstock'"),
        ("other/_penstock/data/x", "'_penstock'"),
        ("_penstock/data/_penstock/x", "'_penstock'"),
        ("_penstock/data/_delta_log/x", "'_delta_log'"),
        ("_penstock/data/../x", "'..'"),
        ("x" * (PATH_MAX + 1), "characters"),
    ],
    ids=lambda text: text[:20],
)
def test_a_file_is_not_where_no_data_belongs(path: str, words: str) -> None:
    fault = path_fault(path)
    assert fault is not None
    assert words in fault
    assert len(fault) < 300


def test_a_long_path_and_a_name_that_only_begins_alike_are_taken() -> None:
    assert path_fault("x" * PATH_MAX) is None
    assert path_fault("_delta_logs/x") is None
    assert path_fault("_change_data/x") is None


def test_files_of_branches_have_a_folder_beside_the_log() -> None:
    assert path_fault("_penstock/data/day=1/part-0.parquet") is None
    assert path_fault("_penstock%2Fdata/x") is None
    assert path_fault("s3://b/t/_penstock/data/x", absolute_allowed=True) is None, "of a clone"
    assert path_fault("s3://b/t/_penstock/x", absolute_allowed=True) is not None


# --- lines --------------------------------------------------------------------------------------------------


def test_reading_stops_after_many_lines_that_cannot_be_read_and_says_so() -> None:
    problems = check_bytes(write_commit([CommitInfo(INFO)]) + b"{\n" * 5_000_000, TABLE)
    assert len(problems) == UNREAD_MAX + 1
    last = [one.reason for one in problems if one.line == UNREAD_MAX + 1]
    assert any("lines after them were not checked" in reason for reason in last)


def test_empty_lines_are_skipped_and_counted() -> None:
    found = list(commit_lines(b"\n" * 1_000_000 + b" {} \r\n" + b" \n" * 500_000 + b"x\n\ny\v"))
    assert found == [(1_000_001, b"{}"), (1_500_002, b"x"), (1_500_004, b"y\v")], (
        "a vertical tab is no blank in JSON"
    )


@pytest.mark.parametrize("line", [b'{"commitInfo":{}}', b'{"txn":{"appId":"a","version":1}}', b"{}"])
def test_of_very_many_problems_a_bounded_number_is_told(line: bytes) -> None:
    problems = check_bytes(write_commit([CommitInfo(INFO)]) + (line + b"\n") * 50_000, TABLE)
    assert PROBLEMS_MAX < len(problems) <= PROBLEMS_MAX + 3
    assert any(
        "only the first 1000" in one.reason or "lines after them were" in one.reason for one in problems
    )
