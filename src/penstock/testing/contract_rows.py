"""The part of the store contract that is about rows: finding, listing and swapping them."""

from __future__ import annotations

from contextlib import suppress

import pytest

from penstock.model.encoding import ObjectId
from penstock.stores.port import AdvanceResult, Row, Store
from penstock.testing.samples import row, sample

NAME_MAX_CHARS = 200


def swap(store: Store, to: Row | None, name: str | None = None) -> AdvanceResult:
    """Bring a row into a state, whatever it was."""
    with store.turn(name if name is not None else to.name if to is not None else "") as turn:
        return turn.advance({}, to)


def names(store: Store, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[str]:
    return [reference.name for reference in store.references(kind, prefix, after, limit)]


class RowContract:
    """What a store promises about rows."""

    def test_a_row_is_created_swapped_and_removed(self, store: Store, other: Store) -> None:
        for state in (row("main", data=b"1"), row("main", data=b"2"), None, row("main", data=b"3")):
            before = store.reference("main")
            with store.turn("main") as turn:
                assert turn.row == before
                assert turn.advance({}, state) == AdvanceResult(True)
            assert store.reference("main") == state
            assert other.reference("main") == state

    def test_a_row_that_is_not_there_can_be_removed(self, store: Store) -> None:
        assert swap(store, None, "nobody") == AdvanceResult(True)
        assert store.reference("nobody") is None

    def test_a_swap_brings_its_objects(self, store: Store, other: Store) -> None:
        objects = sample(20)
        with store.turn("main") as turn:
            assert turn.advance(objects, row("main")).swapped
        assert other.fetch(list(objects)) == objects

    def test_a_turn_that_does_not_advance_changes_nothing(self, store: Store, other: Store) -> None:
        swap(store, row("main", data=b"1"))
        with store.turn("main") as turn:
            assert turn.row == row("main", data=b"1")
        assert other.reference("main") == row("main", data=b"1")
        assert swap(other, row("main", data=b"2")).swapped

    def test_a_turn_that_is_left_by_an_error_changes_nothing(self, store: Store, other: Store) -> None:
        swap(store, row("main", data=b"1"))
        with pytest.raises(ZeroDivisionError), store.turn("main"):
            raise ZeroDivisionError
        assert other.reference("main") == row("main", data=b"1")
        assert swap(other, row("main", data=b"2")).swapped
        assert swap(store, row("main", data=b"3")).swapped

    def test_a_turn_on_one_row_leaves_the_others(self, store: Store) -> None:
        swap(store, row("a", data=b"1"))
        swap(store, row("b", data=b"1"))
        swap(store, row("a", data=b"2"))
        swap(store, None, "a")
        assert store.reference("b") == row("b", data=b"1")

    def test_reading_goes_on_within_a_turn(self, store: Store, other: Store) -> None:
        """What is decided at a turn is decided from objects that are read then."""
        objects = sample(5)
        store.store(objects)
        swap(store, row("main", data=b"1"))
        with store.turn("main") as turn:
            for handle in (store, other):
                assert handle.fetch(list(objects)) == objects
                assert handle.reference("main") == row("main", data=b"1")
                assert names(handle, "branch") == ["main"]
            assert turn.advance({}, row("main", data=b"2")).swapped

    @pytest.mark.parametrize("count", [5, 300])
    def test_what_is_written_before_the_swap_can_be_read(
        self, store: Store, other: Store, count: int
    ) -> None:
        """The next batch is applied to it while the swap is in flight."""
        objects, fresh = sample(count), sample(3, "fresh")
        read_objects: list[dict[ObjectId, bytes]] = []
        with store.turn("main") as turn:
            turn.written = lambda: read_objects.extend(
                handle.fetch(list(objects)) for handle in (store, other)
            )
            assert turn.advance(objects | fresh, row("main"), list(fresh)).swapped
        assert all(read == objects for read in read_objects)

    def test_an_error_before_the_swap_swaps_nothing(self, store: Store, other: Store) -> None:
        swap(store, row("main", data=b"1"))
        calls: list[str] = []

        def fail() -> None:
            calls.append("written")
            raise ZeroDivisionError

        with suppress(ZeroDivisionError), store.turn("main") as turn:
            turn.written = fail
            assert turn.advance(sample(300), row("main", data=b"2")).swapped
        assert other.reference("main") == row("main", data=b"1" if calls else b"2")
        assert swap(other, row("main", data=b"3")).swapped

    @pytest.mark.parametrize("by_other", [False, True])
    def test_a_row_may_be_remembered_before_it_is_stored(
        self, store: Store, other: Store, by_other: bool
    ) -> None:
        """A batch goes by the row of the one before it, whose swap is in flight."""
        swap(store, row("main", data=b"1"))
        calls: list[str] = []

        def land() -> None:
            calls.append("written")
            assert swap(other if by_other else store, row("main", data=b"2")).swapped

        with store.turn("main", row("main", data=b"2")) as turn:
            if turn.is_certain:
                assert turn.row == row("main", data=b"1")
                return
            assert turn.row == row("main", data=b"2")
            turn.written = land
            advanced = turn.advance(sample(300), row("main", data=b"3"))
        assert advanced == AdvanceResult(bool(calls))
        assert store.reference("main") == other.reference("main") == row("main", data=b"3" if calls else b"1")

    def test_a_row_that_is_remembered_and_is_not_so_is_not_replaced(self, store: Store, other: Store) -> None:
        swap(store, row("main", data=b"1"))
        swap(other, row("main", data=b"2"))
        with store.turn("main", row("main", data=b"1")) as turn:
            if turn.is_certain:
                assert turn.row == row("main", data=b"2")
                return
            assert not turn.advance(sample(3), row("main", data=b"3")).swapped
        assert store.reference("main") == row("main", data=b"2")

    def test_a_fresh_object_that_is_there_prevents_the_swap(self, store: Store, other: Store) -> None:
        """K7: an idempotency key that was used before."""
        used, unused = sample(1, "used"), sample(2, "unused")
        swap(store, row("main", data=b"1"))
        other.store(used)
        with store.turn("main") as turn:
            advanced = turn.advance(used | unused, row("main", data=b"2"), [*used, *unused])
        assert advanced == AdvanceResult(False, frozenset(used))
        assert other.reference("main") == row("main", data=b"1")
        assert other.fetch(list(used)) == used

    def test_a_fresh_object_prevents_creation_and_removal_too(self, store: Store) -> None:
        (used,) = sample(1)
        store.store(sample(1))
        with store.turn("new") as turn:
            assert turn.advance({used: b""}, row("new"), [used]) == AdvanceResult(False, frozenset({used}))
        assert store.reference("new") is None
        swap(store, row("main"))
        with store.turn("main") as turn:
            assert turn.advance({used: b""}, None, [used]) == AdvanceResult(False, frozenset({used}))
        assert store.reference("main") == row("main")

    def test_fresh_objects_that_are_new_do_not_prevent_the_swap_but_the_next(
        self, store: Store, other: Store
    ) -> None:
        fresh = sample(3, "fresh")
        with store.turn("main") as turn:
            assert turn.advance(fresh, row("main", data=b"1"), list(fresh)) == AdvanceResult(True)
        with other.turn("main") as turn:
            again = turn.advance(fresh, row("main", data=b"2"), list(fresh))
        assert again == AdvanceResult(False, frozenset(fresh))
        assert store.reference("main") == row("main", data=b"1")

    def test_thousands_of_fresh_objects_are_told_apart(self, store: Store) -> None:
        used, unused = sample(1000, "used"), sample(1000, "unused")
        store.store(used)
        with store.turn("main") as turn:
            advanced = turn.advance(used | unused, row("main"), [*unused, *used])
        assert advanced == AdvanceResult(False, frozenset(used))
        assert store.reference("main") is None

    def test_a_name_is_unique_over_all_kinds(self, store: Store, other: Store) -> None:
        swap(store, row("v1", "branch", b"1"))
        with other.turn("v1") as turn:
            assert turn.row == row("v1", "branch", b"1")
            assert turn.advance({}, row("v1", "tag", b"2")).swapped
        assert store.reference("v1") == row("v1", "tag", b"2")
        assert names(store, "branch") == []
        assert names(store, "tag") == ["v1"]

    def test_listing_gives_one_kind_in_the_order_of_names(self, store: Store) -> None:
        for name in ("b", "a", "c", "a.b", "a-b", "a/b", "a_b", "B", "Z", "a0", "ab"):
            swap(store, row(name, data=name.encode()))
        swap(store, row("aa", "tag"))
        swap(store, row("@lake", "lake"))
        references = store.references("branch")
        expected = sorted(("b", "a", "c", "a.b", "a-b", "a/b", "a_b", "B", "Z", "a0", "ab"))
        assert references == [row(name, data=name.encode()) for name in expected]
        assert names(store, "tag") == ["aa"]
        assert names(store, "lake") == ["@lake"]
        assert names(store, "nothing") == []

    def test_listing_by_prefix_takes_it_literally(self, store: Store) -> None:
        for name in ("a", "a_", "a_b", "ab", "a.b", "A_b", "b", "a_z/y", "aZ"):
            swap(store, row(name))
        swap(store, row("a_tag", "tag"))
        assert names(store, "branch", "a_") == ["a_", "a_b", "a_z/y"]
        assert names(store, "branch", "a.") == ["a.b"]
        assert names(store, "branch", "a") == ["a", "a.b", "aZ", "a_", "a_b", "a_z/y", "ab"]
        assert names(store, "branch", "%") == []
        assert names(store, "branch", "_") == []
        assert names(store, "branch", "zz") == []

    def test_listing_goes_on_after_a_name(self, store: Store) -> None:
        every = [f"job/{number:02}" for number in range(10)]
        for name in (*every, "a", "z"):
            swap(store, row(name))
        assert names(store, "branch", "job/", "job/04") == every[5:]
        assert names(store, "branch", "job/", "job/045") == every[5:]
        assert names(store, "branch", "job/", "a") == every
        assert names(store, "branch", "job/", "z") == []
        assert names(store, "branch", "", "job/08") == ["job/09", "z"]

    def test_listing_page_by_page_finds_each_row_once(self, store: Store) -> None:
        every = [f"b{number}" for number in range(10)]
        for name in every:
            swap(store, row(name))
            swap(store, row(f"tag-{name}", "tag"))
        for page in (1, 3, 5, 10, 11):
            listed: list[str] = []
            while part := names(store, "branch", "b", listed[-1] if listed else "", page):
                assert len(part) <= page
                listed += part
            assert listed == every, f"pages of {page}"

    def test_rows_that_were_there_are_listed_while_others_come_and_go(
        self, store: Store, other: Store
    ) -> None:
        """Whoever lists must not miss what nobody touches: the sweep would remove what it leads to."""
        lasting = [f"b{number}" for number in range(10)]
        for name in lasting:
            swap(store, row(name))
        listed: list[str] = []
        while part := names(store, "branch", "", listed[-1] if listed else "", 3):
            listed += part
            swap(other, row(f"{listed[-1]}-new"))
            swap(other, row(lasting[0], data=b"moved"))
            if len(listed) > 5:
                swap(other, None, f"{listed[-1]}-new")
        assert [name for name in listed if name in lasting] == lasting

    def test_a_removed_row_is_not_listed(self, store: Store) -> None:
        swap(store, row("a"))
        swap(store, row("b"))
        swap(store, None, "a")
        assert names(store, "branch") == ["b"]

    def test_long_names_and_large_binary_rows_are_kept(self, store: Store, other: Store) -> None:
        long = "n" * NAME_MAX_CHARS
        data = bytes(range(256)) * 128
        swap(store, row(long, data=data))
        swap(store, row("empty", data=b""))
        assert other.reference(long) == row(long, data=data)
        assert other.reference("empty") == row("empty", data=b"")
        assert names(store, "branch", "n" * 100) == [long]

    def test_names_differ_by_case(self, store: Store) -> None:
        swap(store, row("Main", data=b"1"))
        swap(store, row("main", data=b"2"))
        assert store.reference("Main") == row("Main", data=b"1")
        assert store.reference("main") == row("main", data=b"2")
        assert store.reference("MAIN") is None
