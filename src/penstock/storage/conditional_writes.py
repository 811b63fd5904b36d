"""Whether a bucket keeps the conditions of writes: a lake on one that does not would lose commits."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from penstock.errors import PenstockError, Unavailable
from penstock.storage.buckets import Bucket, Condition, EntityTag, UnansweredWrite, WriteRefused

RACERS: Final = 4
ROUNDS: Final = 3
PROBES: Final = "probe"


async def check_conditions_are_kept(bucket: Bucket, folder: str = PROBES) -> bool:
    """Whether writes are done that must be done, and refused that must be refused, one after the other.

    They are done below ``folder``, and removed again.
    """
    async with _make_probe_key(bucket, folder) as key:
        first = await _write_with_condition(bucket, key, "absent")
        if first is None or await _write_with_condition(bucket, key, "absent") is not None:
            return False
        second = await _write_with_condition(bucket, key, first)
        return (
            second is not None and second != first and await _write_with_condition(bucket, key, first) is None
        )


async def race_writers(bucket: Bucket) -> list[str]:
    """Several writes at once on a condition that one can meet: what is wrong with the outcome, if anything.

    Storage that looks first and writes after is found out by chance only, but then for certain.
    """
    import asyncio

    condition: Condition = "absent"
    async with _make_probe_key(bucket, PROBES) as key:
        for _ in range(ROUNDS):
            tries = [_write_with_condition(bucket, key, condition) for _ in range(RACERS)]
            won = [tag for tag in await asyncio.gather(*tries) if tag is not None]
            if len(won) != 1:
                return [f"{len(won)} of {RACERS} concurrent conditional writes succeeded, instead of one"]
            (condition,) = won
    return []


@asynccontextmanager
async def _make_probe_key(bucket: Bucket, folder: str) -> AsyncIterator[str]:
    """A key to try things on."""
    key = f"{folder}/{secrets.token_hex(16)}"
    try:
        yield key
    finally:
        with suppress(UnansweredWrite, PenstockError):
            await bucket.delete([key])


async def _write_with_condition(bucket: Bucket, key: str, condition: Condition) -> EntityTag | None:
    """The new tag, ``None`` if the write was refused."""
    try:
        return await bucket.put(key, secrets.token_bytes(16), condition)
    except WriteRefused:
        return None
    except UnansweredWrite as problem:
        raise Unavailable(str(problem), url=bucket.url) from None
