"""Legal commits of a table that has everything a commit can touch, for the tests of the check."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

import msgspec
from hypothesis import strategies as st

from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    Cdc,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
    Values,
    decode_path,
)
from penstock.formats.delta.protocol.lint import LintState

TYPES = {
    "n": "integer",
    "text": "string",
    "day": "date",
    "at": "timestamp",
    "price": "decimal(6,2)",
    "ok": "boolean",
    "ratio": "double",
}
FEATURES = (
    "inCommitTimestamp",
    "domainMetadata",
    "changeDataFeed",
    "appendOnly",
    "invariants",
    "managedCommits",
)
READER_FEATURES = ("deletionVectors", "timestampNtz")
PREVIOUS_MS = 1_700_000_000_000

_VALUES: Mapping[str, st.SearchStrategy[str]] = {
    "integer": st.integers(-(2**31), 2**31 - 1).map(str),
    "string": st.text(max_size=5),
    "date": st.dates().map(str),
    "timestamp": st.datetimes().map(lambda one: f"{one:%H:%M:%S.%f}").map(lambda one: "2024-02-29 " + one),
    "decimal(6,2)": st.decimals(-9999, 9999, places=2).map(str),
    "boolean": st.sampled_from(["true", "false"]),
    "double": st.floats(allow_nan=False, allow_infinity=False).map(str),
}
_NAMES = st.text("abz09-_.%é =+", min_size=1, max_size=8).filter(lambda name: name.strip(".") != "")


class Case(msgspec.Struct, frozen=True):
    """A table and a commit that is legal on top of it."""

    before: LintState
    actions: tuple[Action, ...]

    @property
    def lines(self) -> tuple[tuple[int, Action], ...]:
        return numbered(*self.actions)


def numbered(*actions: Action) -> tuple[tuple[int, Action], ...]:
    return tuple(enumerate(actions, 1))


def schema_string(types: Mapping[str, str]) -> str:
    fields = [{"name": n, "type": kind, "nullable": True, "metadata": {}} for n, kind in types.items()]
    return json.dumps({"type": "struct", "fields": fields})


def protocol_of(writer: Collection[str] = FEATURES, reader: Collection[str] = READER_FEATURES) -> Protocol:
    return Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=tuple(reader),
        writer_features=(*reader, *writer),
    )


def metadata_of(partitions: tuple[str, ...]) -> Metadata:
    return Metadata(
        id="6cf8525c-cf67-41eb-8ab5-2e3824aa0773",
        schema_string=schema_string({"id": "long", **TYPES}),
        partition_columns=partitions,
        configuration={
            "delta.enableInCommitTimestamps": "true",
            "delta.managedCommitOwnerName": "penstock",
            "delta.enableChangeDataFeed": "true",
        },
    )


def encoded(name: str) -> str:
    """A file's name as an address: only what must be encoded is."""
    return "".join(f"%{ord(char):02X}" if char in "% =+" else char for char in name)


def lookup(live: Mapping[str, str | None]) -> LintState:
    def found(paths: Collection[str]) -> Mapping[str, str | None]:
        return {path: live[path] for path in paths if path in live}

    return LintState(live=found)


@st.composite
def cases(draw: st.DrawFn, *, rich: bool = False) -> Case:
    """Any legal commit; ``rich``: one with at least one action of every kind that there is."""
    least = 1 if rich else 0
    partitions = ("n", *draw(st.lists(st.sampled_from([*TYPES][1:]), unique=True, max_size=2)))
    names = draw(st.lists(_NAMES, unique=True, min_size=8, max_size=8))
    paths = [f"d/{encoded(name)}" for name in names]
    plain, vectored, fresh, feed = paths[0:2], paths[2:4], paths[4:6], paths[6:8]

    def values() -> Values:
        return {name: draw(st.none() | _VALUES[TYPES[name]]) for name in partitions}

    actions: list[Action] = [CommitInfo({"inCommitTimestamp": PREVIOUS_MS + draw(st.integers(1, 9))})]
    rest: list[Action] = []
    if rich or draw(st.booleans()):
        rest.append(protocol_of((*FEATURES, *draw(st.just(()) | st.just(("checkConstraints",))))))
    if rich or draw(st.booleans()):
        changed = metadata_of(partitions)
        note = {**changed.configuration, "note": draw(st.text(max_size=3))}
        rest.append(msgspec.structs.replace(changed, configuration=note))

    def some(of: Sequence[str]) -> Sequence[str]:
        return of[: draw(st.integers(least, len(of)))]

    rest += [_add(draw, path, values()) for path in some(fresh)]
    rest += [Remove(path=path, data_change=True, deletion_timestamp=5) for path in some(plain)]
    for path in some(vectored):
        rest += [
            Remove(path=path, data_change=True, deletion_vector=vector(1)),
            msgspec.structs.replace(_add(draw, path, values()), deletion_vector=vector(2)),
        ]
    rest += [
        Cdc(path=f"_change_data/{path}", partition_values=values(), size=1, data_change=False)
        for path in some(feed)
    ]
    rest += [Txn(app_id=name, version=3, last_updated=1) for name in some("ab")]
    rest += [
        DomainMetadata(domain=name, configuration="{}", removed=draw(st.booleans())) for name in some("cd")
    ]
    live = {decode_path(path): None for path in plain} | {
        decode_path(path): vector(1).unique_id for path in vectored
    }
    before = LintState(
        version=7,
        protocol=protocol_of(),
        metadata=metadata_of(partitions),
        timestamp_ms=PREVIOUS_MS,
        live=lookup(live).live,
    )
    return Case(before, (*actions, *draw(st.permutations(rest))))


def vector(number: int) -> DeletionVector:
    return DeletionVector(
        storage_type="u",
        path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^",
        size_in_bytes=40,
        cardinality=2,
        offset=number,
    )


def _add(draw: st.DrawFn, path: str, values: Values) -> Add:
    count = draw(st.integers(5, 9))
    stats = json.dumps({"numRecords": count, "minValues": {"id": 1}, "nullCount": {"id": 0}})
    return Add(path=path, partition_values=values, size=3, modification_time=4, data_change=True, stats=stats)
