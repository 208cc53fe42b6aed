"""Print what was detected. Offsets are committed after the lines are out (at least once)."""

import argparse
import asyncio
import sys
from signal import SIGTERM

import msgpack
from aiokafka import AIOKafkaConsumer

VERSION = 1  # of results that this program reads; keys it does not know do not matter to it


def decode(record):
    result = msgpack.unpackb(record.value)
    if result["v"] > VERSION:
        sys.exit(
            f"{record.topic}/{record.partition}/{record.offset} is of version {result['v']}; "
            f"this program reads {VERSION}: upgrade it"
        )
    return result


def line(result):
    words = [result["stream_id"], str(result["seq"]), result["status"]]
    for found in result["detections"]:
        box = ", ".join(f"{side:.1f}" for side in found["box"])
        words += [found["label"], f"{found['score']:.2f}", f"[{box}]"]
    return " ".join(words)


async def read(consumer, count):
    while count is None or count > 0:
        done = {}
        try:
            polled = await consumer.getmany(timeout_ms=1000, max_records=count)
            for partition, records in polled.items():
                for record in records:
                    print(line(decode(record)), flush=True)
                    done[partition] = record.offset + 1
                if count is not None:
                    count -= len(records)
        finally:
            if done:
                await consumer.commit(done)


async def main(options):
    consumer = AIOKafkaConsumer(
        options.topic,
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    # SIGTERM ends it as Ctrl-C does: the group is left in order.
    asyncio.get_running_loop().add_signal_handler(SIGTERM, asyncio.current_task().cancel)
    async with consumer:
        await read(consumer, options.count)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="detections")
    parser.add_argument("--group", default="example-python")
    parser.add_argument("--count", type=int, help="end after so many results")
    try:
        asyncio.run(main(parser.parse_args()))
    except (KeyboardInterrupt, asyncio.CancelledError):
        pass
