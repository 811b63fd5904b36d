"""A program: two threads decode a type for the first time, the second one while its table is half filled.

Its argument names the function that decodes. A process that decodes by a half filled table crashes.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import msgspec

from penstock.model import decoders, encoding
from penstock.server.nessie.codec import CODEC
from penstock.wire import json


class Watched:
    """A lock that tells when the second thread wants it, or has decoded without it."""

    def __init__(self, lock: Any) -> None:
        self.first: threading.Thread | None = None
        self.second: threading.Thread | None = None
        self.arrived = threading.Event()
        self._lock = lock

    def __enter__(self) -> None:
        if threading.current_thread() is self.second:
            self.arrived.set()
        self._lock.acquire()

    def __exit__(self, *problem: object) -> None:
        self._lock.release()


class Asked(type):
    """A class that msgspec asks what it is when the table of its struct has begun to be filled."""

    def __getattr__(cls, name: str) -> Any:
        if armed.is_set() and threading.current_thread() is watched.first:
            half_filled.set()
            if not watched.arrived.wait(timeout=30):
                raise RuntimeError("the second thread came to nothing")
        raise AttributeError(name)


class Slow(metaclass=Asked):
    pass


class Part(msgspec.Struct, frozen=True):
    slow: Slow | None
    number: int


class Whole(msgspec.Struct, frozen=True):
    part: Part
    parts: tuple[Part, ...]


VALUE = {"part": {"slow": None, "number": 1}, "parts": [{"slow": None, "number": 2}]}
DATA = msgspec.json.encode(VALUE)
PACKED = msgspec.msgpack.encode(VALUE)
WAYS = {
    "wire.json.read_answer_json": lambda: json.read_answer_json(DATA, Whole),
    "wire.json.decode": lambda: json.decode(DATA, Whole),
    "wire.json.convert": lambda: json.convert(VALUE, Whole),
    "nessie.decode": lambda: CODEC.decode(DATA, Whole),
    "nessie.convert": lambda: CODEC.convert(VALUE, Whole),
    "model.encoding.make_decoder": lambda: encoding.make_decoder(Whole).decode(PACKED),
}

armed = threading.Event()
half_filled = threading.Event()
found: list[Any] = []
watched = Watched(threading.RLock())


def main(way: str) -> None:
    (
        json._strict.find_json_type(Whole),
        json._tolerant.find_json_type(Whole),
    )  # their twins have to be there before the table is filled
    decoders._filling = watched  # type: ignore[assignment, misc]
    watched.first, watched.second = (threading.Thread(target=work, args=(way,)) for _ in range(2))
    armed.set()
    watched.first.start()
    assert half_filled.wait(timeout=30)
    watched.second.start()
    watched.first.join()
    watched.second.join()
    assert [(one.part.number, one.parts[0].number) for one in found] == [(1, 2), (1, 2)], found


def work(way: str) -> None:
    found.append(WAYS[way]())
    if threading.current_thread() is watched.second:
        watched.arrived.set()


if __name__ == "__main__":
    main(sys.argv[1])
