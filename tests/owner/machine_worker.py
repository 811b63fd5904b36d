"""A process that writes to a Delta table on two branches and keeps a journal, until it is done or killed.

`python machine_worker.py '{"lake": …, "journal": …}'`; see ``Task`` for what it can be told.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NoReturn
from uuid import UUID

import msgspec

import penstock
from penstock import Settings
from penstock.errors import ConflictError
from penstock.formats.delta.lake.calls import TableCommit
from penstock.lake.lake import Lake
from penstock.model.keys import Key

KEY: Final = "orders"
SETTINGS: Final = Settings(publish_wait_s=0.0, write_timeout_s=60.0, tries_max=100_000)


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is to do."""

    lake: str
    """A directory, or the address of a server."""
    journal: str
    client: str
    count: int = 0
    """How many requests to make."""
    seed: int = 0
    steps: int | None = None
    """With signal 9, it kills itself after so many writes to the store or to storage."""
    contends: bool = False
    """Whether its requests are commits of versions that others want, too, each made until it lands."""
    resume: str = ""
    """A journal whose requests without an answer are to be made again first, under the same keys."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A request, as it is written down before it is made."""

    key: str
    branch: str
    merges: str = ""
    """The branch that is merged; nothing if a file is added."""
    attempt: UUID | None = None
    version: int | None = None

    @property
    def file(self) -> str:
        return f"{self.key}.parquet"


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, as it is written down."""

    key: str
    landed: bool
    """Otherwise it was refused."""
    version: int | None = None


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a journal."""

    ask: Ask | None = None
    told: Told | None = None


class Journal:
    """Requests and their answers, in a file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(self, line: Line) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")


class Kept(msgspec.Struct):
    """What journals tell: all requests by key, and the answers that there were."""

    asked: dict[str, Ask] = {}
    told: dict[str, Told] = {}

    @classmethod
    def of(cls, journals: Iterable[Path]) -> Kept:
        kept = cls()
        for path in journals:
            # Who is killed may leave the beginning of a line.
            for text in path.read_bytes().split(b"\n")[:-1]:
                line = msgspec.json.decode(text, type=Line)
                if line.ask is not None:
                    kept.asked[line.ask.key] = line.ask
                if line.told is not None:
                    kept.told[line.told.key] = line.told
        return kept

    @property
    def versions(self) -> dict[UUID, int]:
        """Which version each attempt was told to be."""
        told = ((self.asked[key].attempt, one.version) for key, one in self.told.items())
        return {attempt: version for attempt, version in told if attempt is not None and version is not None}

    @property
    def open(self) -> list[Ask]:
        """The requests of which nobody knows what they came to."""
        return [ask for key, ask in self.asked.items() if key not in self.told]


def make(lake: Lake, journal: Journal, ask: Ask) -> None:
    """Make a request, with a line before and a line after it."""
    journal.write(Line(ask=ask))
    version = None
    try:
        if ask.merges:
            lake.merge(ask.merges, ask.branch, idempotency_key=ask.key)
        else:
            line = {
                "path": ask.file,
                "partitionValues": {},
                "size": 1,
                "modificationTime": 0,
                "dataChange": True,
            }
            one = TableCommit(
                key=Key.parse(KEY),
                actions=msgspec.json.encode({"add": line}).decode(),
                attempt=ask.attempt,
                version=ask.version,
            )
            version = lake.delta.commit([one], branch=ask.branch, idempotency_key=ask.key).version
    except ConflictError:
        journal.write(Line(told=Told(key=ask.key, landed=False)))
    else:
        journal.write(Line(told=Told(key=ask.key, landed=True, version=version)))


def work(lake: Lake, journal: Journal, task: Task) -> None:
    """Appends, versions, merges both ways, publishing and reading."""
    chance = random.Random(task.seed)
    for number in range(task.count):
        key, attempt = f"{task.client}-{number}", UUID(int=chance.getrandbits(128), version=4)
        what = chance.random()
        if what < 0.4:
            make(lake, journal, Ask(key=key, branch=chance.choice(("main", "dev")), attempt=attempt))
        elif what < 0.6:
            version = lake.table(KEY).get_commits().latest_version + 1
            make(lake, journal, Ask(key=key, branch="main", attempt=attempt, version=version))
        elif what < 0.8:
            source, target = chance.choice((("dev", "main"), ("main", "dev")))
            make(lake, journal, Ask(key=key, branch=target, merges=source))
        elif what < 0.9:
            lake.delta.publish(KEY)
        else:
            list(lake.table(KEY, chance.choice(("main", "dev"))).snapshot().files())


def contend(lake: Lake, journal: Journal, task: Task) -> None:
    """Commit what ``count`` says, whoever else does. Readers may look meanwhile."""
    from tests.owner.machine_writers import Witness, write

    done = write(lake.table(KEY), task.client, task.count, Witness())
    for number, (attempt, version) in enumerate(done.items()):
        key = f"{task.client}-{number}"
        journal.write(Line(ask=Ask(key=key, branch="main", attempt=attempt)))
        journal.write(Line(told=Told(key=key, landed=True, version=version)))


def open_lake(task: Task) -> Lake:
    if task.steps is None:
        remote = task.lake.startswith("http")
        return penstock.open(task.lake, author=task.client, settings=None if remote else SETTINGS)
    from tests.owner.crashes import Life, open_mortal

    class Killed(Life):
        def end(self) -> NoReturn:
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError("nobody gets here")

    life = Killed()
    life.left = task.steps
    return open_mortal(Path(task.lake), life, SETTINGS, task.client, catch_up=True)


def main() -> None:
    task = msgspec.json.decode(sys.argv[1], type=Task)
    journal = Journal(Path(task.journal))
    print("ready", flush=True)
    sys.stdin.readline()
    with open_lake(task) as lake:
        if task.resume:
            for ask in Kept.of([Path(task.resume)]).open:
                make(lake, journal, ask)
        (contend if task.contends else work)(lake, journal, task)


if __name__ == "__main__":
    main()
