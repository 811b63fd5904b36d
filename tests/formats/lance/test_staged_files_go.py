"""What writers staged of promoted versions goes, all that waits of a table at once."""

from __future__ import annotations

from time import monotonic
from uuid import UUID

from penstock.errors import PenstockError, Unavailable
from penstock.formats.lance.backlog import STAGED_MAX, Backlog, Told, Work
from penstock.formats.lance.state import LanceState
from penstock.model.content import LanceTable
from penstock.model.keys import Key


def told(*names: str, work: Work = Work.STAGED) -> Told:
    content = LanceTable(id=UUID(int=1), location="/w/t")
    return Told(Key("t"), content, LanceState(), "main", work, names)


class Removing:
    """Stands where files are removed, and remembers what it was told."""

    def __init__(self) -> None:
        self.backlog = Backlog(self.work, background=False)
        self.seen: list[tuple[str, ...]] = []
        self.fails: PenstockError | None = None
        self.meanwhile: Told | None = None

    def work(self, one: Told) -> None:
        self.seen.append(one.staged)
        if self.meanwhile is not None:
            other, self.meanwhile = self.meanwhile, None
            self.backlog.add(other)
        if self.fails is not None:
            raise self.fails


def test_files_that_wait_are_removed_together() -> None:
    removing = Removing()
    for name in ("a", "b", "c"):
        removing.backlog.add(told(name))
    assert removing.backlog.do(told("d"), monotonic() + 5) is None
    assert sorted(name for names in removing.seen for name in names) == ["a", "b", "c", "d"]
    assert ("a", "b", "c") in removing.seen
    assert removing.backlog.jobs == {}


def test_what_is_told_while_others_are_removed_is_not_lost_with_them() -> None:
    removing = Removing()
    removing.meanwhile = told("later")
    removing.backlog.do(told("now"), monotonic() + 5)
    assert removing.seen == [("now",)]
    removing.backlog.do(told("last"), monotonic() + 5)
    assert sorted(name for names in removing.seen for name in names) == ["last", "later", "now"]


def test_what_could_not_be_removed_is_tried_again_with_the_next() -> None:
    removing = Removing()
    removing.fails = Unavailable("storage is away")
    assert removing.backlog.do(told("a"), monotonic() + 5) is removing.fails
    removing.fails = None
    removing.backlog.add(told("b"))
    assert removing.backlog.do(told("c"), monotonic() + 5) is None
    assert {name for names in removing.seen[1:] for name in names} == {"a", "b", "c"}


def test_no_more_wait_than_are_removed_at_once() -> None:
    removing = Removing()
    for number in range(STAGED_MAX + 5):
        removing.backlog.add(told(str(number)))
    (job,) = removing.backlog.jobs.values()
    (waiting,) = job.waiting
    assert waiting.staged == tuple(str(number) for number in range(5, STAGED_MAX + 5))


def test_versions_are_still_told_one_by_one() -> None:
    removing = Removing()
    for _ in range(3):
        removing.backlog.add(told(work=Work.VERSIONS))
    (job,) = removing.backlog.jobs.values()
    assert len(job.waiting) == 3
