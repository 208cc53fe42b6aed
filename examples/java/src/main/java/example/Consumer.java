package example;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.msgpack.jackson.dataformat.MessagePackMapper;

/** Prints what was detected. Offsets are committed after the lines are out (at least once). */
public final class Consumer {
  /** Of results that this program reads. */
  private static final int VERSION = 1;

  private static final ObjectMapper MESSAGE_PACK = new MessagePackMapper();

  public static void main(String[] arguments) throws IOException {
    System.setOut(new PrintStream(System.out, true, StandardCharsets.UTF_8));
    Map<String, String> options = options(arguments);
    CountDownLatch left = new CountDownLatch(1);
    int code = 0;
    try (var consumer = open(options)) {
      // On SIGINT and SIGTERM: end the poll, and let the consumer leave its group.
      Runtime.getRuntime().addShutdownHook(new Thread(() -> endPoll(consumer, left)));
      consumer.subscribe(List.of(options.getOrDefault("topic", "detections")));
      read(consumer, Long.parseLong(options.getOrDefault("count", "" + Long.MAX_VALUE)));
    } catch (WakeupException asked) {
      // Asked to end: what was shown is committed.
    } catch (LaterVersion later) {
      System.err.println(later.getMessage());
      code = 1;
    } finally {
      left.countDown();
    }
    System.exit(code);
  }

  private static KafkaConsumer<String, byte[]> open(Map<String, String> options) {
    Map<String, Object> settings =
        Map.of(
            ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG,
            options.getOrDefault("bootstrap", "127.0.0.1:9092"),
            ConsumerConfig.GROUP_ID_CONFIG,
            options.getOrDefault("group", "example-java"),
            ConsumerConfig.AUTO_OFFSET_RESET_CONFIG,
            "earliest",
            ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG,
            false);
    return new KafkaConsumer<>(settings, new StringDeserializer(), new ByteArrayDeserializer());
  }

  private static void read(KafkaConsumer<String, byte[]> consumer, long count) throws IOException {
    while (count > 0) {
      Map<TopicPartition, OffsetAndMetadata> done = new HashMap<>();
      try {
        for (ConsumerRecord<String, byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
          if (count == 0) {
            break;
          }
          System.out.println(decode(record));
          done.put(
              new TopicPartition(record.topic(), record.partition()),
              new OffsetAndMetadata(record.offset() + 1));
          count -= 1;
        }
      } finally {
        consumer.commitSync(done);
      }
    }
  }

  private static Result decode(ConsumerRecord<String, byte[]> record) throws IOException {
    JsonNode keys = MESSAGE_PACK.readTree(record.value());
    int version = keys.path("v").asInt();
    if (version > VERSION) {
      throw new LaterVersion(
          "%s/%d/%d is of version %d; this program reads %d: upgrade it"
              .formatted(record.topic(), record.partition(), record.offset(), version, VERSION));
    }
    return MESSAGE_PACK.treeToValue(keys, Result.class);
  }

  private static void endPoll(KafkaConsumer<?, ?> consumer, CountDownLatch left) {
    consumer.wakeup();
    try {
      left.await();
    } catch (InterruptedException ended) {
      Thread.currentThread().interrupt();
    }
  }

  private static Map<String, String> options(String[] arguments) {
    Map<String, String> options = new HashMap<>();
    for (int i = 0; i + 1 < arguments.length; i += 2) {
      options.put(arguments[i].replaceFirst("^--", ""), arguments[i + 1]);
    }
    return options;
  }

  private static final class LaterVersion extends IOException {
    LaterVersion(String message) {
      super(message);
    }
  }
}
