"""The bill of materials, in CycloneDX: what an installation with all extras holds, and what the jar uses."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from release import ROOT, environments

CYCLONEDX: Final = ROOT / "build" / "release" / "bin" / "cyclonedx-py"
GROUPS: Final = {
    "com.fasterxml.jackson.core": "Apache-2.0",
    "org.apache.hadoop": "Apache-2.0",
    "org.apache.parquet": "Apache-2.0",
    "org.apache.spark": "Apache-2.0",
    "org.scala-lang": "Apache-2.0",
    "org.slf4j": "MIT",
}
"""Who publishes the Java libraries that the jar uses, with the licence, which their jars do not name."""
WITHOUT_GROUP: Final = {"scala-library": "org.scala-lang"}
"""Jars that do not name their group."""


def build(python: Path, jar: bytes) -> dict[str, Any]:
    """The bill of an environment that holds Penstock, and of its jar."""
    told = environments.run(
        [
            CYCLONEDX,
            "environment",
            "--output-reproducible",
            "--mc-type",
            "library",
            "--pyproject",
            "pyproject.toml",
            python,
        ]
    )
    materials: dict[str, Any] = json.loads(told)
    # Penstock itself is what the bill is of, and no part of it.
    materials["components"] = [one for one in materials["components"] if one["name"] != "penstock"]
    spark = Path(
        environments.run([python, "-c", "import pyspark; print(pyspark.__path__[0], end='')"]), "jars"
    )
    java = list(java_components(jar, spark))
    own = own_component(jar)
    materials["components"] += [own, *java]
    materials["dependencies"] += [
        {"ref": own["bom-ref"], "dependsOn": [one["bom-ref"] for one in java]},
        *({"ref": one["bom-ref"]} for one in java),
    ]
    root = materials["metadata"]["component"]["bom-ref"]
    [needs] = [one for one in materials["dependencies"] if one["ref"] == root]
    needs["dependsOn"] = sorted([*needs.get("dependsOn", ()), own["bom-ref"]])
    return materials


def own_component(jar: bytes) -> dict[str, Any]:
    """Penstock's jar, which is in the wheel; ``SystemExit`` if there is anything of others in it."""
    with tempfile.TemporaryFile() as file:
        file.write(jar)
        with zipfile.ZipFile(file) as archive:
            foreign = [one for one in archive.namelist() if not one.startswith(("io/penstock/", "META-INF/"))]
    if foreign:
        raise SystemExit(f"release: the jar holds what is not Penstock's: {', '.join(foreign)}")
    return {
        "bom-ref": "penstock-spark.jar",
        "type": "library",
        "name": "penstock-spark.jar",
        "description": "Penstock's classes for Spark; nothing of others is in it",
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(jar).hexdigest()}],
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }


def java_components(jar: bytes, spark: Path) -> Iterator[dict[str, Any]]:
    """The jars of Spark whose classes Penstock's jar uses. Spark brings them; Penstock's packages do not."""
    for used in used_jars(jar, spark):
        found = re.fullmatch(r"(.+?)-(\d[\w.]*)", used.stem)
        if found is None:
            raise SystemExit(f"release: {used.name} has no version in its name")
        name, version = found.groups()
        group = group_of(used, name)
        if group not in GROUPS:
            raise SystemExit(f"release: say in release/bill.py which licence {group} publishes {name} under")
        yield {
            "bom-ref": f"pkg:maven/{group}/{name}@{version}",
            "type": "library",
            "group": group,
            "name": name,
            "version": version,
            "purl": f"pkg:maven/{group}/{name}@{version}",
            "scope": "optional",
            "licenses": [{"license": {"id": GROUPS[group]}}],
        }


def used_jars(jar: bytes, spark: Path) -> list[Path]:
    """The jars in a folder of Spark's that a jar needs, as the JDK finds them."""
    if (jdeps := shutil.which("jdeps")) is None:
        raise SystemExit("release: needs jdeps, which comes with a JDK")
    with tempfile.TemporaryDirectory() as scratch:
        own = Path(scratch, "penstock-spark.jar")
        own.write_bytes(jar)
        command = [jdeps, "-s", "--multi-release", "17", "-cp", f"{spark}/*", str(own)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return sorted(
        {Path(one) for one in re.findall(r"^penstock-spark\.jar -> (.+\.jar)$", told, re.MULTILINE)}
    )


def group_of(jar: Path, name: str) -> str | None:
    """Who publishes a jar, as it says itself."""
    with zipfile.ZipFile(jar) as archive:
        named = [
            re.fullmatch(rf"META-INF/maven/([^/]+)/{re.escape(name)}/pom\.properties", one)
            for one in archive.namelist()
        ]
    return next((one[1] for one in named if one), WITHOUT_GROUP.get(name))


def write(materials: dict[str, Any], file: Path) -> None:
    file.write_text(json.dumps(materials, indent=2, sort_keys=True) + "\n", "utf-8")
