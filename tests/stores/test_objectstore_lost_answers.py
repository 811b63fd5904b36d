"""Lost answers on object storage: our own success is never taken for somebody else's."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from penstock.errors import OutcomeUnknown, Unavailable
from penstock.stores.objectstore import ObjectStore
from penstock.stores.port import AdvanceResult
from penstock.testing.contract_rows import swap
from penstock.testing.samples import row, sample
from tests.servers.proxy import Proxy
from tests.servers.s3 import S3Place
from tests.storage.hooked import HookedBucket

REQUEST_BYTES = 1500
"""About what one of these requests takes on the wire."""


@pytest.mark.parametrize("folder", ["objects", "kinds", "rows"])
def test_an_advance_is_done_once_though_an_answer_is_lost(folder: str, tmp_path: Path) -> None:
    bucket = HookedBucket(tmp_path)
    store = ObjectStore(bucket.url, bucket=bucket)
    fresh = sample(3)
    bucket.lose(f"put {folder}")
    with store.turn("main") as turn:
        assert turn.advance(fresh, row("main"), list(fresh)) == AdvanceResult(True)
    assert store.fetch(list(fresh)) == fresh
    assert store.references("branch") == [row("main")]
    store.close()


def test_an_object_is_renewed_though_the_answer_is_lost(tmp_path: Path) -> None:
    bucket = HookedBucket(tmp_path)
    store = ObjectStore(bucket.url, bucket=bucket)
    store.store(sample(1))
    bucket.lose("put objects")
    store.store(sample(1))
    assert store.fetch(list(sample(1))) == sample(1)
    store.close()


def test_a_swap_whose_answer_was_lost_and_that_was_replaced_since_is_unknown(tmp_path: Path) -> None:
    bucket = HookedBucket(tmp_path)
    store, other = ObjectStore(bucket.url, bucket=bucket), ObjectStore(f"file://{tmp_path}")
    with store.turn("main") as turn:
        bucket.at("after put rows", lambda: swap(other, row("main", data=b"theirs")))
        bucket.lose("put rows")
        with pytest.raises(OutcomeUnknown, match="main"):
            turn.advance({}, row("main", data=b"mine"))
    assert store.reference("main") == row("main", data=b"theirs")
    for handle in (store, other):
        handle.close()


def cut_again_and_again(place: S3Place, cuts: int, seed: int) -> tuple[int, int]:
    """One writer counts in a row while connections are cut; it must know where it is after every step."""
    chance = random.Random(seed)
    port = int(str(place.endpoint).rpartition(":")[2])
    unknown = happened = value = 0
    with Proxy(port) as proxy:
        slow = msgspec.structs.replace(place, endpoint=f"http://127.0.0.1:{proxy.port}")
        store, truth = ObjectStore(slow.url), ObjectStore(place.url)
        swap(store, row("count", data=b"0"))
        number = 0
        while happened < cuts:
            number += 1
            direction = "to_server" if chance.random() < 0.5 else "to_client"
            cut = proxy.cut_after(direction, chance.randrange(5 * REQUEST_BYTES))  # type: ignore[arg-type]
            fresh = sample(3, f"at {number}")
            try:
                with store.turn("count", row("count", data=b"%d" % value)) as turn:
                    after = row("count", data=b"%d" % (value + 1))
                    assert turn.advance(fresh, after, list(fresh)) == AdvanceResult(True), (
                        "nobody else writes"
                    )
                value += 1
            except Unavailable:
                unknown += 1  # and surely nothing was done, as is checked below
            except OutcomeUnknown:
                unknown += 1
                found = truth.reference("count")
                assert found in (row("count", data=b"%d" % value), row("count", data=b"%d" % (value + 1)))
                value = int(found.data)
            proxy.forget_cut()
            happened += cut.happened
            assert truth.reference("count") == row("count", data=b"%d" % value)
        store.close()
        truth.close()
    return number, unknown


def test_cuts_in_the_middle_of_advances_are_seen_through(s3_place: S3Place, seed: int) -> None:
    number, unknown = cut_again_and_again(s3_place, 40, seed)
    assert unknown < number / 10, "what can be found out is found out"


@pytest.mark.reliability
def test_hundreds_of_cuts_in_the_middle_of_advances_are_seen_through(s3_place: S3Place, seed: int) -> None:
    number, unknown = cut_again_and_again(s3_place, 600, seed)
    assert unknown < number / 10
