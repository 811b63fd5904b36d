"""moto's server, in which two writers of a key whose name holds `meeting` wait for each other.

They wait after moto has looked whether it may write, and before it writes. One writer alone goes on after
a second.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from moto.s3.models import S3Backend
from moto.server import main as serve

WAIT_MAX_S = 1.0


def main() -> None:
    write = S3Backend.put_object
    meeting = threading.Barrier(2)

    def put_object(self: S3Backend, bucket_name: str, key_name: str, *rest: Any, **named: Any) -> Any:
        if "meeting" in key_name:
            with suppress(threading.BrokenBarrierError):
                meeting.wait(WAIT_MAX_S)
        return write(self, bucket_name, key_name, *rest, **named)

    S3Backend.put_object = put_object  # type: ignore[method-assign]
    serve()


if __name__ == "__main__":
    main()
