"""A version that was read is more than its number: a branch may get another history under a writer's feet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from penstock.errors import CommitConflict, InvalidRequest, TableConflict
from penstock.formats.delta.branch_log.branch_log import BranchLogTip
from penstock.formats.delta.branch_log.intents import CommitIntent, decode_intent, make_change_operation
from penstock.formats.delta.protocol.actions import Action, Txn, write_commit
from penstock.formats.delta.protocol.transaction import DeltaReads
from penstock.kernel.batch import RequestOutcome
from penstock.model.commits import CommitMeta
from penstock.model.encoding import encode
from penstock.stores.port import Store
from tests.formats.delta.managed import KEY, Owner, add, remove
from tests.formats.delta.owned.interrupted import Interrupted, rounds

META = CommitMeta(message="merge")


@pytest.fixture
def owner(store: Store, tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(store, tmp_path, kind=Interrupted)
    yield owner
    owner.close()


@pytest.fixture
def other(store: Store, tmp_path: Path) -> Iterator[Owner]:
    """Another process."""
    other = Owner(store, tmp_path)
    yield other
    other.close()


def branched(owner: Owner) -> BranchLogTip:
    """A table at version 3 on ``dev``, of which versions 2 and 3 are its own, and the tip there."""
    owner.create()
    owner.commit([add("base")])
    owner.branch("dev")
    owner.commit([add("d1")], branch="dev")
    owner.commit([add("d2")], branch="dev")
    return BranchLogTip.from_line(owner.line(branch="dev"))


def created_anew(owner: Owner) -> None:
    owner.kernel.references.delete_reference("dev")
    for name in ("m1", "m2", "m3"):
        owner.commit([add(name)])
    owner.branch("dev")


def created_anew_with_its_own(owner: Owner) -> None:
    owner.kernel.references.delete_reference("dev")
    owner.branch("dev")
    for name in ("e1", "e2"):
        owner.commit([add(name)], branch="dev")


def set_to_another(owner: Owner) -> None:
    for name in ("m1", "m2"):
        owner.commit([add(name)])
    owner.kernel.references.assign_reference("dev", owner.kernel.references.get_reference("main").head)


def set_back(owner: Owner) -> None:
    owner.kernel.references.assign_reference("dev", owner.kernel.references.get_reference("main").head)


def merged_into(owner: Owner) -> None:
    for name in ("m1", "m2"):
        owner.commit([add(name)])
    merge(owner, "main", "dev")


def merge(owner: Owner, source: str, into: str) -> None:
    owner.kernel.merge(owner.kernel.references.get_reference(source).head, into, META)


WAYS = [created_anew, created_anew_with_its_own, set_to_another, set_back, merged_into]


def commit(
    owner: Owner, tip: BranchLogTip | None, *actions: Action, branch: str = "dev", **more: Any
) -> RequestOutcome:
    how: dict[str, Any] = {"read_version": 3, "reads": DeltaReads(), "uuid": uuid4()} | more
    intent = CommitIntent(actions=write_commit(actions), read_tip=tip, **how)
    return owner.kernel.commit(branch, [make_change_operation(KEY, intent)])


@pytest.mark.parametrize("way", WAYS)
def test_a_commit_that_read_a_version_which_is_gone_is_refused(
    owner: Owner, way: Callable[[Owner], None]
) -> None:
    tip = branched(owner)
    way(owner)
    line = owner.line(branch="dev")
    with pytest.raises(TableConflict, match="a different history on 'dev'") as caught:
        commit(owner, tip, add("x"))
    assert "run the job again" in caught.value.message
    assert caught.value.details["winners"] == {KEY: {"latest_version": line.latest, "commits": []}}
    assert owner.line(branch="dev") == line
    now = BranchLogTip.from_line(line)
    commit(owner, now, add("x"), read_version=now.version)
    assert "x" in owner.paths(branch="dev")


@pytest.mark.parametrize("way", WAYS)
def test_it_is_refused_also_if_that_happens_right_before_its_turn(
    owner: Owner, other: Owner, way: Callable[[Owner], None]
) -> None:
    tip = branched(owner)
    with pytest.raises(TableConflict, match="a different history"):
        rounds(owner, lambda: way(other), lambda: commit(owner, tip, add("x")))
    assert "x" not in owner.paths(branch="dev")


@pytest.mark.parametrize("when", ["before", "right before its turn"])
@pytest.mark.parametrize("way", [created_anew_with_its_own, set_to_another, set_back])
def test_so_is_a_commit_that_gives_its_version(
    owner: Owner, other: Owner, way: Callable[[Owner], None], when: str
) -> None:
    tip = branched(owner)
    between: Callable[[], None] = partial(way, other)
    if when == "before":
        between()
        between = lambda: None  # noqa: E731
    given: dict[str, Any] = {"version": 4, "read_version": None, "reads": None}
    with pytest.raises(TableConflict, match="a different history"):
        rounds(owner, between, lambda: commit(owner, tip, add("x"), **given))
    assert "x" not in owner.paths(branch="dev")


def test_an_attempt_that_landed_is_answered_as_before(owner: Owner) -> None:
    tip, attempt = branched(owner), uuid4()
    given: dict[str, Any] = {"version": 4, "read_version": None, "reads": None, "uuid": attempt}
    assert commit(owner, tip, add("x"), **given).commits
    owner.commit([add("y")], branch="dev")
    assert not commit(owner, tip, add("x"), **given).commits
    assert owner.line(branch="dev").latest == 5


def test_a_batch_that_is_in_the_table_is_not_refused_for_the_history_it_was_read_in(owner: Owner) -> None:
    tip, batch = branched(owner), Txn(app_id="loader", version=7)
    commit(owner, tip, batch, add("x"))
    merged_into(owner)
    line = owner.line(branch="dev")
    commit(owner, tip, batch, add("x-again"))
    assert owner.line(branch="dev") == line
    with pytest.raises(TableConflict, match="a different history"):
        commit(owner, tip, Txn(app_id="loader", version=8), add("y"))


def test_what_goes_on_from_a_version_has_it(owner: Owner) -> None:
    tip = branched(owner)
    for number in range(40):  # so that the entry is in a run
        owner.commit([add(f"later-{number}")], branch="dev")
    commit(owner, tip, add("x"))
    owner.branch("more", at="dev")
    commit(owner, tip, add("y"), branch="more")
    merge(owner, "dev", "main")
    commit(owner, tip, add("z"))
    assert {"x", "y"} <= owner.paths(branch="more")
    assert {"x", "z"} <= owner.paths(branch="dev")


def test_the_default_branch_has_what_it_had_long_after_it_is_published_and_forgotten(owner: Owner) -> None:
    branched(owner)
    tip = BranchLogTip.from_line(owner.line())
    for number in range(3):
        owner.commit([add(f"m{number}")])
        owner.publisher.publish_line(owner.content())
    merge(owner, "dev", "main")
    assert owner.line().published > tip.version
    commit(owner, tip, add("x"), read_version=1, branch="main")
    merge(owner, "main", "dev")
    commit(owner, tip, add("y"), read_version=1)
    assert {"x", "y"} <= owner.paths(branch="dev")


def test_the_tip_of_a_later_version_vouches_for_the_one_that_was_read(owner: Owner) -> None:
    tip = branched(owner)
    commit(owner, tip, add("x"), read_version=2)
    owner.commit([remove("d1")], branch="dev")
    with pytest.raises(CommitConflict, match="removed d1"):
        commit(owner, tip, add("y"), read_version=2, reads=DeltaReads(whole_table=True))


def test_what_a_commit_read_on_its_own_branch_keeps_nobody_from_merging_it(owner: Owner) -> None:
    tip = branched(owner)
    commit(owner, tip, add("x"))
    owner.commit([add("m1")])
    owner.branch("copy")
    head = owner.kernel.references.get_reference("dev").head
    owner.kernel.transplant([head], "copy", META)
    assert owner.paths(branch="copy") == {"base", "m1", "x"}
    merge(owner, "dev", "main")
    assert owner.paths() == {"base", "m1", "d1", "d2", "x"}


@pytest.mark.parametrize(
    "given", [{"read_version": None}, {"read_version": 4}, {"read_version": None, "version": 5}]
)
def test_a_tip_that_cannot_be_of_what_was_read_is_a_mistake(owner: Owner, given: dict[str, Any]) -> None:
    tip = branched(owner)
    owner.commit([add("d3")], branch="dev")
    with pytest.raises(InvalidRequest, match="tip"):
        commit(owner, tip, add("x"), **given)


def test_who_does_not_tell_is_checked_by_the_number_alone(owner: Owner) -> None:
    branched(owner)
    created_anew_with_its_own(owner)
    commit(owner, None, add("x"))
    assert owner.paths(branch="dev") == {"base", "e1", "e2", "x"}


def test_intents_of_before_are_read() -> None:
    now = CommitIntent(actions=b"", uuid=UUID(int=7), read_version=3)
    encoded = encode(now)
    assert encoded[-1:] == encode(None)
    before = bytes([encoded[0] - 1]) + encoded[1:-1]
    assert decode_intent(before) == now


@pytest.mark.parametrize(
    "tip",
    [
        BranchLogTip(-1, b""),
        BranchLogTip(0, b""),
        BranchLogTip(12, b""),
        BranchLogTip(2**63 - 1, b"u" * 16, b"l" * 16),
    ],
)
def test_a_tip_is_told_as_a_text_and_understood_again(tip: BranchLogTip) -> None:
    assert BranchLogTip.parse(tip.text) == tip


@pytest.mark.parametrize(
    "text", ["", "x", "-2", "1-", "1-ab-cd", "1-" + "g" * 32 + "-" + "0" * 32, " 1", "1\n", "²", "9" * 500]
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a tip of the table") as caught:
        BranchLogTip.parse(text)
    assert len(caught.value.message) < 300
