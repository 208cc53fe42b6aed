"""Count what was detected per minute of capture, and serve the counts as a table over HTTP.

Counts and the results they came from are stored in one transaction; after it the offsets are
committed. So a result that comes again (this program died in between, or the worker answered its
frame twice) is known by its source, and counts once.
"""

import argparse
import asyncio
import sqlite3
import sys
import threading
from contextlib import closing
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from signal import SIGTERM

import msgpack
from aiokafka import AIOKafkaConsumer

VERSION = 1  # of results that this program reads; keys it does not know do not matter to it
SCHEMA = """
CREATE TABLE IF NOT EXISTS seen (source PRIMARY KEY, minute);
CREATE INDEX IF NOT EXISTS seen_minute ON seen (minute);
CREATE TABLE IF NOT EXISTS frames (minute, stream, frames, PRIMARY KEY (minute, stream));
CREATE TABLE IF NOT EXISTS objects (
    minute, stream, label, objects, most, PRIMARY KEY (minute, stream, label));
"""
TABLE = """
SELECT minute, stream, coalesce(label, '-'), frames, coalesce(objects, 0), coalesce(most, 0)
FROM frames LEFT JOIN objects USING (minute, stream) ORDER BY minute, stream, label
"""


def count(store, result, keep_minutes):
    """Add one result to the minute its frame was captured in, unless it was added before."""
    received = result["times"]["received_us"] // 60_000_000
    store.execute("DELETE FROM seen WHERE minute < ?", (received - keep_minutes,))
    source = msgpack.packb(result["source"])
    new = store.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (source, received)).rowcount
    if not new or result["status"] != "ok":
        return
    minute = result["captured_at_us"] // 60_000_000
    store.execute(
        "INSERT INTO frames VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET frames = frames + 1",
        (minute, result["stream_id"]),
    )
    labels = [found["label"] for found in result["detections"]]
    for label in set(labels):
        store.execute(
            "INSERT INTO objects VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
            "objects = objects + excluded.objects, most = max(most, excluded.most)",
            (minute, result["stream_id"], label, labels.count(label), labels.count(label)),
        )


def table(path):
    """One row for each minute, stream and label; `mean` and `most` are objects in one frame."""
    rows = [f"{'minute':<17} {'stream':<16} {'label':<12} {'frames':>6} {'mean':>6} {'most':>4}"]
    with closing(sqlite3.connect(path)) as store:
        for minute, stream, label, frames, objects, most in store.execute(TABLE):
            at = datetime.fromtimestamp(minute * 60, UTC).strftime("%Y-%m-%dT%H:%MZ")
            mean = f"{objects / frames:.2f}"
            rows.append(f"{at:<17} {stream:<16} {label:<12} {frames:>6} {mean:>6} {most:>4}")
    return "\n".join(rows)


def serve(path, port):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = (table(path) + "\n").encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(f"counts at http://127.0.0.1:{server.server_port}/", file=sys.stderr, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


async def main(options):
    store = sqlite3.connect(options.store)
    store.executescript(SCHEMA)
    if options.port is not None:
        serve(options.store, options.port)
    consumer = AIOKafkaConsumer(
        options.topic,
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    left = options.count
    # SIGTERM ends it as Ctrl-C does: the group is left in order.
    asyncio.get_running_loop().add_signal_handler(SIGTERM, asyncio.current_task().cancel)
    async with consumer:
        while left is None or left > 0:
            polled = await consumer.getmany(timeout_ms=1000, max_records=left)
            with store:  # all of it, or nothing
                for record in (record for records in polled.values() for record in records):
                    result = msgpack.unpackb(record.value)
                    if result["v"] > VERSION:
                        sys.exit(f"a result of version {result['v']}: upgrade this program")
                    count(store, result, options.keep_minutes)
                    left = left if left is None else left - 1
            if polled:
                await consumer.commit()
    print(table(options.store))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="detections")
    parser.add_argument("--group", default="example-counts")
    parser.add_argument("--store", default="counts.sqlite", help="file that keeps the counts")
    parser.add_argument("--port", type=int, help="serve the table over HTTP; 0: any free port")
    parser.add_argument("--keep-minutes", type=int, default=60, help="remember sources so long")
    parser.add_argument("--count", type=int, help="end after so many results")
    try:
        asyncio.run(main(parser.parse_args()))
    except (KeyboardInterrupt, asyncio.CancelledError):
        pass
