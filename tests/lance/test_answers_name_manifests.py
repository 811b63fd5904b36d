"""Where the answer to a commit says that manifests are: a file that is there, promoted or not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Event

import pytest

import penstock
from penstock import Lake, Settings
from penstock.formats.lance.lake.answers import LanceCommitResult
from penstock.formats.lance.lake.calls import CommitLance, CreateLanceVersion, DeclareLance, GetLanceTable
from penstock.formats.lance.plugin import LancePlugin
from penstock.lake.embedded import Embedded
from penstock.model.keys import Key
from penstock.storage.local import LocalBucket
from tests.lance.versions import file_name, make_template, manifests, put_data, rows, stage
from tests.plugins import plugin_of

pytest.importorskip("lance")

NAMES = ("a", "b")
WAIT_S = 20.0


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_template(tmp_path_factory.mktemp("template") / "t")


def declared(lake: Lake) -> dict[str, Path]:
    wishes = tuple(DeclareLance(key=Key(name)) for name in NAMES)
    done = lake.do(CommitLance(operations=wishes)).done
    return {name: Path(one.location) for name, one in zip(NAMES, done, strict=True)}


def first_versions(template: Path, places: dict[str, Path]) -> CommitLance:
    """A batch with the first version of each table, whose rows and manifests are there already."""
    operations = []
    for name, location in places.items():
        put_data(template, location)
        manifest = f"{location}/{stage(template, location, 1)}"
        operations.append(CreateLanceVersion(key=Key(name), version=1, manifest=manifest))
    return CommitLance(operations=tuple(operations), idempotency_key="only once")


def told(answer: LanceCommitResult) -> list[Path]:
    return [Path(one.version.manifest) for one in answer.done if one.version is not None]


def before_manifests(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    put_new = LocalBucket.put_new_now

    def watched(self: LocalBucket, key: str, data: bytes) -> bool:
        if "_versions/" in key:
            happens()
        return put_new(self, key, data)

    monkeypatch.setattr(LocalBucket, "put_new_now", watched)


def test_who_does_not_wait_is_sent_to_a_file_that_is_there_before_anything_is_promoted(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = Event()
    before_manifests(monkeypatch, lambda: go_on.wait(WAIT_S))
    with penstock.open(tmp_path / "lake", settings=Settings(promote_wait_s=0.0)) as lake:
        places = declared(lake)
        batch = first_versions(template, places)
        try:
            answered = told(lake.do(batch))
            assert [manifests(location) for location in places.values()] == [[], []]
            assert [one.suffix for one in answered] == [".manifest", ".manifest"]
            whole = (template / "_versions" / file_name(1)).read_bytes()
            assert [one.read_bytes() for one in answered] == [whole, whole]
        finally:
            go_on.set()
        assert isinstance(lake.catalogue, Embedded)
        ids = [lake.do(GetLanceTable(key=Key(name))).id for name in NAMES]
        assert plugin_of(lake.catalogue, LancePlugin).parts.promoter.wait(ids, WAIT_S)
        promoted = [location / "_versions" / file_name(1) for location in places.values()]
        assert told(lake.do(batch)) == promoted
        assert [one.is_file() for one in answered] == [True, True], "who was sent there may read there"
    assert [rows(location) for location in places.values()] == [[0], [0]]


def test_the_tables_of_a_batch_are_promoted_side_by_side_and_waited_for_together(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    side_by_side = Barrier(len(NAMES))
    before_manifests(monkeypatch, lambda: side_by_side.wait(WAIT_S))
    with penstock.open(tmp_path / "lake", settings=Settings(promote_wait_s=WAIT_S)) as lake:
        places = declared(lake)
        answered = told(lake.do(first_versions(template, places)))
    assert answered == [location / "_versions" / file_name(1) for location in places.values()]
