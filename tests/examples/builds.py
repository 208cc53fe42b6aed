"""The example consumers, built once per machine and version in a cache outside the tree
(`$XDG_CACHE_HOME/frameloom/example-<language>-<digest>`)."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
BUILD_TIMEOUT_S = 1_800.0
_BUILT = frozenset({"node_modules", "target", "__pycache__", "README.md"})
"""What does not belong to an example's source."""


class MissingToolError(Exception):
    """This machine cannot build the example: which tool is not there, or fetched nothing."""


@dataclass(frozen=True)
class Example:
    """How one example consumer is built and started.

    Attributes:
        folder: below `examples/`.
        tools: programs that it needs.
        fetch: gets its libraries; where that fails the example cannot be tried.
        build: makes the program of them; where that fails the example is broken.
        start: the command, run in the folder where it was built.
    """

    folder: str
    tools: tuple[str, ...]
    fetch: tuple[str, ...]
    build: tuple[str, ...]
    start: tuple[str, ...]


CONSUMERS = {
    "python": Example("python", (), (), (), (sys.executable, "consumer.py")),
    "node": Example(
        "node", ("node", "npm"), ("npm", "install", "--no-package-lock"), (),
        ("node", "consumer.mjs"),
    ),
    "go": Example(
        "go", ("go",), ("go", "mod", "download"), ("go", "build", "-o", "consumer", "."),
        ("./consumer",),
    ),
    "java": Example(
        "java", ("java", "mvn"), ("mvn", "-q", "-B", "dependency:copy-dependencies"),
        ("mvn", "-q", "-B", "package"), ("java", "-jar", "target/consumer.jar"),
    ),
}  # fmt: skip


def built(example: Example) -> Path:
    """The folder in which `start` works; built at the first call on a machine.

    Raises:
        MissingToolError: it cannot be built here.
        CalledProcessError: it does not build.
    """
    missing = [tool for tool in example.tools if shutil.which(tool) is None]
    if missing:
        raise MissingToolError(f"{'/'.join(missing)} not found")
    source = EXAMPLES / example.folder
    if not example.fetch:
        return source
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "frameloom" / f"example-{example.folder}-{_digest(source)}"
    if not folder.is_dir():
        partial = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}")
        try:
            shutil.copytree(source, partial, ignore=lambda _, names: _BUILT.intersection(names))
            _build(example, partial)
            partial.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another run was first
                raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return folder


def _build(example: Example, folder: Path) -> None:
    try:
        _run(example.fetch, folder)
    except subprocess.SubprocessError as error:
        raise MissingToolError(f"{example.fetch[0]} fetched no libraries ({error})") from error
    if example.build:
        _run(example.build, folder)


def _run(command: tuple[str, ...], folder: Path) -> None:
    subprocess.run(
        command, cwd=folder, check=True, timeout=BUILD_TIMEOUT_S, stdin=subprocess.DEVNULL,
        capture_output=True, text=True,
    )  # fmt: skip


def _digest(source: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*")):
        place = path.relative_to(source)
        if path.is_file() and not _BUILT.intersection(place.parts):
            digest.update(f"{place}\n{path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
