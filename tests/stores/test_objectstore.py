"""The object store keeps the store contract, in a directory and on a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.stores.objectstore import ObjectStore
from penstock.testing import StoreContract
from penstock.testing.contract_races import RaceContract
from penstock.testing.samples import OpenStore
from tests.servers.s3 import S3Place

CONTENDED_WAIT_S = 60.0
"""Where many write the same key, a server makes each of them wait for seconds, and so does a busy machine."""
WAIT_S = 0.5
MANY_WAIT_S = 5.0
"""Where thousands of objects are written within it."""
SERVER_WAIT_S = 1.0


class TestDirectory(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path, request: pytest.FixtureRequest) -> OpenStore:
        wait_s = MANY_WAIT_S if _has_many(request) else WAIT_S if _deletes(request) else CONTENDED_WAIT_S
        return lambda: ObjectStore(f"file://{tmp_path}/lake", announce_wait_s=wait_s)


@pytest.mark.verify
class TestSeaweedFS(StoreContract):
    """What differs is the server, and `tests/stores/test_server_races.py` tries its conditions too."""

    @pytest.fixture
    def open_store(self, s3_place: S3Place, request: pytest.FixtureRequest) -> OpenStore:
        wait_s = SERVER_WAIT_S if _deletes(request) else CONTENDED_WAIT_S
        return lambda: ObjectStore(s3_place.url, announce_wait_s=wait_s)


def _has_many(request: pytest.FixtureRequest) -> bool:
    return any(word in request.node.originalname for word in ("thousands", "any_number", "binary_safe"))


def _deletes(request: pytest.FixtureRequest) -> bool:
    """Whether a test waits until objects may be deleted. To all others it is no hurry."""
    is_race = hasattr(RaceContract, request.node.originalname)
    return not is_race and any(word in request.node.originalname for word in ("delete", "scan", "again"))
