"""Completed files of a folder, never half of one."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest

from frameloom.sources import Unreadable
from schemas.errors import ConfigError

if sys.platform != "linux":
    pytest.skip("--watch needs Linux", allow_module_level=True)

from asyncinotify import Event, Inotify, Mask

from frameloom.watch import WatchedPaths, being_written

DEADLINE_S = 180.0
SUFFIXES = frozenset({".jpg", ".mp4"})

Found = AsyncGenerator[Path | Unreadable, None]


async def armed(folder: Path, *, existing: bool = False) -> tuple[Found, asyncio.Task[str]]:
    """The watch, waiting for its first file, and that file's name to come."""
    paths = WatchedPaths(folder, SUFFIXES, existing=existing).paths()
    task = asyncio.ensure_future(following(paths))
    # One turn of the loop runs it up to its wait for the kernel.
    await asyncio.sleep(0)
    return paths, task


async def following(paths: Found) -> str:
    async with asyncio.timeout(DEADLINE_S):
        found = await anext(paths)
    return found.name if isinstance(found, Path) else found.why


async def test_only_what_is_closed_or_moved_in_comes(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    paths, first = await armed(folder)
    async with aclosing(paths):
        half = (folder / "half.jpg").open("wb")
        half.write(b"half")
        half.flush()
        (folder / "notes.txt").write_bytes(b"x")
        (folder / ".hidden.jpg").write_bytes(b"x")
        (folder / "empty.jpg").touch()
        (folder / "sub.jpg").mkdir()
        (tmp_path / "moved.jpg").write_bytes(b"whole")
        (tmp_path / "moved.jpg").rename(folder / "moved.jpg")
        assert await first == "moved.jpg"
        half.close()
        assert await following(paths) == "half.jpg"
        (folder / ".hidden.jpg").rename(folder / "shown.jpg")
        assert await following(paths) == "shown.jpg"
        # Another content of the same name is another picture; the same content is not.
        (folder / "shown.jpg").open("ab").close()
        (folder / "shown.jpg").write_bytes(b"other")
        assert await following(paths) == "shown.jpg"
        (folder / "last.mp4").write_bytes(b"x")
        assert await following(paths) == "last.mp4"


async def test_what_is_there_comes_first_and_once(tmp_path: Path) -> None:
    for name in ("b.jpg", "a.jpg"):
        (tmp_path / name).write_bytes(b"x")
    half = (tmp_path / "half.jpg").open("wb")
    half.write(b"half")
    half.flush()
    paths, first = await armed(tmp_path, existing=True)
    async with aclosing(paths):
        assert await first == "a.jpg"
        assert await following(paths) == "b.jpg"
        (tmp_path / "a.jpg").open("ab").close()
        half.close()
        assert await following(paths) == "half.jpg"


async def test_events_that_the_kernel_could_not_keep_are_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, lost = Inotify.get, 0

    async def forgetful(self: Inotify) -> Event:
        nonlocal lost
        event = await get(self)
        if lost < 3:
            # As if the queue had been full: the event is gone, and the kernel says so.
            lost += 1
            return Event(watch=None, mask=Mask.Q_OVERFLOW, cookie=0, name=None)
        return event

    monkeypatch.setattr(Inotify, "get", forgetful)
    paths, first = await armed(tmp_path)
    async with aclosing(paths):
        for name in ("a.jpg", "b.jpg", "c.jpg", "d.jpg"):
            (tmp_path / name).write_bytes(name.encode())
        found = {await first, *[await following(paths) for _ in range(3)]}
    assert found == {"a.jpg", "b.jpg", "c.jpg", "d.jpg"}


async def test_a_folder_that_goes_away_ends_the_watch_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    paths, first = await armed(folder)
    async with aclosing(paths):
        folder.rmdir()
        assert "gone" in await first
        with pytest.raises(StopAsyncIteration):
            await anext(paths)


async def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"a\.jpg: cannot be watched"):
        await anext(WatchedPaths(tmp_path / "a.jpg", SUFFIXES, existing=False).paths())


def test_an_open_writer_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(b"x")
    old = path.stat().st_mtime - 60
    os.utime(path, (old, old))
    with path.open("rb"):
        assert not being_written(path)
    with path.open("ab"):
        assert being_written(path)
    assert not being_written(path)
    assert being_written(tmp_path / "nowhere.jpg")
