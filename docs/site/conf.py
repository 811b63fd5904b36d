"""How the documents become a site: ``make site``. Sphinx reads this file; its names are Sphinx's."""

from __future__ import annotations

import tomllib
from pathlib import Path

declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))

project = "Penstock"
release = version = declared["project"]["version"]
root_doc = "docs/index"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
include_patterns = ["*.md", "docs/*.md", "docs/*/*.md", "tests/README.md", "benchmarks/README.md"]
suppress_warnings = ["toc.not_included"]
"""Decisions are reached by their list, modules by search."""

myst_heading_anchors = 4
html_theme = "furo"
html_title = f"Penstock {version}"
html_copy_source = False
html_show_copyright = html_show_sphinx = False
highlight_language = "text"
