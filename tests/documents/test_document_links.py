"""What the documents point at is there: pages, headings, files, and the tests that prove a promise."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]

LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(r"`((?:src|tests|docs|benchmarks|examples)/[\w./-]+\.(?:py|md))(?:::([\w:]+))?`")
MODULE = re.compile(r"`([a-z]\w*(?:/\w+)*/(?:\w+\.py)?)`")
FENCED = re.compile(r"^(```+|~~~+).*?^\1", re.MULTILINE | re.DOTALL)


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def _text(path: Path) -> str:
    """A document without its code blocks."""
    return FENCED.sub("", path.read_text("utf-8"))


@cache
def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", _text(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def _tests(path: Path) -> set[str]:
    """The tests of a file, with and without the class they are in."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
            found |= {f"{node.name}::{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_links_lead_somewhere(document: Path) -> None:
    lost = []
    for link in LINK.findall(_text(document)):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        path = (document.parent / target).resolve() if target else document
        if not path.exists() or (anchor and anchor not in _anchors(path)):
            lost.append(link)
    assert not lost, f"{_name(document)} links to what is not there: {', '.join(lost)}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_files_and_tests_that_a_document_names_exist(document: Path) -> None:
    lost = []
    for file, test in FILE.findall(_text(document)):
        path = ROOT / file
        if not path.exists() or (test and test not in _tests(path)):
            lost.append(f"{file}::{test}{_moved_to(test)}" if test else file)
    assert not lost, f"{_name(document)} names what is not there:\n" + "\n".join(lost)


def _moved_to(test: str) -> str:
    """Where there is a test of that name, for the person who has to mend the document."""
    found = [_name(path) for path in (ROOT / "tests").rglob("*.py") if test in _tests(path)]
    return f" (there is one in {', '.join(found)})" if found else " (there is none of that name)"


INSIDE = [ROOT / "ARCHITECTURE.md", *(ROOT / "docs" / "internals").glob("*.md")]


@pytest.mark.parametrize("document", INSIDE, ids=_name)
def test_a_page_about_the_code_names_modules_that_there_are(document: Path) -> None:
    package = ROOT / "src" / "penstock"
    named = MODULE.findall(document.read_text("utf-8"))
    assert named
    assert [one for one in named if not (package / one).exists() and not (ROOT / one).exists()] == []


def test_the_picture_of_the_architecture_has_every_layer() -> None:
    (picture,) = re.findall(
        r"^```\n(.+?)^```", (ROOT / "ARCHITECTURE.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    packages = {path.parent.name for path in (ROOT / "src" / "penstock").glob("*/__init__.py")}
    assert packages - set(re.findall(r"\w+", picture)) == {"testing"}


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = set(re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (folder / "README.md").read_text("utf-8")))
    assert listed == {path.name for path in folder.glob("0*.md")}


def test_every_page_can_be_found_from_the_readme() -> None:
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or not page.exists():
            continue
        reached.add(page)
        links = [link.partition("#")[0] for link in LINK.findall(_text(page)) if "://" not in link]
        waiting += [(page.parent / link).resolve() for link in links if link.endswith(".md")]
    apart = {ROOT / "CHANGELOG.md", ROOT / "docs" / "index.md"}  # the latter is the site's list of contents
    assert {_name(path) for path in set(DOCUMENTS) - apart - reached} == set()


def test_the_page_of_the_tests_says_where_each_folder_is() -> None:
    page, tests = (ROOT / "tests" / "README.md").read_text("utf-8"), ROOT / "tests"
    where = "".join(re.findall(r"\|([^|\n]+)\|$", page[page.index("## Where the tests") :], re.MULTILINE))
    named = [tests / one for one in re.findall(r"`([\w/]+)`", where)]
    folders = {path.parent for path in tests.rglob("test_*.py")} - {tests}
    unnamed = [one for one in folders if not {one, *one.parents} & set(named)]
    assert [_name(one) for one in unnamed] == []
    assert [_name(one) for one in named if not one.is_dir()] == []
