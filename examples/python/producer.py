"""Send pictures as the frames of one stream."""

import argparse
import asyncio
import itertools
import time
from pathlib import Path

import msgpack
from aiokafka import AIOKafkaProducer

ENCODINGS = {".jpg": "jpeg", ".jpeg": "jpeg", ".png": "png", ".webp": "webp"}
LARGEST = 8 * 1024 * 1024  # bytes of a record; the topic must take as much


def frame(options, seq, path):
    return msgpack.packb(
        {
            "v": 1,
            "stream_id": options.stream,
            "seq": seq,
            "captured_at_us": time.time_ns() // 1000,
            "interval_us": round(1e6 / options.fps) if options.fps else None,
            "encoding": ENCODINGS[path.suffix.lower()],
            "data": path.read_bytes(),
        }
    )


async def main(options):
    pictures = itertools.cycle(options.pictures) if options.loop else options.pictures
    producer = AIOKafkaProducer(
        bootstrap_servers=options.bootstrap, acks="all", max_request_size=LARGEST
    )
    async with producer:
        for seq, path in enumerate(pictures, options.first_seq):
            # The key keeps a stream on one partition, and so its frames in order.
            key, value = options.stream.encode(), frame(options, seq, path)
            await producer.send_and_wait(options.topic, value, key=key)
            if options.fps:
                await asyncio.sleep(1 / options.fps)
    print(f"sent {seq + 1 - options.first_seq} frames of {options.stream}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pictures", nargs="+", type=Path, help="JPEG, PNG or WebP files")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="frames")
    parser.add_argument("--stream", default="gate", help="id of the camera or job")
    parser.add_argument("--first-seq", type=int, default=0, help="where an earlier run ended")
    parser.add_argument("--fps", type=float, default=0, help="frames per second; 0: at once")
    parser.add_argument("--loop", action="store_true", help="begin anew at the end")
    try:
        asyncio.run(main(parser.parse_args()))
    except KeyboardInterrupt:
        pass
