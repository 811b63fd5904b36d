"""Decoders are made in one place, where no thread sees one that is half made."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import penstock
from penstock.model import decoders
from tests.model import first_decodes

SOURCES = Path(penstock.__file__).parent
PLACE = SOURCES / "model" / "decoders.py"
MAKING = re.compile(r"msgspec[^\n]*(Decoder|decode|convert| as )|from msgspec")
"""The text of a module that may make decoders; all others are not parsed."""


@pytest.mark.parametrize("way", first_decodes.WAYS)
def test_a_thread_that_decodes_while_another_makes_the_decoder_waits_for_it(way: str) -> None:
    program = [sys.executable, first_decodes.__file__, way]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(program, env=environment, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")


def test_threads_share_the_decoder_of_a_type() -> None:
    class Value(msgspec.Struct):
        number: int

    ready = threading.Barrier(8)
    made = []

    def work() -> None:
        ready.wait()
        made.append((decoders.get_json_decoder(Value), decoders.get_msgpack_decoder(Value)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(made) == 8
    assert len(set(map(id, (one for one, _ in made)))) == len(set(map(id, (one for _, one in made)))) == 1


def test_a_type_that_cannot_be_decoded_says_so_each_time() -> None:
    class Wrong(msgspec.Struct):
        either: list[int] | tuple[int, ...]

    for _ in range(2):
        with pytest.raises(TypeError, match="more than one array-like"):
            decoders.get_json_decoder(Wrong)
        with pytest.raises(TypeError, match="more than one array-like"):
            decoders.convert_value({}, Wrong)


def test_a_process_that_is_forked_can_make_decoders() -> None:
    class Value(msgspec.Struct):
        number: int

    child = os.fork()
    if child == 0:
        os._exit(decoders.get_json_decoder(Value).decode(b'{"number":7}').number)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7


def test_no_other_module_makes_decoders() -> None:
    made = [
        f"{path.relative_to(SOURCES)}:{line}: {what}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path != PLACE and MAKING.search(text := path.read_text())
        for line, what in decoders_made(ast.parse(text))
    ]
    assert made == [], "use penstock.model.decoders"


@pytest.mark.parametrize(
    "text",
    [
        "msgspec.json.Decoder(Kind)",
        "msgspec.msgpack.Decoder()",
        "msgspec.convert(value, Kind)",
        "msgspec.json.decode(data, type=Kind)",
        "msgspec.msgpack.decode(data, **options)",
        "make = msgspec.json.Decoder",
        "from msgspec import convert",
        "from msgspec.json import Decoder",
        "from msgspec import json",
        "import msgspec.json as other",
        "import msgspec as other",
    ],
)
def test_what_makes_a_decoder_is_found(text: str) -> None:
    assert list(decoders_made(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "msgspec.json.decode(data)",
        "kept: msgspec.json.Decoder[Any]",
        "msgspec.json.encode(value)",
        "convert(value)",
    ],
)
def test_what_makes_no_decoder_is_let_through(text: str) -> None:
    assert not list(decoders_made(ast.parse(text)))


def decoders_made(module: ast.Module) -> Iterator[tuple[int, str]]:
    """The lines that make msgspec build a decoder, or hide that they do."""
    types = {id(part) for node in ast.walk(module) for part in _types_of(node)}
    plain = {
        id(node.func)
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and id(node) not in types:
            name = ast.unparse(node)
            makes = node.attr in ("Decoder", "convert") or (node.attr == "decode" and id(node) not in plain)
            if makes and re.fullmatch(r"msgspec(\.\w+)+", name):
                yield node.lineno, name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "msgspec":
            for one in node.names:
                if one.name in ("Decoder", "decode", "convert", "json", "msgpack", "yaml", "toml"):
                    yield node.lineno, f"from {node.module} import {one.name}"
        elif isinstance(node, ast.Import):
            for one in node.names:
                if one.name.split(".")[0] == "msgspec" and one.asname not in (None, "msgspec"):
                    yield node.lineno, f"import {one.name} as {one.asname}"


def _types_of(node: ast.AST) -> Iterator[ast.AST]:
    """The expressions that only name a type: ``msgspec.json.Decoder[Any]``."""
    if isinstance(node, ast.Subscript):
        yield node.value
