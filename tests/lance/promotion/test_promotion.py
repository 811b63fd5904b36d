"""Versions that the lake has ratified are put where every reader of Lance looks: in order, once, for good."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Event
from time import monotonic

import pytest

from penstock.errors import ForeignCommit, ManagedElsewhere, Unavailable
from penstock.formats.lance import metrics
from penstock.formats.lance.branch_chains import WriteTarget, begin_chain
from penstock.formats.lance.intents import CreateStep
from penstock.formats.lance.promotion_tasks import PENDING_MAX
from penstock.formats.lance.state import LanceVersionReader, decode_state
from penstock.metrics.memory import Metrics
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT
from penstock.model.keys import Key
from penstock.model.operations import Delete
from penstock.model.references import Kind
from penstock.storage.buckets import UnansweredWrite
from penstock.testing.threads import at_once
from tests.lance.promotion.watched import WatchedPlaces
from tests.lance.versions import Tables, file_name, manifests, put_data, rows, stage, stage_on_line, staged

pytest.importorskip("lance")

LATER_S = 30.0


def in_log(location: Path) -> list[str]:
    return [f"_versions/{name}" for name in manifests(location)]


def names(*versions: int) -> list[str]:
    return [file_name(version) for version in versions]


# -- the plain way -----------------------------------------------------------------------------------------


def test_what_is_committed_is_read_by_plain_lance_soon_after(tables: Tables) -> None:
    location = tables.declare()
    for version in (1, 2, 3):
        tables.create(version)
        assert tables.settle()
        assert rows(location) == list(range(version))
    assert manifests(location) == names(1, 2, 3)


def test_what_writers_staged_goes_once_their_version_is_at_its_place(make: Callable[..., Tables]) -> None:
    tables = make()
    location = tables.declare()
    tables.create(1, 2)
    assert tables.settle()
    tables.parts.close(LATER_S)
    assert staged(location) == []
    assert rows(location) == [0, 1]


def test_versions_of_one_commit_are_put_one_after_the_other(make: Callable[..., Tables]) -> None:
    places = WatchedPlaces()
    tables = make(places=places)
    tables.declare()
    tables.create(1, 2, 3, 4)
    assert tables.settle()
    assert [one for one in places.created if "_versions" in one] == [
        f"_versions/{name}" for name in names(1, 2, 3, 4)
    ]


def test_no_version_is_put_before_one_that_cannot_be(make: Callable[..., Tables]) -> None:
    is_away = Event()
    is_away.set()

    def before(name: str) -> None:
        if name.endswith(file_name(2)) and is_away.is_set():
            raise Unavailable("storage does not answer")

    tables = make(places=WatchedPlaces(before))
    location = tables.declare()
    tables.create(1, 2, 3)
    assert not tables.promoter.promote_table(tables.content(), monotonic() + LATER_S)
    assert manifests(location) == names(1)
    assert len(staged(location)) >= 2
    behind = tables.promoter.find_unpromoted_status(tables.content())
    assert behind is not None
    assert (behind.versions, type(behind.problem)) == (2, Unavailable)
    is_away.clear()
    assert tables.settle(), "it is tried again by itself"
    assert rows(location) == [0, 1, 2]


def test_whoever_helps_has_it_done_when_told_so(make: Callable[..., Tables]) -> None:
    tables = make()
    tables.promoter.close(0)  # nothing is done in the background
    location = tables.declare()
    tables.create(1, 2)
    assert manifests(location) == []
    assert [one.number for one in tables.promoter.find_unpromoted(tables.content())] == [1, 2]
    assert tables.promoter.promote_table(tables.content(), monotonic() + LATER_S)
    assert rows(location) == [0, 1]
    assert tables.promoter.find_unpromoted(tables.content()) == ()


def test_those_who_land_one_after_the_other_may_be_told_in_any_order(make: Callable[..., Tables]) -> None:
    tables = make()
    tables.promoter.close(0)
    location = tables.declare()
    tables.create(1)
    older = tables.content()
    tables.create(2)
    for content in (tables.content(), older):
        assert tables.promoter.promote_table(content, monotonic() + LATER_S)
        assert manifests(location) == names(1, 2)


# -- answers that are lost, others that are faster ---------------------------------------------------------


def test_a_manifest_that_was_put_though_nobody_said_so_is_done(make: Callable[..., Tables]) -> None:
    lost: list[str] = []

    def after(name: str) -> None:
        if "_versions" in name:
            lost.append(name)
            raise UnansweredWrite("the answer was lost")

    tables = make(places=WatchedPlaces(after=after))
    location = tables.declare()
    tables.create(1, 2)
    assert tables.promoter.promote_table(tables.content(), monotonic() + LATER_S)
    assert len(lost) == 2
    assert rows(location) == [0, 1]


def test_a_manifest_that_was_not_put_though_nobody_said_so_is_put_again(make: Callable[..., Tables]) -> None:
    lost = Event()

    def before(name: str) -> None:
        if name.endswith(file_name(1)) and not lost.is_set():
            lost.set()
            raise UnansweredWrite("the answer was lost")

    tables = make(places=WatchedPlaces(before))
    location = tables.declare()
    tables.create(1)
    assert tables.settle()
    assert lost.is_set()
    assert rows(location) == [0]


def test_two_who_put_the_same_version_at_once_both_have_it_done(make: Callable[..., Tables]) -> None:
    both = Barrier(2, timeout=LATER_S)
    first = make()
    first.promoter.close(0)
    location = first.declare()
    first.create(1, 2, 3)

    def before(name: str) -> None:
        if name.endswith(tuple(names(1, 2, 3))):
            both.wait()

    places = [WatchedPlaces(before) for _ in range(2)]
    others = [make(store=first.store, places=one) for one in places]
    done = at_once(
        *(lambda one=one: one.promoter.promote_table(one.content(), monotonic() + LATER_S) for one in others)
    )
    assert done == [True, True]
    assert all(one.promoter.list_unpublished() == () for one in others)
    created = [name for one in places for name in one.created if "_versions" in name]
    assert sorted(created, reverse=True) == in_log(location), "each was put once"
    assert rows(location) == [0, 1, 2]


def test_versions_that_are_there_already_are_found_from_the_newest_backwards(
    make: Callable[..., Tables],
) -> None:
    first = make()
    first.declare()
    for version in (1, 2, 3):
        first.create(version)
    assert first.settle()
    places = WatchedPlaces()
    second = make(store=first.store, places=places)
    assert second.promoter.promote_table(second.content(), monotonic() + LATER_S)
    assert places.created == [], "nothing is left to do"


# -- what earlier processes left ---------------------------------------------------------------------------


def catch_up(tables: Tables) -> None:
    """Have looked at all that may be left."""
    tables.parts.catch_up()
    assert tables.promoter.await_catch_up(LATER_S)


def test_what_an_earlier_process_left_is_promoted_when_the_lake_is_opened(
    make: Callable[..., Tables],
) -> None:
    first = make()
    first.promoter.close(0)
    locations = [first.declare(name) for name in ("a", "b")]
    for name in ("a", "b"):
        first.create(1, 2, name=name)
    assert [manifests(one) for one in locations] == [[], []]
    for _ in range(2):  # as often as anybody likes
        later = make(store=first.store)
        catch_up(later)
        later.parts.close(LATER_S)
        assert [manifests(one) for one in locations] == [names(1, 2), names(1, 2)]
    assert [rows(one) for one in locations] == [[0, 1], [0, 1]]


def test_a_lake_that_is_closed_promotes_what_it_can_first(make: Callable[..., Tables]) -> None:
    failed = Event()

    def before(name: str) -> None:
        if name.endswith(file_name(1)) and not failed.is_set():
            failed.set()
            raise Unavailable("storage does not answer")

    tables = make(places=WatchedPlaces(before))
    location = tables.declare()
    tables.create(1)
    assert failed.wait(LATER_S)
    tables.parts.close(LATER_S)
    assert manifests(location) == names(1)


def test_a_lake_is_closed_in_time_though_storage_is_away(make: Callable[..., Tables]) -> None:
    def before(name: str) -> None:
        if name.endswith(file_name(1)):
            raise Unavailable("storage does not answer")

    tables = make(places=WatchedPlaces(before))
    tables.declare()
    tables.create(1)
    begun_s = monotonic()
    tables.parts.close(0.5)
    assert monotonic() - begun_s < LATER_S
    assert tables.newest() == 1


# -- somebody else writes ----------------------------------------------------------------------------------


def declared(tables: Tables, name: str = "t") -> Path:
    """The folder of a new table, which the lake has seen to be empty: so it commits whatever comes there."""
    location = tables.declare(name)
    assert tables.settle(name)
    tables.parts.folder_check.require_in_sync(Key(name), tables.content(name), is_default=True)
    return location


def foreign_at(location: Path, version: int) -> Path:
    there = location / "_versions" / file_name(version)
    there.write_bytes(b"somebody else's")
    return there


def test_a_manifest_of_somebody_else_stays_and_nothing_is_put_after_it(
    make: Callable[..., Tables], caplog: pytest.LogCaptureFixture
) -> None:
    meter = Metrics()
    tables = make(meter=meter)
    location = tables.declare()
    tables.create(1)
    assert tables.settle()
    there = foreign_at(location, 2)
    with caplog.at_level(logging.ERROR, "penstock"):
        tables.create(2, 3)
        assert not tables.settle()
        assert not tables.promoter.promote_table(tables.content(), monotonic() + LATER_S)
    assert there.read_bytes() == b"somebody else's"
    assert manifests(location) == names(1, 2)
    assert len(staged(location)) == 2, "they are all that there is of these versions"
    (alarm,) = [one.message for one in caplog.records if str(location) in one.message]
    assert alarm.startswith(
        f"not promoted: {there} is not the manifest that was ratified as version 2 of the table: "
    )
    assert meter.snapshot().count(metrics.FOREIGN) == 1
    behind = tables.promoter.find_unpromoted_status(tables.content())
    assert behind is not None
    assert behind.versions == 2
    assert isinstance(behind.problem, ForeignCommit)
    assert behind.problem.details["version"] == 2


def test_once_the_strange_manifest_is_gone_it_goes_on(make: Callable[..., Tables]) -> None:
    tables = make()
    location = tables.declare()
    tables.create(1)
    there = foreign_at(location, 2)
    tables.create(2)
    assert not tables.settle()
    there.unlink()
    assert tables.promoter.promote_table(tables.content(), monotonic() + LATER_S)
    assert rows(location) == [0, 1]
    assert tables.promoter.find_unpromoted_status(tables.content()) is None


def test_a_version_that_cannot_be_promoted_has_a_name_that_clients_leave_as_it_is(tables: Tables) -> None:
    location = declared(tables)
    foreign_at(location, 1)
    tables.create(1)
    assert not tables.settle()
    (waiting,) = tables.promoter.find_unpromoted(tables.content())
    for _ in range(2):
        name = tables.promoter.find_private_path(tables.content(), waiting)
        assert name.endswith(f"/{file_name(1)}")
        assert name.startswith("_staging/")
        assert (location / name).read_bytes() == (tables.template / "_versions" / file_name(1)).read_bytes()


def test_a_strange_manifest_at_one_table_keeps_no_other_from_going_on(tables: Tables) -> None:
    foreign_at(declared(tables, "a"), 1)
    location = tables.declare("b")
    tables.create(1, name="a")
    tables.create(1, name="b")
    assert not tables.settle("a")
    assert tables.settle("b")
    assert rows(location) == [0]


def test_who_waits_for_all_is_told_of_a_strange_manifest_and_of_nothing_else(tables: Tables) -> None:
    foreign_at(declared(tables, "a"), 1)
    location = tables.declare("b")
    tables.create(1, name="a")
    for version in (1, 2):
        tables.create(version, name="b")
        ((key, problem),) = tables.promoter.finish(LATER_S).items()
        assert (key, type(problem)) == (Key("a"), ForeignCommit)
        assert (manifests(location), staged(location)) == (names(*range(1, version + 1)), [])


def test_what_is_told_of_a_table_that_cannot_go_on_does_not_pile_up(make: Callable[..., Tables]) -> None:
    tables = make()
    foreign_at(declared(tables), 1)
    tables.create(1)
    content = tables.content()
    for _ in range(3 * PENDING_MAX):
        tables.promoter.note_commit(Key("t"), content, is_default=True, branch="main")
    assert not tables.settle()
    (job,) = tables.promoter.jobs.values()
    assert len(job.pending) <= PENDING_MAX


def test_a_manifest_that_its_writer_put_at_the_very_place_stays(tables: Tables) -> None:
    location = tables.declare()
    path = stage(tables.template, location, 1)
    (location / path).rename(location / "_versions" / file_name(1))
    tables.change("t", CreateStep(version=1, path=f"_versions/{file_name(1)}"))
    assert tables.settle()
    tables.parts.close(LATER_S)
    assert rows(location) == [0]


def test_a_version_below_one_that_its_writer_put_at_the_very_place_is_promoted(
    make: Callable[..., Tables],
) -> None:
    tables = make()
    tables.promoter.close(0)
    location = tables.declare()
    tables.create(1)
    (location / stage(tables.template, location, 2)).rename(location / "_versions" / file_name(2))
    tables.change("t", CreateStep(version=2, path=f"_versions/{file_name(2)}"))
    assert tables.promoter.promote_table(tables.content(), monotonic() + LATER_S)
    assert manifests(location) == names(1, 2)


# -- what is not for everybody -----------------------------------------------------------------------------


def test_a_private_table_is_never_promoted(tables: Tables) -> None:
    location = tables.declare(is_private=True)
    tables.create(1)
    tables.create(2)
    assert tables.settle()
    assert tables.promoter.promote_table(tables.content(), monotonic() + LATER_S)
    tables.parts.close(LATER_S)
    assert manifests(location) == []
    assert len([one for one in staged(location) if one.startswith("_staging/")]) == 2


def test_what_is_in_a_transaction_is_not_promoted(tables: Tables) -> None:
    location = tables.declare()
    tables.promoter.close(0)
    tables.create(1)
    other = Tables(tables.directory, tables.template, store=tables.store)
    for is_default in (True, False):
        other.parts.format.after_commit(
            Key("t"), tables.content(), NO_COMMIT, branch="tx/1", is_default=is_default
        )
    other.parts.close(LATER_S)
    assert manifests(location) == []


def test_a_branch_that_has_only_what_the_default_branch_has_promotes_nothing(tables: Tables) -> None:
    location = tables.declare()
    tables.promoter.close(0)
    tables.create(1)
    other = Tables(tables.directory, tables.template, store=tables.store)
    other.promoter.note_commit(Key("t"), tables.content(), is_default=False, branch="dev")
    other.parts.close(LATER_S)
    assert manifests(location) == []


def line_of(tables: Tables, branch: str) -> Path:
    """The folder that a branch goes on in, with what a writer puts there."""
    state = decode_state(tables.content(branch=branch))
    standing = WriteTarget(tables.kernel.branch(branch).incarnation)
    versions = LanceVersionReader(tables.kernel.objects, state)
    folder = tables.location() / begin_chain(standing, tables.content(branch=branch), versions).folder
    put_data(tables.template, folder)
    return folder


def test_a_branch_promotes_in_a_folder_of_its_own(tables: Tables) -> None:
    location = tables.declare()
    tables.create(1)
    tables.kernel.references.create_reference(
        "dev", Kind.BRANCH, tables.kernel.references.get_reference("main").head
    )
    line = line_of(tables, "dev")
    path = stage_on_line(tables.template, location, line, 2)
    tables.change("t", CreateStep(version=2, path=path), branch="dev")
    assert tables.settle()
    assert (tables.newest(), tables.newest(branch="dev")) == (1, 2)
    assert manifests(line) == names(2)
    assert manifests(location) == names(1)


@pytest.mark.parametrize("how", ["drop", "delete the branch"])
def test_an_alarm_of_a_branch_ends_when_the_branch_has_the_table_no_more(tables: Tables, how: str) -> None:
    location = tables.declare()
    tables.create(1)
    tables.kernel.references.create_reference(
        "dev", Kind.BRANCH, tables.kernel.references.get_reference("main").head
    )
    line = line_of(tables, "dev")
    (line / "_versions").mkdir(exist_ok=True)
    foreign_at(line, 2)
    path = stage_on_line(tables.template, location, line, 2)
    tables.change("t", CreateStep(version=2, path=path), branch="dev")
    ((key, problem),) = tables.promoter.finish(LATER_S).items()
    assert (key, type(problem)) == (Key("t"), ForeignCommit)
    tables.create(2)
    assert [*tables.promoter.finish(LATER_S)] == [Key("t")], "the default branch goes on"
    if how == "drop":
        tables.kernel.commit("dev", [Delete(Key("t"))], CommitMeta())
    else:
        tables.kernel.references.delete_reference("dev")
    assert tables.promoter.finish(LATER_S) == {}
    assert tables.promoter.jobs == {}
    assert manifests(location) == names(1, 2)


def test_what_a_branch_was_set_back_behind_is_not_promoted_any_more(make: Callable[..., Tables]) -> None:
    tables = make()
    location = tables.declare()
    tables.create(1)
    assert tables.settle()
    before = tables.kernel.references.get_reference("main").head
    tables.kernel.references.create_reference("dev", Kind.BRANCH, before)
    tables.promoter.close(0)
    line = line_of(tables, "dev")
    path = stage_on_line(tables.template, location, line, 2)
    tables.change("t", CreateStep(version=2, path=path), branch="dev")
    left = tables.content(branch="dev")
    tables.kernel.references.assign_reference("dev", before)
    later = make(store=tables.store)
    later.promoter.note_commit(Key("t"), left, is_default=False, branch="dev")
    assert later.settle()
    assert manifests(line) == []


def test_a_copy_of_a_lake_neither_promotes_nor_writes_to_tables_that_are_not_its_own(
    make: Callable[..., Tables],
) -> None:
    first = make()
    location = first.declare()
    first.create(1)
    assert first.settle()
    first.promoter.close(0)
    first.create(2)
    fork = make(store=first.store, lake="another lake")
    catch_up(fork)
    assert not fork.promoter.promote_table(fork.content(), monotonic() + LATER_S)
    with pytest.raises(ManagedElsewhere, match="belongs to lake this lake, and is read-only here"):
        fork.create(3)
    fork.parts.close(LATER_S)
    assert manifests(location) == names(1)


def test_a_table_that_a_lake_lets_go_of_may_become_another_ones(make: Callable[..., Tables]) -> None:
    first = make()
    first.declare()
    first.create(1)
    assert first.settle()
    first.parts.ownership.release_table(first.content())
    other = make(store=first.store, lake="another lake")
    other.create(2)
    assert other.settle()
    with pytest.raises(ManagedElsewhere):
        make(store=first.store).create(3)


# -- figures -----------------------------------------------------------------------------------------------


def test_what_waits_is_measured_and_its_age_grows(make: Callable[..., Tables]) -> None:
    meter = Metrics()
    tables = make(meter=meter)
    foreign_at(declared(tables), 1)
    tables.create(1)  # once the stranger is met, no further version is taken
    assert not tables.settle()
    tables.promoter.report_metrics()
    seen = meter.snapshot()
    assert (seen.gauge(metrics.UNPROMOTED) or 0) >= 1
    assert (seen.gauge(metrics.UNPROMOTED_SECONDS) or 0) > 0
    assert seen.count(metrics.PROMOTE_ERRORS, error="foreign_commit") >= 1
    (tables.location() / "_versions" / file_name(1)).unlink()
    assert tables.promoter.promote_table(tables.content(), monotonic() + LATER_S)
    tables.promoter.report_metrics()
    seen = meter.snapshot()
    assert seen.gauge(metrics.UNPROMOTED) == seen.gauge(metrics.UNPROMOTED_SECONDS) == 0
    assert seen.count(metrics.PROMOTED) == 1
    newest = LanceVersionReader(tables.kernel.objects, decode_state(tables.content())).find_newest()
    assert newest is not None
    assert newest[0] == 1
