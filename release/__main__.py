"""Make a release in dist/: `python -m release`. Nothing is published.

What is there afterwards: the wheel and the source distribution, both with the jar for Spark; the constraints
that the tests ran with; the bill of materials (CycloneDX); the list of licences; the checksums of all.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

from release import ROOT, bill, environments, licences, packages, readme

DIST = ROOT / "dist"


def main() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    say("building the wheel and the source distribution")
    wheel, sources = packages.build_all(DIST)
    with tempfile.TemporaryDirectory(prefix="penstock-release-") as scratch:
        say(f"installing {wheel.name} as README.md says, and running README.md with it")
        readme.try_out(wheel, Path(scratch, "readme"))
        say(f"installing the wheel that {sources.name} builds")
        packages.check_sources(sources, wheel, Path(scratch, "sources"))
        say("listing what all extras bring")
        everything = environments.create(Path(scratch, "everything"))
        environments.install(everything, [f"{wheel}[{','.join(sorted(packages.extras(wheel)))}]"])
        materials = bill.build(everything, packages.jar_of(wheel))
    stem = wheel.name.removesuffix("-py3-none-any.whl")
    bill.write(materials, DIST / f"{stem}.cdx.json")
    listed = licences.judge(materials)
    (DIST / f"{stem}.licences.txt").write_text(licences.render(listed), "utf-8")
    shutil.copy(environments.CONSTRAINTS, DIST / f"{stem}.constraints.txt")
    write_checksums(DIST)
    refused = [one for one in listed if not one.verdict.is_fit]
    for one in refused:
        say(f"{one.name} {one.version}: {one.verdict.reason}: {one.licence}")
    if refused:
        sys.exit("release: licences that do not fit; see release/licences.py")
    say("done:")
    for file in sorted(DIST.iterdir()):
        say(f"  dist/{file.name}")


def write_checksums(folder: Path) -> None:
    """Write SHA-256 sums, as ``sha256sum --check`` reads them."""
    sums = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(folder.iterdir())
    ]
    (folder / "SHA256SUMS").write_text("".join(sums), "utf-8")


def say(text: str) -> None:
    print(f"release: {text}", flush=True)


if __name__ == "__main__":
    main()
