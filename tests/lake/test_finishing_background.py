"""Waiting until a lake has done in the background what follows from commits."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Semaphore, Thread, current_thread
from typing import Any

import deltalake
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock import Settings
from penstock.errors import AdministratorError, ForeignCommit, InvalidRequest, Unavailable
from penstock.formats.delta.lake.services import DeltaServices
from penstock.formats.delta.plugin import DeltaPlugin
from penstock.formats.delta.publishing import maintenance
from penstock.formats.delta.publishing.maintenance import CheckpointMaintenance
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.formats.lance.lake.services import LanceServices
from penstock.formats.lance.promoter import Promoter
from penstock.formats.lance.promotion_tasks import PromoteTask, PromoteWork
from penstock.formats.lance.refs import RefFileWriter
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.testing.faults import Gate
from tests.lance.tables import ids_of, written
from tests.plugins import plugin_of

ROWS = pa.table({"day": ["1"]})
IMPATIENT = Settings(publish_wait_s=0.0, publish_close_s=0.0)
AT_ONCE_S = 0.0
WAIT_S = 30.0


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", settings=Settings(publish_wait_s=0.0)) as lake:
        yield lake


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


def stop_at(gate: Gate, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, work: Any = None) -> None:
    """Let whoever calls a method stand at a gate first; of the promoter, only for one kind of work."""
    real = getattr(owner, name)

    def gated(self: Any, *given: Any) -> Any:
        if work is None or (isinstance(given[0], PromoteTask) and given[0].work is work):
            gate()
        return real(self, *given)

    monkeypatch.setattr(owner, name, gated)


def wait_for(lake: Lake, gate: Gate) -> None:
    """Have the lake wait for who stands at the gate, and no longer than that."""
    gate.wait_until_reached()
    with pytest.raises(Unavailable, match="background work of the lake did not finish"):
        lake.finish_background(AT_ONCE_S)
    opening = Thread(target=gate.open)
    opening.start()
    lake.finish_background()
    opening.join()


def add_delta(lake: Lake) -> Path:
    table = lake.create_table("t", data=ROWS)
    return Path(table.get_commits().location)


def add_lance(lake: Lake) -> Path:
    written(lake.lance(), "t", ids=[1], mode="create")
    return Path(lake.warehouse.removeprefix("file://"))


def staged(folder: Path) -> list[Path]:
    """What writers staged. Under ``apart`` is what a reader was sent to meanwhile, which a sweep takes."""
    return [one for one in folder.rglob("*.manifest*") if one.parent.name not in ("_versions", "apart")] + [
        *folder.rglob("*.manifest-*")
    ]


@pytest.mark.parametrize("add", [None, add_delta, add_lance])
def test_a_lake_with_nothing_left_to_do_is_finished_at_once(
    lake: Lake, add: Callable[[Lake], Path] | None
) -> None:
    if add is not None:
        add(lake)
        lake.finish_background()
    lake.finish_background(AT_ONCE_S)


def test_a_publication_that_is_under_way_is_waited_for(
    lake: Lake, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at(gate, monkeypatch, Publisher, "publish_task")
    location = add_delta(lake)
    wait_for(lake, gate)
    assert deltalake.DeltaTable(location).version() == 0


def test_what_a_publication_tells_to_others_is_waited_for(
    lake: Lake, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is published, and of which it is not said yet that it may have a checkpoint."""
    stop_at(gate, monkeypatch, Publisher, "_run_after_publish")
    location = add_delta(lake)
    wait_for(lake, gate)
    assert deltalake.DeltaTable(location).version() == 0


def test_a_checkpoint_that_is_under_way_is_waited_for(
    lake: Lake, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "INTERVAL_DEFAULT", 1)
    stop_at(gate, monkeypatch, CheckpointMaintenance, "_maintain_table")
    location = add_delta(lake)
    wait_for(lake, gate)
    assert [one.name for one in location.rglob("*.checkpoint.parquet")]


def test_a_table_that_rests_between_two_checkpoints_is_not_waited_for_but_gets_its_next(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "INTERVAL_DEFAULT", 1)
    monkeypatch.setattr(maintenance, "REST", 1_000_000)
    location = add_delta(lake)
    lake.finish_background()
    lake.table("t").append(ROWS)
    lake.finish_background()
    assert len([*location.rglob("*.checkpoint.parquet")]) == 2


@pytest.mark.parametrize("work", [PromoteWork.VERSIONS, PromoteWork.REFS, PromoteWork.STAGED])
def test_every_part_of_a_promotion_is_waited_for(
    lake: Lake, gate: Gate, monkeypatch: pytest.MonkeyPatch, work: PromoteWork
) -> None:
    import lance

    stop_at(gate, monkeypatch, Promoter, "publish_task", work)
    warehouse = add_lance(lake)
    wait_for(lake, gate)
    assert staged(warehouse) == []
    (versions,) = warehouse.rglob("_versions")
    assert ids_of(lance.dataset(str(versions.parent))) == [1]


@pytest.mark.parametrize(("parts", "add"), [(DeltaServices, add_delta), (LanceServices, add_lance)])
def test_the_look_at_what_others_left_is_waited_for(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch, parts: type, add: Callable[[Lake], Path]
) -> None:
    with penstock.open(tmp_path / "lake", settings=IMPATIENT) as lake:
        add(lake)
    stop_at(gate, monkeypatch, parts, "_catch_up")
    with penstock.open(tmp_path / "lake") as lake:
        wait_for(lake, gate)


def test_what_only_an_administrator_can_mend_is_said_and_not_waited_for(lake: Lake) -> None:
    log = add_delta(lake) / "_delta_log"
    lake.finish_background()
    (log / f"{1:020}.json").write_text("{}")
    lake.table("t").append(ROWS)
    for _ in range(2):
        with pytest.raises(ForeignCommit, match=f"{1:020}.json"):
            lake.finish_background()


@pytest.mark.parametrize("is_replaced", [False, True], ids=["deleted", "replaced"])
@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["here", "by another process"])
def test_an_alarm_ends_when_its_table_is_dropped_from_the_lake(
    tmp_path: Path, is_replaced: bool, is_elsewhere: bool
) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        location = add_delta(lake)
        lake.finish_background()  # what was not published by the next commit, the lake could publish again
        lake.table("t").append(ROWS)
        lake.create_table("other", data=ROWS)
        lake.finish_background()
    shutil.rmtree(location / "_delta_log")
    if is_replaced:
        deltalake.write_deltalake(location, ROWS)
    before = sorted(location.rglob("*"))
    with penstock.open(tmp_path / "lake", settings=Settings(publish_wait_s=0.0)) as lake:
        with pytest.raises(AdministratorError, match=r"on purpose, drop (it|the table) from the lake"):
            lake.table("t").backfill_to_version()
        with pytest.raises(AdministratorError, match=r"on purpose, drop (it|the table) from the lake"):
            lake.finish_background()
        with penstock.open(tmp_path / "lake") as dropping:
            (dropping if is_elsewhere else lake).branch().drop("t")
        lake.finish_background()
        lake.table("other").append(ROWS)
        lake.finish_background()
        assert isinstance(lake.catalogue, Embedded)
        assert plugin_of(lake.catalogue, DeltaPlugin).parts.publisher.list_unpublished() == ()
    assert sorted(location.rglob("*")) == before, "nothing was written there"


CLOSED = [
    (Publisher, "_publish_in_turn", add_delta),
    (CheckpointMaintenance, "_maintain_table", add_delta),
    (RefFileWriter, "update_files", add_lance),
]


@pytest.mark.parametrize(("owner", "name", "add"), CLOSED, ids=["publisher", "checkpoints", "promoter"])
def test_a_thread_that_outlives_its_lake_logs_nothing_of_a_store_that_is_closed(
    tmp_path: Path,
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: type,
    name: str,
    add: Callable[[Lake], Path],
) -> None:
    monkeypatch.setattr(maintenance, "INTERVAL_DEFAULT", 1)
    problems: list[Exception] = []
    threads: list[Thread] = []
    real = getattr(owner, name)

    def watched(self: Any, *given: Any) -> Any:
        threads.append(current_thread())
        gate()
        try:
            return real(self, *given)
        except Exception as problem:
            problems.append(problem)
            raise

    monkeypatch.setattr(owner, name, watched)
    lake = penstock.open(tmp_path / "lake", settings=IMPATIENT)
    add(lake)
    gate.wait_until_reached()
    lake.close()
    caplog.clear()
    gate.open()
    for thread in threads:
        thread.join(WAIT_S)
    assert ["was closed" in str(problem) for problem in problems] == [True]
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO] == []


def test_what_fails_again_and_again_is_named_when_the_time_is_over(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = Semaphore(0)

    def fail(*_: object) -> None:
        tried.release()
        raise Unavailable("storage is away")

    monkeypatch.setattr(Publisher, "publish_task", fail)
    add_delta(lake)
    for _ in range(2):  # by the second time, it is known what came of the first
        assert tried.acquire(timeout=WAIT_S)
    with pytest.raises(Unavailable, match="'t' is not published: storage is away"):
        lake.finish_background(AT_ONCE_S)


def test_a_lake_behind_a_server_is_finished_by_the_server(lake: Lake) -> None:
    class Elsewhere:
        page_max: int | None = None
        do, close = lake.catalogue.do, lake.catalogue.close

    with pytest.raises(InvalidRequest, match="is a server"):
        Lake(Elsewhere()).finish_background()
