"""MongoDB: two collections of one database.

Of the key-value family: objects first, then the row is replaced on the condition that it is as it was seen,
which needs no transactions of MongoDB's. What is written is acknowledged by a majority, in their journals.
Rows are read from the primary, which makes sure that it still is the primary (read concern *linearizable*).

Every row and every fresh object carries a write id, by which it is found again after an answer was lost, and
not taken for somebody else's.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from secrets import token_hex
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import parse_qsl

from pymongo import DeleteOne, MongoClient, ReadPreference, UpdateOne, WriteConcern
from pymongo.collection import Collection as MongoCollection
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    DuplicateKeyError,
    InvalidOperation,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WriteConcernError,
)
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import split_options

from penstock.errors import (
    Damaged,
    Denied,
    InvalidRequest,
    OutcomeUnknown,
    PenstockError,
    Unavailable,
)
from penstock.model.clock import Clock, now_us
from penstock.model.encoding import ObjectId
from penstock.storage.disk_space import storage_full_error
from penstock.stores.checks import check_sizes, check_version
from penstock.stores.port import AdvanceResult, Row, Store, StoredObject, Turn
from penstock.stores.urls import split_url

SCHEMA_VERSION: Final = 1
DOCUMENT_MAX_BYTES: Final = 15 * 1024 * 1024
MESSAGE_MAX_BYTES: Final = 8 * 1024 * 1024
MESSAGE_MAX_OPERATIONS: Final = 1000
SELECTION_TIMEOUT_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 15.0
MAJORITY_TIMEOUT_S: Final = 10.0
TRIES_MAX_S: Final = 20.0
BACKOFF_MIN_S: Final = 0.02
BACKOFF_MAX_S: Final = 1.0

OBJECTS: Final = "penstock_objects"
ROWS: Final = "penstock_rows"
MARK: Final = "#lake"
"""Under this name, which no row can have, the rows' collection says that it is a lake's."""

_DEFAULTS: Final = {
    "serverSelectionTimeoutMS": SELECTION_TIMEOUT_S * 1000,
    "connectTimeoutMS": CONNECT_TIMEOUT_S * 1000,
    "socketTimeoutMS": ANSWER_TIMEOUT_S * 1000,
    "appName": "penstock",
}
_SHOWN: Final = ("replicaSet", "authSource", "tls", "ssl", "directConnection", "loadBalanced")
_LAST: Final = "\U0010ffff"
_DUPLICATE: Final = 11000
_NOT_LINEARIZABLE: Final = frozenset({72, 115, 123, 148, 238, 303})
"""How a server says that it does not know this read concern: it stands alone, or is not quite MongoDB."""
_DENIED: Final = frozenset({13, 18, 8000})
_FULL: Final = 14031
_PASSING: Final = frozenset(
    {6, 7, 24, 50, 64, 89, 91, 112, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436}
)
"""Of a server that is busy, goes away or is no longer the primary."""

_Document: TypeAlias = dict[str, Any]
_Wish: TypeAlias = tuple[ObjectId, bytes, str | None]
"""An object to be stored, with a write id if it must be absent."""
T = TypeVar("T")


class MongoStore(Store):
    """A lake in a MongoDB database: ``mongodb://host/database`` or ``mongodb+srv://…``.

    Options of the URL are handed to the driver, but for those on which safety hangs: write concern, read
    concern and read preference are this store's.
    """

    def __init__(self, url: str, *, create: bool = True, clock: Clock = now_us) -> None:
        self.url = _hide_secrets(url)
        self._clock = clock
        self._process = os.getpid()
        self._closed = False
        self._client = _make_client(url, self.url)
        database = self._client.get_default_database().with_options(
            read_preference=ReadPreference.PRIMARY,
            write_concern=WriteConcern(w="majority", j=True, wtimeout=int(MAJORITY_TIMEOUT_S * 1000)),
            read_concern=ReadConcern("majority"),
        )
        # What is stored is not seen by others before it is swapped in; so nobody can be misled by the newest.
        self._objects: MongoCollection[_Document] = database[OBJECTS].with_options(
            read_concern=ReadConcern("local")
        )
        self._rows: MongoCollection[_Document] = database[ROWS]
        self._newest_rows = self._rows.with_options(read_concern=ReadConcern("linearizable"))
        try:
            self._create_or_check_collections(create)
        except BaseException:
            self.close()
            raise

    # -- the database ----------------------------------------------------------------------------------------

    def _create_or_check_collections(self, create: bool) -> None:
        """Make the collections, once, whoever comes first; refuse what is not ours or too new."""
        version = self._read_version()
        if version is None and create:
            self._write_mark()
            version = self._read_version()
        check_version(self.url, version, SCHEMA_VERSION)

    def _read_version(self) -> int | None:
        """The version in the lake's mark; ``None`` if there is no mark."""
        mark = self._read_newest_document(MARK)
        if mark is None:
            return None
        version = mark.get("version")
        if not isinstance(version, int):
            raise InvalidRequest(
                f"{self.url} has a collection {ROWS} that does not belong to a lake; choose another database"
            )
        return version

    def _write_mark(self) -> None:
        """Mark empty collections as a lake's; others may just have been marked by another process."""
        document = self._retry_request(
            lambda: self._rows.find_one() or self._objects.find_one(projection=["_id"])
        )
        if document and self._read_version() is None:
            raise InvalidRequest(
                f"{self.url} has collections {ROWS} and {OBJECTS} that do not belong to a lake; "
                "choose another database"
            )
        self._retry_request(lambda: self._rows.create_index([("kind", 1), ("_id", 1)], name="kind"))
        mark = {"$setOnInsert": {"version": SCHEMA_VERSION}}
        self._retry_request(lambda: self._rows.update_one({"_id": MARK}, mark, upsert=True))

    # -- requests --------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidRequest(f"{self.url} was closed; open the lake again")
        if os.getpid() != self._process:
            raise InvalidRequest("a lake cannot be used across a fork; open it again in the child process")

    def _retry_request(self, request: Callable[[], T]) -> T:
        """Make a request that bears repetition, again while the server does not answer or is replaced."""
        deadline, longest_s = time.monotonic() + TRIES_MAX_S, BACKOFF_MIN_S
        while True:
            self._check_open()
            try:
                return request()
            except PyMongoError as problem:
                if not _is_passing(problem) or time.monotonic() + longest_s > deadline:
                    raise self._explain_driver_error(problem) from None
            time.sleep(random.uniform(0, longest_s))
            longest_s = min(longest_s * 2, BACKOFF_MAX_S)

    def _explain_driver_error(self, problem: PyMongoError) -> PenstockError:
        """What one of the driver's errors means to a request that bears repetition."""
        if isinstance(problem, InvalidOperation):
            return InvalidRequest(f"{self.url} was closed; open the lake again")
        if isinstance(problem, OperationFailure) and problem.code in _DENIED:
            return Denied(f"{self.url} denies access: {_first_message_line(problem)}")
        if isinstance(problem, OperationFailure) and problem.code == _FULL:
            return storage_full_error(
                f"the database server of {self.url}", _first_message_line(problem), url=self.url
            )
        return Unavailable(f"{self.url} cannot be used: {_first_message_line(problem)}")

    def _read_newest_document(self, name: str) -> _Document | None:
        """A document among the rows as it is now, from a primary that makes sure that it is one."""

        def find_document() -> _Document | None:
            try:
                return self._newest_rows.find_one({"_id": name}, max_time_ms=int(MAJORITY_TIMEOUT_S * 1000))
            except OperationFailure as refused:
                if refused.code not in _NOT_LINEARIZABLE or self._newest_rows is self._rows:
                    raise
                self._newest_rows = self._rows
                return self._rows.find_one({"_id": name})

        return self._retry_request(find_document)

    def _make_sure_of_the_primary(self) -> None:
        """What is read after this is not older than this."""
        if self._newest_rows is not self._rows:
            self._read_newest_document(MARK)

    # -- objects ---------------------------------------------------------------------------------------------

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        self._check_open()
        wanted_ids = list(dict.fromkeys(ids))
        data_by_id = self._find_objects(wanted_ids)
        if len(data_by_id) < len(wanted_ids):
            # That something is not there is also what a server says that is no longer the primary.
            self._make_sure_of_the_primary()
            data_by_id |= self._find_objects(
                [object_id for object_id in wanted_ids if object_id not in data_by_id]
            )
        if not all(type(data) is bytes for data in data_by_id.values()):
            raise Damaged(f"{self.url} is damaged: the document of an object has no bytes")
        return data_by_id

    def _find_objects(self, wanted_ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
        def find_part(ids: Sequence[ObjectId]) -> dict[ObjectId, bytes]:
            return {
                document["_id"]: document["data"]
                for document in self._objects.find({"_id": {"$in": ids}}, ["data"])
            }

        data_by_id: dict[ObjectId, bytes] = {}
        for start in range(0, len(wanted_ids), MESSAGE_MAX_OPERATIONS):
            data_by_id |= self._retry_request(
                partial(find_part, wanted_ids[start : start + MESSAGE_MAX_OPERATIONS])
            )
        return data_by_id

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        self._check_open()
        check_sizes(objects, None, DOCUMENT_MAX_BYTES, "MongoDB")
        self._write_objects([(object_id, data, None) for object_id, data in objects.items()])

    def _write_objects(self, objects: Iterable[_Wish]) -> bool:
        """Store objects in their order, up to the first that must be absent and is not; whether all were."""
        now_us = self._clock()
        for part in _split_into_messages(objects):
            operations = [_make_upsert(*wish, now_us) for wish in part]
            must_be_absent = [write_id is not None for _, _, write_id in part]
            if not self._retry_request(partial(self._send_operations, operations, must_be_absent)):
                return False
        return True

    def _send_operations(self, operations: list[UpdateOne], must_be_absent: list[bool]) -> bool:
        try:
            self._objects.bulk_write(operations, ordered=True)
        except BulkWriteError as problem:
            if any(must_be_absent[number] for number in _find_duplicates(problem)):
                return False
            raise  # two that insert the same object at the same time: the second tries again
        return True

    def scan(self, after: bytes, limit: int) -> tuple[list[StoredObject], bytes]:
        query = {"_id": {"$gt": after}} if after else {}
        fields = ["referenced_us", "size"]
        documents = self._retry_request(
            lambda: list(self._objects.find(query, fields).sort("_id", 1).limit(limit))
        )
        objects = [
            StoredObject(document["_id"], document["referenced_us"], document["size"])
            for document in documents
        ]
        return objects, objects[-1].id if len(objects) == limit else b""

    def delete(self, objects: Sequence[StoredObject]) -> int:
        self._check_open()
        removed = 0
        for start in range(0, len(objects), MESSAGE_MAX_OPERATIONS):
            part = objects[start : start + MESSAGE_MAX_OPERATIONS]
            operations = [
                DeleteOne({"_id": stored_object.id, "referenced_us": stored_object.referenced_us})
                for stored_object in part
            ]
            removed += self._retry_request(
                partial(self._objects.bulk_write, operations, ordered=False)
            ).deleted_count
        return removed

    def erase(self) -> None:
        self._retry_request(lambda: self._rows.delete_many({"_id": {"$ne": MARK}}))
        self._retry_request(self._objects.drop)

    # -- rows ------------------------------------------------------------------------------------------------

    def reference(self, name: str) -> Row | None:
        return _decode_row(self._read_newest_document(name))

    def references(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[Row]:
        self._check_open()
        self._make_sure_of_the_primary()
        beyond = {"$gt": after} if after >= prefix else {"$gte": prefix}
        query = {"kind": kind, "_id": {**beyond, "$lt": prefix + _LAST}}
        documents = self._retry_request(lambda: list(self._rows.find(query).sort("_id", 1).limit(limit)))
        return [row for row in map(_decode_row, documents) if row is not None]

    @contextmanager
    def turn(self, name: str, remembered: Row | None = None) -> Iterator[Turn]:
        self._check_open()
        row = self.reference(name) if remembered is None else remembered
        yield _MongoTurn(self, name, row, is_certain=remembered is None)

    def _find_others_objects(self, ids: Sequence[ObjectId], write_id: str) -> frozenset[ObjectId]:
        """Which of these objects others have stored."""

        def find_part(ids: Sequence[ObjectId]) -> set[ObjectId]:
            query = {"_id": {"$in": ids}, "write_id": {"$ne": write_id}}
            return {document["_id"] for document in self._objects.find(query, ["_id"])}

        self._make_sure_of_the_primary()
        parts = range(0, len(ids), MESSAGE_MAX_OPERATIONS)
        found_ids = [
            self._retry_request(partial(find_part, ids[at : at + MESSAGE_MAX_OPERATIONS])) for at in parts
        ]
        return frozenset(object_id for part in found_ids for object_id in part)

    def close(self) -> None:
        self._closed = True
        self._client.close()


class _MongoTurn(Turn):
    def __init__(self, store: MongoStore, name: str, row: Row | None, is_certain: bool) -> None:
        self._store, self._name, self.row, self.is_certain = store, name, row, is_certain

    def advance(
        self, objects: Mapping[ObjectId, bytes], row: Row | None, fresh: Collection[ObjectId] = ()
    ) -> AdvanceResult:
        store, write_id = self._store, token_hex(16)
        store._check_open()
        check_sizes(objects, row, DOCUMENT_MAX_BYTES, "MongoDB")
        # In the order of their ids: of two advances that want the same fresh objects, the second meets the
        # first at the lowest, and has not taken any of the others yet.
        new, old = sorted(set(fresh)), objects.keys() - set(fresh)
        wishes: list[_Wish] = [(object_id, objects[object_id], write_id) for object_id in new]
        wishes += [(object_id, objects[object_id], None) for object_id in old]
        if not store._write_objects(wishes):
            return AdvanceResult(False, store._find_others_objects(new, write_id))
        self.written()
        try:
            return AdvanceResult(self._swap_row(row, write_id))
        except ServerSelectionTimeoutError as nobody:  # nothing was sent
            raise store._explain_driver_error(nobody) from None
        except PyMongoError as problem:
            return self._find_swap_outcome(problem, write_id)

    def _swap_row(self, row: Row | None, write_id: str) -> bool:
        """Replace the row if it is as it was seen; whether it was."""
        rows, before = self._store._rows, self.row
        if before is None and row is None:
            return self._store._read_newest_document(self._name) is None
        if before is None:
            assert row is not None
            with suppress(DuplicateKeyError):
                rows.insert_one({"_id": self._name, "kind": row.kind, "data": row.data, "write_id": write_id})
                return True
            return False
        seen = {"_id": self._name, "kind": before.kind, "data": before.data}
        if row is None:
            return rows.delete_one(seen).deleted_count == 1
        after = {"kind": row.kind, "data": row.data, "write_id": write_id}
        return rows.replace_one(seen, after).matched_count == 1

    def _find_swap_outcome(self, problem: PyMongoError, write_id: str) -> AdvanceResult:
        """Whether a swap without an answer was done: surely so if the row carries its write id.

        If it does not, the swap may have been done and replaced since, or may be on its way still.
        """
        store = self._store
        if isinstance(problem, OperationFailure) and problem.code in _DENIED:
            raise store._explain_driver_error(problem) from None
        with suppress(PenstockError):
            document = store._read_newest_document(self._name)
            if document is not None and document.get("write_id") == write_id:
                return AdvanceResult(True)
        raise OutcomeUnknown(
            f"{store.url} did not confirm whether '{self._name}' was updated: {_first_message_line(problem)}"
        ) from None


def _make_client(url: str, shown: str) -> MongoClient[_Document]:
    """The driver's client, which connects when it is first used."""
    query = split_url(url).query
    given_names = {name.lower() for name, _ in parse_qsl(query)}
    settings: dict[str, Any] = {
        name: value for name, value in _DEFAULTS.items() if name.lower() not in given_names
    }
    try:
        if query:
            split_options(query, validate=True, warn=False)  # or the client only warns of options it ignores
        client: MongoClient[_Document] = MongoClient(url, **settings, retryWrites=False)
    except (PyMongoError, ValueError, TypeError) as problem:  # its words can hold parts of a password
        raise InvalidRequest(
            f"{shown} is not a valid address for the driver ({type(problem).__name__}): check host, port and "
            "options; special characters in a password are written as %XX"
        ) from None
    try:
        client.get_default_database()
    except ConfigurationError:
        client.close()
        raise InvalidRequest(f"{shown} names no database; write {shown.rstrip('/')}/database") from None
    return client


def _hide_secrets(url: str) -> str:
    """The address without a password, and with only those options that are no secret."""
    parts = split_url(url)
    user, at, hosts = parts.netloc.rpartition("@")
    shown = [f"{name}={value}" for name, value in parse_qsl(parts.query) if name in _SHOWN]
    query = f"?{'&'.join(shown)}" if shown else ""
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{hosts}{parts.path}{query}"


def _split_into_messages(objects: Iterable[_Wish]) -> Iterator[list[_Wish]]:
    """The objects in parts that one message takes, and a server works off in good time."""
    part: list[_Wish] = []
    size = 0
    for wish in objects:
        if part and (len(part) == MESSAGE_MAX_OPERATIONS or size + len(wish[1]) > MESSAGE_MAX_BYTES):
            yield part
            part, size = [], 0
        part.append(wish)
        size += len(wish[1])
    if part:
        yield part


def _make_upsert(object_id: ObjectId, data: bytes, write_id: str | None, now_us: int) -> UpdateOne:
    """Store an object if it is absent; one that is there gets a new time.

    With a write id, one that is there without it cannot be inserted a second time, and fails.
    """
    condition = {"_id": object_id} if write_id is None else {"_id": object_id, "write_id": write_id}
    new = {"data": data, "size": len(data)}
    return UpdateOne(condition, {"$setOnInsert": new, "$set": {"referenced_us": now_us}}, upsert=True)


def _find_duplicates(problem: BulkWriteError) -> list[int]:
    """The operations that failed because what they insert is there."""
    return [error["index"] for error in problem.details["writeErrors"] if error["code"] == _DUPLICATE]


def _is_passing(problem: PyMongoError) -> bool:
    """Whether the same request may succeed a moment later; there was a wait for a primary already."""
    if isinstance(problem, ServerSelectionTimeoutError):
        return False
    if isinstance(problem, BulkWriteError):
        codes = {error["code"] for error in problem.details["writeErrors"]}
        return codes <= {_DUPLICATE} | _PASSING
    return isinstance(problem, ConnectionFailure | DuplicateKeyError | WriteConcernError) or (
        isinstance(problem, OperationFailure) and problem.code in _PASSING
    )


def _first_message_line(problem: PyMongoError) -> str:
    """The first line of what the driver says; the rest are whole documents and the state of all servers."""
    if isinstance(problem, BulkWriteError):
        errors = problem.details["writeErrors"] or problem.details["writeConcernErrors"]
        return str(errors[0].get("errmsg", "the write failed")) if errors else "the write failed"
    return str(problem).split(", full error")[0].split(", Timeout:")[0]


def _decode_row(document: _Document | None) -> Row | None:
    return Row(document["_id"], document["kind"], document["data"]) if document else None
