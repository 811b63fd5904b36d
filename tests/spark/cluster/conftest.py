"""One cluster and one driver for all tests; each test has a lake of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock import Settings
from penstock.spark import jar
from tests.remote.serving import serving
from tests.servers.process import Missing
from tests.servers.proxy import Proxy
from tests.spark.cluster import cluster as clusters
from tests.spark.cluster.cluster import Cluster
from tests.spark.cluster.drivers import Driver, DriverSeat
from tests.spark.cluster.files_scene import FilesScene
from tests.spark.cluster.scene import Door, Scene
from tests.sweep.tables import LateClock

SCHEMA = pa.schema([("id", pa.int64()), ("kind", pa.int32())])


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if jar.find_jar() is None:
        pytest.skip(f"jobs of a cluster need the jar: {jar.lack_of_package().reason}")
    try:
        faults = clusters.compiled(tmp_path_factory.mktemp("cluster"))
    except Missing as missing:
        pytest.skip(str(missing))
    with clusters.cluster(faults) as started:
        yield started


@pytest.fixture(scope="session")
def door() -> Iterator[Door]:
    """Open to a lake of its own until a test has one: a driver asks who is there when it begins."""
    made = Door()
    with penstock.open("memory:") as lake:
        made.open(lake)
        yield made


@pytest.fixture(scope="session")
def network(door: Door) -> Iterator[Proxy]:
    with serving(door) as server, Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def seat(cluster: Cluster, network: Proxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverSeat]:
    made = DriverSeat(cluster, f"http://127.0.0.1:{network.port}", tmp_path_factory.mktemp("driver"))
    yield made
    made.close()


@pytest.fixture
def spark(seat: DriverSeat, network: Proxy) -> Driver:
    """A driver that nobody kills, and that does nothing for another test any more."""
    network.forget_cut()
    network.speak()
    return seat.free_driver()


@pytest.fixture
def scene(door: Door, network: Proxy, tmp_path: Path) -> Iterator[Scene]:
    """A lake with an empty table."""
    settings = Settings(publish_wait_s=20.0)
    with penstock.init(tmp_path / "lake", warehouse=str(tmp_path / "tables"), settings=settings) as lake:
        lake.create_table("orders", schema=SCHEMA)
        network.forget_cut()
        network.speak()
        with door.showing(lake):
            shown = Scene(lake, door, network, tmp_path)
            yield shown
            shown.open_gates()


@pytest.fixture
def events(door: Door, network: Proxy, tmp_path: Path) -> Iterator[FilesScene]:
    """A lake without any table, for jobs that write files."""
    later = LateClock()
    with penstock.open(tmp_path / "lake", create=True, clock=later) as lake, door.showing(lake):
        network.forget_cut()
        network.speak()
        shown = FilesScene(lake, door, network, tmp_path, later)
        yield shown
        shown.open_gates()
