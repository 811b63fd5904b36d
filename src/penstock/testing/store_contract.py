"""The store contract: every promise of ``penstock.stores.port``, as tests.

An adapter's test is a subclass with one fixture::

    class TestSqliteStore(StoreContract):
        @pytest.fixture
        def open_store(self, tmp_path):
            return lambda: SqliteStore(tmp_path / "penstock.db")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from penstock.errors import PenstockError
from penstock.stores.port import Store
from penstock.testing.contract_objects import ObjectContract
from penstock.testing.contract_races import RaceContract
from penstock.testing.contract_rows import RowContract, swap
from penstock.testing.samples import OpenStore, row, sample


class StoreContract(ObjectContract, RowContract, RaceContract):
    """To be subclassed by the test of every adapter, which overrides ``open_store`` and nothing else.

    Both families pass it. Where writers meet, a store that locks makes the second wait and one that does not
    lets it lose; what is asserted holds for both: a row that was seen is replaced at most once.
    """

    @pytest.fixture
    def open_store(self) -> OpenStore:
        """Opens the store, empty at the first call of a test; every further call gives another handle on
        the same data. A store that lives in one object hands out that object again."""
        raise NotImplementedError("override the fixture open_store")

    @pytest.fixture
    def store(self, open_store: OpenStore) -> Iterator[Store]:
        opened = open_store()
        yield opened
        opened.close()

    @pytest.fixture
    def other(self, open_store: OpenStore) -> Iterator[Store]:
        """A second handle on what ``store`` holds."""
        opened = open_store()
        yield opened
        opened.close()

    def test_a_new_store_is_empty(self, store: Store) -> None:
        assert store.scan(b"", 10) == ([], b"")
        assert store.references("branch") == []
        assert store.reference("main") is None

    def test_it_says_where_it_is(self, store: Store) -> None:
        assert ":" in store.url

    def test_what_was_acknowledged_is_there_after_closing(self, store: Store, open_store: OpenStore) -> None:
        objects = sample(10)
        store.store(objects)
        with store.turn("main") as turn:
            assert turn.advance(sample(5, "more"), row("main", data=b"at 1")).swapped
        store.close()
        again = open_store()
        assert again.fetch(objects.keys() | sample(5, "more").keys()) == objects | sample(5, "more")
        assert again.reference("main") == row("main", data=b"at 1")
        again.close()

    def test_closing_twice_is_harmless(self, store: Store) -> None:
        store.close()
        store.close()

    def test_a_closed_store_answers_or_says_so_by_a_typed_error(self, store: Store) -> None:
        objects = sample(1)
        store.store(objects)
        store.close()
        reads: list[tuple[Callable[[], object], object]] = [
            (lambda: store.fetch(list(objects)), objects),
            (lambda: store.reference("main"), None),
            (lambda: store.references("branch"), []),
            (lambda: [stored.id for stored in store.scan(b"", 10)[0]], list(objects)),
        ]
        for read, truth in reads:
            with suppress(PenstockError):
                assert read() == truth
        with suppress(PenstockError):
            store.store(objects)
        with suppress(PenstockError):
            swap(store, row("main"))
        store.close()

    def test_erase_deletes_everything_and_leaves_a_store_to_be_used(self, store: Store, other: Store) -> None:
        store.store(sample(20))
        swap(store, row("main"))
        swap(store, row("v1", "tag"))
        store.erase()
        for handle in (store, other):
            assert handle.scan(b"", 10) == ([], b"")
            assert handle.fetch(sample(20).keys()) == {}
            assert handle.reference("main") is None
            assert handle.references("tag") == []
        store.store(sample(3))
        swap(store, row("main"))
        assert other.fetch(sample(3).keys()) == sample(3)
        assert other.reference("main") == row("main")
