"""A transaction goes on in the chain that it lands in, and lands as it is if nobody overtook it (L1, L2).

Where its target has moved on it has a line of its own, and lands as a branch does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock import Key, Lake
from penstock.errors import MergeConflict
from penstock.formats.lance.lake.calls import CommitLance, PromoteLance, PutLanceBranch, PutLanceTag
from tests.formats.lance.tables import (
    content,
    delete,
    keys_of,
    keys_seen,
    manifest,
    newest,
    opened,
    rows,
    state,
    versions,
    write,
)

ITEMS = Key("items")


def test_l1_all_versions_of_a_transaction_land_as_they_are(forked: Lake) -> None:
    with forked.transaction() as transaction:
        write(forked, transaction.branch, 6)
        delete(forked, transaction.branch, 1)
        opened(forked, transaction.branch).update({"v": "0.5"}, where="k = 2")
        inside = versions(forked, transaction.branch)
        assert keys_of(forked) == keys_seen(forked) == [1, 2, 3, 4, 5]
        wanted = dict(inside.list_versions())
    assert dict(versions(forked).list_versions()) == wanted
    assert (newest(forked)[0], keys_seen(forked)) == (5, [2, 3, 4, 5, 6])


def test_l1_a_transaction_on_a_branch_lands_in_that_branchs_line(forked: Lake) -> None:
    with forked.transaction("dev") as transaction:
        write(forked, transaction.branch, 6)
    assert state(forked, "dev").owner == forked.kernel.branch("dev").incarnation
    write(forked, "dev", 7)
    assert keys_of(forked, "dev") == [1, 2, 3, 4, 5, 6, 7]
    assert keys_of(forked) == [1, 2, 3, 4, 5]


def test_a_transaction_that_was_overtaken_is_grafted_if_it_may_be(forked: Lake) -> None:
    with forked.transaction(policy="rebase") as transaction:
        write(forked, transaction.branch, 6)
        delete(forked, transaction.branch, 6)
        write(forked, transaction.branch, 7)
        delete(forked, transaction.branch, 4)
        write(forked, "main", 20)
    assert (newest(forked)[0], keys_seen(forked)) == (4, [1, 2, 3, 5, 7, 20])


@pytest.mark.parametrize("policy", ["rebase", "snapshot"])
def test_an_update_of_rows_that_others_changed_meanwhile_is_refused(forked: Lake, policy: str) -> None:
    transaction = forked.transaction(policy=policy)
    opened(forked, transaction.branch).update({"v": "0.5"}, where="k = 2")
    opened(forked).update({"v": "1.5"}, where="k = 2")
    with pytest.raises(MergeConflict):
        transaction.land()
    assert keys_seen(forked) == [1, 2, 3, 4, 5]
    assert opened(forked).to_table(filter="v = 0.5").num_rows == 0


def test_an_update_of_rows_that_nobody_else_changed_lands(forked: Lake) -> None:
    with forked.transaction(policy="rebase") as transaction:
        opened(forked, transaction.branch).update({"v": "0.5"}, where="k = 2")
        write(forked, "main", 20)
        delete(forked, "main", 1)
    assert keys_seen(forked) == [2, 3, 4, 5, 20]
    assert opened(forked).to_table(filter="v = 0.5")["k"].to_pylist() == [2]


def test_a_merge_insert_in_a_transaction_is_not_put_on_top_of_rows_that_came_meanwhile(forked: Lake) -> None:
    """They may be those that it inserted, because it found none."""
    transaction = forked.transaction(policy="rebase")
    merging = opened(forked, transaction.branch).merge_insert("k")
    merging.when_matched_update_all().when_not_matched_insert_all().execute(rows(20))
    write(forked, "main", 20)
    with pytest.raises(MergeConflict, match="by a merge insert"):
        transaction.land()
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 20]


def test_l2_lances_own_branches_conflict_one_by_one(forked: Lake) -> None:
    """Versions that were written to different ones come together as they are."""
    forked.do(CommitLance(operations=(PutLanceBranch(key=ITEMS, branch="exp"),)))
    with forked.transaction(policy="rebase") as transaction:
        import lance

        exp = opened(forked, transaction.branch).checkout_version(("exp", None))
        lance.write_dataset(exp.to_table().slice(0, 1), exp, mode="append")
        write(forked, "main", 20)
        forked.do(CommitLance(operations=(PutLanceTag(key=ITEMS, tag_name="t", version=1),)))
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 20]
    assert opened(forked).checkout_version(("exp", None)).count_rows() == 6
    assert set(versions(forked).list_tags()) == {"t"}


def test_l2_one_of_lances_own_branches_that_both_wrote_to_is_grafted(forked: Lake) -> None:
    import lance

    forked.do(CommitLance(operations=(PutLanceBranch(key=ITEMS, branch="exp"),)))
    with forked.transaction(policy="rebase") as transaction:
        for ref in (transaction.branch, "main"):
            exp = opened(forked, ref).checkout_version(("exp", None))
            lance.write_dataset(exp.to_table().slice(0, 1), exp, mode="append")
    assert opened(forked).checkout_version(("exp", None)).count_rows() == 7
    found = versions(forked).find_newest("exp")
    assert found is not None
    assert found[0] == 4


def test_a_table_that_a_transaction_makes_is_there_with_all_its_versions(lake: Lake) -> None:
    with lake.transaction() as transaction:
        write(lake, transaction.branch, 1, mode="create")
        write(lake, transaction.branch, 2)
    assert (newest(lake)[0], keys_seen(lake)) == (2, [1, 2])


# -- whose target has moved on before it writes ------------------------------------------------------------


def moved_on(lake: Lake, *keys: int, branch: str = "main") -> None:
    """Others write to a table, and their versions are where Lance looks."""
    for key in keys:
        write(lake, branch, key)
    lake.do(PromoteLance(key=ITEMS, branch=branch))


@pytest.mark.parametrize("target", ["main", "dev"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_transaction_writes_first_to_a_table_that_has_moved_on(
    forked: Lake, target: str, count: int
) -> None:
    """It sees the table as it was, and what it did comes on top of what others did."""
    write(forked, "dev", 9)
    before, others = keys_of(forked, target), [*range(20, 20 + count)]
    with forked.transaction(target) as transaction:
        moved_on(forked, *others, branch=target)
        write(forked, transaction.branch, 6)
        assert keys_of(forked, transaction.branch) == sorted([*before, 6])
        delete(forked, transaction.branch, 4)
        assert newest(forked, transaction.branch)[0] == newest(forked, target)[0] + 2 - count
    assert keys_of(forked, target) == sorted({*before, 6, *others} - {4})
    write(forked, target, 7)
    assert 7 in keys_of(forked, target)


@pytest.mark.parametrize("target", ["main", "dev"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_transaction_writes_on_after_its_table_has_moved_on(forked: Lake, target: str, count: int) -> None:
    write(forked, "dev", 9)
    before, others = keys_of(forked, target), [*range(20, 20 + count)]
    with forked.transaction(target) as transaction:
        write(forked, transaction.branch, 6)
        moved_on(forked, *others, branch=target)
        write(forked, transaction.branch, 7)
        moved_on(forked, 30, branch=target)
        delete(forked, transaction.branch, 6, 4)
        write(forked, transaction.branch, 8)
        assert keys_of(forked, transaction.branch) == sorted({*before, 7, 8} - {4})
    assert keys_of(forked, target) == sorted({*before, 7, 8, *others, 30} - {4})


def test_a_transaction_that_nobody_overtook_has_no_line(forked: Lake) -> None:
    with forked.transaction() as transaction:
        write(forked, transaction.branch, 6)
        assert (state(forked, transaction.branch).chain, state(forked, transaction.branch).owner) == ("", b"")
    assert manifest(forked).bases == ()


def test_two_transactions_of_one_table_that_has_moved_on_both_land(forked: Lake) -> None:
    with forked.transaction() as one, forked.transaction() as other:
        moved_on(forked, 20)
        for transaction, key in ((one, 6), (other, 7), (one, 8)):
            write(forked, transaction.branch, key)
        assert state(forked, one.branch).chain != state(forked, other.branch).chain
        assert keys_of(forked, one.branch) == [1, 2, 3, 4, 5, 6, 8]
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 6, 7, 8, 20]
    assert keys_of(forked) == [1, 2, 3, 4, 5, 6, 7, 8, 20]


def test_a_transaction_with_the_policy_snapshot_is_refused_when_it_lands_and_not_before(
    forked: Lake,
) -> None:
    transaction = forked.transaction(policy="snapshot")
    moved_on(forked, 20)
    opened(forked, transaction.branch).update({"v": "0.5"}, where="k = 2")
    with pytest.raises(MergeConflict, match="changed on both sides"):
        transaction.land()
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 20]


def test_a_handle_from_before_the_table_moved_on_is_refused_and_a_new_one_is_not(forked: Lake) -> None:
    """Lance would put its rows on top of what it finds in the folder, which the transaction must not see."""
    import lance

    with forked.transaction() as transaction:
        stale = opened(forked, transaction.branch)
        moved_on(forked, 20)
        with pytest.raises(OSError, match="unknown"):
            lance.write_dataset(rows(6), stale, mode="append")
        assert keys_of(forked, transaction.branch) == [1, 2, 3, 4, 5]
        write(forked, transaction.branch, 6)
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 6, 20]


def test_what_a_transaction_did_to_lances_own_branch_lands_from_its_line(forked: Lake) -> None:
    def exp(ref: str) -> Any:
        return opened(forked, ref).checkout_version(("exp", None))

    forked.do(CommitLance(operations=(PutLanceBranch(key=ITEMS, branch="exp"),)))
    for key in (6, 7):
        with forked.transaction() as transaction:
            moved_on(forked, 20 + key)
            exp(transaction.branch).insert(rows(key))
    assert sorted(exp("main").to_table()["k"].to_pylist()) == [1, 2, 3, 4, 5, 6, 7]
    exp("main").delete("k = 6")
    assert sorted(exp("main").to_table()["k"].to_pylist()) == [1, 2, 3, 4, 5, 7]
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 26, 27]


def swept(lake: Lake) -> None:
    """Remove whatever nothing needs, as if all of it had been written long ago."""
    lake.finish_background()
    for file in Path(content(lake).location).rglob("*"):
        os.utime(file, (0, 0))
    (done,) = lake.sweep_tables(remove_data=True)
    assert done.problem == ""


def test_a_sweep_leaves_the_line_of_an_open_transaction_and_what_landed_of_it(lake: Lake) -> None:
    write(lake, "main", 1, mode="create")
    with lake.transaction() as transaction:
        moved_on(lake, 20)
        write(lake, transaction.branch, 6)
        swept(lake)
        write(lake, transaction.branch, 7)
        assert keys_of(lake, transaction.branch) == [1, 6, 7]
    swept(lake)
    assert keys_seen(lake) == [1, 6, 7, 20]
