"""Commits: what operations do, what stands in their way, and that all of it is told at once."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from uuid import uuid4

import msgspec
import pytest

from penstock.errors import CommitConflict, RequestError
from penstock.kernel.fsck import fsck
from penstock.kernel.kernel import Kernel
from penstock.model.commits import CommitMeta
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.content import AnyContent, Namespace
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable, IcebergView
from penstock.model.operations import Delete, Operation, Put, Unchanged
from tests.chance import seeds
from tests.kernel.brute_force import (
    KEYS,
    carry_out,
    random_operations,
    told,
    without_ids,
)
from tests.kernel.lakes import (
    branch,
    commit,
    deletes,
    head,
    large_table,
    new_kernel,
    places,
    puts,
    reopened,
    state,
    stored,
    table,
)

T = Key("t")
NS = Key("ns")
INSIDE = Key("ns", "t")


def _refused(
    kernel: Kernel, operations: list[Operation], base: ObjectId | None = None, create: bool = False
) -> tuple[Conflict, ...]:
    """The conflicts that a commit meets; nothing may be stored."""
    before = stored(kernel.store)
    with pytest.raises(CommitConflict) as refused:
        kernel.commit("main", operations, CommitMeta(), base=base, create_namespaces=create)
    assert stored(kernel.store) == before
    return refused.value.conflicts


# -- against brute force -------------------------------------------------------------------------------


def _random_request(random: Random, kernel: Kernel) -> list[Operation]:
    """Operations on a few different keys."""
    operations: list[Operation] = []
    used: set[Key] = set()
    for _ in range(random.choice([1, 1, 2, 3, 5])):
        some = random_operations(random, state(kernel))
        if random.random() < 0.2:
            some = [Unchanged(random.choice(KEYS))]
        if random.random() < 0.1:
            some = [Put(random.choice(KEYS), msgspec.structs.replace(table(1), id=uuid4()))]
        if not used & {one.key for one in some}:
            used |= {one.key for one in some}
            operations += some
    random.shuffle(operations)
    return operations


@pytest.mark.parametrize("seed", seeds(10))
def test_commits_with_fresh_and_stale_bases_equal_brute_force(seed: int) -> None:
    random = Random(seed)
    kernel = new_kernel()
    heads = [head(kernel)]
    landed = refused = 0
    for _ in range(250):
        operations = _random_request(random, kernel)
        base: ObjectId | None = random.choice(
            [heads[-1], heads[-1], random.choice(heads[-6:]), random.choice(heads)]
        )
        needs_base = any(isinstance(one, Unchanged) for one in operations)
        if random.random() < 0.3 and not needs_base:
            base = None
        create = random.random() < 0.4
        was = None if base is None else state(kernel, base)
        expected = carry_out(operations, state(kernel), was, create)
        if expected.conflicts:
            refused += 1
            assert told(_refused(kernel, operations, base, create)) == expected.conflicts
            continue
        landed += 1
        outcome = kernel.commit("main", operations, CommitMeta(), base=base, create_namespaces=create)
        heads.append(outcome.head)
        held = state(kernel)
        assert without_ids(held, expected.chosen) == without_ids(expected.held, expected.chosen)
        if random.random() < 0.05:
            kernel = reopened(kernel)
            assert state(kernel) == held
    assert landed > 30
    assert refused > 30
    assert fsck(reopened(kernel)).damages == ()


# -- every kind of conflict ----------------------------------------------------------------------------


def _moved(change: Callable[[Kernel], object]) -> tuple[Kernel, ObjectId]:
    """A lake in which something happened since it was read."""
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    base = head(kernel)
    change(kernel)
    return kernel, base


def _replaced(kernel: Kernel) -> None:
    commit(kernel, "main", puts(t=2))


def _dropped(kernel: Kernel) -> None:
    commit(kernel, "main", deletes("t"))


def _of_another_type(kernel: Kernel) -> None:
    commit(kernel, "main", [Delete(T), Put(T, DeltaTable(location="s3://lake/d"))])


def _created_anew(kernel: Kernel) -> None:
    commit(kernel, "main", [Delete(T), *puts(t=1)])


@pytest.mark.parametrize(
    "operation", [Put(T, table(9)), Delete(T), Unchanged(T)], ids=lambda one: type(one).__name__
)
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (_replaced, ConflictKind.VALUE_DIFFERS),
        (_dropped, ConflictKind.KEY_DOES_NOT_EXIST),
        (_of_another_type, ConflictKind.PAYLOAD_DIFFERS),
        (_created_anew, ConflictKind.CONTENT_ID_DIFFERS),
    ],
)
def test_a_key_that_changed_since_the_base_is_told_with_what_was_and_is(
    operation: Operation, change: Callable[[Kernel], None], kind: ConflictKind
) -> None:
    kernel, base = _moved(change)
    was, now = state(kernel, base)[T], state(kernel).get(T)
    (conflict,) = _refused(kernel, [operation], base)
    assert (conflict.kind, conflict.key) == (kind, T)
    assert conflict.expected == f"ICEBERG_TABLE s3://lake/1 [{str(was.id)[:8]}]"
    place = {"ICEBERG_TABLE": "s3://lake/2" if change is _replaced else "s3://lake/1"}
    found = "" if now is None else f"{now.type} {place.get(now.type, 's3://lake/d')} [{str(now.id)[:8]}]"
    assert conflict.found == found


@pytest.mark.parametrize(
    "operation", [Put(Key("u"), table(9)), Unchanged(Key("u"))], ids=lambda one: type(one).__name__
)
def test_a_key_that_appeared_since_the_base_is_told(operation: Operation) -> None:
    kernel, base = _moved(lambda kernel: commit(kernel, "main", puts(u=1)))
    (conflict,) = _refused(kernel, [operation], base)
    assert (conflict.kind, conflict.key, conflict.expected) == (ConflictKind.KEY_EXISTS, Key("u"), "")
    assert conflict.found.startswith("ICEBERG_TABLE s3://lake/1 [")


def test_without_a_base_operations_act_on_the_branch_as_it_is() -> None:
    kernel, _ = _moved(_replaced)
    commit(kernel, "main", puts(t=3))
    assert places(kernel) == {"t": "3"}
    assert [one.kind for one in _refused(kernel, [Delete(Key("nothing"))])] == [
        ConflictKind.KEY_DOES_NOT_EXIST
    ]


def test_a_key_that_changed_and_changed_back_is_as_it_was_read() -> None:
    kernel, base = _moved(_replaced)
    commit(kernel, "main", puts(t=1))
    assert state(kernel)[T] == state(kernel, base)[T]
    commit(kernel, "main", puts(t=9), base=base)
    assert places(kernel) == {"t": "9"}


def test_keys_that_do_not_overlap_never_conflict() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(**{f"t{number}": 0 for number in range(30)}))
    base = head(kernel)
    for number in range(30):
        commit(kernel, "main", puts(**{f"t{number}": number}), base=base)
    assert places(kernel) == {f"t{number}": str(number) for number in range(30)}


def test_all_conflicts_of_a_request_are_told_in_one_error() -> None:
    kernel = new_kernel()
    commit(kernel, "main", [*puts(value=1, gone=1, type=1, id=1, fine=1, read=1), Put(NS, Namespace())])
    base = head(kernel)
    commit(kernel, "main", puts(value=2, added=1, read=2))
    commit(kernel, "main", deletes("gone"))
    commit(kernel, "main", [Delete(Key("type")), Put(Key("type"), DeltaTable())])
    commit(kernel, "main", [Delete(Key("id")), *puts(id=1), Put(INSIDE, table(1))])
    operations: list[Operation] = [
        *puts(value=3, added=3, gone=3, type=3, id=3, fine=3),
        Unchanged(Key("read")),
        Delete(NS),
        Put(Key("nowhere", "t"), table(1)),
        Put(Key("fine", "t"), table(1)),
    ]
    conflicts = _refused(kernel, operations, base)
    assert told(conflicts) == {
        (ConflictKind.VALUE_DIFFERS, Key("value")),
        (ConflictKind.VALUE_DIFFERS, Key("read")),
        (ConflictKind.KEY_EXISTS, Key("added")),
        (ConflictKind.KEY_DOES_NOT_EXIST, Key("gone")),
        (ConflictKind.PAYLOAD_DIFFERS, Key("type")),
        (ConflictKind.CONTENT_ID_DIFFERS, Key("id")),
        (ConflictKind.NAMESPACE_NOT_EMPTY, NS),
        (ConflictKind.NAMESPACE_ABSENT, Key("nowhere")),
        (ConflictKind.NOT_A_NAMESPACE, Key("fine")),
    }
    assert len(conflicts) == 9


# -- the id of a content -------------------------------------------------------------------------------


def test_a_replaced_content_keeps_its_id_whether_it_is_given_or_not() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    identity = state(kernel)[T].id
    commit(kernel, "main", [Put(T, msgspec.structs.replace(table(2), id=identity))])
    commit(kernel, "main", puts(t=3))
    assert state(kernel)[T] == msgspec.structs.replace(table(3), id=identity)


def test_a_content_with_the_id_of_another_table_is_refused() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1, u=1))
    other = state(kernel)[Key("u")]
    (conflict,) = _refused(kernel, [Put(T, other)])
    assert (conflict.kind, conflict.key) == (ConflictKind.CONTENT_ID_DIFFERS, T)
    (conflict,) = _refused(kernel, [Put(Key("copy"), other)])
    assert (conflict.kind, conflict.key) == (ConflictKind.KEY_DOES_NOT_EXIST, Key("copy"))
    (conflict,) = _refused(kernel, [Put(Key("new"), msgspec.structs.replace(table(1), id=uuid4()))])
    assert conflict.kind is ConflictKind.KEY_DOES_NOT_EXIST


def test_a_content_of_another_type_needs_a_re_creation() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    before = state(kernel)[T].id
    (conflict,) = _refused(kernel, [Put(T, DeltaTable())])
    assert conflict.kind is ConflictKind.PAYLOAD_DIFFERS
    commit(kernel, "main", [Put(T, DeltaTable()), Delete(T)])
    assert state(kernel)[T].type == "DELTA_LAKE_TABLE"
    assert state(kernel)[T].id not in (None, before)


@pytest.mark.parametrize("name", ["t", "renamed"])
@pytest.mark.parametrize("other", [DeltaTable(), IcebergView(metadata_location="v"), Namespace()])
def test_a_content_keeps_its_type_also_where_it_is_deleted_and_put(name: str, other: AnyContent) -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    moved = msgspec.structs.replace(other, id=state(kernel)[T].id)
    (conflict,) = _refused(kernel, [Delete(T), Put(Key(name), moved)])
    assert (conflict.kind, conflict.key) == (ConflictKind.PAYLOAD_DIFFERS, Key(name))


def test_tables_can_change_places_in_one_commit() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(a=1, b=2, c=3))
    held = state(kernel)
    a, b, c = (held[Key(name)] for name in "abc")
    commit(
        kernel,
        "main",
        [*deletes("a", "b", "c"), Put(Key("a"), b), Put(Key("b"), c), Put(Key("c"), a)],
        base=head(kernel),
    )
    assert state(kernel) == {Key("a"): b, Key("b"): c, Key("c"): a}


def test_a_rename_onto_another_table_is_refused() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1, u=1))
    content = state(kernel)[T]
    (conflict,) = _refused(kernel, [Delete(T), Put(Key("u"), content)])
    assert (conflict.kind, conflict.key) == (ConflictKind.CONTENT_ID_DIFFERS, Key("u"))


def test_one_id_is_not_given_to_two_keys() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    content = state(kernel)[T]
    with pytest.raises((CommitConflict, RequestError)):
        commit(kernel, "main", [Delete(T), Put(Key("one"), content), Put(Key("other"), content)])
    assert state(kernel) == {T: content}


# -- what a commit holds -------------------------------------------------------------------------------


def test_a_commit_carries_what_its_writer_said_and_its_operations_are_its_diff() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1, gone=1))
    base = head(kernel)
    said = CommitMeta(
        message="load\n\norders",
        authors=("ann", "bob"),
        author_time_us=77,
        signed_off_by=("carl",),
        properties={"job": ("7", "8"), "": ("",)},
        committer="etl",
    )
    outcome = kernel.commit("main", [*puts(t=2, new=1), *deletes("gone")], said, base=base, key="k")
    found = reopened(kernel).history.read_commit(outcome.head)
    assert (found.message, found.authors, found.author_time_us) == (said.message, said.authors, 77)
    assert (found.signed_off_by, found.properties, found.committer) == (("carl",), said.properties, "etl")
    assert (found.parent, found.further_parents, found.key) == (base, (), "k")
    changes = kernel.diff_commits(base, outcome.head)
    signs = {key.decode(): (was is not None, now is not None) for key, (was, now) in changes.items()}
    assert signs == {"t": (True, True), "new": (False, True), "gone": (True, False)}


@pytest.mark.parametrize("size", [100, 1_500, 300_000, 3_000_000])
def test_contents_of_any_size_come_back_also_by_another_process(size: int) -> None:
    kernel = new_kernel()
    commit(kernel, "main", [Put(T, large_table("a", size)), Put(Key("twin"), large_table("a", size))])
    commit(kernel, "main", [Put(T, large_table("b", size))], base=head(kernel))
    cold = reopened(kernel)
    contents = [state(cold)[key] for key in (T, Key("twin"))]
    assert [msgspec.structs.replace(one, id=None) for one in contents] == [
        large_table("b", size),
        large_table("a", size),
    ]
    assert fsck(cold).damages == ()


def test_many_operations_land_in_one_commit() -> None:
    kernel = new_kernel()
    many: list[Operation] = [Put(Key(f"t{number:05}"), table(number)) for number in range(6_000)]
    commit(kernel, "main", many)
    assert len(state(reopened(kernel))) == 6_000
    commit(kernel, "main", [Delete(one.key) for one in many], base=head(kernel))
    assert state(reopened(kernel)) == {}
    assert kernel.resolve_revision("main~2")[0] == kernel.resolve_revision("main*1970-01-01")[0]


def test_a_commit_that_changes_nothing_is_a_commit_all_the_same() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    before = head(kernel)
    made = commit(kernel, "main", [Put(T, state(kernel)[T])])
    assert kernel.history.read_commit(made).parent == before
    assert kernel.diff_commits(before, made) == {}
    checked = commit(kernel, "main", [Unchanged(T)], base=made)
    assert kernel.diff_commits(made, checked) == {}
    branch(kernel, "dev")
    assert places(kernel, "dev") == {"t": "1"}
