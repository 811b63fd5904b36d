"""What other programs say or leave behind may be other than it should: errors have classes and words."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

import penstock
from penstock.errors import InvalidRequest, OutcomeUnknown, UnsupportedFormat
from penstock.formats.delta.lake.answers import TableVersions
from penstock.formats.lance.lake.jobs import JobNamespace, LanceJob
from penstock.formats.rows.schema import Field
from penstock.lake.call import CommitDescription
from penstock.model.keys import Key

PROTOCOL = '{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}'


def test_a_lance_that_does_not_ask_the_lake_is_not_believed(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake", create=True, author="ada") as lake:
        job = LanceJob(
            key=Key("t"), branch="main", id="load-1", id_name="idempotency_key", said=CommitDescription()
        )
        with pytest.raises(OutcomeUnknown, match="the lake did not get that version") as raised:
            JobNamespace(lake, job).run_lance_job(lambda _: SimpleNamespace(version=7))
    assert raised.value.details["key"] == "load-1"


def test_an_answer_that_says_something_else_than_it_should_is_not_taken_for_a_table() -> None:
    told = TableVersions(
        key=Key("t"),
        id=uuid4(),
        location="/warehouse/t",
        latest_version=0,
        published=0,
        commits=(),
        protocol=PROTOCOL,
        metadata=PROTOCOL,
    )
    with pytest.raises(UnsupportedFormat, match="'t'"):
        told.parse_declared()


def test_a_folder_that_is_no_partition_is_refused_by_name() -> None:
    from penstock.formats.delta.lake.partition_folders import parse_partition_values

    day = Field(name="day", type="string", nullable=True, metadata={})
    with pytest.raises(
        InvalidRequest, match="'day=1/more=2', which does not match the table's partition columns: day"
    ):
        parse_partition_values("day=1/more=2", [day])
