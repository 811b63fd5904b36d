"""The files of a job, as its tasks tell of them to Penstock's commit protocol in the driver's JVM."""

from __future__ import annotations

import gzip
from typing import Any, TypeVar
from uuid import UUID

from penstock.model.decoders import get_json_decoder

T = TypeVar("T")


def take_files(spark: Any, job: UUID, kind: type[T]) -> list[T] | None:
    """The files of a job that is done, once; ``None`` if no job of that id went through the protocol.

    ``kind`` is what a format wants to know of each of them.
    """
    packed: bytes | None = spark._jvm.io.penstock.spark.CommitProtocol.take(job.hex)
    if packed is None:
        return None
    lines = gzip.decompress(packed).strip().replace(b"\n", b",")
    return get_json_decoder(list[kind]).decode(b"[" + lines + b"]")  # type: ignore[valid-type]
