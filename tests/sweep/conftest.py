"""Lakes to sweep on each family of stores, with a clock that can be set; and a lake to damage."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.model.operations import Put
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from penstock.stores.sqlite import SqliteStore
from tests.queue.hooks import HookedStore, SetClock, new_lake, table
from tests.servers.s3 import S3Place
from tests.sweep.damage import Database
from tests.sweep.oracle import GRACE_S, large
from tests.sweep.tables import LateClock


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: SetClock) -> Iterator[HookedStore]:
    inner: Store
    if request.param == "memory":
        inner = MemoryStore(clock)
    else:
        inner = SqliteStore(tmp_path / "penstock.db", clock=clock, synchronous="OFF")
    yield HookedStore(inner)
    inner.close()


@pytest.fixture
def lake(store: HookedStore, clock: SetClock) -> Lake:
    return new_lake(store, clock, Settings(grace_s=GRACE_S, nobody_writes=True))


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with everything in it that a lake can have."""
    place = tmp_path_factory.mktemp("template") / "lake"
    with penstock.open(place, create=True, author="tester") as lake:
        main = lake.branch()
        main.commit([Put(Key(f"key{number:03}"), table(str(number))) for number in range(600)])
        main.put("big", large(1, 300_000))
        for number in range(5):
            main.put(f"t{number}", large(number, 2000))
        dev = lake.branch("dev").create()
        dev.put("in-dev", table())
        main.put("in-main", table())
        lake.merge("dev", "main")
        lake.tag("v1").create(at="main~1")
        lake.branch("gone").create().delete()
        main.put("last", table(), idempotency_key="last")
    return place


@pytest.fixture
def place(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "lake"))


@pytest.fixture
def database(place: Path) -> Iterator[Database]:
    found = Database(place / "penstock.db")
    yield found
    found.close()


@pytest.fixture
def later() -> LateClock:
    """A clock that goes on for days at once."""
    return LateClock()


@pytest.fixture
def lake_in_a_bucket(
    s3_place: S3Place, tmp_path: Path, later: LateClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lake]:
    """A lake on disk, whose tables are in a bucket of a real S3 server."""
    for name, value in {
        "AWS_ENDPOINT_URL": s3_place.endpoint or "",
        "AWS_REGION": s3_place.region,
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    warehouse = f"s3://{s3_place.bucket}/{s3_place.prefix}/tables"
    penstock.init(tmp_path / "lake", warehouse=warehouse).close()
    with penstock.open(tmp_path / "lake", create=True, author="tester", clock=later) as lake:
        yield lake
