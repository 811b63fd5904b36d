"""The part of the store contract that is about many writers at once: a row that was seen is replaced once."""

from __future__ import annotations

from collections import Counter
from functools import partial
from threading import Thread

from penstock.model.encoding import ObjectId
from penstock.stores.port import AdvanceResult, Row, Store
from penstock.testing.contract_rows import swap
from penstock.testing.samples import row, sample
from penstock.testing.threads import JOIN_MAX_S, at_once

THREADS = 8


class RaceContract:
    """What a store promises when many threads and handles use it at once."""

    def test_a_row_that_changed_since_it_was_seen_is_not_replaced(self, store: Store, other: Store) -> None:
        swap(store, row("main", data=b"0"))
        self._race_two_turns(
            store, other, row("main", data=b"0"), row("main", data=b"A"), row("main", data=b"B")
        )

    def test_a_row_that_was_created_meanwhile_is_not_created_again(self, store: Store, other: Store) -> None:
        self._race_two_turns(store, other, None, row("main", data=b"A"), row("main", data=b"B"))

    def test_a_row_that_was_removed_meanwhile_is_not_replaced(self, store: Store, other: Store) -> None:
        swap(store, row("main", data=b"0"))
        self._race_two_turns(store, other, row("main", data=b"0"), row("main", data=b"A"), None)

    def test_a_row_of_another_kind_meanwhile_is_not_replaced(self, store: Store, other: Store) -> None:
        swap(store, row("main", data=b"0"))
        self._race_two_turns(store, other, row("main", data=b"0"), None, row("main", "tag", b"0"))

    def _race_two_turns(
        self, store: Store, other: Store, before: Row | None, mine: Row | None, theirs: Row | None
    ) -> None:
        """Two turns on one row, the second begun while the first is held.

        A store that locks lets the second wait for the first, and see its row. One that does not lets the
        second go ahead, and the first lose.
        """
        seen: list[tuple[Row | None, AdvanceResult, Row | None]] = []

        def rival() -> None:
            with other.turn("main") as turn:
                seen.append((turn.row, turn.advance(sample(3, "theirs"), theirs), theirs))

        thread = Thread(target=rival, daemon=True)
        with store.turn("main") as turn:
            assert turn.row == before
            thread.start()
            thread.join(0.2)  # it is done, or it waits for this turn to end
            advanced = turn.advance(sample(3, "mine"), mine)
            seen.append((turn.row, advanced, mine))
        thread.join(JOIN_MAX_S)
        assert not thread.is_alive()
        winners = [(row, after) for row, result, after in seen if result.swapped]
        assert len({row for row, _ in winners}) == len(winners) > 0, f"one row, two winners: {seen}"
        state = before
        for _ in winners:
            state = next(after for row, after in winners if row == state)
        assert store.reference("main") == other.reference("main") == state

    def test_many_threads_on_one_row_have_one_winner_for_every_row_seen(
        self, store: Store, other: Store
    ) -> None:
        swap(store, row("main", data=b"0"))

        def count_up(handle: Store) -> list[int]:
            won: list[int] = []
            while len(won) < 10:
                with handle.turn("main") as turn:
                    assert turn.row is not None
                    value = int(turn.row.data)
                    after = row("main", data=b"%d" % (value + 1))
                    if turn.advance(sample(2, f"at {value}"), after).swapped:
                        won.append(value)
            return won

        handles = [store if number % 2 else other for number in range(THREADS)]
        won = [
            value for part in at_once(*(partial(count_up, handle) for handle in handles)) for value in part
        ]
        assert Counter(won) == Counter(range(THREADS * 10))
        assert store.reference("main") == row("main", data=b"%d" % (THREADS * 10))
        for value in range(THREADS * 10):
            assert store.fetch(list(sample(2, f"at {value}"))) == sample(2, f"at {value}")

    def test_one_of_many_creators_wins(self, store: Store, other: Store) -> None:
        def create(handle: Store, number: int) -> bool:
            with handle.turn("new") as turn:
                return turn.row is None and turn.advance({}, row("new", data=b"%d" % number)).swapped

        won = at_once(*(partial(create, store if n % 2 else other, n) for n in range(THREADS)))
        assert won.count(True) == 1
        assert store.reference("new") == row("new", data=b"%d" % won.index(True))

    def test_one_of_many_advances_with_the_same_fresh_object_wins(self, store: Store, other: Store) -> None:
        """K7: the same request sent to several servers at once."""
        for attempt in range(5):
            fresh = sample(1, f"receipt {attempt}")

            def advance(handle: Store, name: str, fresh: dict[ObjectId, bytes] = fresh) -> AdvanceResult:
                with handle.turn(name) as turn:
                    return turn.advance(fresh, row(name), list(fresh))

            rows = [(store if n % 2 else other, f"{attempt}-row-{n}") for n in range(4)]
            answers = at_once(*(partial(advance, handle, name) for handle, name in rows))
            assert [answer.swapped for answer in answers].count(True) == 1
            assert all(answer.present == frozenset(fresh) for answer in answers if not answer.swapped)
            assert len(store.references("branch", f"{attempt}-row-")) == 1

    def test_threads_store_and_fetch_at_once(self, store: Store, other: Store) -> None:
        def work(handle: Store, number: int) -> None:
            for turn in range(10):
                mine = sample(5, f"of {number} at {turn}")
                handle.store(mine | sample(5, "shared"))
                assert handle.fetch([*mine, *sample(5, "shared")]) == mine | sample(5, "shared")

        at_once(*(partial(work, store if n % 2 else other, n) for n in range(THREADS)))
        last = [data for n in range(THREADS) for data in sample(5, f"of {n} at 9")]
        assert len(store.fetch(last)) == 5 * THREADS
