"""Every example in the documents runs and says what the code does; and the runner would notice if not."""

import os
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

from tests.documents.pages import DOCUMENTS, DOCUMENTS_WITHOUT_SPARK, as_parameters, name_of
from tests.documents.runner import WrongDocument, blocks_of, output_matches, run_document


@pytest.mark.parametrize("path", as_parameters(DOCUMENTS_WITHOUT_SPARK))
def test_the_examples_of_a_document_are_true(path: Path, tmp_path: Path) -> None:
    run_document(str(path), path.read_text("utf-8"), tmp_path)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_examples_that_are_not_run_say_why(path: Path) -> None:
    reasons = [
        f"{name_of(path)}:{block.line} not run: {block.reason_not_run}"
        for block in blocks_of(str(path), path.read_text("utf-8"))
        if block.reason_not_run is not None
    ]
    if reasons:
        pytest.skip("; ".join(reasons))  # the only report that every run of pytest shows


# --- the runner itself ----------------------------------------------------------------------------------


def run(text: str, directory: Path) -> None:
    run_document("example.md", dedent(text), directory)


def test_python_blocks_share_a_namespace_and_a_directory(tmp_path: Path) -> None:
    run(
        """
        ```python
        from pathlib import Path
        Path("note").write_text("hello\\n")
        ```
        Text, then a list item:

        - ```python
          assert Path("note").read_text() == "hello\\n"
          ```

        ```console
        $ cat note
        hello
        ```
        """,
        tmp_path,
    )
    assert (tmp_path / "note").exists()


def test_a_failing_python_block_is_caught_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(WrongDocument, match=r"^example\.md:4: AssertionError"):
        run("\n```python\nx = 1\nassert x == 2\n```\n", tmp_path)


def test_a_python_block_that_does_not_parse_is_caught(tmp_path: Path) -> None:
    with pytest.raises(WrongDocument, match=r"^example\.md:2: SyntaxError"):
        run("```python\nx = = 1\n```\n", tmp_path)


def test_a_python_block_cannot_end_the_run_early(tmp_path: Path) -> None:
    with pytest.raises(WrongDocument, match="SystemExit"):
        run("```python\nraise SystemExit(0)\n```\n", tmp_path)


def test_annotations_in_a_document_can_be_looked_up(tmp_path: Path) -> None:
    run(
        """
        ```python
        from __future__ import annotations
        import msgspec

        class Row(msgspec.Struct):
            name: str

        assert msgspec.json.decode(b'{"name": "a"}', type=Row) == Row("a")
        ```
        """,
        tmp_path,
    )


def test_a_module_that_a_document_imports_stays_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Were it loaded again later, its classes would no longer be the ones that other tests hold.
    (tmp_path / "imported_by_a_document.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    run("```python\nimport imported_by_a_document\n```\n", tmp_path)
    assert "imported_by_a_document" in sys.modules
    del sys.modules["imported_by_a_document"]


def test_a_right_transcript_passes(tmp_path: Path) -> None:
    run(
        """
        ```console
        $ echo commit 1234abcd by somebody
        commit ... by somebody
        $ true
        $ printf '1\\n2\\n\\n3\\n' && echo 4 >&2
        1
        ...
        4
        $ printf 'a  b\\n'; \\
        >   exit 3
        a  b
        exit status 3
        ```
        """,
        tmp_path,
    )


@pytest.mark.parametrize(
    "transcript",
    [
        pytest.param("$ echo one\ntwo", id="wrong"),
        pytest.param("$ echo one\none\ntwo", id="too little printed"),
        pytest.param("$ printf 'one\\ntwo\\n'\none", id="too much printed"),
        pytest.param("$ printf 'one\\n\\ntwo\\n'\none\ntwo", id="a blank line more"),
        pytest.param("$ echo one\n$ echo two\ntwo", id="a silent command in a transcript"),
        pytest.param("$ echo one; echo two >&2\none", id="standard error not shown"),
        pytest.param("$ echo 'a.c'\na?c", id="only dots are patterns"),
        pytest.param("$ echo abc\na.c", id="one dot is a dot"),
    ],
)
def test_a_wrong_output_is_caught(transcript: str, tmp_path: Path) -> None:
    with pytest.raises(WrongDocument, match="printed something else"):
        run_document("example.md", f"```console\n{transcript}\n```\n", tmp_path)


@pytest.mark.parametrize(
    ("transcript", "message"),
    [
        ("$ false", "exit status 1, expected 0"),
        ("$ echo one; exit 2\none", "exit status 2, expected 0"),
        ("$ exit 2\nexit status 3", "exit status 2, expected 3"),
        ("$ true\nexit status 1", "exit status 0, expected 1"),
        ("$ no-such-command", "exit status 127, expected 0"),
    ],
)
def test_exit_statuses_are_checked(transcript: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(WrongDocument, match=message):
        run_document("example.md", f"```console\n{transcript}\n```\n", tmp_path)


def test_a_block_without_output_only_promises_success(tmp_path: Path) -> None:
    run("```console\n$ echo one\n$ echo two\n```\n", tmp_path)
    run("```console\n$ echo one; exit 4\nexit status 4\n```\n", tmp_path)


def test_what_a_command_exports_and_its_directory_hold_for_the_next(tmp_path: Path) -> None:
    run(
        """
        ```console
        $ export LAKE="a b" && mkdir inner && cd inner
        ```
        ```console
        $ echo "$LAKE" "$(basename "$PWD")"
        a b inner
        ```
        """,
        tmp_path,
    )


def test_penstock_in_a_document_is_a_program_like_any_other(tmp_path: Path) -> None:
    run(
        """
        ```console
        $ mkdir here && cd here && penstock init > ../made && cat ../made
        made a lake at .../here
          default branch  main
          warehouse       .../here/warehouse
        $ export PENSTOCK_AUTHOR=ada
        $ echo '{"type": "LANCE_TABLE"}' | penstock put t --content -
        committed ... to main
          + t  LANCE_TABLE
        $ penstock log --json | grep '"author"' | tr -d ' '
        "author":"ada",
        $ penstock tables --ref nowhere 2>/dev/null
        exit status 4
        $ penstock tables --ref nowhere >/dev/null
        penstock: there is no branch or tag 'nowhere'
          'penstock branch' and 'penstock tag' list what there is.
        exit status 4
        $ penstock no-such-command || penstock --lake ../new branch create dev
        penstock: there is no command 'no-such-command'
          'penstock --help' shows how to use it.
        created branch dev empty
        penstock: made a new lake at .../new
        ```
        """,
        tmp_path,
    )
    with pytest.raises(WrongDocument, match="exit status 4, expected 0"):
        run("```console\n$ penstock --lake here show nowhere\n```\n", tmp_path)


def test_the_readers_settings_do_not_leak_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_LAKE", "/elsewhere")
    run(
        """
        ```console
        $ echo "[$PENSTOCK_LAKE]"
        []
        ```
        ```python
        import os
        assert "PENSTOCK_LAKE" not in os.environ
        os.environ["PENSTOCK_LAKE"] = "changed"
        ```
        """,
        tmp_path,
    )
    assert os.environ["PENSTOCK_LAKE"] == "/elsewhere"


def test_what_a_command_leaves_running_ends_with_the_document(tmp_path: Path) -> None:
    run("```console\n$ sleep 600 & echo $! > pid\n```\n", tmp_path)
    process = Path("/proc", (tmp_path / "pid").read_text().strip())
    if not Path("/proc/self").exists():
        pytest.skip("needs /proc")
    deadline = time.monotonic() + 60
    while _runs(process):
        assert time.monotonic() < deadline, "the background process is still there"
        time.sleep(0.01)


def _runs(process: Path) -> bool:
    try:
        return "Z" not in (process / "stat").read_text().rpartition(")")[2].split()[:1]
    except (FileNotFoundError, ProcessLookupError):  # the second if it ends while it is looked at
        return False


def test_a_block_is_left_out_for_a_reason_only(tmp_path: Path) -> None:
    text = "<!-- not run: changes the machine -->\n```console\n$ make setup\n```\n"
    assert [block.reason_not_run for block in blocks_of("example.md", text)] == ["changes the machine"]
    run(text, tmp_path)


@pytest.mark.parametrize(
    "command",
    ["make test", "cd x && make", "git clone somewhere", "pip install penstock", "python3 -m pip install ."],
)
def test_commands_about_the_checkout_need_a_reason(command: str, tmp_path: Path) -> None:
    with pytest.raises(WrongDocument, match="not run: reason"):
        run(f"```console\n$ {command}\n```\n", tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\nx = 1\n", "never closed"),
        ("```bash\nls\n```\n", "make it `console`"),
        ("```console\nls\n```\n", "starts with `\\$ `"),
        ("```console\nls\n$ ls\n```\n", "before the first"),
        ("```python\n>>> 1\n1\n```\n", "without `>>>`"),
        ("<!-- not run: -->\n```python\n```\n", "say why"),
        ("<!-- not run: lost -->\n\n```python\n```\n", "directly before"),
        ("<!-- not run: lost -->", "directly before"),
    ],
)
def test_nothing_escapes_unnoticed(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(WrongDocument, match=message):
        run(text, tmp_path)


def test_a_fence_inside_a_longer_fence_is_text() -> None:
    assert blocks_of("example.md", "````markdown\n```python\n1 / 0\n```\n````\n") == []


@pytest.mark.parametrize(
    ("expected", "found", "matches"),
    [
        ([], [], True),
        (["..."], [], True),
        (["..."], ["a", "", "b"], True),
        (["a", "...", "z"], ["a", "z"], True),
        (["a", "...", "z"], ["a", "b"], False),
        (["a...z"], ["a", "z"], False),
        (["... commits, ... tables"], ["12 commits, 3 tables"], True),
        (["a  "], ["a", ""], True),
        (["a"], [" a"], False),
        (["etl  created just now  until ..."], ["etl  created 3 s ago   until noon"], True),
        (["etl  created just now"], ["etl  created 1 min ago"], True),
        (["etl  created just now"], ["etl  created"], False),
    ],
)
def test_dots_stand_for_text_or_lines(expected: list[str], found: list[str], matches: bool) -> None:
    assert output_matches(expected, found) is matches
