"""The check of a commit: what is legal passes, and each single fault is told with its line."""

from __future__ import annotations

from pathlib import Path

import deltalake
import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    Cdc,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
    parse_commit,
    write_commit,
)
from penstock.formats.delta.protocol.lint import (
    WHOLE_COMMIT,
    LintProblem,
    LintRules,
    LintState,
    check_bytes,
    check_commit,
)
from tests.formats.delta.broken_commits import ELSEWHERE, MUTATIONS
from tests.formats.delta.legal_commits import (
    FEATURES,
    PREVIOUS_MS,
    READER_FEATURES,
    Case,
    cases,
    lookup,
    metadata_of,
    numbered,
    protocol_of,
    schema_string,
    vector,
)


@settings(max_examples=80, derandomize=True, deadline=None)
@given(cases())
def test_a_legal_commit_has_no_problem_as_actions_and_as_bytes(case: Case) -> None:
    assert check_commit(case.lines, case.before) == ()
    assert check_bytes(write_commit(case.actions), case.before) == ()


@pytest.mark.parametrize("name", MUTATIONS)
@settings(max_examples=12, derandomize=True, deadline=None)
@given(case=cases(rich=True))
def test_a_single_fault_is_told_with_its_line(name: str, case: Case) -> None:
    mutate, words = MUTATIONS[name]
    actions = list(case.actions)
    line = mutate(actions)
    problems = check_commit(numbered(*actions), case.before)
    assert any(one.line == line and words in one.reason for one in problems), problems
    if name not in ELSEWHERE:
        assert {one.line for one in problems} == {line}, problems


def test_every_fault_is_told_and_in_the_order_of_the_lines() -> None:
    actions: list[Action] = [
        Add(path="a/../b", partition_values={"n": "x"}, size=-1, modification_time=1, data_change=True),
        Txn(app_id="a", version=1),
        Txn(app_id="a", version=2),
    ]
    before = msgspec.structs.replace(TABLE, metadata=untimed("n"), protocol=protocol_of(("appendOnly",)))
    problems = check_commit(numbered(*actions), before)
    assert [one.line for one in problems] == [1, 1, 1, 3]
    assert str(problems[-1]) == "line 3, txn: the application 'a' is already in line 2"


def test_lines_that_are_no_actions_are_told_with_the_others() -> None:
    sidecar = b'{"sidecar":{"path":"x","sizeInBytes":1,"modificationTime":1}}'
    data = b"\n".join([b'{"txn":{"appId":"a"}}', b"", b'{"unknown":{}}', b'{"add":', sidecar, b""])
    before = msgspec.structs.replace(TABLE, metadata=untimed("n"), protocol=protocol_of(("appendOnly",)))
    assert [(one.line, one.action) for one in check_bytes(data, before)] == [(1, ""), (4, ""), (5, "sidecar")]


@pytest.mark.parametrize("before", [b"\n", b'{"unknown":{}}\n'])
def test_the_timestamp_is_in_the_very_first_line(before: bytes) -> None:
    commit = write_commit([CommitInfo({"inCommitTimestamp": PREVIOUS_MS + 1})])
    assert check_bytes(commit, TABLE) == ()
    (problem,) = check_bytes(before + commit, TABLE)
    assert (problem.line, "line 1" in problem.reason) == (2, True)


def test_an_empty_commit_is_told() -> None:
    before = msgspec.structs.replace(TABLE, metadata=untimed("n"))
    assert check_bytes(b"", before) == (LintProblem(WHOLE_COMMIT, "", "the commit contains no action"),)


def test_the_first_commit_needs_a_protocol_and_metadata() -> None:
    reasons = [one.reason for one in check_commit([(1, Txn(app_id="a", version=1))], LintState())]
    assert reasons == [
        "the first commit of a table needs a 'metaData'",
        "the first commit of a table needs a 'protocol'",
    ]
    first: list[Action] = [CommitInfo({"inCommitTimestamp": 1}), protocol_of(), metadata_of(("n",))]
    assert check_commit(numbered(*first), LintState()) == ()


TABLE = LintState(version=7, protocol=protocol_of(), metadata=metadata_of(("n",)), timestamp_ms=PREVIOUS_MS)


def untimed(*partitions: str, **properties: str) -> Metadata:
    return msgspec.structs.replace(metadata_of(partitions), configuration=properties)


@pytest.mark.parametrize("lifted", [False, True])
def test_an_append_only_table_takes_no_removes_even_from_who_lifts_the_rule(lifted: bool) -> None:
    table = msgspec.structs.replace(
        TABLE, metadata=untimed("n", **{"delta.appendOnly": "true"}), protocol=protocol_of(("appendOnly",))
    )
    actions: list[Action] = [
        Remove(path="a", data_change=True),
        Remove(path="b", data_change=False),
    ]
    if lifted:
        actions.append(untimed("n"))
    (problem,) = check_commit(numbered(*actions), table)
    assert problem.line == 1
    assert "append-only" in problem.reason


def test_domains_deletion_vectors_and_the_change_feed_need_their_features() -> None:
    table = msgspec.structs.replace(
        TABLE, metadata=untimed("n"), protocol=Protocol(min_reader_version=1, min_writer_version=2)
    )
    add = Add(path="a", partition_values={"n": "1"}, size=1, modification_time=1, data_change=True)
    actions: list[Action] = [
        DomainMetadata(domain="d", configuration=""),
        msgspec.structs.replace(add, deletion_vector=vector(1), stats='{"numRecords":9}'),
        Cdc(path="c", partition_values={"n": ""}, size=1, data_change=False),
    ]
    problems = check_commit(numbered(*actions), table)
    for line, feature in enumerate(("domainMetadata", "deletionVectors", "changeDataFeed"), 1):
        assert [feature in one.reason for one in problems if one.line == line] == [True]


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"delta.enableInCommitTimestamps": "true"}, "'delta.managedCommitOwnerName'"),
        ({"delta.managedCommitOwnerName": "penstock"}, "in-commit timestamps"),
    ],
)
def test_a_managed_table_names_its_owner_and_has_timestamps(properties: dict[str, str], words: str) -> None:
    actions: list[Action] = [CommitInfo({"inCommitTimestamp": PREVIOUS_MS + 1}), untimed("n", **properties)]
    problems = check_commit(numbered(*actions), TABLE)
    assert [(one.line, words in one.reason) for one in problems] == [(2, True)]


@pytest.mark.parametrize(
    ("properties", "feature"),
    [
        ({"delta.managedCommitOwnerName": "penstock"}, "managedCommits"),
        ({"delta.enableInCommitTimestamps": "true"}, "inCommitTimestamp"),
        ({"delta.checkpointPolicy": "v2"}, "v2Checkpoint"),
        ({"delta.columnMapping.mode": "name"}, "columnMapping"),
        ({"delta.constraints.positive": "n > 0"}, "checkConstraints"),
    ],
)
def test_a_property_without_its_feature_is_told(properties: dict[str, str], feature: str) -> None:
    table = msgspec.structs.replace(
        TABLE, metadata=untimed("n"), protocol=Protocol(min_reader_version=1, min_writer_version=2)
    )
    problems = check_commit([(1, untimed("n", **properties))], table)
    assert any(f"uses '{feature}'" in one.reason for one in problems)
    as_it_was = msgspec.structs.replace(table, metadata=untimed("n", **properties))
    renamed = msgspec.structs.replace(untimed("n", **properties), name="renamed")
    assert check_commit([(1, renamed)], as_it_was) == ()


def test_handing_a_table_back_may_drop_managed_commits_and_nothing_else() -> None:
    names = [name for name in FEATURES if name != "managedCommits"]
    metadata = untimed("n", **{"delta.enableInCommitTimestamps": "true"})
    back = LintRules(droppable=frozenset({"managedCommits"}))
    actions: list[Action] = [CommitInfo({"inCommitTimestamp": PREVIOUS_MS + 1}), protocol_of(names), metadata]
    assert check_commit(numbered(*actions), TABLE, back) == ()
    assert [one.line for one in check_commit(numbered(*actions), TABLE)] == [2]
    actions[1] = protocol_of([name for name in names if name != "domainMetadata"])
    (problem,) = check_commit(numbered(*actions), TABLE, back)
    assert "domainMetadata" in problem.reason


def test_turning_timestamps_on_says_from_which_version() -> None:
    table = msgspec.structs.replace(TABLE, metadata=untimed("n"), protocol=protocol_of(("appendOnly",)))
    on = {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "8",
        "delta.inCommitTimestampEnablementTimestamp": str(PREVIOUS_MS + 5),
    }
    protocol = protocol_of(("appendOnly", "inCommitTimestamp"))
    info = CommitInfo({"inCommitTimestamp": PREVIOUS_MS + 5})
    assert check_commit(numbered(info, protocol, untimed("n", **on)), table) == ()
    for name in [*on][1:]:
        wrong = untimed("n", **{**on, name: "1"})
        (problem,) = check_commit(numbered(info, protocol, wrong), table)
        assert problem.line == 3
        assert name in problem.reason


@pytest.mark.parametrize(
    ("partitions", "words"),
    [(("gone",), "not in the schema"), (("n", "n"), "more than once"), (("inner",), "nested type")],
)
def test_partition_columns_are_plain_columns_of_the_schema(partitions: tuple[str, ...], words: str) -> None:
    schema = schema_string({"n": "long", "inner": "STRUCT", "m": "long"}).replace(
        '"STRUCT"', schema_string({"x": "long"})
    )
    metadata = Metadata(id="x", schema_string=schema, partition_columns=partitions)
    first: list[Action] = [Protocol(min_reader_version=1, min_writer_version=2), metadata]
    (problem,) = check_commit(numbered(*first), LintState())
    assert problem.line == 2
    assert words in problem.reason


def test_absolute_paths_are_taken_where_they_are_allowed_but_lead_nowhere_else() -> None:
    table = msgspec.structs.replace(TABLE, metadata=untimed(), protocol=protocol_of(("appendOnly",)))
    add = Add(path="s3://b/x/y", partition_values={}, size=1, modification_time=1, data_change=True)
    assert check_commit([(1, add)], table, LintRules(absolute_paths=True)) == ()
    strayed = msgspec.structs.replace(add, path="s3://b/x/../y")
    assert len(check_commit([(1, strayed)], table, LintRules(absolute_paths=True))) == 1


def test_a_file_that_is_there_can_be_removed_whatever_its_address() -> None:
    table = msgspec.structs.replace(
        TABLE,
        metadata=untimed(),
        protocol=protocol_of(("appendOnly",)),
        live=lookup({"s3://b/x": None, "a b": None}).live,
    )
    for path, there in (("s3://b/x", True), ("a b", True), ("a%20b", True), ("s3://b/y", False)):
        problems = check_commit([(1, Remove(path=path, data_change=True))], table)
        assert bool(problems) is not there


def test_a_commit_of_plain_adds_looks_nothing_up_in_a_table_without_deletion_vectors() -> None:
    def unasked(paths: object) -> dict[str, str | None]:
        raise AssertionError("asked")

    protocol = protocol_of(("appendOnly",), [one for one in READER_FEATURES if one != "deletionVectors"])
    table = msgspec.structs.replace(TABLE, metadata=untimed(), protocol=protocol, live=unasked)
    add = Add(path="x", partition_values={}, size=1, modification_time=1, data_change=True)
    assert check_commit([(1, add)], table) == ()


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.binary(max_size=60) | st.text('{}[]":,addremovtxn0 \n', max_size=60).map(str.encode))
def test_no_bytes_make_the_check_itself_fail(data: bytes) -> None:
    check_bytes(data, TABLE)


def test_every_commit_of_a_table_that_deltalake_wrote_is_legal(tmp_path: Path) -> None:
    _written_by_deltalake(str(tmp_path))
    before, live, count = LintState(), dict[str, str | None](), 0
    for version, file in enumerate(sorted((tmp_path / "_delta_log").glob("*.json"))):
        data = file.read_bytes()
        assert check_bytes(data, before) == (), data
        protocol, metadata = before.protocol, before.metadata
        for line in parse_commit(data):
            match line.action:
                case Protocol():
                    protocol = line.action
                case Metadata():
                    metadata = line.action
                case Remove():
                    del live[line.action.key.path]
                case Add():
                    live[line.action.key.path] = line.action.key.vector
        before = LintState(version=version, protocol=protocol, metadata=metadata, live=lookup(live).live)
        count += 1
    assert count == 9
    assert len(live) == 9


def _written_by_deltalake(where: str) -> None:
    strange = [f"x{chr(code)}y" for code in range(33, 127)] + ["a b", "é", "日", "..", None]
    rows = pa.table(
        {
            "text": pa.array(strange, pa.string()),
            "n": pa.array([1, None] * 50, pa.int32())[: len(strange)],
            "price": pa.array(range(len(strange)), pa.int64()).cast(pa.float64()),
        }
    )
    deltalake.write_deltalake(where, rows.slice(0, 5), partition_by=["text", "n"])
    deltalake.write_deltalake(where, rows.slice(5), mode="append")
    deltalake.write_deltalake(where, rows.slice(8, 3), mode="append")
    table = deltalake.DeltaTable(where)
    table.optimize.compact()
    table.delete("price < 4")
    table.update({"price": "0.5"}, predicate="price > 90")
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 3 days"})
    deltalake.write_deltalake(where, rows.slice(20, 40), mode="overwrite")
    deltalake.write_deltalake(
        where, rows.slice(0, 9), mode="overwrite", schema_mode="overwrite", partition_by=["text"]
    )
