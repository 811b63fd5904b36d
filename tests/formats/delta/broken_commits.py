"""Ways to break a legal commit at one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    Cdc,
    CommitInfo,
    DomainMetadata,
    FileFormat,
    Metadata,
    Protocol,
    Remove,
    Sidecar,
    Txn,
)
from tests.formats.delta.legal_commits import FEATURES, PREVIOUS_MS, READER_FEATURES, vector

Mutation = Callable[[list[Action]], int]
"""Breaks a commit that has actions of all kinds, and returns the line to blame."""


def index(actions: list[Action], kind: type[Action], *, whole: bool = False) -> int:
    """Where the first action of a kind is; ``whole``: one without a deletion vector."""
    for number, action in enumerate(actions):
        if isinstance(action, kind) and not (whole and getattr(action, "deletion_vector", None)):
            return number
    raise AssertionError(f"no {kind.__name__}")


def changed(kind: type[Action], **fields: Any) -> Mutation:
    def mutate(actions: list[Action]) -> int:
        at = index(actions, kind, whole=True)
        actions[at] = msgspec.structs.replace(actions[at], **fields)
        return at + 1

    return mutate


def repeated(kind: type[Action]) -> Mutation:
    def mutate(actions: list[Action]) -> int:
        actions.append(actions[index(actions, kind, whole=True)])
        return len(actions)

    return mutate


def added(action: Action) -> Mutation:
    def mutate(actions: list[Action]) -> int:
        actions.append(action)
        return len(actions)

    return mutate


def valued(**values: str | None) -> Mutation:
    """Partition values of an add changed; a value of ``...`` goes."""

    def mutate(actions: list[Action]) -> int:
        at = index(actions, Add, whole=True)
        add = actions[at]
        assert isinstance(add, Add)
        new = {name: value for name, value in {**add.partition_values, **values}.items() if value != "..."}
        actions[at] = msgspec.structs.replace(add, partition_values=new)
        return at + 1

    return mutate


def described(**fields: Any) -> Mutation:
    """The metadata changed; what the table already has stays."""
    return changed(Metadata, **fields)


def timed(**fields: Any) -> Mutation:
    return changed(CommitInfo, fields=fields)


def info_last(actions: list[Action]) -> int:
    actions.append(actions.pop(0))
    return 1


def remove_of_an_added_file(actions: list[Action]) -> int:
    at = index(actions, Remove, whole=True)
    removed = actions[at]
    assert isinstance(removed, Remove)
    actions.append(
        Add(
            path=removed.path,
            partition_values=dict.fromkeys(_partitions(actions)),
            size=1,
            modification_time=1,
            data_change=True,
        )
    )
    return len(actions)


def vector_forgotten(actions: list[Action]) -> int:
    """The file keeps its old vector in the table, and gets a second one."""
    for at, action in enumerate(actions):
        if isinstance(action, Remove) and action.deletion_vector is not None:
            del actions[at]
            for line, add in enumerate(actions, 1):
                if isinstance(add, Add) and add.path == action.path:
                    return line
    raise AssertionError("no deletion vector")


def vector_of_another_time(actions: list[Action]) -> int:
    for at, action in enumerate(actions):
        if isinstance(action, Remove) and action.deletion_vector is not None:
            actions[at] = msgspec.structs.replace(action, deletion_vector=vector(9))
            # Without its add, which would be at fault too: what it replaces stays.
            actions[:] = [one for one in actions if not (isinstance(one, Add) and one.path == action.path)]
            return 1 + next(at for at, one in enumerate(actions) if _removes(one, action.path))
    raise AssertionError("no deletion vector")


def _removes(action: Action, path: str) -> bool:
    return isinstance(action, Remove) and action.path == path


def _partitions(actions: list[Action]) -> tuple[str, ...]:
    metadata = actions[index(actions, Metadata)]
    assert isinstance(metadata, Metadata)
    return metadata.partition_columns


SIDECAR = Sidecar(path="x", size_in_bytes=1, modification_time=1)
ILL_VECTOR = msgspec.structs.replace(vector(1), storage_type="x")
HUGE_VECTOR = msgspec.structs.replace(vector(1), cardinality=1_000)
MUTATIONS: dict[str, tuple[Mutation, str]] = {
    "path leads out": (changed(Add, path="a/../../b"), "'..'"),
    "path leads out, encoded": (changed(Add, path="%2e%2e/b"), "'..'"),
    "path absolute": (changed(Add, path="/a"), "absolute"),
    "path with a scheme": (changed(Add, path="s3://bucket/a"), "absolute"),
    "path with an encoded scheme": (changed(Add, path="file%3A/a"), "absolute"),
    "path with a blank": (changed(Add, path="a b"), "percent-encoded"),
    "path with a query": (changed(Add, path="a?b"), "percent-encoded"),
    "path badly encoded": (changed(Add, path="a%2"), "'%25'"),
    "path not UTF-8": (changed(Add, path="%ff"), "UTF-8"),
    "path in the log": (changed(Add, path="_delta_log/0.json"), "log"),
    "path empty": (changed(Add, path=""), "empty"),
    "path of the feed": (changed(Cdc, path="../x"), "'..'"),
    "size": (changed(Add, size=-1), "not be negative"),
    "modification time": (changed(Add, modification_time=-1), "not be negative"),
    "size of the feed's file": (changed(Cdc, size=-1), "not be negative"),
    "feed changes data": (changed(Cdc, data_change=True), "dataChange"),
    "deletion timestamp": (changed(Remove, deletion_timestamp=-5), "not be negative"),
    "extended without values": (changed(Remove, extended_file_metadata=True), "partitionValues"),
    "time of a batch": (changed(Txn, last_updated=-1), "not be negative"),
    "stats not JSON": (changed(Add, stats="{numRecords: 1}"), "not JSON"),
    "stats with NaN": (changed(Add, stats='{"numRecords":1,"maxValues":{"x":NaN}}'), "not JSON"),
    "stats no object": (changed(Add, stats="[]"), "not a JSON object"),
    "stats without a count": (changed(Add, stats='{"minValues":{}}'), "numRecords"),
    "stats with a bad count": (changed(Add, stats='{"numRecords":-1}'), "numRecords"),
    "stats with bad bounds": (changed(Add, stats='{"numRecords":1,"minValues":3}'), "minValues"),
    "vector of no kind": (changed(Add, deletion_vector=ILL_VECTOR), "'x'"),
    "vector too large": (changed(Add, deletion_vector=HUGE_VECTOR), "1000 rows"),
    "vector without stats": (changed(Add, deletion_vector=vector(1), stats=None), "numRecords"),
    "row ids": (changed(Add, base_row_id=1), "rowTracking"),
    "partition value missing": (valued(n="..."), "lacks 'n'"),
    "partition value too many": (valued(other="1"), "'other'"),
    "partition value no number": (valued(n="1.5"), "not a valid integer"),
    "partition value too large": (valued(n=str(2**31)), "32 bits"),
    "added twice": (repeated(Add), "second time"),
    "removed twice": (repeated(Remove), "second time"),
    "added and removed": (remove_of_an_added_file, "cannot do both"),
    "removed, but not there": (added(Remove(path="no/such", data_change=True)), "not in the table"),
    "removed with another vector": (vector_of_another_time, "cannot be removed with"),
    "vector not removed": (vector_forgotten, "remove that"),
    "two protocols": (repeated(Protocol), "one 'protocol'"),
    "two metadata": (repeated(Metadata), "one 'metaData'"),
    "two infos": (repeated(CommitInfo), "one 'commitInfo'"),
    "batch twice": (repeated(Txn), "already"),
    "domain twice": (repeated(DomainMetadata), "already"),
    "sidecar": (added(SIDECAR), "checkpoints"),
    "info last": (info_last, "must come first"),
    "no timestamp": (timed(operation="WRITE"), "'inCommitTimestamp' is missing"),
    "timestamp not later": (timed(inCommitTimestamp=PREVIOUS_MS), "later than"),
    "schema broken": (described(schema_string="{}"), "schema"),
    "format of files": (described(format=FileFormat(provider="orc")), "orc"),
    "creation time": (described(created_time=-1), "must not be negative"),
    "id empty": (described(id=""), "id is empty"),
    "lists without their version": (changed(Protocol, min_writer_version=6), "only be used with"),
    "unknown feature": (
        changed(Protocol, writer_features=(*READER_FEATURES, *FEATURES, "bogus")),
        "'bogus'",
    ),
    "feature lost": (
        changed(Protocol, writer_features=(*READER_FEATURES, *FEATURES[:3], *FEATURES[4:])),
        "lose the feature 'appendOnly'",
    ),
    "reader feature not for writers": (
        changed(Protocol, reader_features=("deletionVectors", "timestampNtz", "v2Checkpoint")),
        "missing from 'writerFeatures'",
    ),
    "writer feature not for readers": (
        changed(Protocol, reader_features=("timestampNtz",)),
        "missing from 'readerFeatures'",
    ),
}
ELSEWHERE = {
    # What is broken there makes more than one line wrong.
    "schema broken",
    "lists without their version",
    "unknown feature",
    "two metadata",
}
