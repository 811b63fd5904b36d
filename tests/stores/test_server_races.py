"""Race a server before trusting it: what has to be atomic there is, or no store is safe on it.

Everything goes through the server's plain client. Several known servers look first and write after; they
pass every other test.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Protocol

import obstore
import pytest
from botocore.exceptions import ClientError
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import S3Store
from psycopg_pool import ConnectionPool
from pymongo.errors import DuplicateKeyError

from tests.servers.dynamodb import DynamoDBPlace
from tests.servers.mongodb import connected
from tests.servers.s3 import S3Place, moto

if TYPE_CHECKING:
    from obstore.store import S3Config

THREADS = 16
ROUNDS = 25
# SeaweedFS looks once a second whether another's write of the same key is over; a long run has many keys.
SLOW_ROUNDS = 3
SLOW_LINES = 20
LONG_TIMES = 20
INCREMENTS = 4


class Contested(Protocol):
    """A value under a key on some server, which many want to write at the same time."""

    rounds: int
    lines: int
    """For so many keys a long run races at once."""

    def create(self, key: str, value: str) -> bool:
        """Write a value where there is none; whether this call wrote it."""

    def read(self, key: str) -> tuple[str, str]:
        """The value, and what names this version of it."""

    def swap(self, key: str, version: str, value: str) -> bool:
        """Write a value over one version; whether this call wrote it."""


class InPostgres:
    rounds = ROUNDS
    lines = 1

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        with pool.connection() as connection:
            connection.execute("CREATE TABLE contested (key text PRIMARY KEY, value text, version bigint)")

    def create(self, key: str, value: str) -> bool:
        insert = "INSERT INTO contested VALUES (%s, %s, 1) ON CONFLICT DO NOTHING"
        with self._pool.connection() as connection:
            return connection.execute(insert, [key, value]).rowcount == 1

    def read(self, key: str) -> tuple[str, str]:
        with self._pool.connection() as connection:
            row = connection.execute("SELECT value, version FROM contested WHERE key = %s", [key]).fetchone()
        assert row is not None
        return row[0], str(row[1])

    def swap(self, key: str, version: str, value: str) -> bool:
        update = "UPDATE contested SET value = %s, version = version + 1 WHERE key = %s AND version = %s"
        with self._pool.connection() as connection:
            return connection.execute(update, [value, key, int(version)]).rowcount == 1


class InS3:
    rounds = SLOW_ROUNDS
    lines = SLOW_LINES

    def __init__(self, store: S3Store) -> None:
        self._store = store

    def create(self, key: str, value: str) -> bool:
        try:
            obstore.put(self._store, key, value.encode(), mode="create")
        except AlreadyExistsError:
            return False
        return True

    def read(self, key: str) -> tuple[str, str]:
        found = obstore.get(self._store, key)
        version = found.meta["e_tag"]
        assert version is not None
        return bytes(found.bytes()).decode(), version

    def swap(self, key: str, version: str, value: str) -> bool:
        try:
            obstore.put(self._store, key, value.encode(), mode={"e_tag": version})
        except PreconditionError:
            return False
        return True


class InDynamoDB:
    rounds = ROUNDS
    lines = 1

    def __init__(self, place: DynamoDBPlace, stack: ExitStack) -> None:
        self._client = stack.enter_context(closing(place.client()))
        self._table = place.table
        self._client.create_table(
            TableName=self._table,
            KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        self._client.get_waiter("table_exists").wait(TableName=self._table)

    def create(self, key: str, value: str) -> bool:
        item = {"key": {"S": key}, "value": {"S": value}, "version": {"N": "1"}}
        return self._is_met(
            lambda: self._client.put_item(
                TableName=self._table,
                Item=item,
                ConditionExpression="attribute_not_exists(#key)",
                ExpressionAttributeNames={"#key": "key"},
            )
        )

    def read(self, key: str) -> tuple[str, str]:
        found = self._client.get_item(TableName=self._table, Key={"key": {"S": key}}, ConsistentRead=True)
        return found["Item"]["value"]["S"], found["Item"]["version"]["N"]

    def swap(self, key: str, version: str, value: str) -> bool:
        item = {"key": {"S": key}, "value": {"S": value}, "version": {"N": str(int(version) + 1)}}
        return self._is_met(
            lambda: self._client.put_item(
                TableName=self._table,
                Item=item,
                ConditionExpression="#version = :seen",
                ExpressionAttributeNames={"#version": "version"},
                ExpressionAttributeValues={":seen": {"N": version}},
            )
        )

    @staticmethod
    def _is_met(write: Callable[[], object]) -> bool:
        try:
            write()
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            return False
        return True


class InMongoDB:
    rounds = ROUNDS
    lines = 1

    def __init__(self, url: str, stack: ExitStack) -> None:
        self._rows = stack.enter_context(connected(url)).get_default_database().contested

    def create(self, key: str, value: str) -> bool:
        try:
            self._rows.insert_one({"_id": key, "value": value, "version": 1})
        except DuplicateKeyError:
            return False
        return True

    def read(self, key: str) -> tuple[str, str]:
        found = self._rows.find_one({"_id": key})
        assert found is not None
        return found["value"], str(found["version"])

    def swap(self, key: str, version: str, value: str) -> bool:
        seen = {"_id": key, "version": int(version)}
        changed = self._rows.update_one(seen, {"$set": {"value": value, "version": int(version) + 1}})
        return changed.modified_count == 1


def s3_store(place: S3Place) -> S3Store:
    config: S3Config = {"region": place.region}
    if place.endpoint is not None:
        config["endpoint"] = place.endpoint
    if place.access_key is not None and place.secret_key is not None:
        config["access_key_id"] = place.access_key
        config["secret_access_key"] = place.secret_key
    return S3Store(
        place.bucket,
        prefix=place.prefix,
        config=config,
        client_options={"allow_http": True},
        # A write that is tried again could lose to itself.
        retry_config={"max_retries": 0},
    )


SAFE = [
    "postgres",
    pytest.param("s3", marks=pytest.mark.verify),
    pytest.param("dynamodb", marks=pytest.mark.verify),
    pytest.param("mongodb", marks=pytest.mark.verify),
]


@pytest.fixture(params=SAFE)
def contested(request: pytest.FixtureRequest) -> Iterator[Contested]:
    with ExitStack() as stack:
        match request.param:
            case "postgres":
                url = request.getfixturevalue("postgres_url")
                pool = ConnectionPool(url, min_size=THREADS, max_size=THREADS, open=False)
                yield InPostgres(stack.enter_context(pool))
            case "s3":
                yield InS3(s3_store(request.getfixturevalue("s3_place")))
            case "dynamodb":
                yield InDynamoDB(request.getfixturevalue("dynamodb_place"), stack)
            case _:
                yield InMongoDB(request.getfixturevalue("mongodb_url"), stack)


def at_once(act: Callable[[int], bool], threads: int = THREADS) -> list[int]:
    """Let every thread act at the same moment; the numbers of those who got a yes."""
    barrier = threading.Barrier(threads)

    def one(number: int) -> bool:
        barrier.wait()
        return act(number)

    with ThreadPoolExecutor(threads) as pool:
        return [number for number, won in enumerate(pool.map(one, range(threads))) if won]


def creation_winners(contested: Contested, times: int = 1, line: int = 0) -> Iterator[tuple[list[int], str]]:
    """Per round: who created the same key, and what is stored there."""
    for number in range(contested.rounds * times):
        key = f"created-{line}-{number}"

        def create(thread: int, key: str = key) -> bool:
            return contested.create(key, str(thread))

        yield at_once(create), contested.read(key)[0]


def swap_winners(contested: Contested, times: int = 1, line: int = 0) -> Iterator[tuple[list[int], str]]:
    """Per round: who swapped the same version, and what is stored after."""
    key = f"swapped-{line}"
    assert contested.create(key, "nobody")
    for number in range(contested.rounds * times):
        version = contested.read(key)[1]

        # No value is written twice: S3 names a version by its content.
        def swap(thread: int, seen: str = version, prefix: str = f"{number}-") -> bool:
            return contested.swap(key, seen, f"{prefix}{thread}")

        yield at_once(swap), contested.read(key)[0].removeprefix(f"{number}-")


def test_exactly_one_of_many_creates_a_key(contested: Contested) -> None:
    for winners, stored in creation_winners(contested):
        assert [stored] == [str(winner) for winner in winners]


def test_exactly_one_of_many_swaps_a_version(contested: Contested) -> None:
    for winners, stored in swap_winners(contested):
        assert [stored] == [str(winner) for winner in winners]


@pytest.mark.reliability
def test_exactly_one_wins_every_race_of_a_long_run(contested: Contested) -> None:
    times = LONG_TIMES // contested.lines

    def race(line: int) -> None:
        for races in (creation_winners, swap_winners):
            for winners, stored in races(contested, times, line):
                assert [stored] == [str(winner) for winner in winners]

    with ThreadPoolExecutor(contested.lines) as lines:
        list(lines.map(race, range(contested.lines)))


def test_a_counter_that_many_swap_loses_no_count(contested: Contested) -> None:
    assert contested.create("counter", "0")
    replaced: Counter[str] = Counter()
    lock = threading.Lock()

    def count(thread: int) -> bool:
        for _ in range(INCREMENTS):
            while True:
                value, version = contested.read("counter")
                if contested.swap("counter", version, str(int(value) + 1)):
                    break
            with lock:
                replaced[value] += 1
        return True

    assert at_once(count) == list(range(THREADS))
    assert replaced == {str(value): 1 for value in range(THREADS * INCREMENTS)}
    assert contested.read("counter")[0] == str(THREADS * INCREMENTS)


@pytest.fixture(scope="module")
def pausing_moto() -> Iterator[InS3]:
    with moto(pausing=True) as server:
        yield InS3(s3_store(server.bucket))


@pytest.mark.verify
def test_moto_looks_first_and_writes_after_so_no_race_is_tested_on_it(pausing_moto: InS3) -> None:
    def create(thread: int) -> bool:
        return pausing_moto.create("meeting", str(thread))

    assert at_once(create, threads=2) == [0, 1]
    version = pausing_moto.read("meeting")[1]

    def swap(thread: int) -> bool:
        return pausing_moto.swap("meeting", version, f"next {thread}")

    assert at_once(swap, threads=2) == [0, 1]


@pytest.mark.verify
def test_moto_keeps_its_conditions_where_nobody_races(moto_place: S3Place) -> None:
    alone = InS3(s3_store(moto_place))
    assert alone.create("key", "first")
    assert not alone.create("key", "second")
    version = alone.read("key")[1]
    assert alone.swap("key", version, "third")
    assert not alone.swap("key", version, "fourth")
    assert alone.read("key")[0] == "third"
