"""The checker of histories of transactions finds every kind of anomaly, and none where there is none."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.transactions import Isolation, Policy
from tests.reliability.transactions.anomalies import Kind
from tests.reliability.transactions.checker import check
from tests.reliability.transactions.history import (
    AnyStep,
    Append,
    Done,
    Drop,
    History,
    Look,
    Outcome,
    Read,
    Value,
)

SERIALIZABLE = Isolation.SERIALIZABLE


def done(id: str, *steps: AnyStep, **how: object) -> Done:  # noqa: A002
    """A transaction; one that appended says so by its elements."""
    return Done(id=id, steps=steps, **how)  # type: ignore[arg-type]


def looks(*states: dict[str, str | None]) -> tuple[Look, ...]:
    """What readers find at one commit after the other; a list is given as its elements, of a letter each."""
    return tuple(
        Look(place=place, found={name: _value(text) for name, text in state.items()})
        for place, state in enumerate(states)
    )


def _value(text: str | None) -> Value:
    return None if text is None else tuple(text)


def read(name: str, text: str | None) -> Read:
    return Read(name, _value(text))


def kinds(*transactions: Done, at: Sequence[Look] = ()) -> set[Kind]:
    return {one.kind for one in check(History(transactions=transactions, looks=tuple(at)))}


# -- one of each kind ----------------------------------------------------------------------------------------


def test_a_read_of_what_was_aborted_is_found() -> None:
    aborted = done("t1", Append("x", "a"), outcome=Outcome.ABORTED)
    assert kinds(aborted, at=looks({"x": "a"})) == {Kind.DIRTY_READ}
    assert kinds(aborted, done("t2", read("x", "a"))) == {Kind.DIRTY_READ}


def test_a_read_of_what_is_not_known_to_have_landed_tells_that_it_has() -> None:
    unknown = done("t1", Append("x", "a"), Append("y", "b"), outcome=Outcome.UNKNOWN)
    assert not kinds(unknown, at=looks({"x": "a", "y": "b"}))
    assert not kinds(unknown, at=looks({"x": None, "y": None}))
    assert Kind.TORN in kinds(unknown, at=looks({"x": "a", "y": None}, {"x": "a", "y": "b"}))


def test_a_read_of_half_of_what_was_written_is_found() -> None:
    writer = done("t1", Append("x", "a"), Append("x", "b"))
    assert Kind.INTERMEDIATE_READ in kinds(writer, done("t2", read("x", "a")), at=looks({"x": "ab"}))


@pytest.mark.parametrize(
    "steps",
    [
        (Append("x", "a"), read("x", None)),
        (read("x", "z"), Append("x", "a"), read("x", "a")),
        (read("x", None), read("x", "z")),
        (read("x", "z"), Drop("x"), read("x", "z")),
    ],
    ids=[
        "its own is missing",
        "what it read before is missing",
        "not twice the same",
        "dropped and still there",
    ],
)
def test_a_transaction_that_does_not_read_its_own_is_found(steps: Sequence[AnyStep]) -> None:
    assert Kind.INTERNAL in kinds(done("t0", Append("x", "z")), done("t1", *steps))


def test_an_element_of_nobody_is_found() -> None:
    assert kinds(at=looks({"x": "a"})) == {Kind.GHOST}


def test_an_element_that_is_there_twice_is_found() -> None:
    assert kinds(done("t1", Append("x", "a")), at=looks({"x": "aa"})) == {Kind.DUPLICATED}


def test_an_element_that_is_nowhere_is_found() -> None:
    lost = done("t1", Append("x", "a"), begun_ns=1, ended_ns=2)
    late = Look(place=1, found={"x": None}, begun_ns=3, ended_ns=4)
    assert kinds(lost, at=[late]) == {Kind.LOST}
    early = Look(place=1, found={"x": None}, begun_ns=1, ended_ns=4)
    assert not kinds(lost, at=[early])


def test_an_element_that_went_is_found() -> None:
    assert Kind.GONE in kinds(
        done("t1", Append("x", "a")), done("t2", Append("x", "b")), at=looks({"x": "ab"}, {"x": "a"})
    )
    assert Kind.GONE in kinds(done("t1", Append("x", "a")), at=looks({"x": "a"}, {"x": None}))


def test_a_list_that_was_dropped_does_not_come_back() -> None:
    writers = done("t1", Append("x", "a")), done("t2", read("x", "a"), Drop("x"))
    assert not kinds(*writers, at=looks({"x": "a"}, {"x": None}))
    assert kinds(*writers, at=looks({"x": "a"}, {"x": None}, {"x": "a"})) == {Kind.GONE}


def test_a_commit_that_is_not_twice_the_same_is_found() -> None:
    seen = Look(place=1, found={"x": ("a",)}), Look(place=1, found={"x": None})
    assert Kind.UNSTABLE in kinds(done("t1", Append("x", "a")), at=seen)


def test_a_list_in_two_states_that_do_not_follow_each_other_is_found() -> None:
    writers = [done("t0", Append("x", "z")), done("t1", Append("x", "a")), done("t2", Append("x", "b"))]
    readers = [done("r1", read("x", "za")), done("r2", read("x", "zb"))]
    assert Kind.FORKED in kinds(*writers, *readers)


def test_writes_that_overtook_each_other_are_found() -> None:
    writers = [done(f"t{one}", Append("x", f"{one}"), Append("y", f"{one}{one}")) for one in (1, 2)]
    in_x, in_y = done("r1", Read("x", ("1",))), done("r2", Read("y", ("22",)))
    end = Look(place=0, found={"x": ("1", "2"), "y": ("11", "22")})
    assert Kind.G0 in kinds(*writers, in_x, in_y, at=[end])


def test_information_in_a_circle_is_found() -> None:
    one = done("t1", Append("x", "a"), read("y", "b"))
    other = done("t2", Append("y", "b"), read("x", "a"))
    assert kinds(one, other) == {Kind.G1C}


def test_a_lost_update_is_found() -> None:
    one = done("t1", read("x", "z"), Append("x", "a"))
    other = done("t2", read("x", "z"), Append("x", "b"))
    seen = looks({"x": "z"}, {"x": "za"}, {"x": "zab"})
    assert kinds(done("t0", Append("x", "z")), one, other, at=seen) == {Kind.LOST_UPDATE}


def test_a_list_that_two_made_who_found_none_is_a_lost_update() -> None:
    one = done("t1", read("x", None), Append("x", "a"))
    other = done("t2", read("x", None), Append("x", "b"))
    assert kinds(one, other, at=looks({"x": "a"}, {"x": "ab"})) == {Kind.LOST_UPDATE}


def test_a_drop_of_what_others_added_to_meanwhile_is_a_lost_update() -> None:
    first, other = done("t1", Append("x", "a")), done("t2", Append("x", "b"))
    dropping = done("t3", read("x", "a"), Drop("x"))
    seen = looks({"x": "a"}, {"x": "ab"}, {"x": None})
    assert kinds(first, other, dropping, at=seen) == {Kind.LOST_UPDATE}


def test_a_blind_append_loses_nothing_by_what_others_append() -> None:
    writers = [done(name, Append("x", name)) for name in "ab"]
    assert not kinds(*writers, at=looks({"x": "a"}, {"x": "ab"}))


def test_a_reader_who_sees_one_half_of_a_transaction_is_found() -> None:
    writer = done("t1", Append("x", "a"), Append("y", "b"))
    assert kinds(writer, at=looks({"x": "a", "y": None}, {"x": "a", "y": "b"})) == {Kind.TORN}


@pytest.mark.parametrize("outcome", [Outcome.COMMITTED, Outcome.ABORTED])
def test_a_transaction_that_reads_of_two_instants_is_found(outcome: Outcome) -> None:
    writer = done("t1", Append("x", "a"), Append("y", "b"))
    reader = done("t2", read("x", "a"), read("y", None), outcome=outcome)
    assert kinds(writer, reader, at=looks({"x": "a", "y": "b"})) == {Kind.G_SINGLE}


def skewed(isolation: Isolation) -> list[Done]:
    """Two that read both lists, and append to one each."""
    return [
        done("t1", read("x", None), read("y", None), Append("x", "a"), isolation=isolation),
        done("t2", read("x", None), read("y", None), Append("y", "b"), isolation=isolation),
    ]


def test_skewed_writes_are_found_where_transactions_are_serializable() -> None:
    seen = looks({"x": "a", "y": None}, {"x": "a", "y": "b"})
    assert kinds(*skewed(SERIALIZABLE), at=seen) == {Kind.G2_ITEM}
    assert not kinds(*skewed(Isolation.SNAPSHOT), at=seen)


def test_a_serializable_transaction_that_read_what_was_changed_meanwhile_is_found() -> None:
    """It could have run alone before the other; but then the other would have seen it."""
    one = done("t1", read("x", None), Append("y", "a"), isolation=SERIALIZABLE)
    other = done("t2", Append("x", "b"), Append("y", "c"), isolation=SERIALIZABLE)
    seen = looks({"x": "b", "y": "c"}, {"x": "b", "y": "ca"})
    assert kinds(one, other, at=seen) == {Kind.G_SINGLE}


def test_under_the_snapshot_policy_nobody_writes_where_another_has_written_meanwhile() -> None:
    seen = looks({"x": "b", "y": None}, {"x": "b", "y": "c"}, {"x": "ab", "y": "c"})
    for policy, found in ((Policy.REBASE, set()), (Policy.SNAPSHOT, {Kind.G_SINGLE})):
        one = done("t1", read("y", None), Append("x", "a"), policy=policy)
        others = done("t2", Append("x", "b")), done("t3", read("x", "b"), Append("y", "c"))
        assert kinds(one, *others, at=seen) == set()
        late = done("t4", Append("x", "b"), Append("y", "c"))
        both = looks({"x": "b", "y": "c"}, {"x": "ab", "y": "c"})
        assert kinds(one, late, at=both) == found


def test_a_reader_who_does_not_see_what_was_acknowledged_before_is_found() -> None:
    writer = done("t1", Append("x", "a"), begun_ns=1, ended_ns=2)
    at = Look(place=1, found={"x": ("a",)})
    late = Look(place=0, found={"x": None}, begun_ns=3, ended_ns=4)
    assert kinds(writer, at=[late, at]) == {Kind.STALE}
    while_it_lands = Look(place=0, found={"x": None}, begun_ns=1, ended_ns=4)
    assert not kinds(writer, at=[while_it_lands, at])


def test_a_transaction_that_does_not_see_what_was_acknowledged_before_is_found() -> None:
    writer = done("t1", Append("x", "a"), begun_ns=1, ended_ns=2)
    reader = done("t2", read("x", None), begun_ns=3, ended_ns=4)
    assert kinds(writer, reader, at=looks({"x": "a"})) == {Kind.STALE}


# -- none ----------------------------------------------------------------------------------------------------


def serial(seed: int, count: int, isolation: Isolation, policy: Policy) -> History:
    """Transactions one after the other, some of which are aborted; a reader after each."""
    chance, state = random.Random(seed), dict[str, Value]()
    names = [f"l{number}" for number in range(3)]
    made, seen = list[Done](), [Look(place=0, found=dict.fromkeys(names))]
    for number in range(count):
        mine, steps = dict(state), list[AnyStep]()
        for turn in range(chance.randint(1, 5)):
            name = chance.choice(names)
            what = chance.random()
            if what < 0.4 or Drop(name) in steps:
                steps.append(Read(name, mine.get(name)))
            elif what < 0.9 or mine.get(name) is None or mine[name] != state.get(name):
                element = f"e{number}.{turn}"
                steps.append(Append(name, element))
                mine[name] = (*(mine.get(name) or ()), element)
            else:
                steps += [Read(name, mine[name]), Drop(name)]
                mine[name] = None
        outcome = chance.choice([Outcome.COMMITTED, Outcome.COMMITTED, Outcome.ABORTED, Outcome.UNKNOWN])
        if outcome is Outcome.UNKNOWN and not any(isinstance(one, Append) for one in steps):
            outcome = Outcome.ABORTED  # whether it landed could be seen by nobody
        has_landed = outcome is Outcome.COMMITTED or (outcome is Outcome.UNKNOWN and chance.random() < 0.5)
        state = mine if has_landed else state
        when = {"begun_ns": 10 * number + 1, "ended_ns": 10 * number + 5}
        made.append(done(f"t{number}", *steps, outcome=outcome, isolation=isolation, policy=policy, **when))
        found = {name: state.get(name) for name in names}
        place = seen[-1].place + has_landed
        seen.append(Look(place=place, found=found, begun_ns=10 * number + 6, ended_ns=10 * number + 8))
    return History(transactions=tuple(made), looks=tuple(seen))


@given(
    seed=st.integers(0, 2**32),
    count=st.integers(0, 12),
    isolation=st.sampled_from(Isolation),
    policy=st.sampled_from(Policy),
)
def test_transactions_one_after_the_other_show_no_anomaly(
    seed: int, count: int, isolation: Isolation, policy: Policy
) -> None:
    found = check(serial(seed, count, isolation, policy))
    assert not found, "\n".join(map(str, found))


@given(seed=st.integers(0, 2**32))
def test_an_element_taken_out_of_the_last_look_of_a_serial_history_is_missed(seed: int) -> None:
    history = serial(seed, 8, Isolation.SNAPSHOT, Policy.REBASE)
    last = history.looks[-1]
    name = next((name for name, value in last.found.items() if value is not None and len(value) > 1), None)
    if name is None:
        return
    found = {**last.found, name: (last.found[name] or ())[1:]}
    broken = Look(place=last.place + 1, found=found, begun_ns=last.begun_ns, ended_ns=last.ended_ns)
    assert check(History(transactions=history.transactions, looks=(*history.looks, broken)))
