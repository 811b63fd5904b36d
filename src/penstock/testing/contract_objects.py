"""The part of the store contract that is about objects: fetching, storing, scanning and deleting them."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256

from penstock.stores.port import Store
from penstock.testing.samples import let_time_pass, row, sample, scan_all

OBJECT_MAX_BYTES = 256 * 1024
MANY = 2000


class ObjectContract:
    """What a store promises about objects."""

    def test_what_was_stored_is_fetched_by_every_handle(self, store: Store, other: Store) -> None:
        objects = sample(10)
        store.store(objects)
        assert store.fetch(list(objects)) == objects
        assert other.fetch(list(objects)) == objects

    def test_ids_that_do_not_exist_are_left_out(self, store: Store) -> None:
        stored, unknown = sample(3, "known"), sample(3, "unknown")
        store.store(stored)
        assert store.fetch([*unknown, *stored]) == stored
        assert store.fetch(list(unknown)) == {}

    def test_nothing_may_be_asked_for_and_nothing_stored(self, store: Store) -> None:
        store.store({})
        assert store.fetch([]) == {}
        assert store.delete([]) == 0
        assert store.scan(b"", 10) == ([], b"")

    def test_an_id_asked_for_twice_is_found_once(self, store: Store) -> None:
        (object_id, data), *_ = sample(1).items()
        store.store({object_id: data})
        assert store.fetch([object_id, object_id]) == {object_id: data}

    def test_an_object_stored_again_keeps_its_first_bytes(self, store: Store, other: Store) -> None:
        digest = sha256(b"receipt").digest()
        store.store({digest: b"first"})
        other.store({digest: b"second"})
        with store.turn("main") as turn:
            assert turn.advance({digest: b"third"}, row("main")).swapped
        assert store.fetch([digest]) == {digest: b"first"}
        assert other.fetch([digest]) == {digest: b"first"}

    def test_an_object_stored_again_keeps_its_size(self, store: Store) -> None:
        digest = sha256(b"receipt").digest()
        store.store({digest: b"first"})
        store.store({digest: b"second, and longer"})
        assert [stored.size for stored in scan_all(store)] == [len(b"first")]

    def test_ids_and_bytes_are_binary_safe(self, store: Store) -> None:
        objects = {bytes([byte]) * 32: bytes(range(256)) + bytes([byte]) for byte in range(256)}
        objects[b"\x00" * 31 + b"\x01"] = b""
        objects[b"' OR 1=1 --".ljust(32, b"\x00")] = b"\x00"
        store.store(objects)
        assert store.fetch(list(objects)) == objects
        assert {stored.id for stored in scan_all(store)} == objects.keys()

    def test_an_object_may_have_256_kib(self, store: Store, other: Store) -> None:
        stored, advanced = sample(2, "stored", OBJECT_MAX_BYTES), sample(2, "advanced", OBJECT_MAX_BYTES)
        store.store(stored)
        with store.turn("main") as turn:
            assert turn.advance(advanced, row("main")).swapped
        assert other.fetch([*stored, *advanced]) == stored | advanced
        assert {stored.size for stored in scan_all(store)} == {OBJECT_MAX_BYTES}

    def test_thousands_of_objects_are_stored_and_fetched_at_once(self, store: Store, other: Store) -> None:
        stored, advanced = sample(MANY, "stored"), sample(MANY, "advanced")
        store.store(stored)
        with store.turn("main") as turn:
            assert turn.advance(advanced, row("main")).swapped
        assert other.fetch([*stored, *advanced, *sample(MANY, "unknown")]) == stored | advanced

    def test_any_number_of_objects_is_stored_whole(self, store: Store) -> None:
        """Around every size that a batch of some database has."""
        for count in (1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 256, 257, 600):
            objects = sample(count, f"one of {count}")
            store.store(objects)
            assert store.fetch(list(objects)) == objects, f"{count} objects"

    def test_a_scan_finds_every_object_once(self, store: Store) -> None:
        objects = sample(30)
        store.store(objects)
        for page in (1, 3, 10, 30, 31):
            scanned = scan_all(store, page)
            assert Counter(stored.id for stored in scanned) == Counter(list(objects)), f"pages of {page}"
            assert {stored.id: stored.size for stored in scanned} == {
                stored: len(data) for stored, data in objects.items()
            }

    def test_a_scan_is_gone_on_with_by_another_handle(self, store: Store, other: Store) -> None:
        """A copy that was interrupted goes on in another process."""
        objects = sample(30)
        store.store(objects)
        scanned, token = store.scan(b"", 11)
        while token:
            page, token = other.scan(token, 11)
            scanned += page
        assert Counter(stored.id for stored in scanned) == Counter(list(objects))

    def test_a_scan_with_data_finds_every_object_once_with_its_bytes(self, store: Store) -> None:
        objects = sample(30)
        store.store(objects)
        largest = max(map(len, objects.values()))
        for limit, max_bytes in ((7, OBJECT_MAX_BYTES), (30, OBJECT_MAX_BYTES), (31, 3 * largest), (31, 1)):
            data_by_id: dict[bytes, bytes] = {}
            token, pages = b"", 0
            while token or not pages:
                read, others, token = store.scan_data(token, limit, max_bytes)
                assert len(read) + len(others) <= limit
                assert sum(map(len, read.values())) < max_bytes + largest
                read |= store.fetch([stored.id for stored in others])
                assert not data_by_id.keys() & read.keys()
                data_by_id |= read
                pages += 1
            assert data_by_id == objects

    def test_a_page_of_a_scan_is_not_larger_than_asked(self, store: Store) -> None:
        store.store(sample(30))
        page, token = store.scan(b"", 7)
        assert 0 < len(page) <= 7
        assert token != b""

    def test_a_scan_finds_what_was_there_once_while_more_is_added(self, store: Store, other: Store) -> None:
        objects = sample(40)
        store.store(objects)
        scanned, token = store.scan(b"", 5)
        added = 0
        while token:
            other.store(sample(6, f"added {added}"))
            other.store(objects)
            added += 1
            page, token = store.scan(token, 5)
            scanned += page
            assert added < 1000, "the scan must end though objects are added"
            if added == 20:
                break
        while token:
            page, token = store.scan(token, 50)
            scanned += page
        counted = Counter(stored.id for stored in scanned)
        assert {data: counted[data] for data in objects} == dict.fromkeys(objects, 1)
        assert max(counted.values()) == 1

    def test_a_scan_goes_on_though_what_it_found_is_deleted(self, store: Store, other: Store) -> None:
        objects = sample(40)
        store.store(objects)
        scanned, token = store.scan(b"", 7)
        page = scanned
        while token:
            assert other.delete(page) == len(page)
            page, token = store.scan(token, 7)
            scanned = scanned + page
        assert Counter(stored.id for stored in scanned) == Counter(list(objects))

    def test_what_is_stored_later_has_a_later_time(self, store: Store) -> None:
        store.store(sample(1, "early"))
        let_time_pass(store)
        store.store(sample(1, "late"))
        times = {stored.id: stored.referenced_us for stored in scan_all(store)}
        (early,), (late,) = sample(1, "early"), sample(1, "late")
        assert times[early] < times[late]

    def test_delete_removes_what_was_scanned_and_counts_it(self, store: Store, other: Store) -> None:
        retained, doomed = sample(5, "kept"), sample(5, "doomed")
        store.store(retained | doomed)
        scanned = [stored for stored in scan_all(store) if stored.id in doomed]
        assert store.delete(scanned) == 5
        assert other.fetch([*retained, *doomed]) == retained
        assert other.delete(scanned) == 0

    def test_thousands_of_objects_are_deleted_at_once(self, store: Store) -> None:
        store.store(sample(MANY))
        assert store.delete(scan_all(store)) == MANY
        assert scan_all(store) == []

    def test_an_object_stored_again_since_the_scan_is_not_deleted(self, store: Store, other: Store) -> None:
        """K9: a commit in flight may reuse it."""
        objects = sample(4)
        by_store, by_other, by_advance, untouched = objects
        store.store(objects)
        scanned = scan_all(store)
        let_time_pass(store)
        store.store({by_store: objects[by_store]})
        other.store({by_other: objects[by_other]})
        with other.turn("main") as turn:
            assert turn.advance({by_advance: objects[by_advance]}, row("main")).swapped
        assert store.delete(scanned) == 1
        assert set(store.fetch(list(objects))) == {by_store, by_other, by_advance}
        assert untouched not in {stored.id for stored in scan_all(store)}

    def test_a_scan_after_storing_again_shows_the_new_time(self, store: Store) -> None:
        store.store(sample(1))
        (before,) = scan_all(store)
        let_time_pass(store)
        store.store(sample(1))
        (after,) = scan_all(store)
        assert after.referenced_us > before.referenced_us
        assert store.delete([before]) == 0
        assert store.delete([after]) == 1

    def test_a_deleted_object_can_be_stored_anew(self, store: Store) -> None:
        digest = sha256(b"gone").digest()
        store.store({digest: b"old"})
        store.delete(scan_all(store))
        store.store({digest: b"new"})
        assert store.fetch([digest]) == {digest: b"new"}
        assert [stored.id for stored in scan_all(store)] == [digest]
