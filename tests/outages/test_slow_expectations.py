"""An expectation that takes too long: the time of a query, of a request and of a client go together."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import CommitVetoed, InvalidRequest
from penstock.kernel.time_limits import deadline, time_limit
from penstock.server.access import OpenGate
from penstock.server.limits import Limits
from penstock.server.native import NATIVE
from penstock.server.options import ServerOptions
from penstock.server.run import check_serving
from tests.server.running import local

ENDLESS = (
    "with recursive r(i) as (select count(*) from sales.orders where id = 666 "
    "union all select i + 1 from r where i between 1 and 3000000000) select * from r where i < 0"
)
"""Takes hours if there is an order 666, and no time otherwise."""


def test_a_client_hears_which_expectation_was_too_slow_and_which_option_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that its connection was lost: the server answers before the request is overdue."""
    monkeypatch.setattr("penstock.server.limits.CHECKS_SHARE", 2 / 60)
    with penstock.open(tmp_path / "lake", create=True, author="ada") as lake:
        lake.create_table("sales.orders", data=pa.table({"id": [1]}))
        lake.expect("slow", ENDLESS)
        gate, limits = OpenGate(any_location=True), Limits(request_timeout_s=60)
        with local(lake.catalogue, [NATIVE], gate=gate, limits=limits) as server:
            with penstock.open(server.url) as client, pytest.raises(CommitVetoed) as vetoed:
                client.table("sales.orders").append(pa.table({"id": [666]}))
            statuses = {line["status"] for line in server.lines}
        monkeypatch.undo()
        with (
            local(lake.catalogue, [NATIVE], gate=gate) as unhurried,
            penstock.open(unhurried.url) as client,
        ):
            client.table("sales.orders").append(pa.table({"id": [2]}))
    assert vetoed.value.details["check"] == "slow"
    assert "its time is limited by request_timeout_s" in vetoed.value.message
    assert 408 not in statuses


def test_in_a_program_of_ones_own_the_setting_is_named(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake", create=True, author="ada") as lake:
        lake.create_table("sales.orders", data=pa.table({"id": [1]}))
        lake.expect("slow", ENDLESS)
    hurried = penstock.Settings(expectation_timeout_s=0.2)
    with (
        penstock.open(tmp_path / "lake", author="ada", settings=hurried) as lake,
        pytest.raises(CommitVetoed, match="its time is limited by expectation_timeout_s"),
    ):
        lake.table("sales.orders").append(pa.table({"id": [666]}))


def test_a_server_whose_limits_contradict_each_other_does_not_start() -> None:
    serving = ServerOptions(lake="memory:", limits=Limits(request_timeout_s=30, expectation_timeout_s=60))
    with pytest.raises(InvalidRequest) as refused:
        check_serving(serving)
    assert "--expectation-timeout-s 60 is more than a request has" in refused.value.message
    assert "Use --request-timeout-s 90" in refused.value.message
    check_serving(
        ServerOptions(lake="memory:", limits=Limits(request_timeout_s=90, expectation_timeout_s=60))
    )


@pytest.mark.parametrize("request_timeout_s", [0.1, 30.0, 600.0])
def test_a_limit_that_is_not_given_goes_with_any_other(request_timeout_s: float) -> None:
    check_serving(ServerOptions(lake="memory:", limits=Limits(request_timeout_s=request_timeout_s)))


def test_a_limit_is_what_is_left_until_the_work_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.kernel.time_limits.monotonic", lambda: 100.0)
    assert time_limit(60, "mine") == (60, "mine")
    with deadline(120.0, "theirs"):
        assert time_limit(60, "mine") == (20, "theirs")
        assert time_limit(5, "mine") == (5, "mine")
    with deadline(99.0, "theirs"):
        assert time_limit(60, "mine") == (0, "theirs")
    assert time_limit(60, "mine") == (60, "mine")
