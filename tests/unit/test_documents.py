"""The documents agree with each other and point to what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/README.md")]
)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def drill_rows(text: str) -> list[str]:
    """The lines of the drill's table, without footnote marks."""
    lines = text.splitlines()
    start = lines.index(
        next(line for line in lines if line.startswith("| scenario | frames | lost |"))
    )
    rows: list[str] = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append(re.sub(r" [¹²³⁴⁵⁶⁷⁸⁹]+ \|", " |", line))
    return rows


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_point_to_files_that_exist(document: Path) -> None:
    targets = [link for link in LINK.findall(document.read_text()) if "://" not in link]
    assert [t for t in targets if not (document.parent / t).exists()] == []


def test_the_readme_carries_the_drills_table() -> None:
    readme, drill = ROOT / "README.md", ROOT / "docs" / "drill.md"
    assert drill_rows(readme.read_text()) == drill_rows(drill.read_text())


def test_the_readme_leads_to_every_document() -> None:
    readme = (ROOT / "README.md").read_text()
    linked = {link for link in LINK.findall(readme) if "://" not in link}
    pages = {f"docs/{page.name}" for page in ROOT.glob("docs/*.md")}
    assert sorted(pages - linked) == []


def test_a_newcomer_finds_the_demo_on_the_first_screen() -> None:
    readme = (ROOT / "README.md").read_text().splitlines()
    assert any("docs/images/demo.png" in line for line in readme[:10])
    assert any(line.startswith("make demo") for line in readme[:20])
    assert len(readme) <= 260


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CHANGELOG.md"])
def test_nothing_is_said_twice(name: str) -> None:
    """Merging lists that two people have added to can leave both."""
    points = re.findall(r"^- .+(?:\n  .+)*", (ROOT / name).read_text(), re.MULTILINE)
    assert points
    assert sorted(set(points)) == sorted(points)
