// Print what was detected. Offsets are committed after the lines are out (at least once).
import { parseArgs } from "node:util";
import { decode } from "@msgpack/msgpack";
import { Kafka, logLevel } from "kafkajs";

const VERSION = 1; // of results that this program reads; keys it does not know do not matter to it

const { values: options } = parseArgs({
  options: {
    bootstrap: { type: "string", default: "127.0.0.1:9092" },
    topic: { type: "string", default: "detections" },
    group: { type: "string", default: "example-node" },
    count: { type: "string" }, // end after so many results
  },
});

const kafka = new Kafka({ brokers: options.bootstrap.split(","), logLevel: logLevel.ERROR });
const consumer = kafka.consumer({ groupId: options.group });
let left = options.count ? Number(options.count) : Infinity;
let finish;
const finished = new Promise((resolve) => (finish = resolve));

function line({ stream_id, seq, status, detections }) {
  const found = detections.map(
    ({ label, score, box }) =>
      `${label} ${score.toFixed(2)} [${box.map((side) => side.toFixed(1)).join(", ")}]`,
  );
  return [`${stream_id} ${seq} ${status}`, ...found].join(" ");
}

async function handle({ batch, resolveOffset, isRunning, isStale }) {
  for (const message of batch.messages) {
    if (left <= 0 || !isRunning() || isStale()) break;
    // `seq` may have 64 bits: more than a Number holds.
    const result = decode(message.value, { useBigInt64: true });
    if (result.v > VERSION) {
      const place = `${batch.topic}/${batch.partition}/${message.offset}`;
      finish(`${place} is of version ${result.v}; this program reads ${VERSION}: upgrade it`);
      left = 0;
      break;
    }
    console.log(line(result));
    resolveOffset(message.offset); // committed when the batch ends, and when the consumer does
    left -= 1;
  }
  if (left <= 0) finish();
}

process.once("SIGINT", () => finish()).once("SIGTERM", () => finish());
await consumer.connect();
await consumer.subscribe({ topic: options.topic, fromBeginning: true });
await consumer.run({ eachBatch: handle, eachBatchAutoResolve: false });
const failure = await finished;
await consumer.disconnect();
if (failure) {
  console.error(failure);
  process.exitCode = 1;
}
