"""Answers a Spark driver as ``penstock.spark.attached`` does, and kills itself where a file says so.

    PENSTOCK_TEST_DIE=FILE python dying_attached_program.py

The file holds a step of the catalog and a moment: ``inside``, when its files are written and nothing is
committed, or ``after``, when the answer is made. It is removed first, so that the next process lives.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Final

from penstock.formats.delta.lake.calls import CommitTables
from penstock.spark import attached
from penstock.spark.catalog import answers

FILE: Final = Path(os.environ["PENSTOCK_TEST_DIE"])


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    answer_question = answers.answer_question

    def answer_or_die(session: Any, lake: Any, asked: str, *others: Any) -> Any:
        step, _, moment = FILE.read_text().partition(" ") if FILE.exists() else ("", "", "")
        if step != asked:
            return answer_question(session, lake, asked, *others)
        FILE.unlink()
        do = lake.do
        lake.do = lambda call: die() if moment == "inside" and isinstance(call, CommitTables) else do(call)
        answer_question(session, lake, asked, *others)
        return die()

    answers.answer_question = answer_or_die  # type: ignore[assignment]
    attached.main()


if __name__ == "__main__":
    main()
