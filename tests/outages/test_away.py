"""A database or storage that is away: everybody is told which of them it is, and that nothing was changed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import StorageFull, Unavailable
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.lake.opener import init_lake, open_lake
from penstock.lake.remote import RemoteCatalogue, RemoteTimeouts
from penstock.lake.tokens import make_token
from penstock.metrics.memory import Metrics
from penstock.server import health, writability
from penstock.server.access import TokenGate
from penstock.server.error_redaction import RedactingCatalogue
from penstock.server.health import Readiness
from penstock.server.native import NATIVE
from tests.queue.hooks import wait_until
from tests.remote.scenarios import table
from tests.server.running import local
from tests.servers.proxy import Proxy

HURRIED = Settings(write_timeout_s=0.5)
QUICK = RemoteTimeouts(total_s=0.2)


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readiness is looked into whenever somebody asks."""
    monkeypatch.setattr(writability, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(health, "PROBE_EVERY_S", 0.0)


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    with Proxy(urlsplit(postgres_url).port or 5432) as running:
        yield running


@pytest.fixture
def lake(postgres_url: str, proxy: Proxy) -> Iterator[Lake]:
    """A lake in PostgreSQL, which can be taken away."""
    init_lake(postgres_url).close()
    address = urlsplit(postgres_url)
    host = address.netloc.replace(str(address.port), str(proxy.port))
    url = address._replace(netloc=host).geturl()
    with open_lake(url, author="ada", settings=HURRIED, meter=Metrics()) as opened:
        yield opened


def take_away(proxy: Proxy) -> None:
    proxy.refuse()
    proxy.cut_all()


def has_created(lake: Lake, branch: str) -> bool:
    try:
        lake.branch(branch).create()
    except Unavailable:
        return False
    return True


def test_a_database_that_is_away_is_told_by_name_to_each_caller_and_comes_back(
    lake: Lake, proxy: Proxy
) -> None:
    text, call = make_token("etl", ["write"])
    lake.catalogue.do(call)
    readiness = Readiness(lake.catalogue)
    readiness.require_ready()
    with local(lake.catalogue, [NATIVE], gate=TokenGate(RedactingCatalogue(lake.catalogue))) as server:
        remote = RemoteCatalogue(server.url, text, QUICK)
        behind = Lake(remote, author="ada")
        behind.branch("dev").create()
        take_away(proxy)
        with pytest.raises(
            Unavailable, match=r"cannot be reached|closed the connection|cannot be used"
        ) as here:
            lake.branch("dev").create()
        assert here.value.details["part"] == "database"
        with pytest.raises(Unavailable) as there:
            behind.branch("test").create()
        assert there.value.message == "the lake's database cannot be used at the moment"
        with pytest.raises(Unavailable, match="the lake's database cannot be used at the moment"):
            readiness.require_ready()
        proxy.accept()
        wait_until(lambda: has_created(behind, "test"))
        readiness.require_ready()
        behind.close()


def test_a_database_server_without_room_says_so_by_its_code(lake: Lake, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as administrator:
        (schema,) = administrator.execute(
            "select schemaname from pg_tables where tablename = 'objects'"
        ).fetchone() or ("",)
        administrator.execute(
            f"create function {schema}.full_disk() returns trigger language plpgsql as "
            "$$ begin raise exception 'could not extend file: wenig Platz' using errcode = '53100'; end $$"
        )
        administrator.execute(
            f"create trigger full_disk before insert on {schema}.objects "
            f"for each row execute function {schema}.full_disk()"
        )
        with pytest.raises(StorageFull, match="has no room left: could not extend file"):
            lake.branch().put("a", table(1))
        administrator.execute(f"drop trigger full_disk on {schema}.objects")
    lake.branch().put("a", table(1))


@pytest.fixture
def lake_without_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """A lake whose tables are in a bucket of a server that is not there."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{held.getsockname()[1]}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_REGION", "eu-west-1")
        init_lake(str(tmp_path / "lake"), warehouse="s3://bucket/warehouse").close()
        with open_lake(tmp_path / "lake", author="ada") as opened:
            yield opened


def test_object_storage_that_is_away_is_told_apart_from_the_database(lake_without_storage: Lake) -> None:
    lake = lake_without_storage
    readiness = Readiness(lake.catalogue)
    readiness.require_ready()
    with pytest.raises(Unavailable, match="s3://bucket does not answer") as away:
        lake.create_table("a.t", data=pa.table({"x": [1]}))
    assert away.value.details["part"] == "storage"
    readiness.note_error(away.value)
    with pytest.raises(Unavailable, match="the lake's storage of tables cannot be used at the moment"):
        readiness.require_ready()
    readiness.require_ready(writes=False)
