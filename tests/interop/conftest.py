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

from tests.interop.penstock_server import serving
from tests.interop.rest import Nessie


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
