"""What a client of a server raises is what the server said, and never more than that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock import IcebergTable
from penstock.errors import OutcomeUnknown, StorageFull, TimedOut, Unavailable
from penstock.lake.calls import CommitOperations, GetAbout
from penstock.lake.opener import open_lake
from penstock.lake.remote import RemoteCatalogue, RemoteTimeouts
from penstock.lake.remote_connection import Connection, ServerReply
from penstock.model.keys import Key
from penstock.model.operations import Put
from penstock.server.limits import Limits
from penstock.wire.requests import WireRequest
from tests.remote.scripted import Said, Scripted, refusal, scripted
from tests.remote.serving import serving

QUICK = RemoteTimeouts(total_s=0.5, wait_max_s=0.05, settle_s=0.1)
LOST = Said(200, b"{}", headers={"content_length": "1000"})
"""An answer that breaks off."""
TABLE = IcebergTable(metadata_location="s3://lake/t/v1.json")


PUT = CommitOperations(branch="main", operations=(Put(Key("t"), TABLE),), idempotency_key="k")


@contextmanager
def client(server: Scripted) -> Iterator[RemoteCatalogue]:
    remote = RemoteCatalogue(server.url, None, QUICK)
    try:
        yield remote
    finally:
        remote.close()


def test_what_the_server_said_of_a_doubt_outlives_a_later_loss() -> None:
    said = OutcomeUnknown(
        "the lake's store did not confirm whether the change was applied; repeating it is safe", key="k"
    )
    with (
        scripted(refusal(said), LOST) as server,
        client(server) as lake,
        pytest.raises(OutcomeUnknown) as raised,
    ):
        lake.do(PUT)
    assert raised.value.message == said.message
    assert raised.value.details == {"key": "k", "name": "main"}


def test_that_a_request_was_overdue_outlives_a_later_loss() -> None:
    late = TimedOut("the request took longer than 30 s, this server's limit; it may still be applied")
    with (
        scripted(refusal(late), LOST) as server,
        client(server) as lake,
        pytest.raises(OutcomeUnknown) as raised,
    ):
        lake.do(PUT)
    assert raised.value.message.startswith(
        "the request took longer than 30 s, this server's limit, so it is not"
    )
    assert "was lost" not in raised.value.message


def test_a_server_without_room_is_asked_once() -> None:
    full = StorageFull("the lake's database has no room left", part="database")
    with scripted(refusal(full, retry_after="0")) as server, client(server) as lake:
        with pytest.raises(StorageFull, match="database has no room left"):
            lake.do(PUT)
        assert len([one for one in server.asked if one.method == "POST"]) == 1


def test_a_server_whose_database_is_away_says_which_part_is() -> None:
    away = Unavailable("the lake's database cannot be used at the moment", part="database")
    with (
        scripted(refusal(away)) as server,
        client(server) as lake,
        pytest.raises(Unavailable, match="the lake's database cannot be used") as raised,
    ):
        lake.do(PUT)
    assert raised.value.details["part"] == "database"


def test_a_server_that_works_for_longer_is_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts: list[float] = []
    exchange = Connection.send_and_wait

    def noted(self: Connection, request: WireRequest, timeout_s: float) -> ServerReply:
        timeouts.append(timeout_s)
        return exchange(self, request, timeout_s)

    monkeypatch.setattr(Connection, "send_and_wait", noted)
    with (
        open_lake("memory:") as lake,
        serving(lake.catalogue, limits=Limits(request_timeout_s=120)) as served,
    ):
        remote = RemoteCatalogue(served.url)
        assert remote.do(GetAbout()).settle_s == 135
        remote.do(GetAbout())
        remote.close()
    assert timeouts == [40, 130]
