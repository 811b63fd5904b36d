"""K9 without conditional deletion: every way in which a sweep and a writer can meet, forced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import msgspec
import pytest

from penstock.errors import OutcomeUnknown, Unavailable
from penstock.storage import announcements
from penstock.storage.buckets import UnansweredWrite
from penstock.storage.local import LocalBucket
from penstock.stores import objectstore
from penstock.stores.objectstore import ObjectStore
from penstock.stores.port import Row
from penstock.testing.contract_rows import swap
from penstock.testing.samples import let_time_pass, row, sample, scan_all
from tests.storage.hooked import HookedBucket

WAIT_S = 1.0
PATIENCE_S = 20.0
FAR_FUTURE_US = 2**60


class Handle(ObjectStore):
    """A handle whose requests a test can step into."""

    def __init__(self, root: Path, wait_s: float = WAIT_S) -> None:
        self.bucket = HookedBucket(root)
        super().__init__(self.bucket.url, bucket=self.bucket, announce_wait_s=wait_s)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Handle]]:
    handles: list[Handle] = []

    def open_handle(wait_s: float = WAIT_S) -> Handle:
        handles.append(Handle(tmp_path / "lake", wait_s))
        return handles[-1]

    yield open_handle
    for handle in handles:
        handle.close()


@pytest.fixture
def sweeper(opened: Callable[..., Handle]) -> Handle:
    return opened()


@pytest.fixture
def writer(opened: Callable[..., Handle], sweeper: Handle) -> Handle:
    return opened()


def started(act: Callable[[], object]) -> Thread:
    thread = Thread(target=act, daemon=True)
    thread.start()
    return thread


def ended(thread: Thread) -> None:
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_what_is_stored_while_it_is_announced_stays(sweeper: Handle, writer: Handle) -> None:
    objects = sample(3)
    used, *_ = objects
    sweeper.store(objects)
    doomed = scan_all(sweeper)
    sweeper.bucket.at("after put sweep", lambda: writer.store({used: objects[used]}))
    assert sweeper.delete(doomed) == 2
    assert writer.fetch(objects) == {used: objects[used]}


def test_a_writer_who_read_the_announcements_before_is_noticed_too(sweeper: Handle, writer: Handle) -> None:
    """Its view does not hold the key; the sweeper's second look sees what it wrote."""
    objects = sample(1)
    sweeper.store(objects)
    doomed = scan_all(sweeper)

    def store_with_an_old_view() -> None:
        writer.bucket.met.clear()
        with writer.turn("main") as turn:
            assert turn.advance(objects, row("main")).swapped

    writer.store(sample(1, "other"))
    sweeper.bucket.at("after put sweep", store_with_an_old_view)
    assert sweeper.delete(doomed) == 0
    assert writer.fetch(objects) == objects


def test_who_comes_between_the_second_look_and_the_deletion_waits(sweeper: Handle, writer: Handle) -> None:
    objects = sample(1)
    sweeper.store(objects)
    doomed = scan_all(sweeper)
    stored = Event()
    threads: list[Thread] = []

    def store() -> None:
        writer.store(objects)
        stored.set()

    def come_between() -> None:
        renewed = Event()
        writer.bucket.at("after put probe", renewed.set)
        threads.append(started(store))
        assert renewed.wait(PATIENCE_S), "it wrote the object, and asks whether that was early enough"
        assert not stored.is_set()

    sweeper.bucket.at("before delete objects", come_between)
    assert sweeper.delete(doomed) == 1
    ended(threads[0])
    assert writer.fetch(objects) == objects


def test_a_write_that_was_answered_too_late_is_done_again(sweeper: Handle, writer: Handle) -> None:
    """The writer's view is from before the announcement, its write from after the second look."""
    objects = sample(1)
    sweeper.store(objects)
    doomed = scan_all(sweeper)
    in_the_gap, written, deleted = Event(), Event(), Event()

    def write_in_the_gap() -> None:
        in_the_gap.set()
        assert written.wait(PATIENCE_S)

    def sweep() -> None:
        assert sweeper.delete(doomed) == 1
        deleted.set()

    def let_the_sweep_look_twice() -> None:
        started(sweep)
        assert in_the_gap.wait(PATIENCE_S)

    def note() -> None:
        written.set()
        assert deleted.wait(PATIENCE_S)

    sweeper.bucket.at("before delete objects", write_in_the_gap)
    writer.bucket.at("before put objects", lambda: None)  # refused: it is there
    writer.bucket.at("before put objects", let_the_sweep_look_twice)
    writer.bucket.at("after put objects", note)
    writer.store(objects)
    assert writer.fetch(objects) == objects


@pytest.mark.parametrize("is_fresh", [False, True])
def test_an_object_of_an_advance_that_is_done_again_still_counts_as_new(
    is_fresh: bool, opened: Callable[..., Handle]
) -> None:
    writer = opened(wait_s=0.2)
    objects = sample(1, "receipt")
    with writer.turn("main") as turn:
        writer.bucket.at("after put objects", lambda: time.sleep(0.4))  # past what its view is good for
        assert turn.advance(objects, row("main"), list(objects) if is_fresh else ()).swapped
    assert [one.what for one in writer.bucket.met if one[::2] == ("before", "objects")].count("put") > 1
    assert writer.fetch(objects) == objects


def test_what_a_dead_sweeper_announced_holds_writers_up(
    sweeper: Handle, writer: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objectstore, "HELD_MAX_S", 0.1)
    objects = sample(1)
    sweeper.store(objects)
    _die_before_deleting(sweeper)
    time.sleep(WAIT_S)
    with pytest.raises(Unavailable, match="sweep"):
        writer.store(objects)
    writer.store(sample(1, "not announced"))


def test_but_not_for_ever(opened: Callable[..., Handle], monkeypatch: pytest.MonkeyPatch) -> None:
    sweeper, writer = opened(0.1), opened(0.1)
    objects = sample(1)
    sweeper.store(objects)
    _die_before_deleting(sweeper)
    time.sleep(0.1 * announcements.VOID_WAITS + 0.2)
    writer.store(objects)
    assert writer.fetch(objects) == objects
    assert not list((Path(sweeper.url.removeprefix("file://")) / "sweep").iterdir())


def _die_before_deleting(sweeper: Handle) -> None:
    """The deletion is not answered, so that nobody may take back the announcement."""
    doomed = scan_all(sweeper)

    def die() -> None:
        raise UnansweredWrite("gone")

    sweeper.bucket.at("before delete objects", die)
    with pytest.raises(Unavailable):
        sweeper.delete(doomed)


def test_a_sweeper_that_takes_too_long_stops(opened: Callable[..., Handle]) -> None:
    """It may not delete when its announcement counts as void."""
    sweeper = opened(0.1)
    sweeper.store(sample(1))
    doomed = scan_all(sweeper)
    sweeper.bucket.at("before head objects", lambda: None)  # the first look
    sweeper.bucket.at("before head objects", lambda: time.sleep(0.1 * announcements.DELETING_WAITS + 0.1))
    with pytest.raises(Unavailable, match="slow"):
        sweeper.delete(doomed)
    assert sweeper.fetch(sample(1)) == sample(1)


def test_a_removed_row_is_cleared_away_with_its_marks(sweeper: Handle) -> None:
    root = Path(sweeper.url.removeprefix("file://"))
    swap(sweeper, row("kept"))
    swap(sweeper, row("gone"))
    swap(sweeper, None, "gone")
    assert sweeper.tidy(0) == 0
    assert sweeper.tidy(FAR_FUTURE_US) == 2  # the row and its mark
    assert [path.name for path in (root / "rows").iterdir()] == ["kept"]
    assert list((root / "gone").iterdir()) == []
    assert len(list((root / "kinds" / "branch").iterdir())) == 1
    assert sweeper.tidy(FAR_FUTURE_US) == 0
    assert [one.name for one in sweeper.references("branch")] == ["kept"]


def test_a_name_taken_up_again_while_it_is_cleared_away_stays(sweeper: Handle, writer: Handle) -> None:
    swap(sweeper, row("name"))
    swap(sweeper, None, "name")
    sweeper.bucket.at("after put sweep", lambda: None)
    threads: list[Thread] = []
    reading = Event()

    def create() -> None:
        let_time_pass(writer)
        while not swap(writer, row("name", data=b"again")).swapped:
            pass

    def come_between() -> None:
        writer.bucket.at("after put probe", reading.set)
        threads.append(started(create))
        assert reading.wait(PATIENCE_S), "it sees the announcement, and waits"

    sweeper.bucket.at("before delete rows", come_between)
    sweeper.tidy(FAR_FUTURE_US)
    ended(threads[0])
    assert sweeper.reference("name") == Row("name", "branch", b"again")
    assert [one.name for one in sweeper.references("branch")] == ["name"]


def test_a_mark_is_not_taken_from_a_row_that_is_on_its_way(sweeper: Handle, writer: Handle) -> None:
    """A row without its mark would never be listed, and so be swept."""
    writer.bucket.at("before put rows", lambda: sweeper.tidy(FAR_FUTURE_US))
    with pytest.raises(OutcomeUnknown):
        swap(writer, row("late"))
    assert (sweeper.reference("late") is not None) == bool(sweeper.references("branch"))
    assert swap(writer, row("late")).swapped
    assert sweeper.references("branch") == [row("late")]


def test_a_lost_swap_leaves_no_mark(sweeper: Handle, writer: Handle) -> None:
    root = Path(sweeper.url.removeprefix("file://"))
    with writer.turn("name") as turn:
        swap(sweeper, row("name", "tag"))
        assert not turn.advance({}, row("name", "branch")).swapped
    assert not list((root / "kinds" / "branch").iterdir())
    assert len(list((root / "kinds" / "tag").iterdir())) == 1


def test_a_withdrawn_announcement_does_not_make_a_write_early(tmp_path: Path) -> None:
    """Another writer of the process has looked since; what this one went by was announced all the same."""

    async def ask() -> tuple[bool, bool]:
        mine = announcements.Announcements(bucket, 0.2)
        await bucket.put("sweep/a", msgspec.msgpack.encode(["objects/k"]))
        view = await mine.read_new_view()
        assert "objects/k" in view.keys
        await asyncio.sleep(0.5)  # far beyond the second look
        before = await mine.were_written_before_view(view, {"objects/k"})
        await bucket.delete(["sweep/a"])
        await mine.read_new_view()
        return before, await mine.were_written_before_view(view, {"objects/k"})

    bucket = LocalBucket(tmp_path)
    assert asyncio.run(ask()) == (False, False)
    bucket.close()
