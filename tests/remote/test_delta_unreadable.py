"""A write of a table that landed and whose answer cannot be had is never taken for one that was refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import CommitNotFound, OutcomeUnknown
from penstock.formats.delta.lake.calls import CommitTables, CreateTable, TableCommit
from penstock.lake.answers import LandedRequest
from penstock.lake.call import AFTER_DOUBT
from penstock.lake.job_files import is_refusal
from penstock.lake.remote_outcome import recover_answer
from penstock.model.keys import Key

HEAD = "ab" * 32
KEY = Key("sales", "orders")


@pytest.mark.parametrize(
    "call",
    [
        CommitTables(tables=(TableCommit(key=KEY, actions="{}"),), branch="side", idempotency_key="k"),
        CreateTable(key=KEY, schema="{}", branch="side", idempotency_key="k"),
    ],
    ids=["commit", "create"],
)
def test_what_landed_and_cannot_be_read_any_more_is_not_known_to_be_refused(call: Any) -> None:
    def ask(_: Any) -> Any:
        raise CommitNotFound("the branch is gone")

    with pytest.raises(OutcomeUnknown, match="was applied as commit") as raised:
        recover_answer(ask, call, LandedRequest(commits=(HEAD,), head=HEAD))
    assert not is_refusal(raised.value)


def test_a_refusal_after_a_lost_answer_is_not_trusted_with_files() -> None:
    refused = CommitNotFound("the branch is gone")
    assert is_refusal(refused)
    refused.details[AFTER_DOUBT] = True
    assert not is_refusal(refused)
