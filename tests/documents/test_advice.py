"""Every deed that a message advises is in the reference, with what it does, and is followed by a test."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from docs.advice import ADVICE, Advice
from tests.documents.advice import NO_ADVICE, Text, advising

ROOT = Path(__file__).parent.parent.parent
ENTRIES = [one for group in ADVICE.values() for one in group]
PARTS = [part for one in ENTRIES for part in one.says]


@cache
def texts() -> tuple[Text, ...]:
    return tuple(advising())


def covers(part: str, text: Text, deed: int) -> bool:
    """Whether a part of a text is what names a deed in it."""
    at = text.text.find(part)
    while at >= 0:
        if at <= deed < at + len(part):
            return True
        at = text.text.find(part, at + 1)
    return False


def test_every_deed_that_a_message_advises_is_known() -> None:
    new = [
        f"{text.where}: {text.text[: deed + 1]}»{text.text[deed + 1 :]}"
        for text in texts()
        for deed in text.deeds
        if not any(covers(part, text, deed) for part in (*PARTS, *NO_ADVICE))
    ]
    assert new == [], "say in docs/advice.py what following this does, and let a test follow it"


def test_what_is_known_is_still_advised() -> None:
    for part in (*PARTS, *NO_ADVICE):
        assert any(covers(part, text, deed) for text in texts() for deed in text.deeds), part


@cache
def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.says[0])
def test_a_test_follows_it(entry: Advice) -> None:
    path, _, name = entry.followed_by.partition("::")
    assert name in functions_of(path)


def test_advice_that_is_new_is_noticed() -> None:
    text = Text("any.py", "the lake is odd; delete it", (len("the lake is odd; delete") - 1,))
    assert not any(covers(part, text, text.deeds[0]) for part in PARTS)
