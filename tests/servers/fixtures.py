"""The servers that tests run against: real ones, started when the first test asks and stopped at the end.

`make servers` and `make interop` install them. A test whose server is not there is skipped, and says so.

To run a store's tests against a server of your own, name it in the environment, as `penstock.open` takes it:

    PENSTOCK_TEST_POSTGRES=postgresql://user:password@host/postgres     a user who may create databases
    PENSTOCK_TEST_MONGODB=mongodb://user:password@host/penstock_test    a user who may create databases
    PENSTOCK_TEST_DYNAMODB='dynamodb://penstock-test?region=eu-west-1'  the beginning of the tables' names
    PENSTOCK_TEST_S3='s3://bucket/prefix?region=eu-west-1'              keys from the usual AWS variables

Every test gets a database, a table or a prefix of its own there, and removes it at the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.servers.process import AnyServer, Missing

# A server's client library is loaded when the first test asks for the server: most runs ask for few of them.
if TYPE_CHECKING:
    from tests.servers import dynamodb, s3


@contextmanager
def or_skipped(server: AbstractContextManager[AnyServer]) -> Iterator[AnyServer]:
    """A running server; where its program is missing, the test that asked for it is skipped."""
    with ExitStack() as stack:
        try:
            started = stack.enter_context(server)
        except Missing as missing:
            pytest.skip(str(missing))
        yield started


@pytest.fixture(scope="session")
def postgres_server_url() -> Iterator[str]:
    """Where databases can be created: `postgresql://…`."""
    from tests.servers import postgresql

    own = os.environ.get("PENSTOCK_TEST_POSTGRES")
    if own:
        yield own
        return
    with or_skipped(postgresql.started()) as server:
        yield server.url


@pytest.fixture
def postgres_url(postgres_server_url: str) -> Iterator[str]:
    """An empty PostgreSQL database."""
    from tests.servers import postgresql

    with postgresql.fresh_database(postgres_server_url) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_database_url(postgres_server_url: str) -> Iterator[str]:
    """A PostgreSQL database that many tests share."""
    from tests.servers import postgresql

    with postgresql.fresh_database(postgres_server_url) as url:
        yield url


@pytest.fixture
def postgres_schema_url(postgres_database_url: str) -> str:
    """A schema that is not there yet, in a database that is shared: had many times as fast as a database.

    For whoever opens a lake there and looks no further. It goes with the database.
    """
    from tests.servers import postgresql

    return postgresql.fresh_schema(postgres_database_url)


@pytest.fixture(scope="session")
def s3_bucket() -> Iterator[s3.S3Place]:
    """A bucket of a real S3 server, whose conditional writes stand up to races."""
    from tests.servers import s3

    own = os.environ.get("PENSTOCK_TEST_S3")
    if own:
        yield s3.place_of(own)
        return
    with or_skipped(s3.seaweedfs()) as server:
        yield server.bucket


@pytest.fixture
def s3_place(s3_bucket: s3.S3Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[s3.S3Place]:
    """An empty prefix in a bucket of a real S3 server; its keys are in the environment."""
    from tests.servers import s3

    with s3.fresh_place(s3_bucket) as place:
        for name, value in place.environment.items():
            monkeypatch.setenv(name, value)
        yield place


@pytest.fixture(scope="session")
def moto_bucket() -> Iterator[s3.S3Place]:
    """A bucket of moto, which is not safe under races."""
    from tests.servers import s3

    with or_skipped(s3.moto()) as server:
        yield server.bucket


@pytest.fixture
def moto_place(moto_bucket: s3.S3Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[s3.S3Place]:
    """An empty prefix in moto's bucket; its keys are in the environment. Not safe under races."""
    from tests.servers import s3

    with s3.fresh_place(moto_bucket) as place:
        for name, value in place.environment.items():
            monkeypatch.setenv(name, value)
        yield place


@pytest.fixture(scope="session")
def dynamodb_server() -> Iterator[dynamodb.DynamoDBPlace]:
    """Where tables can be created."""
    from tests.servers import dynamodb

    own = os.environ.get("PENSTOCK_TEST_DYNAMODB")
    if own:
        yield dynamodb.place_of(own)
        return
    with or_skipped(dynamodb.started()) as server:
        yield server.place


@pytest.fixture
def dynamodb_place(
    dynamodb_server: dynamodb.DynamoDBPlace, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dynamodb.DynamoDBPlace]:
    """The name of a table that is not there yet; its keys are in the environment."""
    from tests.servers import dynamodb

    with dynamodb.fresh_table(dynamodb_server) as place:
        for name, value in place.environment.items():
            monkeypatch.setenv(name, value)
        yield place


@pytest.fixture(scope="session")
def mongodb_server_url() -> Iterator[str]:
    """Where databases can be created: `mongodb://…`."""
    from tests.servers import mongodb

    own = os.environ.get("PENSTOCK_TEST_MONGODB")
    if own:
        yield own
        return
    with or_skipped(mongodb.started()) as server:
        yield server.url


@pytest.fixture
def mongodb_url(mongodb_server_url: str) -> Iterator[str]:
    """An empty database of a server that speaks MongoDB's protocol."""
    from tests.servers import mongodb

    with mongodb.fresh_database(mongodb_server_url) as url:
        yield url
