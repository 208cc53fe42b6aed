"""`frameloom produce`: frames from files and cameras into a topic: paced, bounded, and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from frameloom.feed import FileFeed
from frameloom.live import LiveSource
from frameloom.open_sources import AnySource
from frameloom.player import Note, Player
from frameloom.reader import require_topics
from frameloom.sender import ProduceOptions, Sender
from frameloom.tally import Tally
from schemas.errors import ConfigError, TransientError
from schemas.frame import MAX_STREAM_ID_BYTES
from schemas.settings import KafkaSettings
from workers.kafka_clients import make_producer, start_client, stop_client

_SETTLE_S = 15.0


async def produce(
    kafka: KafkaSettings,
    streams: dict[str, list[AnySource]],
    options: ProduceOptions,
    tally: Tally,
    on_progress: Callable[[str], None] = lambda _: None,
    on_note: Note = lambda _, __: None,
) -> None:
    """Send the streams side by side, the sources of one stream one after the other.

    Args:
        kafka: the connection.
        streams: stream id → its sources.
        options: how.
        tally: counted as frames are acknowledged or fail, and complete also when this is
            cancelled: what was sent by then is waited for.
        on_progress: told the stream's id after each frame read.
        on_note: told of lost connections and the like.

    Raises:
        ConfigError: the topic does not exist, or a folder cannot be watched.
        TransientError: the broker went away.
    """
    await require_topics(kafka, options.topic)
    producer = make_producer(kafka, max_record_bytes=options.max_record_bytes)
    await start_client(producer, kafka)
    sender = Sender(producer, options, tally)
    try:
        async with asyncio.TaskGroup() as group:
            for stream, sources in streams.items():
                live = any(isinstance(source, LiveSource) for source in sources)
                player = Player(stream, sender, on_progress, on_note, live=live)
                group.create_task(player.play(sources))
    except* (TransientError, ConfigError) as errors:
        raise errors.exceptions[0] from None
    finally:
        # On Ctrl-C too: what the broker has by now is told apart from what it has not.
        await sender.settle(_SETTLE_S)
        await stop_client(producer)


def name_streams(sources: list[AnySource], streams: Sequence[str]) -> dict[str, list[AnySource]]:
    """Stream id → its sources: all of them in one stream where one id is given, one each where as
    many ids as sources are; without ids each has its own name, numbered where names are shared.

    Raises:
        ConfigError: an empty stream id, one that no worker would take for its length, another
            number of ids than of sources, or sources that can never have their turn.
    """
    for stream in streams:
        if not stream:
            raise ConfigError("--stream: a stream id cannot be empty")
        if len(stream.encode(errors="replace")) > MAX_STREAM_ID_BYTES:
            raise ConfigError(f"--stream: a stream id has at most {MAX_STREAM_ID_BYTES} bytes")
    if len(streams) == 1:
        endless = [s for s in sources if isinstance(s, LiveSource | FileFeed)]
        if endless and len(sources) > 1:
            raise ConfigError(
                f"--stream: {endless[0].name} has no end, the other sources would never have their"
                " turn; give one --stream for each source"
            )
        return {streams[0]: sources}
    if streams and len(streams) != len(sources):
        names = ", ".join(source.name for source in sources)
        raise ConfigError(
            f"--stream: {len(streams)} ids for {len(sources)} sources ({names});"
            " give one for all of them, or one for each"
        )
    if len(set(streams)) != len(streams):
        raise ConfigError("--stream: an id is given twice")
    named: dict[str, list[AnySource]] = {}
    for source, wanted in zip(sources, streams or [s.name for s in sources], strict=True):
        name, number = wanted, 2
        while name in named:
            name, number = f"{wanted}-{number}", number + 1
        named[name] = [source]
    return named


def check_loop(sources: Sequence[AnySource]) -> None:
    """Raises:
    ConfigError: a source has no end at which it could begin anew.
    """
    for source in sources:
        if isinstance(source, LiveSource | FileFeed):
            raise ConfigError(f"--loop: {source.name} has no end to begin anew at")
