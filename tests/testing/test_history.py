"""The history checker: every kind of violation is found, told in words, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.encoding import NO_COMMIT
from penstock.testing import HistoryChecker, Violation
from penstock.testing.chain import BranchChain, ChainLink, ChainLog
from penstock.testing.recorder import Answer, Answered, Event, ReadDone, RecordedCall, Values
from penstock.testing.violations import (
    BrokenChain,
    BrokenLog,
    DoubledCommit,
    LostCommit,
    LostUpdate,
    OutOfOrder,
    RefusedButApplied,
    StaleRead,
    StrangeCommit,
    TornCommit,
    WrongAnswer,
)


def commit_id(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def chain(*commits: tuple[str, Values]) -> BranchChain:
    """A branch with these commits: idempotency key and what changed."""
    links, log = [], []
    parent = NO_COMMIT.hex()
    log.append(ChainLog(position=1, kind="create", before=parent, after=parent, landed=()))
    for depth, (key, changes) in enumerate(commits, 1):
        one = commit_id(f"{key} {depth}")
        links.append(
            ChainLink(commit=one, parent=parent, depth=depth, time_us=depth, key=key, changes=changes)
        )
        log.append(
            ChainLog(position=depth + 1, kind="commit", before=parent, after=one, landed=((key, one, 1),))
        )
        parent = one
    return BranchChain(head=parent, links=tuple(links), log=tuple(log))


class Told:
    """A history being told, at given times."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._number = 0

    def call(
        self,
        key: str,
        writes: Values,
        times: tuple[int, int | None],
        answer: Answer = Answer.OK,
        *,
        commit: str | None = None,
        reads: Values | None = None,
    ) -> Told:
        self._number += 1
        start, end = times
        self.events.append(
            RecordedCall(
                client="c", number=self._number, at_ns=start, key=key, writes=writes, reads=reads or {}
            )
        )
        if end is not None:
            self.events.append(
                Answered(client="c", number=self._number, at_ns=end, answer=answer, commit=commit, why="so")
            )
        return self

    def read(self, values: Values, times: tuple[int, int], head: str | None = None) -> Told:
        self._number += 1
        start, end = times
        self.events.append(
            ReadDone(client="r", number=self._number, from_ns=start, at_ns=end, values=values, head=head)
        )
        return self

    def check(self, branch: BranchChain, since_depth: int = 0) -> list[Violation]:
        return HistoryChecker(self.events).check(branch, since_depth)


def kinds(found: Sequence[Violation]) -> list[type[Violation]]:
    return [type(one) for one in found]


def test_a_history_that_kept_every_promise_has_no_violations() -> None:
    branch = chain(("a", {"x": "1", "y": "1"}), ("b", {"x": "2"}), ("c", {"y": None}))
    told = Told()
    told.call("a", {"x": "1", "y": "1"}, (10, 20), commit=branch.links[0].commit)
    told.read({"x": "1", "y": "1"}, (21, 22))
    told.call("b", {"x": "2"}, (30, 60), reads={"x": "1"}, commit=branch.links[1].commit)
    told.call("c", {"y": None}, (30, 60), commit=branch.links[2].commit)
    told.call("refused", {"x": "3"}, (30, 60), Answer.REFUSED)
    told.call("busy", {"x": "3"}, (30, 60), Answer.NOT_NOW)
    told.call("unknown", {"x": "3"}, (30, 60), Answer.UNKNOWN)
    told.call("killed", {"x": "3"}, (30, None))
    told.read({"x": "2", "y": None}, (61, 62), branch.head)
    assert told.check(branch) == []


def test_an_acknowledged_commit_that_is_not_there_is_lost() -> None:
    (found,) = Told().call("a", {"x": "1"}, (1, 2), commit=commit_id("gone")).check(chain())
    assert isinstance(found, LostCommit)
    assert "request a of c was acknowledged" in str(found)


def test_a_request_that_was_applied_twice_is_doubled() -> None:
    branch = chain(("a", {"x": "1"}), ("b", {"x": "2"}), ("a", {"x": "1"}))
    told = Told().call("a", {"x": "1"}, (1, 9)).call("b", {"x": "2"}, (1, 9))
    assert kinds(told.check(branch)) == [DoubledCommit]


@pytest.mark.parametrize("answer", [Answer.UNKNOWN, Answer.NOT_NOW, Answer.OK])
def test_a_doubled_request_is_noticed_whatever_its_client_was_told(answer: Answer) -> None:
    branch = chain(("a", {"x": "1"}), ("a", {"x": "1"}))
    assert DoubledCommit in kinds(Told().call("a", {"x": "1"}, (1, 9), answer).check(branch))


@pytest.mark.parametrize("answer", [Answer.REFUSED, Answer.NOT_NOW])
def test_a_refused_request_that_is_there_is_a_ghost(answer: Answer) -> None:
    (found,) = Told().call("a", {"x": "1"}, (1, 2), answer).check(chain(("a", {"x": "1"})))
    assert isinstance(found, RefusedButApplied)
    assert "was refused (so), but is commit" in str(found)


def test_an_unknown_request_may_be_there_once_or_not_at_all() -> None:
    for times in ((1, 2), (1, None)):
        told = Told().call("a", {"x": "1"}, times, Answer.UNKNOWN)
        assert told.check(chain(("a", {"x": "1"}))) == []
        assert told.check(chain()) == []


def test_a_refusal_after_doubt_says_that_the_request_was_not_applied() -> None:
    told = Told().call("a", {"x": "1"}, (1, 2), Answer.UNKNOWN).call("a", {"x": "1"}, (3, 4), Answer.REFUSED)
    assert kinds(told.check(chain(("a", {"x": "1"})))) == [RefusedButApplied]
    assert told.check(chain()) == []


def test_being_told_to_come_back_after_doubt_says_nothing_about_the_first_attempt() -> None:
    told = Told().call("a", {"x": "1"}, (1, 2), Answer.UNKNOWN).call("a", {"x": "1"}, (3, 4), Answer.NOT_NOW)
    assert told.check(chain(("a", {"x": "1"}))) == []
    assert told.check(chain()) == []


def test_another_request_refused_under_a_used_key_is_no_ghost() -> None:
    told = Told().call("a", {"x": "1"}, (1, 2)).call("a", {"y": "1"}, (3, 4), Answer.REFUSED)
    assert told.check(chain(("a", {"x": "1"}))) == []


def test_another_request_accepted_under_a_used_key_is_torn() -> None:
    told = Told().call("a", {"x": "1"}, (1, 2)).call("a", {"y": "1"}, (3, 4))
    assert kinds(told.check(chain(("a", {"x": "1"})))) == [TornCommit]


def test_a_commit_that_nobody_asked_for_is_strange() -> None:
    (found,) = Told().check(chain(("mine", {"x": "1"})))
    assert isinstance(found, StrangeCommit)
    assert Told().check(chain(("mine", {"x": "1"})), since_depth=1) == []


def test_an_answer_that_names_another_commit_is_wrong() -> None:
    branch = chain(("a", {"x": "1"}))
    assert kinds(Told().call("a", {"x": "1"}, (1, 2), commit=commit_id("other")).check(branch)) == [
        WrongAnswer
    ]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"x": "1"}, "has None at 'y', not '1'"),
        ({"x": "1", "y": "2"}, "has '2' at 'y', not '1'"),
        ({"x": "1", "y": "1", "z": "1"}, "has '1' at 'z', not what it was"),
        ({}, "has None at 'x', not '1'"),
    ],
)
def test_a_commit_that_does_not_hold_what_was_asked_is_torn(changes: Values, what: str) -> None:
    (found,) = Told().call("a", {"x": "1", "y": "1"}, (1, 2)).check(chain(("a", changes)))
    assert isinstance(found, TornCommit)
    assert what in str(found)


def test_writing_what_is_there_already_changes_nothing_and_is_not_torn() -> None:
    branch = chain(("a", {"x": "1"}), ("b", {"y": "2"}))
    told = Told().call("a", {"x": "1"}, (1, 2)).call("b", {"x": "1", "y": "2"}, (3, 4))
    assert told.check(branch) == []


def test_a_commit_acknowledged_before_another_was_asked_for_comes_first() -> None:
    branch = chain(("late", {"x": "2"}), ("early", {"x": "1"}))
    told = Told().call("early", {"x": "1"}, (1, 2)).call("late", {"x": "2"}, (3, 4))
    (found,) = told.check(branch)
    assert found == OutOfOrder(first="early", second="late")
    overlapping = Told().call("early", {"x": "1"}, (1, 4)).call("late", {"x": "2"}, (3, 4))
    assert overlapping.check(branch) == []


def test_order_is_kept_for_requests_whose_outcome_is_unknown_too() -> None:
    branch = chain(("late", {"x": "2"}), ("early", {"x": "1"}))
    told = Told().call("early", {"x": "1"}, (1, 2)).call("late", {"x": "2"}, (3, None))
    assert kinds(told.check(branch)) == [OutOfOrder]


def test_an_update_of_a_value_that_its_writer_did_not_see_is_lost() -> None:
    branch = chain(("a", {"x": "1"}), ("b", {"x": "2"}), ("c", {"x": "3"}))
    told = Told().call("a", {"x": "1"}, (1, 2)).call("b", {"x": "2"}, (3, 9), reads={"x": "1"})
    told.call("c", {"x": "3"}, (3, 9), reads={"x": "1"})
    (found,) = told.check(branch)
    assert isinstance(found, LostUpdate)
    assert "was written on '1' at 'x', but replaced '2'" in str(found)


def test_a_read_that_must_still_hold_is_checked_like_an_update() -> None:
    branch = chain(("a", {"x": "1"}), ("b", {"y": "1"}))
    told = Told().call("a", {"x": "1"}, (1, 9)).call("b", {"y": "1"}, (1, 9), reads={"x": None})
    assert kinds(told.check(branch)) == [LostUpdate]


class TestReads:
    branch = chain(("a", {"x": "1"}), ("b", {"x": "2", "y": "2"}), ("c", {"y": "3"}))

    def told(self) -> Told:
        told = Told().call("a", {"x": "1"}, (10, 20)).call("b", {"x": "2", "y": "2"}, (30, 40))
        return told.call("c", {"y": "3"}, (50, 60))

    def test_a_read_sees_all_of_a_commit_or_nothing(self) -> None:
        found = self.told().read({"x": "1", "y": "2"}, (35, 36)).check(self.branch)
        assert kinds(found) == [StaleRead]
        assert "the branch never was so" in str(found[0])

    def test_a_read_sees_what_was_acknowledged_before_it(self) -> None:
        assert self.told().read({"x": "1"}, (35, 45)).check(self.branch) == []
        assert kinds(self.told().read({"x": "1"}, (41, 45)).check(self.branch)) == [StaleRead]

    def test_a_read_does_not_see_what_was_asked_for_after_it(self) -> None:
        assert self.told().read({"x": "2"}, (22, 35)).check(self.branch) == []
        assert kinds(self.told().read({"x": "2"}, (22, 25)).check(self.branch)) == [StaleRead]

    def test_a_read_sees_no_less_than_one_that_ended_before_it(self) -> None:
        told = self.told().read({"x": "2"}, (31, 32)).read({"x": "1"}, (33, 34))
        assert kinds(told.check(self.branch)) == [StaleRead]
        told = self.told().read({"x": "2"}, (31, 34)).read({"x": "1"}, (33, 34))
        assert told.check(self.branch) == []

    def test_a_read_of_a_commit_that_is_not_on_the_branch_is_stale(self) -> None:
        told = self.told().read({"x": "2"}, (41, 42), commit_id("elsewhere"))
        assert kinds(told.check(self.branch)) == [StaleRead]

    def test_a_read_of_a_commit_sees_what_that_commit_holds(self) -> None:
        head = self.branch.links[1].commit
        assert self.told().read({"x": "2", "y": "2"}, (41, 42), head).check(self.branch) == []
        assert kinds(self.told().read({"y": "3"}, (55, 62), head).check(self.branch)) == [StaleRead]

    def test_the_empty_branch_may_be_read_before_anything_was_acknowledged(self) -> None:
        assert self.told().read({"x": None}, (1, 15), NO_COMMIT.hex()).check(self.branch) == []
        assert kinds(self.told().read({"x": None}, (21, 25)).check(self.branch)) == [StaleRead]


def test_a_chain_that_is_not_one_is_broken() -> None:
    whole = chain(("a", {"x": "1"}), ("b", {"x": "2"}))
    told = Told().call("a", {"x": "1"}, (1, 9)).call("b", {"x": "2"}, (1, 9))
    first, second = whole.links
    fork = BranchChain(head=whole.head, links=(first, _with(second, parent=commit_id("?"))), log=whole.log)
    deep = BranchChain(head=whole.head, links=(first, _with(second, depth=3)), log=whole.log)
    old = BranchChain(head=whole.head, links=(first, _with(second, time_us=1)), log=whole.log)
    for broken in (fork, deep, old):
        assert kinds(told.check(broken)) == [BrokenChain]


def _with(link: ChainLink, **changed: object) -> ChainLink:
    fields = {name: getattr(link, name) for name in ChainLink.__struct_fields__}
    return ChainLink(**(fields | changed))


def test_a_log_that_misses_a_swap_is_broken() -> None:
    whole = chain(("a", {"x": "1"}), ("b", {"x": "2"}), ("c", {"x": "3"}))
    told = Told()
    for link in whole.links:
        told.call(link.key, link.changes, (1, 9))
    assert told.check(whole) == []
    for log in (whole.log[:-1], (*whole.log[:2], whole.log[3]), (*whole.log[:2], *whole.log[:2]), ()):
        found = told.check(BranchChain(head=whole.head, links=whole.links, log=log))
        assert set(kinds(found)) == {BrokenLog}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=12), st.data())
def test_reads_are_judged_as_a_search_over_all_positions_judges_them(
    writes: list[tuple[int, int]], data: st.DataObject
) -> None:
    """The checker intersects ranges; here every position is tried."""
    tables = ["t0", "t1", "t2", "t3"]
    commits: list[tuple[str, Values]] = [(f"w{n}", {tables[t]: str(v)}) for n, (t, v) in enumerate(writes)]
    branch = chain(*commits)
    told = Told()
    for number, link in enumerate(branch.links):
        told.call(link.key, link.changes, (100 * number, 100 * number + data.draw(st.integers(1, 250))))
    values = data.draw(st.dictionaries(st.sampled_from(tables), st.sampled_from(["0", "1", "2", None])))
    start = data.draw(st.integers(0, 1400))
    end = start + data.draw(st.integers(1, 400))
    states: list[Values] = [{}]
    for link in branch.links:
        states.append(states[-1] | link.changes)
    calls = HistoryChecker(told.events).attempts
    acknowledged = {one.call.key for one in calls if one.returned_ns is not None and one.returned_ns < start}
    asked = {one.call.key for one in calls if one.call.at_ns <= end}
    keys = [link.key for link in branch.links]
    possible = any(
        all(state.get(table) == value for table, value in values.items())
        and acknowledged <= set(keys[:position])
        and set(keys[:position]) <= asked
        for position, state in enumerate(states)
    )
    found = [one for one in told.read(values, (start, end)).check(branch) if isinstance(one, StaleRead)]
    assert (found == []) is possible
