"""What writers staged of promoted versions goes, all that waits of a table at once."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from penstock.errors import PenstockError, Unavailable
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.promoter import PROFILE, UnpromotedChain
from penstock.formats.lance.promotion_tasks import STAGED_MAX, PromoteTask, PromoteWork, merge_tasks
from penstock.formats.lance.state import LanceState
from penstock.formats.publisher import BackgroundPublisher
from penstock.model.keys import Key


def told(*names: str, work: PromoteWork = PromoteWork.STAGED) -> PromoteTask:
    content = LanceTable(id=UUID(int=1), location="/w/t")
    return PromoteTask(Key("t"), content, LanceState(), "main", work, names)


class Removing(BackgroundPublisher[PromoteTask, UnpromotedChain]):
    """Stands where files are removed, and remembers what it was told."""

    def __init__(self) -> None:
        super().__init__(PROFILE, background=False)
        self.seen: list[tuple[str, ...]] = []
        self.fails: PenstockError | None = None
        self.meanwhile: PromoteTask | None = None

    def merge_tasks(
        self, pending: Sequence[PromoteTask], task: PromoteTask, *, is_taken: bool
    ) -> list[PromoteTask]:
        return merge_tasks(pending, task, is_taken=is_taken)

    def describe_task(self, task: PromoteTask, problem: PenstockError | None) -> None:
        """Nothing waits to be promoted."""

    def is_dropped(self, pending: Sequence[PromoteTask]) -> bool:
        return False

    def publish_task(self, task: PromoteTask) -> None:
        self.seen.append(task.staged)
        if self.meanwhile is not None:
            other, self.meanwhile = self.meanwhile, None
            self.add_task(other)
        if self.fails is not None:
            raise self.fails


def test_files_that_wait_are_removed_together() -> None:
    removing = Removing()
    for name in ("a", "b", "c"):
        removing.add_task(told(name))
    assert removing.publish_here(told("d"), 5) is None
    assert sorted(name for names in removing.seen for name in names) == ["a", "b", "c", "d"]
    assert ("a", "b", "c") in removing.seen
    assert removing.jobs == {}


def test_what_is_told_while_others_are_removed_is_not_lost_with_them() -> None:
    removing = Removing()
    removing.meanwhile = told("later")
    removing.publish_here(told("now"), 5)
    assert removing.seen == [("now",)]
    removing.publish_here(told("last"), 5)
    assert sorted(name for names in removing.seen for name in names) == ["last", "later", "now"]


def test_what_could_not_be_removed_is_tried_again_with_the_next() -> None:
    removing = Removing()
    removing.fails = Unavailable("storage is away")
    assert removing.publish_here(told("a"), 5) is removing.fails
    removing.fails = None
    removing.add_task(told("b"))
    assert removing.publish_here(told("c"), 5) is None
    assert {name for names in removing.seen[1:] for name in names} == {"a", "b", "c"}


def test_no_more_wait_than_are_removed_at_once() -> None:
    removing = Removing()
    for number in range(STAGED_MAX + 5):
        removing.add_task(told(str(number)))
    (job,) = removing.jobs.values()
    (waiting,) = job.pending
    assert waiting.staged == tuple(str(number) for number in range(5, STAGED_MAX + 5))


def test_versions_are_still_told_one_by_one() -> None:
    removing = Removing()
    for _ in range(3):
        removing.add_task(told(work=PromoteWork.VERSIONS))
    (job,) = removing.jobs.values()
    assert len(job.pending) == 3
