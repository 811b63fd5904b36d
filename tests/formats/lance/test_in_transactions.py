"""A transaction goes on in the chain that it lands in, and lands as it is if nobody overtook it (L1, L2)."""

from __future__ import annotations

import pytest

from penstock import Key, Lake
from penstock.errors import MergeConflict
from penstock.lake.lance.calls import CommitLance, PutLanceBranch, PutLanceTag
from tests.formats.lance.tables import delete, keys_of, keys_seen, newest, opened, state, versions, write

ITEMS = Key("items")


def test_l1_all_versions_of_a_transaction_land_as_they_are(forked: Lake) -> None:
    with forked.transaction() as transaction:
        write(forked, transaction.branch, 6)
        delete(forked, transaction.branch, 1)
        opened(forked, transaction.branch).update({"v": "0.5"}, where="k = 2")
        inside = versions(forked, transaction.branch)
        assert keys_of(forked) == keys_seen(forked) == [1, 2, 3, 4, 5]
        wanted = dict(inside.all())
    assert dict(versions(forked).all()) == wanted
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
def test_an_update_in_a_transaction_that_was_overtaken_is_refused(forked: Lake, policy: str) -> None:
    transaction = forked.transaction(policy=policy)
    opened(forked, transaction.branch).update({"v": "0.5"}, where="k = 2")
    write(forked, "main", 20)
    with pytest.raises(MergeConflict):
        transaction.commit()
    assert keys_seen(forked) == [1, 2, 3, 4, 5, 20]
    assert opened(forked).to_table(filter="v = 0.5").num_rows == 0


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
    assert set(versions(forked).tags()) == {"t"}


def test_l2_one_of_lances_own_branches_that_both_wrote_to_is_grafted(forked: Lake) -> None:
    import lance

    forked.do(CommitLance(operations=(PutLanceBranch(key=ITEMS, branch="exp"),)))
    with forked.transaction(policy="rebase") as transaction:
        for ref in (transaction.branch, "main"):
            exp = opened(forked, ref).checkout_version(("exp", None))
            lance.write_dataset(exp.to_table().slice(0, 1), exp, mode="append")
    assert opened(forked).checkout_version(("exp", None)).count_rows() == 7
    found = versions(forked).newest("exp")
    assert found is not None
    assert found[0] == 4


def test_a_table_that_a_transaction_makes_is_there_with_all_its_versions(lake: Lake) -> None:
    with lake.transaction() as transaction:
        write(lake, transaction.branch, 1, mode="create")
        write(lake, transaction.branch, 2)
    assert (newest(lake)[0], keys_seen(lake)) == (2, [1, 2])
