"""Write, audit, publish: a branch is merged if all checks hold, and just as they saw it."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock import Vetoed
from penstock.errors import ChecksFailed, CommitVetoed, InvalidRequest, ReferenceNotFound, Unavailable
from penstock.lake.audits.audited_branch import Audit, AuditedBranch
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from tests.audits.lakes import POSITIVE, ids, orders
from tests.remote.serving import serving


@pytest.fixture
def dev(lake: Lake) -> Lake:
    """A lake whose branch ``dev`` has one more order, and a table of files."""
    lake.branch("dev").create()
    lake.table("sales.orders", "dev").append(orders(3))
    lake.table("raw.events", "dev").files.put("a.csv", b"n\n1\n")
    return lake


def test_a_branch_on_which_all_checks_hold_is_published(dev: Lake) -> None:
    seen: list[AuditedBranch] = []

    def three(audited: AuditedBranch) -> bool:
        seen.append(audited)
        return int(audited.table("sales.orders").to_arrow().num_rows) == 3

    events = "select * from raw.events where n <> 1"
    checks: dict[str, Audit] = {"positive": POSITIVE, "events": events, "three": three}
    published = dev.publish("dev", checks=checks)
    assert ids(dev) == [1, 2, 3]
    assert published.checks == ("positive", "events", "three")
    head = dev.show()
    assert (published.commit, head.message) == (head.id, "publish dev")
    assert [*head.properties["penstock.checks"]] == ["positive", "events", "three"]
    assert published.audited in head.parents
    (audited,) = seen
    assert [str(key) for key in audited.changed] == ["raw", "raw.events", "sales.orders"]
    assert audited.files("raw.events").open("a.csv").read() == b"n\n1\n"
    assert audited.table("raw.events").to_arrow(["n"])["n"].to_pylist() == [1]
    assert dev.publish("dev").commit is None


def test_a_misspelt_argument_does_not_publish_without_checks(dev: Lake) -> None:
    head = dev.branch().head
    with pytest.raises(TypeError, match=r"unknown arguments .*: 'expect'"):
        dev.publish("dev", expect={"positive": POSITIVE})  # type: ignore[call-arg]
    assert dev.branch().head == head


def test_all_checks_that_do_not_hold_are_told_together(dev: Lake) -> None:
    def never(_: AuditedBranch) -> None:
        raise Vetoed("it is late")

    def fails(_: AuditedBranch) -> bool:
        return 1 // 0 == 1

    checks: dict[str, Audit] = {
        "few": "select id from sales.orders order by id",
        "never": never,
        "good": POSITIVE,
        "fails": fails,
        "typo": "select amont from sales.orders",
        "nothing": "select * from sales.nothing",
        "no": lambda _: False,
    }
    before = dev.branch().head
    with pytest.raises(ChecksFailed) as failed:
        dev.publish("dev", checks=checks)
    told = {one["name"]: one for one in failed.value.details["failed"]}
    assert [*told] == ["few", "never", "fails", "typo", "nothing", "no"]
    assert told["few"]["reason"] == "it finds 3 rows, such as id = 1"
    assert [*told["few"]["rows"]] == [{"id": "1"}, {"id": "2"}, {"id": "3"}]
    assert told["never"]["reason"] == "it is late"
    assert "ZeroDivisionError" in told["fails"]["reason"]
    assert '"amont" not found' in told["typo"]["reason"]
    for name in told:
        assert f"check '{name}'" in failed.value.message
    assert dev.branch().head == before
    assert dev.branch("dev").exists


def test_what_was_looked_at_is_published_though_the_branch_moved(dev: Lake, other: Lake) -> None:
    def meanwhile(audited: AuditedBranch) -> bool:
        other.table("sales.orders", "dev").append(orders(-1))
        return len(audited.table("sales.orders").to_arrow()) == 3

    checks: dict[str, Audit] = {"meanwhile": meanwhile, "positive": POSITIVE}
    dev.publish("dev", checks=checks)
    assert ids(dev) == [1, 2, 3]
    assert ids(dev, "dev") == [-1, 1, 2, 3]


def test_a_branch_that_is_not_published_is_dropped_if_that_is_wanted(dev: Lake) -> None:
    with pytest.raises(ChecksFailed, match="and is dropped") as failed:
        dev.publish("dev", checks={"no": lambda _: False}, otherwise="drop")
    assert failed.value.details["is_dropped"] is True
    assert not dev.branch("dev").exists
    assert ids(dev) == [1, 2]


def test_a_branch_that_somebody_writes_to_meanwhile_is_not_dropped(dev: Lake, other: Lake) -> None:
    def meanwhile(_: AuditedBranch) -> bool:
        other.table("sales.orders", "dev").append(orders(4))
        return False

    with pytest.raises(ChecksFailed, match="and stays as it is"):
        dev.publish("dev", checks={"no": meanwhile}, otherwise="drop")
    assert ids(dev, "dev") == [1, 2, 3, 4]


def test_a_branch_that_cannot_be_dropped_hides_no_check(dev: Lake) -> None:
    with pytest.raises(ChecksFailed, match=r"and could not be dropped \(.*default branch") as failed:
        dev.publish("main", "dev", checks={"no": lambda _: "it is late"}, otherwise="drop")
    assert failed.value.details["is_dropped"] is False
    assert "check 'no': it is late" in failed.value.message
    assert dev.branch("main").exists


def test_rows_that_python_has_no_values_for_are_a_failed_check_like_others(dev: Lake) -> None:
    far = "select timestamp '290000-01-01' as x from sales.orders"
    with pytest.raises(ChecksFailed, match="such as x = 290000-01-01"):
        dev.publish("dev", checks={"far": far})


def test_a_query_that_fails_is_a_failed_check(dev: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise OverflowError("too much")

    monkeypatch.setattr("penstock.lake.audits.audited_branch.run_audit_query", fails)
    checks: dict[str, Audit] = {"one": POSITIVE, "two": lambda _: "no"}
    with pytest.raises(ChecksFailed) as failed:
        dev.publish("dev", checks=checks)
    assert [one["name"] for one in failed.value.details["failed"]] == ["one", "two"]


def test_no_check_runs_before_it_is_known_that_there_is_a_branch_to_publish_into(dev: Lake) -> None:
    dev.tag("v1").create()
    seen: list[AuditedBranch] = []
    for into, error in {"v1": InvalidRequest, "nowhere": ReferenceNotFound}.items():
        with pytest.raises(error):
            dev.publish("dev", into, checks={"seen": seen.append})
    assert seen == []


def test_what_the_target_expects_is_asked_of_the_result(dev: Lake) -> None:
    dev.table("sales.orders").append(orders(4))
    dev.expect("at most three", "select count(*) as n from sales.orders having n > 3")
    with pytest.raises(CommitVetoed, match="n = 4"):
        dev.publish("dev", checks={"positive": POSITIVE})
    assert ids(dev) == [1, 2, 4]


def test_storage_that_is_away_is_no_failed_check(dev: Lake) -> None:
    def away(_: AuditedBranch) -> None:
        raise Unavailable("nobody answers")

    with pytest.raises(Unavailable):
        dev.publish("dev", checks=[away], otherwise="drop")
    assert dev.branch("dev").exists


def test_a_branch_is_published_through_a_server(dev: Lake) -> None:
    with serving(dev.catalogue) as served, penstock.open(served.url, author="ann") as client:
        with pytest.raises(ChecksFailed):
            client.publish("dev", checks={"few": "select * from sales.orders where id > 2"})
        rows = client.publish("dev", checks={"positive": POSITIVE}, idempotency_key="once")
        again = client.publish("dev", idempotency_key="once", checks={"positive": POSITIVE})
        assert rows.commit == again.commit == client.show().id


def test_only_what_makes_sense_is_published(dev: Lake) -> None:
    tx = dev.transaction()
    wrong: list[tuple[str, dict[str, Any]]] = [
        (tx.branch, {}),
        ("main", {}),
        ("dev", {"otherwise": "burn"}),
        ("dev", {"checks": "select 1"}),
        ("dev", {"checks": {"": POSITIVE}}),
        ("dev", {"checks": 5}),
        ("dev", {"checks": {5: POSITIVE}}),
        ("dev", {"checks": {"red \x1b[31m": POSITIVE}}),
        ("dev", {"checks": {"x": 5}}),
    ]
    for branch, how in wrong:
        with pytest.raises(InvalidRequest):
            dev.publish(branch, **how)
    dev.tag("v1").create(at="dev")
    with pytest.raises(InvalidRequest, match="is a tag"):
        dev.publish("v1")
    tx.abort()
    assert ids(dev) == [1, 2]


def test_a_check_of_a_process_reads_the_rows_that_would_be_there(dev: Lake) -> None:
    def sums(proposed: penstock.lake.checks.Proposed) -> None:
        for key in proposed.changed:
            if key == Key.parse("sales.orders") and sum(proposed.table(key).to_arrow()["id"].to_pylist()) > 5:
                raise Vetoed("too much")

    dev.add_check("sums", sums)
    with pytest.raises(CommitVetoed, match="too much"):
        dev.merge("dev")
    dev.table("sales.orders").overwrite(orders(2, 3))
    assert ids(dev) == [2, 3]
