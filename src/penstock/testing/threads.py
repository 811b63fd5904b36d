"""Real threads that start together."""

from __future__ import annotations

from collections.abc import Callable
from threading import Barrier, Thread
from typing import TypeVar

T = TypeVar("T")
JOIN_MAX_S = 240.0


def at_once(*work: Callable[[], T]) -> list[T]:
    """Run things in threads of their own, which start together, and return what each of them returned.

    Raises what one of them raised, once all have ended; ``TimeoutError`` if one hangs.
    """
    results: dict[int, T] = {}
    errors: list[BaseException] = []
    barrier = Barrier(len(work))

    def run(number: int) -> None:
        try:
            barrier.wait(JOIN_MAX_S)
            results[number] = work[number]()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            errors.append(error)

    threads = [Thread(target=run, args=(number,), daemon=True) for number in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(JOIN_MAX_S)
        if thread.is_alive():
            raise TimeoutError("a thread hangs")
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(work))]
