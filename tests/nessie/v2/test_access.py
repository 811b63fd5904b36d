"""Nessie's API shows and changes what the caller may see and change, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from penstock.lake.lake import Lake
from penstock.server.access import AccessGate, Caller
from penstock.server.nessie.v2 import V2
from tests.nessie.v2.talking import Talk, put, table
from tests.server.access import caller, new_lake
from tests.server.running import local


@pytest.fixture
def lake() -> Iterator[Lake]:
    with new_lake() as made:
        yield made


class Granted(AccessGate):
    """Everybody has the same grants."""

    def __init__(self, grants: tuple[str, ...]) -> None:
        self._grants = grants

    def __call__(self, _: Mapping[str, str], /) -> Caller:
        return caller(*self._grants)


@contextmanager
def granted(lake: Lake, *grants: str) -> Iterator[Talk]:
    """The API for a caller with these grants."""
    with local(lake.catalogue, [V2], gate=Granted(grants)) as server:
        yield Talk(server)


def forbidden(nessie: Talk, method: str, path: str, body: object = None) -> None:
    assert nessie.refused(403, method, path, body)["errorCode"] == "FORBIDDEN"


def test_references_that_may_not_be_read_are_left_out_or_refused(lake: Lake) -> None:
    with granted(lake, "read:dev/*") as nessie:
        listed = nessie.get("/trees?max-records=1")["references"]
        assert [one["name"] for one in listed] == ["dev/etl"]
        assert nessie.get("/trees?fetch=ALL")["references"][0]["metadata"]["numTotalCommits"] == 4
        forbidden(nessie, "GET", "/trees/secret")
        forbidden(nessie, "GET", "/trees/secret/entries")
        forbidden(nessie, "GET", "/trees/dev%2Fetl/diff/secret")
        forbidden(nessie, "GET", f"/trees/@{lake.resolve('dev/etl')}/entries")


def test_another_branch_is_not_read_by_way_of_one_that_may_be(lake: Lake) -> None:
    secret = lake.resolve("secret")
    with granted(lake, "read:dev/*") as nessie:
        for path in ("entries", "history", "contents/sales.orders", "diff/dev%2Fetl"):
            assert nessie.refused(404, "GET", f"/trees/dev%2Fetl@{secret}/{path}")["errorCode"]
        nessie.refused(404, "GET", f"/trees/dev%2Fetl/history?page-token={secret}")


def test_keys_that_may_not_be_read_are_left_out_of_lists(lake: Lake) -> None:
    with granted(lake, "read:*:sales.*") as nessie:
        everything = ["sales", "sales.orders", "sales.returns"]
        assert nessie.keys("/trees/secret/entries") == everything
        assert nessie.keys("/trees/secret/entries?min-key=hr.pay") == everything
        assert nessie.keys("/trees/secret/entries?max-records=2") == everything[:2]
        assert nessie.keys("/trees/main/diff/secret") == everything[1:]
        assert nessie.keys("/trees/main/diff/secret?min-key=a") == everything[1:]
        forbidden(nessie, "GET", "/trees/secret/contents/hr.pay")
        log = nessie.get("/trees/secret/history?fetch=ALL")["logEntries"]
        touched = {tuple(one["key"]["elements"]) for entry in log for one in entry["operations"] or ()}
        assert touched == {("sales",), ("sales", "orders"), ("sales", "returns")}
        assert "raise hr.pay" not in [entry["commitMeta"]["message"] for entry in log]


def test_only_keys_and_branches_that_may_be_written_are(lake: Lake) -> None:
    with granted(lake, "write:dev/*:sales.*", "read:main") as nessie:
        head = nessie.head("dev/etl")
        at = f"dev%2Fetl@{head}"
        made = nessie.commit(at, put("sales.new", table(1)))
        assert lake.show(made).author == "Ada"
        body = {"commitMeta": {"message": "m"}, "operations": [put("hr.new", table(1))]}
        forbidden(nessie, "POST", f"/trees/{at}/history/commit", body)
        main = nessie.head("main")
        body = {"commitMeta": {"message": "m"}, "operations": [put("sales.new", table(1))]}
        forbidden(nessie, "POST", f"/trees/main@{main}/history/commit", body)
        merge = {"fromRefName": "main", "fromHash": main}
        forbidden(nessie, "POST", f"/trees/{at}/history/merge", merge)
        forbidden(
            nessie, "POST", "/trees?name=other&type=BRANCH", {"type": "BRANCH", "name": "main", "hash": main}
        )
        forbidden(nessie, "DELETE", f"/trees/v1@{main}")


def test_tables_lie_below_the_lakes_roots(lake: Lake) -> None:
    with granted(lake, "write") as nessie:
        outside = {**table(1), "metadataLocation": "s3://elsewhere/1.json"}
        body = {"commitMeta": {"message": "m"}, "operations": [put("sales.new", outside)]}
        at = f"main@{nessie.head('main')}"
        assert nessie.refused(400, "POST", f"/trees/{at}/history/commit", body)["errorCode"] == "BAD_REQUEST"


def test_only_an_administrator_changes_the_repositorys_configuration(lake: Lake) -> None:
    update = {"config": {"type": "GARBAGE_COLLECTOR", "defaultCutoffPolicy": "P30D"}}
    with granted(lake, "write") as nessie:
        forbidden(nessie, "POST", "/config/repository", update)
    with granted(lake, "admin") as nessie:
        assert nessie.post("/config/repository", update) == {"previous": None}
        assert nessie.post("/config/repository", update) == {"previous": update["config"]}
        found = nessie.get("/config/repository?type=GARBAGE_COLLECTOR")
        assert found == {"configs": [update["config"]]}
