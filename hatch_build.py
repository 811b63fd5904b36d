"""Builds the jar with which Spark writes straight to a table's place, for whichever package is being built.

It needs a Java compiler and the jars of a Spark to compile against. Where there is only a compiler,
the build tool is asked to fetch a Spark for the time of the build. Without a compiler the package is built
without the jar: Penstock then writes through Spark's own committer. A line says so, and a note in the package
keeps the reason for those who wonder later. A jar that is there already and was made of these very sources,
as in an unpacked source distribution, is used as it is. ``python hatch_build.py`` makes the jar alone, as a
developer wants it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import site
import subprocess
import sys
import tempfile
import zipfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

JAR = "src/penstock/spark/jars/penstock-spark.jar"
SOURCES = "jvm/src/main/java"
RESOURCES = "../resources"  # beside the sources: files that go into the jar as they are
RELEASE = "17"
QUICKLY = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")  # the compiler runs for a second only
OLDEST_SPARK = (4, 2)  # to compile against: the first with all classes; what is made also runs on the oldest
SPARK = "pyspark>=4.2,<4.4"
NOTE = "missing.txt"
DIGEST = "Penstock-Sources"
EARLIEST = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip file can tell


class JarHook(BuildHookInterface[Any]):
    """Hatchling's name for what runs before it collects a package's files."""

    def dependencies(self) -> list[str]:
        """What the build tool has to fetch before ``initialize``: a Spark, if nothing else is missing."""
        root = Path(self.root)
        if is_fresh(root / SOURCES, root / JAR) or is_switched_off() or find_spark() or not find_javac():
            return []
        return [SPARK]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        lenient = version != "editable"  # a compiler of tomorrow may warn of more; that is for developers
        refresh(root / SOURCES, root / JAR, lenient, self.app.display_info)
        for file in (root / JAR, (root / JAR).with_name(NOTE)):
            if file.is_file():
                build_data["artifacts"].append(f"/{file.relative_to(root).as_posix()}")


def refresh(sources: Path, jar: Path, lenient: bool, say: Any) -> None:
    """Have the jar be what the sources say; without a compiler or Spark rather no jar than a stale one.

    Beside no jar there is a note: the reason, and below it what to do about it.
    """
    note = jar.with_name(NOTE)
    if is_fresh(sources, jar):
        note.unlink(missing_ok=True)
        return
    if is_switched_off():
        reason, remedy = "PENSTOCK_WITHOUT_JAR was set", "install Penstock again without that variable"
    elif not (javac := find_javac()):
        reason = f"no javac {RELEASE} or newer in JAVA_HOME or on the PATH"
        remedy = f"install a JDK, {RELEASE} or newer, and then Penstock again"
    elif not (spark := find_spark()):
        reason = "no Spark 4.2 or newer to compile against"
        remedy = "install PySpark, and then Penstock again"
    else:
        compile_jar(javac, spark, sources, jar, lenient)
        note.unlink(missing_ok=True)
        return
    jar.unlink(missing_ok=True)
    with suppress(OSError):  # sources that cannot be written are built all the same
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(f"{reason}\n{remedy}\n", "utf-8")
    say(f"penstock: built without its jar for Spark: {reason}")


def is_switched_off() -> bool:
    return bool(os.environ.get("PENSTOCK_WITHOUT_JAR"))


def is_fresh(sources: Path, jar: Path) -> bool:
    """Whether there is nothing to compile: the jar is of these sources, or there are none."""
    return not java_files(sources) or digest_of(jar) == digest(sources)


def compile_jar(javac: str, spark: Path, sources: Path, jar: Path, lenient: bool) -> None:
    """Compile, and put the jar in its place at once, so that nobody meets half of it."""
    strict = [] if lenient else ["-Xlint:all,-classfile,-processing,-path", "-Werror"]
    with tempfile.TemporaryDirectory() as scratch:
        classes = Path(scratch, "classes")
        command = [javac, *QUICKLY, "--release", RELEASE, "-encoding", "UTF-8", "-proc:none", *strict]
        command += ["-classpath", f"{spark}/*", "-d", str(classes)]
        command += map(str, java_files(sources))
        wanted = digest(sources)
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        if told.returncode:
            raise RuntimeError(
                f"javac cannot compile {sources} against {spark}; with PENSTOCK_WITHOUT_JAR=1 in the "
                f"environment the package is built without its jar\n{told.stdout}{told.stderr}"
            )
        jar.parent.mkdir(parents=True, exist_ok=True)
        unfinished = jar.with_suffix(f".{os.getpid()}.tmp")
        write_jar(unfinished, [classes, sources / RESOURCES], wanted)
        unfinished.replace(jar)


def write_jar(jar: Path, folders: list[Path], wanted: str) -> None:
    """The same bytes for the same files: sorted, undated and not compressed."""
    manifest = f"Manifest-Version: 1.0\r\n{DIGEST}: {wanted}\r\n\r\n"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", EARLIEST), manifest)
        for folder in folders:
            for file in files_in(folder):
                name = file.relative_to(folder).as_posix()
                archive.writestr(zipfile.ZipInfo(name, EARLIEST), file.read_bytes())


def java_files(sources: Path) -> list[Path]:
    return sorted(sources.rglob("*.java"))


def files_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


def digest(sources: Path) -> str:
    """What tells these sources from others. Short, since a line of a manifest is."""
    whole = hashlib.sha256()
    for folder, files in (
        (sources, java_files(sources)),
        (sources / RESOURCES, files_in(sources / RESOURCES)),
    ):
        for file in files:
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            whole.update(f"{file.relative_to(folder).as_posix()} {content}\n".encode())
    return whole.hexdigest()[:32]


def digest_of(jar: Path) -> str | None:
    """The digest of the sources that a jar was made of; None if there is no such jar, or a broken one."""
    try:
        with zipfile.ZipFile(jar) as archive:
            manifest = archive.read("META-INF/MANIFEST.MF").decode()
    except (OSError, KeyError, zipfile.BadZipFile):
        return None
    found = re.search(rf"^{DIGEST}: (\w+)", manifest, re.MULTILINE)
    return found[1] if found else None


def find_javac() -> str | None:
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home, "bin", "javac"))] if home else []
    if on_path := shutil.which("javac"):
        candidates.append(on_path)
    return next((one for one in candidates if javac_release(one) >= int(RELEASE)), None)


def javac_release(javac: str) -> int:
    """Which Java a compiler is of; 0 if it does not run."""
    try:
        told = subprocess.run([javac, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r"javac (\d+)", told.stdout + told.stderr)
    return int(found[1]) if found else 0


def find_spark() -> Path | None:
    """The jars of SPARK_HOME, or of a pyspark: beside the build tools, or in the environment built for."""
    candidates = [Path(home, "jars")] if (home := os.environ.get("SPARK_HOME")) else []
    if (spec := find_spec("pyspark")) and spec.submodule_search_locations:
        candidates.append(Path(spec.submodule_search_locations[0], "jars"))
    # Build tools that keep an environment's packages from the build still run its interpreter, or name it.
    packages = [Path(one) for one in site.getsitepackages([sys.prefix, sys.base_prefix])]
    if environment := os.environ.get("VIRTUAL_ENV"):
        packages += sorted(Path(environment).glob("lib/python*/site-packages"))
    candidates += [one / "pyspark" / "jars" for one in packages]
    return next((one for one in candidates if spark_version(one) >= OLDEST_SPARK), None)


def spark_version(jars: Path) -> tuple[int, int]:
    """Which Spark the jars in a directory are of; (0, 0) if they are of none."""
    for one in jars.glob("spark-sql_2.13-*.jar"):
        if found := re.match(r"spark-sql_2\.13-(\d+)\.(\d+)", one.name):
            return int(found[1]), int(found[2])
    return 0, 0


if __name__ == "__main__":
    here = Path(__file__).parent
    refresh(here / SOURCES, here / JAR, False, lambda line: sys.stderr.write(f"{line}\n"))
