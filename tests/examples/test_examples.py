"""The examples stand on their own: ordinary libraries, pinned, and nothing of this project's."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.examples.builds import EXAMPLES

SCRIPTS = sorted(EXAMPLES.rglob("*.py"))
FOLDERS = sorted(path for path in EXAMPLES.iterdir() if path.is_dir())
LIBRARIES = {"aiokafka", "msgpack"}


def requirements(path: Path) -> dict[str, str]:
    return dict(line.split("==") for line in path.read_text().split())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_python_example_needs_two_libraries(script: Path) -> None:
    imported = set[str]()
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.Import):
            imported |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert imported - sys.stdlib_module_names == LIBRARIES
    assert set(requirements(script.with_name("requirements.txt"))) == LIBRARIES


def test_python_examples_pin_what_the_tests_run() -> None:
    pinned = requirements(EXAMPLES.parent / "constraints.txt")
    for path in EXAMPLES.rglob("requirements.txt"):
        assert requirements(path) == {name: pinned[name] for name in LIBRARIES}


def test_versions_are_exact() -> None:
    packages = json.loads((EXAMPLES / "node" / "package.json").read_text())["dependencies"]
    pom = ElementTree.parse(EXAMPLES / "java" / "pom.xml")  # noqa: S314 # our own file
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    versions = [
        element.findtext("m:version", namespaces=space)
        for kind in (".//m:dependency", ".//m:plugin")
        for element in pom.iterfind(kind, space)
    ]
    assert versions
    for version in [*packages.values(), *versions]:
        assert version is not None
        assert re.fullmatch(r"[\d.]+", version), version


def test_no_lock_file_names_a_registry() -> None:
    assert not [*EXAMPLES.rglob("package-lock.json"), *EXAMPLES.rglob(".npmrc")]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_each_has_a_readme_with_its_commands_and_output(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    assert text.count("```") >= 4
    assert f"({folder.name}/README.md)" in (EXAMPLES / "README.md").read_text()
