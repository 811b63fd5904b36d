"""DynamoDB: one table, which nobody has to run.

An advance is one transaction of DynamoDB: its objects, the row and its place in the listing, all or nothing,
in one round trip. What does not fit into one (100 items, 4 MB) is stored by others before it, so that this
store is of the key-value family: objects first, then one swap, which can be lost.

Every transaction carries a token, by which DynamoDB answers its repetition as it answered it the first time,
and every row a write id, by which a swap is found again. Reads are strongly consistent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from secrets import token_hex
from typing import Final

from penstock.errors import (
    InvalidRequest,
    OutcomeUnknown,
    PenstockError,
    Unavailable,
)
from penstock.model.clock import Clock, now_us
from penstock.model.encoding import ObjectId
from penstock.stores.checks import check_sizes, check_version
from penstock.stores.dynamodb_items import (
    ITEM_MAX_BYTES,
    KIND,
    LAKE,
    LAST,
    OBJECT,
    ROW,
    DynamoAction,
    Item,
    create_object,
    decode_object,
    decode_object_id,
    decode_row,
    delete_object,
    encode_key,
    encode_object_key,
    get_writer,
    group_into_transactions,
    put_if_absent,
    store_object,
    swap_row,
)
from penstock.stores.dynamodb_wire import DynamoTable
from penstock.stores.port import AdvanceResult, Row, Store, StoredObject, Turn

SCHEMA_VERSION: Final = 1


class DynamoStore(Store):
    """A lake in one DynamoDB table: ``dynamodb://table?region=…&endpoint=…``.

    Credentials come by the usual ways of AWS (environment, profile, role), never by the URL.
    """

    def __init__(self, url: str, *, create: bool = True, clock: Clock = now_us) -> None:
        self._table = DynamoTable(url)
        self.url = self._table.url
        self._clock = clock
        try:
            self._create_or_check_table(create)
        except BaseException:
            self.close()
            raise

    # -- the table -------------------------------------------------------------------------------------------

    def _create_or_check_table(self, create: bool) -> None:
        """Make the table and its mark, once, whoever comes first; refuse what is not ours or too new."""
        if create:
            self._table.create_table()
        version = self._read_version()
        if version is None and create:
            self._write_mark()
            version = self._read_version()
        check_version(self.url, version, SCHEMA_VERSION)

    def _read_version(self) -> int | None:
        """The version in the lake's mark; ``None`` if the table has no mark."""
        try:
            mark = self._table.get_one(LAKE)
        except InvalidRequest:
            raise InvalidRequest(
                f"{self.url} is a DynamoDB table with other key columns than those of a lake"
            ) from None
        return int(mark["schema_version"]["N"]) if mark else None

    def _write_mark(self) -> None:
        """Mark an empty table as a lake's. One that holds something may just have been marked by another."""
        items = self._table.scan(Limit=1)["Items"]
        if items and self._read_version() is None:
            raise InvalidRequest(f"{self.url} is a DynamoDB table that holds other data than a lake")
        self._table.write_transaction(
            [put_if_absent(encode_key(LAKE) | {"schema_version": {"N": str(SCHEMA_VERSION)}})]
        )

    # -- objects ---------------------------------------------------------------------------------------------

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        self._table.check_open()
        items = self._table.get_items([encode_object_key(object_id) for object_id in ids], "object_data")
        return {decode_object_id(pk): item["object_data"]["B"] for pk, item in items.items()}

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        self._table.check_open()
        check_sizes(objects, None, ITEM_MAX_BYTES, "DynamoDB")
        now_us = self._clock()
        self._write_actions([store_object(object_id, data, now_us) for object_id, data in objects.items()])

    def _write_actions(self, actions: Sequence[DynamoAction]) -> None:
        """Carry out actions without conditions, in as many transactions as they need."""
        try:
            self._table.map_at_once(self._table.write_transaction, group_into_transactions(actions))
        except OutcomeUnknown as unknown:
            raise Unavailable(str(unknown)) from unknown  # objects bear to be stored again

    def _create_all(self, actions: list[DynamoAction], write_id: str) -> bool:
        """Store fresh objects, all or none of them; whether they are stored."""
        try:
            refused = self._table.write_transaction(actions)
        except OutcomeUnknown as unknown:
            raise Unavailable(str(unknown)) from unknown  # of objects: no row was swapped
        return refused is None or all(get_writer(item) == write_id for item in refused.found.values())

    def scan(self, after: bytes, limit: int) -> tuple[list[StoredObject], bytes]:
        objects: list[StoredObject] = []
        token = after
        while not objects:  # a page can consist of rows alone
            start = {"ExclusiveStartKey": encode_key(*token.decode().split("\n"))} if token else {}
            page = self._table.scan(
                ProjectionExpression="pk, referenced_us, object_bytes", Limit=limit, **start
            )
            objects = [decode_object(item) for item in page["Items"] if item["pk"]["S"].startswith(OBJECT)]
            last = page.get("LastEvaluatedKey")
            if not last:
                return objects, b""
            token = f"{last['pk']['S']}\n{last['sk']['S']}".encode()
        return objects, token

    def delete(self, objects: Sequence[StoredObject]) -> int:
        self._table.check_open()
        try:
            return sum(
                self._table.map_at_once(
                    self._delete_items, group_into_transactions(map(delete_object, objects))
                )
            )
        except OutcomeUnknown as unknown:
            raise Unavailable(str(unknown)) from unknown

    def _delete_items(self, actions: list[DynamoAction]) -> int:
        while actions:
            refused = self._table.write_transaction(actions)
            if refused is None:
                break
            actions = [action for number, action in enumerate(actions) if number not in refused.found]
        return len(actions)

    def erase(self) -> None:
        start: Item = {}
        while True:
            page = self._table.scan(ProjectionExpression="pk, sk", **start)
            self._table.remove_items([item for item in page["Items"] if item["pk"]["S"] != LAKE])
            if "LastEvaluatedKey" not in page:
                return
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    # -- rows ------------------------------------------------------------------------------------------------

    def reference(self, name: str) -> Row | None:
        return decode_row(name, self._table.get_one(ROW + name))

    def references(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[Row]:
        found_rows: list[Row] = []
        goes_on = True
        while goes_on and len(found_rows) < limit:  # rows that left this kind meanwhile make room for others
            names, goes_on = self._list_names(kind, prefix, after, limit - len(found_rows))
            items = self._table.get_items([ROW + name for name in names], "row_kind, row_data")
            rows = [decode_row(name, items.get(ROW + name)) for name in names]
            found_rows += [row for row in rows if row is not None and row.kind == kind]
            after = names[-1] if names else after
        return found_rows

    def _list_names(self, kind: str, prefix: str, after: str, limit: int) -> tuple[list[str], bool]:
        """Names listed under a kind, and whether there are more; the rows may have changed since."""
        first = after + "\0" if after >= prefix else prefix
        if first > prefix + LAST:
            return [], False
        page = self._table.query(
            KeyConditionExpression="pk = :kind AND sk BETWEEN :first AND :last",
            ExpressionAttributeValues={
                ":kind": {"S": KIND + kind},
                ":first": {"S": first},
                ":last": {"S": prefix + LAST},
            },
            Limit=limit,
        )
        return [item["sk"]["S"] for item in page["Items"]], "LastEvaluatedKey" in page

    @contextmanager
    def turn(self, name: str, remembered: Row | None = None) -> Iterator[Turn]:
        self._table.check_open()
        row = self.reference(name) if remembered is None else remembered
        yield _DynamoTurn(self, name, row, is_certain=remembered is None)

    def _find_others_objects(self, ids: Collection[ObjectId], write_id: str) -> frozenset[ObjectId]:
        """Which of these objects others have stored."""
        items = self._table.get_items([encode_object_key(object_id) for object_id in ids], "write_id")
        return frozenset(decode_object_id(pk) for pk, item in items.items() if get_writer(item) != write_id)

    def close(self) -> None:
        self._table.close()


class _DynamoTurn(Turn):
    def __init__(self, store: DynamoStore, name: str, row: Row | None, is_certain: bool) -> None:
        self._store, self._name, self.row, self.is_certain = store, name, row, is_certain

    def advance(
        self, objects: Mapping[ObjectId, bytes], row: Row | None, fresh: Collection[ObjectId] = ()
    ) -> AdvanceResult:
        check_sizes(objects, row, ITEM_MAX_BYTES, "DynamoDB")
        store, write_id, now_us = self._store, token_hex(16), self._store._clock()
        fresh = sorted(set(fresh), reverse=True)
        swap = swap_row(self._name, self.row, row, write_id)
        new = [create_object(object_id, objects.get(object_id), now_us, write_id) for object_id in fresh]
        old = [
            store_object(object_id, objects[object_id], now_us) for object_id in objects.keys() - set(fresh)
        ]
        parts = group_into_transactions([*swap, *new, *old])
        comes_after = len(parts) > 1
        if comes_after:
            store._write_actions(old)
            parts = group_into_transactions([*swap, *new])
        last, *before = parts
        # Fresh objects that do not fit go in the order of their ids: of two advances that want the same
        # ones, the second meets the first at the lowest, and has not taken any of the others yet.
        for part in reversed(before):
            if not store._create_all(part, write_id):
                return AdvanceResult(False, store._find_others_objects(fresh, write_id))
        if comes_after:  # in one transaction with the swap, nothing is written before it
            self.written()
        return self._swap_and_read_outcome(last, fresh, write_id)

    def _swap_and_read_outcome(
        self, actions: list[DynamoAction], fresh: Collection[ObjectId], write_id: str
    ) -> AdvanceResult:
        """The transaction with the swap in it, and what came of it."""
        store = self._store
        try:
            refused = store._table.write_transaction(actions, write_id)
        except OutcomeUnknown:
            with suppress(PenstockError):
                if get_writer(store._table.get_one(ROW + self._name)) == write_id:
                    return AdvanceResult(True)
            raise
        if refused is None or any(get_writer(item) == write_id for item in refused.found.values()):
            return AdvanceResult(True)
        if not refused.in_doubt:
            return AdvanceResult(False, store._find_others_objects(fresh, write_id))
        with suppress(PenstockError):
            # All or nothing: where others' objects are instead of these, the row was not swapped either.
            if present := store._find_others_objects(fresh, write_id):
                return AdvanceResult(False, present)
        raise OutcomeUnknown(
            f"{store.url} did not answer an update of '{self._name}', and the row has changed since"
        )
