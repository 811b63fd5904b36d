"""The jar: built with the package where it can be, reused where it cannot, and never out of date."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import hatch_build
from penstock.spark import jar as package
from penstock.spark.jar import MissingJar

ROOT = Path(__file__).parents[3]
NEEDED = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "jvm", "src")
IN_WHEEL = "penstock/spark/jars/penstock-spark.jar"

needs_javac = pytest.mark.skipif(
    hatch_build.find_javac() is None or hatch_build.find_spark() is None,
    reason="no Java compiler, or no Spark, to build the jar with",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of everything that the package is built from, without a jar."""
    copy = tmp_path / "project"
    copy.mkdir()
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "jars"))
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy


def build(project: Path, target: str = "wheel", **environment: str) -> tuple[Path, str]:
    """Build a package, as pip and uv do; what was built, and what was said."""
    out = project / "dist"
    shutil.rmtree(out, ignore_errors=True)
    told = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", out],
        cwd=project,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    (built,) = out.iterdir()
    return built, told.stdout + told.stderr


WITHOUT_JAVAC = {"PATH": "/nowhere", "JAVA_HOME": "/nowhere"}


def installed(wheel: Path, place: Path, question: str = "jar.find_jar()") -> str:
    """What Penstock answers about its jar where nothing but the wheel is installed."""
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, place], check=True, timeout=60)
    python = place / "bin" / "python"
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, wheel],
        check=True,
        timeout=60,
    )
    told = subprocess.run(
        [python, "-c", f"from penstock.spark import jar; print({question})"],
        cwd=place,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return told.stdout.strip()


def test_without_a_compiler_the_package_installs_all_the_same(project: Path, tmp_path: Path) -> None:
    wheel, said = build(project, **WITHOUT_JAVAC)
    assert [line for line in said.splitlines() if "jar" in line] == [
        "penstock: built without its jar for Spark: no javac 17 or newer in JAVA_HOME or on the PATH"
    ]
    assert installed(wheel, tmp_path / "venv", "(jar.find_jar(), jar.lack_of_package().reason)") == str(
        (None, "no javac 17 or newer in JAVA_HOME or on the PATH")
    )


@needs_javac
@pytest.mark.verify
def test_the_jar_is_in_a_wheel_and_in_what_is_built_from_a_source_distribution(
    project: Path, tmp_path: Path
) -> None:
    wheel, _ = build(project)
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert "penstock/spark/log4j2.properties" in archive.namelist()
        made = archive.read(IN_WHEEL)
    sources, _ = build(project, "sdist")
    shutil.unpack_archive(sources, tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    wheel, said = build(unpacked, **WITHOUT_JAVAC)
    assert "without its jar" not in said
    place = Path(installed(wheel, tmp_path / "venv"))
    assert place.read_bytes() == made
    with zipfile.ZipFile(place) as jar:
        assert "io/penstock/spark/CommitProtocol.class" in jar.namelist()


class Workshop:
    """Sources of one class, and the place of their jar."""

    def __init__(self, place: Path) -> None:
        self.sources = place / "java"
        self.jar = place / "jars" / "some.jar"
        self.said: list[str] = []
        self.sources.mkdir()

    def write(self, body: str) -> None:
        (self.sources / "A.java").write_text(f"class A {{ {body} }}\n", "utf-8")

    def refresh(self) -> bytes | None:
        hatch_build.refresh(self.sources, self.jar, False, self.said.append)
        return self.jar.read_bytes() if self.jar.exists() else None


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    spark = tmp_path / "spark" / "jars"
    spark.mkdir(parents=True)
    with zipfile.ZipFile(spark / "spark-sql_2.13-4.3.0.jar", "w"):
        pass  # the class needs nothing of Spark, and a compiler takes its time over all of it
    monkeypatch.setenv("SPARK_HOME", str(spark.parent))
    return Workshop(tmp_path)


@needs_javac
def test_the_same_sources_are_compiled_once_and_always_to_the_same_bytes(workshop: Workshop) -> None:
    workshop.write("int one;")
    whole = workshop.refresh()
    assert whole is not None
    kept = workshop.jar.stat().st_ino
    workshop.refresh()
    assert workshop.jar.stat().st_ino == kept
    workshop.jar.write_bytes(whole[: len(whole) // 2])
    assert workshop.refresh() == whole
    assert list(workshop.jar.parent.iterdir()) == [workshop.jar]


@pytest.mark.verify
@needs_javac
def test_a_jar_of_other_sources_goes_as_soon_as_there_is_no_way_to_make_it_anew(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.write("int one;")
    first = workshop.refresh()
    # Not even a mere warning passes.
    workshop.write("java.util.List<String> all = (java.util.List<String>) (Object) null;")
    with pytest.raises(RuntimeError, match=r"PENSTOCK_WITHOUT_JAR=1(.|\n)*unchecked"):
        workshop.refresh()
    assert workshop.jar.read_bytes() == first
    monkeypatch.setenv("PENSTOCK_WITHOUT_JAR", "1")
    assert workshop.refresh() is None
    assert workshop.said == ["penstock: built without its jar for Spark: PENSTOCK_WITHOUT_JAR was set"]


@needs_javac
def test_the_reason_for_no_jar_is_noted_until_there_is_one(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "_PLACE", workshop.jar.parent)
    assert "was not recorded" in package.lack_of_package().reason
    workshop.write("int one;")
    monkeypatch.setenv("PENSTOCK_WITHOUT_JAR", "1")
    assert workshop.refresh() is None
    assert package.lack_of_package() == MissingJar(
        "PENSTOCK_WITHOUT_JAR was set", "install Penstock again without that variable"
    )
    monkeypatch.delenv("PENSTOCK_WITHOUT_JAR")
    assert workshop.refresh() is not None
    assert list(workshop.jar.parent.iterdir()) == [workshop.jar]


@pytest.fixture
def bare(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, seen from an environment that has the build tools and nothing else."""
    for name in ("SPARK_HOME", "VIRTUAL_ENV", "PENSTOCK_WITHOUT_JAR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hatch_build, "find_spec", lambda _: None)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "base"))
    return project


def wanted_by(project: Path) -> list[str]:
    hook = hatch_build.JarHook(str(project), {}, None, None, "", "wheel")  # type: ignore[arg-type]
    return hook.dependencies()


@needs_javac
def test_spark_is_fetched_for_a_build_that_lacks_nothing_else(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wanted_by(bare) == ["pyspark>=4.2,<4.4"]
    with monkeypatch.context() as changed:
        changed.setenv("PENSTOCK_WITHOUT_JAR", "1")
        assert wanted_by(bare) == []
    with monkeypatch.context() as changed:
        for name, value in WITHOUT_JAVAC.items():
            changed.setenv(name, value)
        assert wanted_by(bare) == []
    jar = bare / hatch_build.JAR
    jar.parent.mkdir()
    hatch_build.write_jar(jar, [tmp_path / "no classes"], hatch_build.digest(bare / hatch_build.SOURCES))
    assert wanted_by(bare) == []


@pytest.mark.parametrize("place", ["environment", "base"])
def test_the_spark_of_the_environment_built_for_is_found_from_an_isolated_build(
    place: str, bare: Path, tmp_path: Path
) -> None:
    assert hatch_build.find_spark() is None
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    spark = tmp_path / place / "lib" / version / "site-packages" / "pyspark" / "jars"
    spark.mkdir(parents=True)
    (spark / "spark-sql_2.13-4.2.0.jar").touch()
    assert hatch_build.find_spark() == spark
    assert wanted_by(bare) == []


@pytest.mark.parametrize(
    ("names", "version"),
    [
        (["spark-sql_2.13-4.3.0.jar", "spark-sql-api_2.13-4.3.0.jar"], (4, 3)),
        (["spark-sql_2.13-4.10.1.jar"], (4, 10)),
        (["spark-sql_2.12-3.5.0.jar"], (0, 0)),
        ([], (0, 0)),
    ],
    ids=["4.3", "4.10", "scala 2.12", "none"],
)
def test_sparks_version_is_that_of_its_jars(
    names: list[str], version: tuple[int, int], tmp_path: Path
) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert hatch_build.spark_version(tmp_path) == version
