"""Run the examples of a Markdown document, so that no document can say what the code does not do.

A document is read from top to bottom in one empty directory:

- ```` ```python ```` blocks share one namespace.
- ```` ```console ```` blocks are transcripts. A line ``$ command`` is run by bash (``> `` continues it, and
  what it exports and its ``cd`` hold for the commands after it); the lines that follow are what it
  prints. ``...`` stands for any text within a line and, alone on a line, for any lines. A command
  that is meant to fail ends with the line ``exit status N``. A block that shows no output at all only
  promises that its commands succeed. ``penstock`` is kept warm for them (see ``warm_program``).
- ``<!-- not run: reason -->`` on the line before a block is the only way not to run it.

A process has one Spark. Where it runs already, a document's ``session(lake)`` is a session of that one, with
settings and views of its own; relative paths that Spark is given lie below the document's directory all the
same; and ``spark.stop()`` ends the document's session only (see ``tests/spark/lending.py``). A document that
leaves a session there without a stop is wrong. ``README.md`` is run in a process of its own as well
(``tests/release``), where a session starts Spark and stops it, as it does for a reader.
"""

import contextlib
import gc
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from unittest import mock

from tests.documents.warm_program import install

COMMAND_TIMEOUT_S = 120

# Languages of a block that a reader would type in, yet this runner would pass over.
MISTAKEN_LANGUAGES = {
    "py": "python",
    "python3": "python",
    "pycon": "python",
    "bash": "console",
    "sh": "console",
    "shell": "console",
    "shell-session": "console",
}
# Commands about the checkout or the machine rather than about Penstock: they mean nothing in an empty
# directory, or change the environment that the tests run in.
NEEDS_A_REASON = re.compile(
    r"(?:^|&&|\|\||[;|(])\s*(?:sudo\s+)?"
    r"(?:make\b|git\s+clone\b|(?:\S*python[\d.]*\s+-m\s+)?(?:uv\s+)?pipx?3?\s+install\b|uv\s+add\b|apt(?:-get)?\b)",
    re.MULTILINE,
)


class WrongDocument(AssertionError):
    """The document and the code disagree; the message says where and how."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line of the document its text starts on."""

    language: str
    text: str
    line: int
    reason_not_run: str | None


@dataclass(frozen=True)
class Command:
    """One command of a console block, with what the document says that it prints and returns."""

    text: str
    line: int
    expected: list[str]
    status: int


def run_document(name: str, text: str, directory: Path) -> None:
    """Run all examples of a document in ``directory``; raise ``WrongDocument`` at the first wrong one."""
    blocks = [block for block in blocks_of(name, text) if block.reason_not_run is None]
    if not blocks:
        return
    environment = _environment()
    with (
        contextlib.chdir(directory),
        mock.patch.dict(os.environ, environment, clear=True),
        _module() as module,
        _spark_lent(name, module, directory),
        _Shell(directory, environment) as shell,
    ):
        for block in blocks:
            if block.language == "python":
                _run_python(name, block, module)
            else:
                _run_console(name, block, shell)


def blocks_of(name: str, text: str) -> list[Block]:
    """Return the document's python and console blocks, in order.

    Raises ``WrongDocument`` if something in it would escape unnoticed: a fence that is never closed, a
    runnable block under another language's name, a reason with no block after it.
    """
    lines = text.splitlines()
    blocks = []
    reason: str | None = None
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        fence = re.fullmatch(r"(\s*)(`{3,}|~{3,})\s*([^\s`]*)[^`]*", line)
        if fence is None:
            if reason is not None:
                raise WrongDocument(f"{name}:{at - 1}: `not run` must stand directly before a block")
            reason = _reason(name, line, at)
            continue
        indent, ticks, language = fence.groups()
        start = at
        closing = re.compile(rf"\s*{ticks[0]}{{{len(ticks)},}}\s*")
        while at < len(lines) and not closing.fullmatch(lines[at]):
            at += 1
        if at == len(lines):
            raise WrongDocument(f"{name}:{start}: this block is never closed")
        body = "".join(_without_indent(body_line, indent) + "\n" for body_line in lines[start:at])
        at += 1
        if language in MISTAKEN_LANGUAGES and reason is None:
            raise WrongDocument(
                f"{name}:{start}: a `{language}` block is not run; make it `{MISTAKEN_LANGUAGES[language]}`"
            )
        if language in ("python", "console") or reason is not None:
            blocks.append(Block(language, body, start + 1, reason))
        reason = None
    if reason is not None:
        raise WrongDocument(f"{name}:{at}: `not run` must stand directly before a block")
    return blocks


def output_matches(expected: list[str], found: list[str]) -> bool:
    """Whether ``found`` is what ``expected`` says, ``...`` standing for any text or any lines.

    What a reader does ``just now`` may be a while ago on a machine with much to do.
    """
    pattern = ""
    for line in _trimmed(expected):
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(re.escape(part) for part in line.split("...")) + r"\n"
    pattern = pattern.replace(re.escape("just now"), r"(?:just now|\d+ (?:s|min) ago) *")
    return re.fullmatch(pattern, "".join(line + "\n" for line in _trimmed(found))) is not None


def _reason(name: str, line: str, number: int) -> str | None:
    comment = re.fullmatch(r"\s*<!--\s*not run\b:?(.*)-->\s*", line)
    if comment is None:
        return None
    reason = comment[1].strip()
    if not reason:
        raise WrongDocument(f"{name}:{number}: say why: <!-- not run: reason -->")
    return reason


def _without_indent(line: str, indent: str) -> str:
    return line.removeprefix(indent) if line.startswith(indent) else line.lstrip()


def _trimmed(lines: list[str]) -> list[str]:
    return "\n".join(line.rstrip() for line in lines).rstrip("\n").split("\n") if lines else []


def _environment() -> dict[str, str]:
    """The environment of a reader who has Penstock on PATH and has set nothing else up."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return inherited | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "LC_ALL": "C.UTF-8",
        "COLUMNS": "100",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",
    }


# --- python ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _module() -> Iterator[ModuleType]:
    """A real module for the blocks to run in: msgspec and dataclasses look annotations up by module."""
    module = ModuleType("__document__")
    sys.modules[module.__name__] = module
    with _all_of_before_kept():
        try:
            yield module
        finally:
            del sys.modules[module.__name__]
        module.__dict__.clear()
        gc.collect()  # so that what the document forgot to close is held against the document


@contextlib.contextmanager
def _all_of_before_kept() -> Iterator[None]:
    """Look for garbage among new objects only: all that the suite has takes a second to walk through."""
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _run_python(name: str, block: Block, module: ModuleType) -> None:
    if block.text.lstrip().startswith(">>>"):
        raise WrongDocument(f"{name}:{block.line}: write plain Python and assert, without `>>>`")
    try:
        # The blank lines make a traceback name the line of the document.
        code = compile("\n" * (block.line - 1) + block.text, name, "exec")
        exec(code, module.__dict__)
    except (Exception, SystemExit) as error:
        raise WrongDocument(f"{name}:{_line_of(error, name, block)}: {error!r}") from error


def _line_of(error: BaseException, name: str, block: Block) -> int:
    if isinstance(error, SyntaxError) and error.filename == name and error.lineno is not None:
        return error.lineno
    line = block.line
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == name:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


# --- spark ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _spark_lent(name: str, module: ModuleType, directory: Path) -> Iterator[None]:
    """Let a document use the Spark of this process, where one runs, as if it had started it."""
    sql = sys.modules.get("pyspark.sql")
    running = None if sql is None else sql.SparkSession._instantiatedSession
    if running is None or running._sc._jsc is None:
        yield
        return
    from tests.spark.lending import lent, working_directory

    with lent(running) as stopped, working_directory(running, directory):
        yield
        for variable, value in vars(module).items():
            if isinstance(value, type(running)) and value not in stopped:
                raise WrongDocument(f"{name}: the session '{variable}' is never stopped")


# --- console --------------------------------------------------------------------------------------------


class _Shell:
    """Runs commands one by one, each in a bash of its own, as if they were typed into one.

    What a command exports and where it goes are written down at its end and read by the next. What it
    leaves running in the background is ended with the document.
    """

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._directory = directory
        self._environment = environment

    def __enter__(self) -> "_Shell":
        self._notes = tempfile.TemporaryDirectory()
        # Leads the process group and outlives its members, so that the group's id stays ours.
        self._leader = subprocess.Popen(["sleep", "infinity"], process_group=0)
        self._has_program = False
        path = f"{self._notes.name}{os.pathsep}{self._environment['PATH']}"
        self._environment = {**self._environment, "PATH": path}
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._leader.pid, signal.SIGKILL)
        self._leader.wait()
        self._notes.cleanup()

    def run(self, command: str) -> tuple[int, str]:
        """Run a command; return its exit status and all it printed, standard error included."""
        if not self._has_program and "penstock" in command:
            install(Path(self._notes.name), self._leader.pid)
            self._has_program = True
        state = shlex.quote(str(Path(self._notes.name, "state")))
        script = (
            f"[ ! -e {state} ] || . {state}\n"
            f'_note_state() {{ {{ declare -px; printf "cd %q\\n" "$PWD"; }} >{state}; }}\n'
            f"trap _note_state EXIT\n"
            f"{command}\n"
        )
        # A file, not a pipe: a server left in the background would hold a pipe open for ever.
        with tempfile.TemporaryFile() as output:
            status = subprocess.run(
                ["bash", "-c", script],
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=COMMAND_TIMEOUT_S,
                process_group=self._leader.pid,
                check=False,
            ).returncode
            output.seek(0)
            return status, output.read().decode("utf-8", "replace")


def _run_console(name: str, block: Block, shell: _Shell) -> None:
    commands = _commands_of(name, block)
    transcript = any(command.expected for command in commands)
    for command in commands:
        where = f"{name}:{command.line}: $ {command.text}"
        if NEEDS_A_REASON.search(command.text):
            raise WrongDocument(f"{where}\nput <!-- not run: reason --> before this block")
        try:
            status, printed = shell.run(command.text)
        except subprocess.TimeoutExpired as error:
            raise WrongDocument(f"{where}\nstill ran after {COMMAND_TIMEOUT_S} s") from error
        said = _shown("expected", "\n".join(command.expected)) + _shown("found", printed)
        if status != command.status:
            raise WrongDocument(f"{where}\nexit status {status}, expected {command.status}\n{said}")
        if transcript and not output_matches(command.expected, printed.splitlines()):
            raise WrongDocument(f"{where}\nprinted something else\n{said}")


def _commands_of(name: str, block: Block) -> list[Command]:
    lines = block.text.splitlines()
    if not any(line.startswith("$ ") for line in lines):
        raise WrongDocument(f"{name}:{block.line}: a console block needs a line that starts with `$ `")
    commands = []
    at = 0
    while at < len(lines):
        if not lines[at].startswith("$ "):
            raise WrongDocument(f"{name}:{block.line + at}: output before the first `$ ` command")
        line = block.line + at
        text = lines[at].removeprefix("$ ")
        at += 1
        while at < len(lines) and (lines[at].startswith("> ") or text.endswith("\\")):
            text += "\n" + lines[at].removeprefix("> ")
            at += 1
        expected = []
        while at < len(lines) and not lines[at].startswith("$ "):
            expected.append(lines[at])
            at += 1
        expected = _trimmed(expected) if any(expected) else []
        status = re.fullmatch(r"exit status (\d+)", expected[-1]) if expected else None
        if status is not None:
            expected.pop()
        commands.append(Command(text, line, expected, int(status[1]) if status else 0))
    return commands


def _shown(title: str, text: str) -> str:
    return f"{title}:\n{textwrap.indent(text.rstrip(), '    ')}\n"


if __name__ == "__main__":
    document, place = map(Path, sys.argv[1:])
    run_document(str(document), document.read_text("utf-8"), place)
