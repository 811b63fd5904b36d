"""Other people's clients against a started server.

To run them against a server of your own, Penstock's or Nessie's, name it in the environment:

    PENSTOCK_TEST_NESSIE_URI=http://host:19120

`make interop` installs the clients. Tests whose client is not on this machine are skipped, and say so.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from penstock.lake.lake import Lake
from tests.interop.delta.homes import Home, home_on
from tests.interop.delta.session import DeltaSpark
from tests.interop.penstock_server import serving
from tests.interop.rest import Nessie
from tests.servers.process import Missing


@pytest.fixture(scope="session")
def nessie_uri() -> Iterator[str]:
    """A server that speaks Nessie's API: `http://host:port`, without a path."""
    own = os.environ.get("PENSTOCK_TEST_NESSIE_URI")
    if own:
        yield own.rstrip("/")
        return
    with serving("memory:") as server:
        yield server.uri


@pytest.fixture(scope="session")
def nessie(nessie_uri: str) -> Nessie:
    """The same server, for requests that a test makes itself."""
    return Nessie(nessie_uri)


@pytest.fixture
def trunk(nessie: Nessie) -> str:
    """A branch of the test's own, without a table, where others would use main: the server may be shared."""
    name = f"trunk-{uuid.uuid4().hex[:12]}"
    nessie.create_branch(name, "main", nessie.get("config")["noAncestorHash"])
    return name


# -- Delta Spark -------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    """Spark with Delta, for all tests of a process."""
    try:
        started = DeltaSpark(tmp_path_factory.mktemp("spark"))
    except Missing as missing:
        pytest.skip(str(missing))
    yield started
    started.stop()


@pytest.fixture
def disk(request: pytest.FixtureRequest) -> Home:
    return home_on("disk", request)


@pytest.fixture
def bucket(request: pytest.FixtureRequest, spark: DeltaSpark) -> Home:
    home = home_on("bucket", request)
    assert home.bucket is not None
    spark.use(home.bucket)
    return home


@pytest.fixture(params=["disk", "bucket"])
def home(request: pytest.FixtureRequest) -> Home:
    found: Home = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def lake(disk: Home) -> Iterator[Lake]:
    with disk.lake() as lake:
        yield lake
