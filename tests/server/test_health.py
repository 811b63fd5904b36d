"""What a server says about itself: whether it is there, whether it should be sent requests, what it did."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Unavailable
from penstock.lake import calls
from penstock.lake.catalogue import Catalogue
from penstock.lake.copy import move_lake
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.lake.tokens import make_token, parse_grant
from penstock.server import health, openapi
from penstock.server.access import AccessGate, OpenGate, TokenGate
from penstock.server.health import Readiness, make_server_api
from penstock.server.metrics_endpoint import MetricsEndpoint
from penstock.server.routes import Api
from tests.queue.hooks import wait_until
from tests.server.running import Reply, local


def own_api(catalogue: Catalogue, readiness: Readiness | None = None, gate: AccessGate | None = None) -> Api:
    figures = MetricsEndpoint()
    return make_server_api((), readiness or Readiness(catalogue), gate or OpenGate(), figures.render_metrics)


def test_a_server_with_a_lake_that_answers_is_there_and_ready(lake: Lake) -> None:
    with local(lake.catalogue, [own_api(lake.catalogue)]) as server:
        assert server.get("/healthz").json == {"status": "ok"}
        assert server.get("/readyz").json == {"status": "ready"}
        assert server.log == "", "probes are not worth a line"


def test_a_server_that_stops_is_there_but_not_ready(lake: Lake) -> None:
    readiness = Readiness(lake.catalogue)
    with local(lake.catalogue, [own_api(lake.catalogue, readiness)]) as server:
        readiness.is_draining = True
        assert server.get("/healthz").status == 200
        reply = server.get("/readyz")
    assert (reply.status, reply.message) == (503, "the server is stopping")


def test_a_server_whose_lake_moved_away_is_not_ready(tmp_path: Path) -> None:
    with open_lake(tmp_path / "one", create=True) as lake:
        move_lake(str(tmp_path / "one"), str(tmp_path / "two"))
        with pytest.raises(Unavailable, match="is being moved, or has moved"):
            Readiness(lake.catalogue).require_ready()


def test_the_description_is_made_once_however_many_ask_for_it_at_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, go = list[int](), threading.Event()
    describe = openapi.describe_apis

    def slowly(apis: Sequence[Api]) -> dict[str, Any]:
        made.append(1)
        assert go.wait(30)
        return describe(apis)

    monkeypatch.setattr(openapi, "describe_apis", slowly)
    with local(lake.catalogue, [own_api(lake.catalogue)]) as server:
        replies = list[Reply]()
        threads = [
            threading.Thread(target=lambda: replies.append(server.get("/openapi.json"))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: server.application._vital_threads.busy == 8)
        go.set()
        for thread in threads:
            thread.join(30)
    assert [reply.status for reply in replies] == [200] * 8
    assert len(made) == 1


class Stuck:
    """A catalogue whose store does not answer until it is let go."""

    page_max = None

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self.asked = 0
        self.free = threading.Event()

    def do(self, call: calls.Call[object], progress: object = None) -> object:
        self.asked += 1
        assert self.free.wait(30)
        return self._catalogue.do(call)

    def close(self) -> None:
        pass


def test_a_server_whose_store_does_not_answer_is_not_ready_until_it_does(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PROBE_TIMEOUT_S", 0.05)
    stuck = Stuck(lake.catalogue)
    readiness = Readiness(stuck)  # type: ignore[arg-type]
    for _ in range(3):
        with pytest.raises(Unavailable, match="has not answered"):
            readiness.require_ready()
    assert stuck.asked == 1, "nobody asks again while an answer is awaited"
    monkeypatch.setattr(health, "PROBE_TIMEOUT_S", 60.0)
    stuck.free.set()
    readiness.require_ready()


def test_an_error_of_the_store_is_told_by_its_code_only(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise Unavailable("postgresql://ada:hunter2@db does not answer")

    monkeypatch.setattr(lake.catalogue, "do", fail)
    with pytest.raises(Unavailable) as refused:
        Readiness(lake.catalogue).require_ready()
    assert refused.value.message == "the lake's store cannot be used at the moment (unavailable)"


def test_metrics_are_in_the_format_of_prometheus(lake: Lake) -> None:
    with local(lake.catalogue, [own_api(lake.catalogue)]) as server:
        reply = server.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b"# TYPE penstock_http_requests_total counter" in reply.body


@pytest.mark.parametrize(
    ("grants", "status"), [(None, 401), (["read:dev/*"], 403), (["read:*:sales.*"], 403), (["read"], 200)]
)
def test_metrics_name_branches_so_they_are_for_those_who_may_read_all(
    lake: Lake, grants: list[str] | None, status: int
) -> None:
    headers = {}
    if grants is not None:
        text, call = make_token("scraper", tuple(map(parse_grant, grants)), None)
        lake.catalogue.do(call)
        headers["authorization"] = f"Bearer {text}"
    gate = TokenGate(lake.catalogue)
    with local(lake.catalogue, [own_api(lake.catalogue, gate=gate)], gate=gate) as server:
        assert server.get("/metrics", **headers).status == status
        assert server.get("/healthz").status == 200
