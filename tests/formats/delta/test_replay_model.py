"""Any log comes to what a plain dict says it does, through checkpoints and compactions of every shape."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, TypeVar
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.formats.delta.errors import LogGap, TableNotFound, VersionNotFound
from penstock.formats.delta.log import snapshot
from penstock.formats.delta.log.snapshot import LogSnapshot, load_snapshot
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    CheckpointMetadata,
    DeletionVector,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    Remove,
    Sidecar,
    Txn,
    reconciliation_key,
    write_commit,
)
from penstock.formats.delta.protocol.names import LAST_CHECKPOINT, LOG, SIDECARS, CompactionName
from penstock.storage.places import Places
from tests.formats.delta.logs import UUIDS, Table, add, checkpoint_bytes, metadata, protocol, remove

Kind = TypeVar("Kind", bound=Action)
State = dict[tuple[str, str, str | None], Action]
SHAPES = ["classic", "parts", "json", "parquet", "json+sidecars", "parquet+sidecars", "classic+sidecars"]


def vector(number: int) -> DeletionVector:
    return DeletionVector(
        storage_type="u", path_or_inline_dv=f"v{number}", offset=1, size_in_bytes=4, cardinality=number
    )


paths = st.sampled_from(["a", "day=1/b%20c", "day=1%252F2/d", "é", "s3://other/e", "file:///f"])
vectors = st.none() | st.builds(vector, st.integers(1, 2))
values = st.dictionaries(st.sampled_from(["day", "x"]), st.none() | st.sampled_from(["", "1"]))
actions: st.SearchStrategy[Action] = st.one_of(
    st.builds(
        add,
        paths,
        deletion_vector=vectors,
        size=st.integers(0, 9),
        partition_values=values,
        stats=st.none() | st.just('{"numRecords":1}'),
        tags=st.none() | values,
    ),
    st.builds(remove, paths, deletion_vector=vectors, partition_values=st.none() | values),
    st.builds(Txn, app_id=st.sampled_from("pq"), version=st.integers(0, 9)),
    st.builds(
        DomainMetadata, domain=st.sampled_from("de"), configuration=st.just("c"), removed=st.booleans()
    ),
    st.builds(metadata, delta_number=st.sampled_from("123")),
    st.builds(lambda features: protocol("domainMetadata", *features), st.sets(st.sampled_from("fg"))),
)
commits = st.lists(st.lists(actions, max_size=6, unique_by=reconciliation_key), max_size=8)
BEGIN: list[Action] = [protocol(), metadata()]


class Checkpointing(NamedTuple):
    at: int
    shape: str
    width: int


class Script(NamedTuple):
    """A log: its commits, and what is laid beside them."""

    commits: list[list[Action]]
    checkpoints: list[Checkpointing]
    compactions: list[tuple[int, int]]
    missing: set[int]
    hint: bytes | None


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    made = [BEGIN, *draw(commits)]
    last = len(made) - 1
    version = st.integers(0, last)
    return Script(
        made,
        draw(
            st.lists(
                st.builds(Checkpointing, version, st.sampled_from(SHAPES), st.integers(1, 4)), max_size=2
            )
        ),
        [(low, high) for low, high in draw(st.lists(st.tuples(version, version), max_size=2)) if low < high],
        draw(st.sets(version, max_size=2)),
        draw(
            st.none() | st.binary(max_size=9) | st.builds(lambda n: b'{"version":%d}' % n, st.integers(-1, 9))
        ),
    )


def states(script: Script) -> list[State]:
    """What the table is at each version."""
    found: list[State] = []
    state: State = {}
    for commit in script.commits:
        state = {**state, **_keyed(commit)}
        found.append(state)
    return found


def write(table: Table, script: Script) -> None:
    for version, commit in enumerate(script.commits):
        if version not in script.missing:
            table.commit(version, *commit)
    for first, last in script.compactions:
        net = _keyed([one for commit in script.commits[first : last + 1] for one in commit])
        table.write(str(CompactionName(first, last)), write_commit(net.values()))
    for number, (version, shape, width) in enumerate(script.checkpoints):
        write_checkpoint(table, version, shape, width, states(script)[version], number)
    if script.hint is not None:
        table.write(LAST_CHECKPOINT, script.hint)


def write_checkpoint(table: Table, version: int, shape: str, width: int, state: State, number: int) -> None:
    kept = [one for one in state.values() if not (isinstance(one, DomainMetadata) and one.removed)]
    start = f"{LOG}{version:020}.checkpoint."
    if shape == "parts":
        for part in range(width):
            name = f"{start}{part + 1:010}.{width:010}.parquet"
            table.write(name, checkpoint_bytes(kept[part::width]))
        return
    if shape != "classic":
        kept.append(CheckpointMetadata(version=version))
    shape, _, sidecars = shape.partition("+")
    if sidecars:
        files = [one for one in kept if isinstance(one, Add | Remove)]
        kept = [one for one in kept if not isinstance(one, Add | Remove)]
        for part in range(width):
            name = f"{UUIDS[10 * number + part]}.parquet"
            table.write(SIDECARS + name, checkpoint_bytes(files[part::width]))
            kept.append(Sidecar(path=name, size_in_bytes=1, modification_time=0))
    if shape == "classic":
        table.write(f"{start}parquet", checkpoint_bytes(kept))
    else:
        data = write_commit(kept) if shape == "json" else checkpoint_bytes(kept)
        table.write(f"{start}{UUIDS[number]}.{shape}", data)


def is_there(script: Script, version: int) -> bool:
    """Whether the files lead up to a version, from the newest checkpoint that is not too new."""
    bases = {one.at for one in script.checkpoints}
    kept = set(range(len(script.commits))) - script.missing
    if version > max(kept | bases, default=-1):
        return False  # a compaction alone does not tell that there is a version
    base = max({-1} | {one for one in bases if one <= version})
    reached = {base}
    for one in range(base, version):
        if one in reached:
            reached |= {one + 1} & kept
            reached |= {last for first, last in script.compactions if first == one + 1}
    return version in reached


def assert_same(found: LogSnapshot, state: State) -> None:
    def of(kind: type[Kind]) -> list[Kind]:
        return [one for one in state.values() if isinstance(one, kind)]

    assert [found.protocol] == of(Protocol)
    assert [found.metadata] == of(Metadata)
    assert by_key(found.read_files()) == by_key(of(Add))
    assert by_key(found.read_files()) == by_key(of(Add)), "asked for a second time"
    assert sorted(map(str, found.file_keys())) == sorted(str(one.key) for one in of(Add))
    assert_live(found, [one.key for one in of(Add)], [one.key for one in of(Remove)][::2])
    assert set(by_key(found.read_tombstones())) == set(by_key(of(Remove)))
    assert by_key(found.transactions.values()) == by_key(of(Txn))
    live = [one for one in of(DomainMetadata) if not one.removed]
    assert by_key(found.domains.values()) == by_key(live)


def assert_live(found: LogSnapshot, live: list[FileKey], gone: list[FileKey]) -> None:
    """Every other file is asked for, and some that are gone."""
    asked = {key.path for key in (*live[::2], *gone)}
    answer = found.find_active_files(asked)
    assert answer.keys() == asked & {key.path for key in live}
    assert {FileKey(*one) for one in answer.items()} <= set(live)


def by_key(some: Iterable[Action]) -> State:
    listed = list(some)
    keyed = _keyed(listed)
    assert len(keyed) == len(listed), "an action stands there twice"
    return keyed


def _keyed(some: list[Action]) -> State:
    keyed: State = {}
    for one in some:
        key = reconciliation_key(one)
        assert key is not None
        keyed[key] = one
    return keyed


@given(script=scripts(), taken_bytes=st.sampled_from([1, 300, snapshot.TAKEN_BYTES]))
def test_any_log_comes_to_what_a_dict_says(places: Places, script: Script, taken_bytes: int) -> None:
    """However many lines that add files are parsed at once."""
    with TemporaryDirectory() as folder, patch.object(snapshot, "TAKEN_BYTES", taken_bytes):
        table = Table(Path(folder), places)
        write(table, script)
        for version, state in enumerate(states(script)):
            if is_there(script, version):
                assert_same(load_snapshot(table.files, version), state)
            else:
                with pytest.raises((TableNotFound, VersionNotFound, LogGap)):
                    load_snapshot(table.files, version)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", [1, 3])
def test_a_checkpoint_of_every_shape_stands_in_for_the_commits_before_it(
    table: Table, shape: str, width: int
) -> None:
    script = Script(
        [
            [
                *BEGIN,
                add("kept", tags={"t": None}, stats="{}"),
                add("gone"),
                add("x", deletion_vector=vector(1)),
            ],
            [remove("gone"), Txn(app_id="p", version=1, last_updated=3), add("day=1%252F2/d")],
            [
                remove("x", deletion_vector=vector(1)),
                add("x", deletion_vector=vector(2)),
                metadata(delta_a="1"),
            ],
        ],
        [Checkpointing(1, shape, width)],
        [],
        {0, 1},
        None,
    )
    write(table, script)
    assert_same(load_snapshot(table.files, 1), states(script)[1])
    assert_same(load_snapshot(table.files), states(script)[2])
