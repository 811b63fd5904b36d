"""Merges one by one: what each way to merge a key does, what is recorded, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.errors import (
    CommitNotFound,
    IdempotencyKeyReused,
    InvalidContent,
    InvalidRequest,
    MergeConflict,
    PenstockError,
    ReferenceChanged,
    ReferenceNotFound,
)
from penstock.kernel.kernel import Kernel
from penstock.kernel.three_way import MergeOptions
from penstock.model.commits import CommitMeta
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.content import CONTENT_MAX_BYTES, Namespace, Unknown
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.merges import KeyMerge, MergeMode, MergeResult
from penstock.model.nessie import DeltaTable, IcebergTable
from penstock.model.operations import Delete, Put
from penstock.model.references import Kind
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

META = CommitMeta(message="take over", authors=("ann",), committer="ci")
T = Key("t")


def _parted(main: object = 2, dev: object = 3) -> Kernel:
    """Both sides changed ``t``, and each one more table of its own."""
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1, same=1))
    branch(kernel, "dev")
    commit(kernel, "main", puts(t=main, m=1) if main is not None else deletes("t"))
    commit(kernel, "dev", puts(t=dev, d=1) if dev is not None else deletes("t"))
    return kernel


def _merge(kernel: Kernel, keys: dict[Key, KeyMerge] | None = None, **how: Any) -> MergeResult:
    default = how.pop("default", MergeMode.NORMAL)
    return kernel.merge(head(kernel, "dev"), "main", META, MergeOptions(keys or {}, default), **how)


def _refused(kernel: Kernel, keys: dict[Key, KeyMerge] | None = None, **how: Any) -> tuple[Conflict, ...]:
    before = stored(kernel.store)
    with pytest.raises(MergeConflict) as refused:
        _merge(kernel, keys, **how)
    assert stored(kernel.store) == before
    assert _merge(kernel, keys, **how, dry_run=True).conflicts == refused.value.conflicts
    return refused.value.conflicts


def test_a_merge_is_one_commit_that_records_both_sides() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    branch(kernel, "dev")
    before = commit(kernel, "main", puts(m=1))
    commit(kernel, "dev", puts(t=2))
    source = commit(kernel, "dev", puts(d=1))
    result = _merge(kernel)
    made = reopened(kernel).history.read_commit(head(kernel))
    assert (made.parent, made.further_parents) == (before, (source,))
    assert (made.message, made.authors, made.committer) == ("take over", ("ann",), "ci")
    assert result.commits == (head(kernel).hex(),) == (result.head,)
    assert (result.source, result.base) == (source.hex(), kernel.history.read_commit(before).parent.hex())
    assert {str(one.key): (one.before is None, one.conflict) for one in result.keys} == {
        "t": (False, None),
        "d": (True, None),
    }
    assert places(kernel) == {"d": "1", "m": "1", "t": "2"}
    (_, entry) = next(kernel.references.walk_log("main"))
    assert (entry.kind, entry.before, entry.after) == ("merge", before, head(kernel))


def test_both_sides_changing_a_key_is_a_conflict_that_tells_base_and_target() -> None:
    kernel = _parted()
    base, target = state(kernel, kernel.resolve_revision("main~1")[0])[T], state(kernel)[T]
    assert base.id is not None
    (conflict,) = _refused(kernel)
    assert (conflict.kind, conflict.key) == (ConflictKind.VALUE_DIFFERS, T)
    assert conflict.expected == f"ICEBERG_TABLE s3://lake/1 [{str(base.id)[:8]}]"
    assert conflict.found == f"ICEBERG_TABLE s3://lake/2 [{str(base.id)[:8]}]"
    assert target.id == base.id


def test_every_conflict_of_a_merge_is_told_at_once() -> None:
    kernel = new_kernel()
    commit(kernel, "main", [*puts(value=1, gone=1, type=1, id=1), Put(Key("ns"), Namespace())])
    branch(kernel, "dev")
    commit(kernel, "main", puts(value=2, added=2))
    commit(kernel, "main", deletes("gone", "ns"))
    commit(kernel, "main", [Delete(Key("type")), Put(Key("type"), DeltaTable())])
    commit(kernel, "main", [Delete(Key("id")), *puts(id=1)])
    commit(kernel, "dev", [*puts(value=3, added=3, gone=3, type=3, id=3), Put(Key("ns", "t"), table(1))])
    assert {(one.kind, str(one.key)) for one in _refused(kernel)} == {
        (ConflictKind.VALUE_DIFFERS, "value"),
        (ConflictKind.KEY_EXISTS, "added"),
        (ConflictKind.KEY_DOES_NOT_EXIST, "gone"),
        (ConflictKind.PAYLOAD_DIFFERS, "type"),
        (ConflictKind.CONTENT_ID_DIFFERS, "id"),
        (ConflictKind.NAMESPACE_ABSENT, "ns"),
    }


@pytest.mark.parametrize(("main", "dev"), [(2, None), (None, 3), (2, 3)])
def test_force_takes_the_source_and_drop_keeps_the_target(main: object, dev: object) -> None:
    for mode, side in ((MergeMode.FORCE, "dev"), (MergeMode.DROP, "main")):
        kernel = _parted(main, dev)
        expected = state(kernel, side).get(T)
        _merge(kernel, {T: KeyMerge(mode=mode)})
        assert state(kernel).get(T) == expected
        assert _merge(kernel).commits == ()


def test_a_default_mode_holds_for_every_key_that_has_none_of_its_own() -> None:
    kernel = _parted()
    result = _merge(kernel, {T: KeyMerge(mode=MergeMode.FORCE)}, default=MergeMode.DROP)
    assert places(kernel) == {"t": "3", "m": "1", "same": "1"}
    assert {str(one.key): one.mode for one in result.keys} == {"t": MergeMode.FORCE, "d": MergeMode.DROP}


@pytest.mark.parametrize("given", [table(9), large_table(9, 300_000), large_table(9, 1_500)])
def test_a_given_content_settles_a_conflict_under_the_targets_id(given: IcebergTable) -> None:
    kernel = _parted()
    identity = state(kernel)[T].id
    preview = _merge(kernel, {T: KeyMerge(content=given)}, dry_run=True)
    assert preview.conflicts == ()
    result = _merge(kernel, {T: KeyMerge(content=given)})
    expected = msgspec.structs.replace(given, id=identity)
    assert state(reopened(kernel))[T] == expected
    assert {one.key: one.after for one in result.keys}[T] == expected
    assert "d" in places(kernel)


def test_a_given_content_of_another_type_is_another_content() -> None:
    kernel = _parted()
    target = state(kernel)[T].id
    given = DeltaTable(metadata_location_history=("x",))
    (conflict,) = _refused(kernel, {T: KeyMerge(content=msgspec.structs.replace(given, id=target))})
    assert (conflict.kind, conflict.key) == (ConflictKind.PAYLOAD_DIFFERS, T)
    _merge(kernel, {T: KeyMerge(content=given)})
    assert state(kernel)[T].type == "DELTA_LAKE_TABLE"
    assert state(kernel)[T].id not in (None, target)


def test_a_given_content_for_a_key_that_the_target_has_not_gets_an_id() -> None:
    kernel = _parted(main=None)
    _merge(kernel, {T: KeyMerge(content=table(9))})
    assert state(kernel)[T].id is not None


@pytest.mark.parametrize(
    "given",
    [
        IcebergTable(metadata_location="x" * (CONTENT_MAX_BYTES + 1)),
        IcebergTable(metadata_location="\ud800"),
        IcebergTable(metadata_location=7),  # type: ignore[arg-type]
        Unknown(type_name=""),
    ],
)
def test_a_given_content_that_cannot_be_stored_is_refused_and_costs_nobody_anything(given: Any) -> None:
    kernel = _parted()
    before = stored(kernel.store)
    with pytest.raises(InvalidContent):
        _merge(kernel, {T: KeyMerge(content=given)})
    assert stored(kernel.store) == before
    commit(kernel, "main", puts(after=1))
    assert places(reopened(kernel)) == {"t": "2", "m": "1", "same": "1", "after": "1"}


def test_an_expected_target_is_met_or_told() -> None:
    kernel = _parted()
    found = state(kernel)[T]
    force = MergeMode.FORCE
    wrong = table(99)
    (conflict,) = _refused(kernel, {T: KeyMerge(mode=force, expected=wrong)})
    assert (conflict.kind, conflict.key) == (ConflictKind.CONTENT_ID_DIFFERS, T)
    (conflict,) = _refused(
        kernel, {T: KeyMerge(mode=force, expected=msgspec.structs.replace(wrong, id=found.id))}
    )
    assert conflict.kind is ConflictKind.VALUE_DIFFERS
    (conflict,) = _refused(kernel, {T: KeyMerge(mode=force, expect_absent=True)})
    assert conflict.kind is ConflictKind.KEY_EXISTS
    (conflict,) = _refused(kernel, {Key("d"): KeyMerge(expected=found), T: KeyMerge(mode=force)})
    assert (conflict.kind, conflict.key) == (ConflictKind.KEY_DOES_NOT_EXIST, Key("d"))
    _merge(kernel, {T: KeyMerge(mode=force, expected=found), Key("d"): KeyMerge(expect_absent=True)})
    assert places(kernel)["t"] == "3"


def test_a_way_to_merge_a_key_that_is_not_part_of_the_merge_is_refused() -> None:
    kernel = _parted()
    before = stored(kernel.store)
    for dry_run in (True, False):
        for name in ("same", "m", "nowhere"):
            keys = {Key(name): KeyMerge(), T: KeyMerge(mode=MergeMode.FORCE)}
            with pytest.raises(InvalidRequest, match=name):
                _merge(kernel, keys, dry_run=dry_run)
    assert stored(kernel.store) == before


def test_an_if_head_refuses_a_target_that_moved() -> None:
    kernel = _parted()
    seen = head(kernel)
    commit(kernel, "main", puts(moved=1))
    before = stored(kernel.store)
    for dry_run in (True, False):
        with pytest.raises(ReferenceChanged) as refused:
            _merge(kernel, default=MergeMode.FORCE, if_head=seen, dry_run=dry_run)
        assert refused.value.details["expected"] == seen.hex()
    assert stored(kernel.store) == before
    assert _merge(kernel, default=MergeMode.FORCE, if_head=head(kernel)).commits


def test_namespaces_made_on_both_sides_are_one_with_the_properties_of_both() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    branch(kernel, "dev")
    ns = Key("ns")
    commit(
        kernel,
        "main",
        [Put(ns, Namespace(properties={"main": "1", "both": "b"})), Put(Key("ns", "a"), table(1))],
    )
    commit(
        kernel,
        "dev",
        [Put(ns, Namespace(properties={"dev": "1", "both": "b"})), Put(Key("ns", "b"), table(1))],
    )
    kept = state(kernel)[ns].id
    _merge(kernel)
    assert state(kernel)[ns] == Namespace(id=kept, properties={"main": "1", "dev": "1", "both": "b"})
    assert list(places(kernel)) == ["ns", "ns.a", "ns.b", "t"]

    commit(kernel, "dev", [Put(ns, Namespace(properties={"both": "b", "later": "1"}))])
    _merge(kernel)
    assert state(kernel)[ns] == Namespace(id=kept, properties={"main": "1", "both": "b", "later": "1"})


NS = Key("ns")
PROPERTIES = {"location": "s3://root", "owner": "ada"}


def _set(kernel: Kernel, name: str, **properties: str | None) -> ObjectId:
    """Change some properties of the namespace on a branch; ``None`` removes one."""
    held = state(kernel, name).get(NS, Namespace())
    assert isinstance(held, Namespace)
    merged = {**held.properties, **properties}
    kept = {name: value for name, value in merged.items() if value is not None}
    return commit(kernel, name, [Put(NS, Namespace(properties=kept))])


def _with_namespace(*, is_new: bool = False) -> Kernel:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1) if is_new else [Put(NS, Namespace(properties=PROPERTIES))])
    branch(kernel, "dev")
    return kernel


def _properties(kernel: Kernel, name: str = "main") -> dict[str, str]:
    held = state(kernel, name)[NS]
    assert isinstance(held, Namespace)
    return held.properties


@pytest.mark.parametrize(
    ("is_new", "main", "dev"),
    [
        (False, "s3://main", "s3://dev"),
        (False, None, "s3://dev"),
        (False, "s3://main", None),
        (True, "s3://main", "s3://dev"),
    ],
    ids=["changed", "removed on the target", "removed on the source", "new"],
)
def test_a_property_of_a_namespace_that_both_sides_changed_is_a_conflict(
    is_new: bool, main: str | None, dev: str | None
) -> None:
    kernel = _with_namespace(is_new=is_new)
    _set(kernel, "main", location=main, kept="1")
    own = _set(kernel, "dev", location=dev, more="1")
    (conflict,) = _refused(kernel)
    assert conflict.kind is (ConflictKind.KEY_EXISTS if is_new else ConflictKind.VALUE_DIFFERS)
    assert conflict.reason == "has properties that were changed on both sides: 'location'"
    before = "" if is_new else "location=s3://root"
    assert (conflict.expected, conflict.found) == (before, f"location={main}" if main else "")

    def transplant(dry_run: bool) -> MergeResult:
        return kernel.transplant([own], "main", CommitMeta(), dry_run=dry_run)

    def rebase(dry_run: bool) -> MergeResult:
        return kernel.rebase("dev", head(kernel), CommitMeta(), dry_run=dry_run)

    for bring in (transplant, rebase):
        assert bring(True).conflicts == (conflict,)
        with pytest.raises(MergeConflict) as refused:
            bring(False)
        assert refused.value.conflicts == (conflict,)

    # The advice: the same value on both sides.
    _set(kernel, "dev", location=main)
    _merge(kernel)
    after = {} if is_new else {"owner": "ada"}
    assert _properties(kernel) == {**after, "kept": "1", "more": "1"} | ({"location": main} if main else {})


def test_a_revert_does_not_undo_a_property_that_was_changed_again() -> None:
    kernel = _with_namespace()
    undone = _set(kernel, "main", location="s3://wrong", more="1")
    _set(kernel, "main", location="s3://right")
    with pytest.raises(MergeConflict) as refused:
        kernel.revert(undone, "main", META)
    (conflict,) = refused.value.conflicts
    assert (conflict.expected, conflict.found) == ("location=s3://wrong", "location=s3://right")
    assert kernel.revert(undone, "main", META, dry_run=True).conflicts == (conflict,)
    _set(kernel, "main", location="s3://wrong", owner="grace")
    kernel.revert(undone, "main", META)
    assert _properties(kernel) == {"location": "s3://root", "owner": "grace"}


def test_properties_that_one_side_changed_are_merged_after_merges_crossed() -> None:
    """The common ancestors differ in the namespace, but only one of them changed each property."""
    kernel = _with_namespace()
    one, other = _set(kernel, "main", m="1", both="m"), _set(kernel, "dev", d="1", owner=None)
    kernel.merge(other, "main", META)
    kernel.merge(one, "dev", META)
    assert (
        _properties(kernel)
        == _properties(kernel, "dev")
        == {
            "location": "s3://root",
            "m": "1",
            "d": "1",
            "both": "m",
        }
    )
    _set(kernel, "dev", location=None, new="1")
    _merge(kernel)
    assert _properties(kernel) == {"m": "1", "d": "1", "both": "m", "new": "1"}


def test_a_property_on_which_the_common_ancestors_do_not_agree_is_a_conflict_where_the_sides_differ() -> None:
    kernel = _with_namespace()
    one, other = _set(kernel, "main", both="m"), _set(kernel, "dev", both="d")
    for source, target in ((other, "main"), (one, "dev")):
        kernel.merge(source, target, META, MergeOptions({NS: KeyMerge(mode=MergeMode.DROP)}))
    _set(kernel, "dev", more="1")
    (conflict,) = _refused(kernel)
    assert conflict.reason == "has properties that were changed on both sides: 'both'"
    _set(kernel, "dev", both="m")
    _merge(kernel)
    assert _properties(kernel) == PROPERTIES | {"both": "m", "more": "1"}


def test_a_merge_may_not_leave_a_table_without_its_namespace_k6() -> None:
    ns, inside = Key("ns"), Key("ns", "t")
    for emptying, filling in (("main", "dev"), ("dev", "main")):
        kernel = new_kernel()
        commit(kernel, "main", [Put(ns, Namespace()), *puts(t=1)])
        branch(kernel, "dev")
        commit(kernel, emptying, [Delete(ns)])
        commit(kernel, filling, [Put(inside, table(1))])
        kind = ConflictKind.NAMESPACE_ABSENT if emptying == "main" else ConflictKind.NAMESPACE_NOT_EMPTY
        assert [(one.kind, one.key) for one in _refused(kernel)] == [(kind, ns)]
        if emptying == "main":
            _merge(kernel, {inside: KeyMerge(mode=MergeMode.DROP)})
            assert places(kernel) == {"t": "1"}
        else:
            _merge(kernel, {ns: KeyMerge(mode=MergeMode.DROP)})
            assert places(kernel) == {"ns": "NAMESPACE", "ns.t": "1", "t": "1"}


def test_a_merge_may_not_put_a_table_below_a_table_k6() -> None:
    kernel = new_kernel()
    commit(kernel, "main", [Put(Key("x"), Namespace())])
    branch(kernel, "dev")
    commit(kernel, "main", [Delete(Key("x")), Put(Key("x"), table(1))])
    commit(kernel, "dev", [Put(Key("x", "t"), table(1))])
    assert [(one.kind, str(one.key)) for one in _refused(kernel)] == [(ConflictKind.NOT_A_NAMESPACE, "x")]


def test_a_rename_is_merged_as_a_whole() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(old=1, t=1))
    branch(kernel, "dev")
    content = state(kernel)[Key("old")]
    commit(kernel, "dev", [Delete(Key("old")), Put(Key("new"), content)])
    _merge(kernel)
    assert state(kernel).get(Key("new")) == content
    assert Key("old") not in state(kernel)


def test_equal_changes_on_both_sides_are_no_conflict() -> None:
    kernel = _parted(5, 5)
    result = _merge(kernel)
    assert places(kernel) == {"t": "5", "m": "1", "d": "1", "same": "1"}
    assert result.conflicts == ()


def test_a_source_that_the_branch_has_already_is_nothing_to_do() -> None:
    kernel = _parted()
    before = stored(kernel.store)
    for source in (head(kernel), kernel.resolve_revision("main~1")[0], NO_COMMIT):
        result = kernel.merge(source, "main", META)
        assert (result.commits, result.keys, result.head) == ((), (), head(kernel).hex())
    assert stored(kernel.store) == before


def test_a_source_that_took_back_all_that_it_changed_is_nothing_to_merge() -> None:
    kernel = new_kernel()
    commit(kernel, "main", puts(t=1))
    branch(kernel, "dev")
    commit(kernel, "dev", puts(t=2, u=1))
    commit(kernel, "dev", [*puts(t=1), *deletes("u")])
    commit(kernel, "main", puts(t=3))
    before = stored(kernel.store)
    for dry_run in (True, False):
        result = _merge(kernel, dry_run=dry_run)
        assert (result.applied, result.commits, result.head) == (False, (), head(kernel).hex())
    assert stored(kernel.store) == before
    commit(kernel, "dev", puts(u=2))
    assert _merge(kernel).applied
    assert places(kernel) == {"t": "3", "u": "2"}


def test_a_merge_that_takes_nothing_is_recorded_so_that_it_is_not_brought_again() -> None:
    kernel = _parted()
    _merge(kernel, default=MergeMode.DROP)
    assert _merge(kernel).commits == ()
    assert places(kernel)["t"] == "2"


def test_large_contents_merge_and_conflict_like_small_ones() -> None:
    kernel = new_kernel()
    commit(kernel, "main", [Put(T, large_table(1)), Put(Key("u"), large_table(1, 600_000))])
    branch(kernel, "dev")
    commit(kernel, "main", [Put(T, large_table(2))])
    commit(kernel, "dev", [Put(T, large_table(3)), Put(Key("u"), large_table(3, 600_000))])
    assert [one.kind for one in _refused(kernel)] == [ConflictKind.VALUE_DIFFERS]
    _merge(kernel, {T: KeyMerge(mode=MergeMode.FORCE)})
    assert state(reopened(kernel)) == state(kernel, "dev")


def test_a_repeated_merge_is_answered_by_what_the_first_one_did() -> None:
    kernel = _parted()
    source = head(kernel, "dev")
    options = MergeOptions(default=MergeMode.FORCE)
    first = kernel.merge(source, "main", META, options, key="once")
    commit(kernel, "main", puts(after=1))
    again = reopened(kernel).merge(source, "main", META, options, key="once")
    assert again.commits == first.commits
    with pytest.raises(IdempotencyKeyReused):
        kernel.merge(source, "main", META, MergeOptions(default=MergeMode.DROP), key="once")


@pytest.mark.parametrize(
    ("source", "into", "error"),
    [
        (b"x" * 32, "main", CommitNotFound),
        (None, "nowhere", ReferenceNotFound),
        (None, "v1", InvalidRequest),
    ],
)
def test_merges_of_and_into_what_does_not_exist_are_refused(
    source: ObjectId | None, into: str, error: type[PenstockError]
) -> None:
    kernel = _parted()
    kernel.references.create_reference("v1", Kind.TAG, head(kernel))
    before = stored(kernel.store)
    for dry_run in (True, False):
        with pytest.raises(error):
            kernel.merge(source or head(kernel, "dev"), into, META, dry_run=dry_run)
    assert stored(kernel.store) == before
