"""What a transaction has read of a Lance table is all of it: whatever others change there matters."""

from __future__ import annotations

from uuid import uuid4

import pytest

from penstock import Key, Lake
from penstock.errors import MergeConflict
from penstock.kernel.transactions import Transactions
from penstock.model.commits import CommitMeta
from penstock.model.reads import Read
from penstock.model.transactions import Isolation
from tests.formats.lance.tables import delete, keys_seen, write

ITEMS = Key("items")


@pytest.mark.parametrize(
    ("isolation", "reads"),
    [(Isolation.SNAPSHOT, False), (Isolation.SNAPSHOT, True), (Isolation.SERIALIZABLE, True)],
)
def test_a_table_that_was_read_and_appended_to_must_be_as_it_was(
    forked: Lake, isolation: Isolation, reads: bool
) -> None:
    transactions = Transactions(forked.kernel)
    known = transactions.begin_transaction(uuid4().hex, "main", isolation=isolation)
    if reads:
        transactions.note_reads(known.transaction.id, [Read(key=ITEMS)])
    write(forked, known.transaction.branch, 6)
    delete(forked, "main", 1)
    if reads:
        with pytest.raises(
            MergeConflict,
            match="'items' was read by this transaction, but was changed by another writer since",
        ):
            transactions.commit_transaction(known.transaction.id, CommitMeta())
    else:
        transactions.commit_transaction(known.transaction.id, CommitMeta())
    assert keys_seen(forked) == ([2, 3, 4, 5] if reads else [2, 3, 4, 5, 6])
