"""Lakes with transactions, for tests: a kernel over any store, a clock that is set, and short words."""

from __future__ import annotations

from uuid import uuid4

from penstock.errors import LakeExists, ReferenceExists
from penstock.kernel.description import make_description, write_description
from penstock.kernel.kernel import Kernel
from penstock.kernel.objects import read_content
from penstock.kernel.settings import Settings
from penstock.kernel.transactions import TransactionRecord, Transactions
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.model.operations import Delete, Put
from penstock.model.references import Kind
from penstock.model.transactions import Isolation, Policy
from penstock.stores.port import Store
from penstock.testing.journal import JournalFormat

START_US = 1_700_000_000_000_000
MINUTE_US = 60_000_000
QUICK = Settings(write_timeout_s=5.0, backoff_max_ms=5.0)


class Clock:
    """Goes on by a microsecond each time, and further when it is told."""

    def __init__(self) -> None:
        self.us = START_US

    def __call__(self) -> int:
        self.us += 1
        return self.us


class Process:
    """A process of its own on a store: nothing in its memory is anybody else's."""

    def __init__(self, store: Store, clock: Clock, settings: Settings = QUICK) -> None:
        self.kernel = Kernel(store, [JournalFormat()], settings, clock)
        self.transactions = Transactions(self.kernel)
        self.clock = clock
        try:
            self.kernel.references.create_reference("main", Kind.BRANCH, NO_COMMIT)
            write_description(store, make_description(clock(), "main", "", ()))
        except (ReferenceExists, LakeExists):
            pass

    def begin(
        self,
        *,
        policy: Policy = Policy.SNAPSHOT,
        isolation: Isolation = Isolation.SNAPSHOT,
        target: str = "main",
    ) -> TransactionRecord:
        return self.transactions.begin_transaction(
            uuid4().hex, target, policy=policy, isolation=isolation, who="ann", message="nightly"
        )

    def put(self, branch: str, key: str, number: int) -> ObjectId:
        before = self.get(branch, key)
        content = IcebergTable(
            id=None if before is None else before.id, metadata_location=f"s3://b/{number}", snapshot_id=number
        )
        said = CommitMeta(message=f"{key} = {number}")
        return self.kernel.commit(branch, [Put(Key.parse(key), content)], said).head

    def delete(self, branch: str, key: str) -> None:
        self.kernel.commit(branch, [Delete(Key.parse(key))])

    def get(self, branch: str, key: str) -> IcebergTable | None:
        state = self.kernel.read_state(self.kernel.references.get_reference(branch).head)
        found = read_content(self.kernel.objects, state.get(Key.parse(key).encode()))
        assert found is None or isinstance(found, IcebergTable)
        return found

    def number(self, key: str, branch: str = "main") -> int | None:
        """What a table is at: the number that was put last."""
        found = self.get(branch, key)
        return None if found is None else found.snapshot_id

    def commit(self, known: TransactionRecord, message: str = "landed") -> TransactionRecord:
        return self.transactions.commit_transaction(known.transaction.id, CommitMeta(message=message))

    def head(self, branch: str = "main") -> ObjectId:
        return self.kernel.references.get_reference(branch).head
