"""What messages advise to repeat is repeated, and is done once."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import lance
import pytest

import penstock
from penstock import IcebergTable, Key, Lake
from penstock.errors import (
    IdempotencyKeyReused,
    InvalidRequest,
    MergeConflict,
    OutcomeUnknown,
    PenstockError,
    Unavailable,
)
from penstock.formats.lance.lake.calls import PromoteLance
from penstock.kernel.settings import Settings
from penstock.storage.places import Place
from penstock.stores.memory import MemoryStore
from penstock.testing.faults import FaultyStore, Point, SwapLost
from tests.advice.rows import numbers, numbers_in, rows


def metadata(version: str) -> IcebergTable:
    return IcebergTable(metadata_location=f"s3://lake/{version}.json")


def test_what_was_given_up_is_tried_again_and_done_once(tmp_path: Path) -> None:
    store = FaultyStore(MemoryStore())
    with penstock.open(store, create=True, settings=Settings(write_timeout_s=0.1)) as lake:
        lake.branch().put("a", metadata("v1"))
        before = lake.resolve()
        store.fail(Point.BEFORE_SWAP, SwapLost(), name="main", times=None)
        with pytest.raises(PenstockError, match="Nothing was changed; try again"):
            lake.branch().put("b", metadata("v1"))
        store.heal()
        assert lake.resolve() == before
        lake.branch().put("b", metadata("v1"))
        assert len(lake.log()) == 2


@pytest.mark.parametrize("kind", ["delta", "lance", "iceberg"])
def test_a_job_runs_again_after_a_rebase_under_a_new_id(lake: Lake, kind: str) -> None:
    conflicts = {"delta": set_owner, "lance": overwrite, "iceberg": put_pointer}
    if kind == "iceberg":
        lake.branch().put("a.t", metadata("v1"))
    else:
        lake.table("a.t").write(rows(1), format=kind)
    lake.branch("dev").create()
    job = conflicts[kind]
    job(lake, "dev", "ours", "first")
    theirs = lake.resolve("dev")
    job(lake, "main", "theirs", "other")
    with pytest.raises(MergeConflict):
        lake.merge("dev")
    lake.rebase("dev", "main", keys={"a.t": "drop"})
    with suppress(IdempotencyKeyReused):
        job(lake, "dev", "ours", "first")
    assert state(lake, "dev", kind) == state(lake, "main", kind), "a key that was used counts as done"
    job(lake, "dev", "ours", "second")
    assert lake.merge("dev").applied
    assert state(lake, "main", kind) == state(lake, "dev", kind) == state(lake, theirs, kind)


def set_owner(lake: Lake, branch: str, value: str, key: str) -> None:
    import msgspec

    table = lake.table("a.t", branch)
    now = table.snapshot()
    told = msgspec.structs.replace(now.metadata, configuration={**now.properties, "owner": value})
    table.commit(now.version + 1, [told], idempotency_key=key)


def overwrite(lake: Lake, branch: str, value: str, key: str) -> None:
    lake.table("a.t", branch).write(rows(len(value)), mode="overwrite", idempotency_key=key)


def put_pointer(lake: Lake, branch: str, value: str, key: str) -> None:
    found = lake.at("main").get("a.t")
    assert found is not None
    lake.branch(branch).put(
        "a.t", IcebergTable(id=found.id, metadata_location=f"s3://lake/{value}.json"), idempotency_key=key
    )


def state(lake: Lake, ref: str, kind: str) -> Any:
    if kind == "lance":
        return numbers(lake, ref=ref)
    if kind == "delta":
        return lake.at(ref).table("a.t").snapshot().properties.get("owner")
    found = lake.at(ref).get("a.t")
    assert isinstance(found, IcebergTable)
    return found.metadata_location


def test_a_job_whose_id_is_another_requests_writes_under_a_new_one(lake: Lake) -> None:
    for key in ("a.t", "a.other"):
        lake.table(key).write(rows(0), format="lance")
    lake.table("a.t").append(rows(1), idempotency_key="job")
    with pytest.raises(IdempotencyKeyReused, match=r"'a.other' was not written: give this job another"):
        lake.table("a.other").append(rows(2), idempotency_key="job")
    lake.table("a.other").append(rows(2), idempotency_key="another")
    assert (numbers(lake), numbers(lake, "a.other")) == ([0, 1], [0, 2])


def test_a_lake_that_was_closed_is_opened_anew_with_all_rows(lake: Lake, tmp_path: Path) -> None:
    lake.create_table("a.t", data=rows(1))
    lake.table("a.t").append(rows(2))
    lake.close()
    with pytest.raises(InvalidRequest, match="was closed; open the lake again"):
        lake.table("a.t").append(rows(3))
    with penstock.open(tmp_path / "lake") as anew:
        anew.table("a.t").append(rows(3))
        assert numbers(anew) == [1, 2, 3]


@pytest.mark.parametrize("is_written", [False, True])
def test_a_lance_write_whose_answer_was_lost_is_tried_again_and_there_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    lake.table("a.t").write(rows(1), format="lance")
    lake.finish_background()
    create, read = Place.create, Place.read

    def losing(place: Place, name: str, data: bytes) -> bool:
        if not name.endswith(".manifest"):
            return create(place, name, data)
        if is_written:
            create(place, name, data)
        raise OutcomeUnknown("the answer was lost")

    def unread(place: Place, names: Any) -> Any:
        return [None if name.endswith(".manifest") else next(iter(read(place, [name]))) for name in names]

    with monkeypatch.context() as lost:
        lost.setattr(Place, "create", losing)
        lost.setattr(Place, "read", unread)
        lake.table("a.t").append(rows(2))
        with pytest.raises(Unavailable, match=r"it is not known whether .* was written; try again"):
            lake.do(PromoteLance(key=Key.parse("a.t")))
    lake.do(PromoteLance(key=Key.parse("a.t")))
    lake.table("a.t").append(rows(3))
    lake.finish_background()
    seen = lance.dataset(lake.table("a.t").to_lance().uri).to_table()
    assert numbers(lake) == numbers_in(seen) == [1, 2, 3]
