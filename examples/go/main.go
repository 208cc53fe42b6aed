// Print what was detected. Offsets are committed after the lines are out (at least once).
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/vmihailenco/msgpack/v5"
)

// Of results that this program reads; keys it does not know do not matter to it.
const version = 1

type result struct {
	StreamID   string      `msgpack:"stream_id"`
	Seq        uint64      `msgpack:"seq"`
	Status     string      `msgpack:"status"`
	Detections []detection `msgpack:"detections"`
}

type detection struct {
	Box   [4]float64 `msgpack:"box"` // x1, y1, x2, y2 in pixels of the picture
	Score float64    `msgpack:"score"`
	Label string     `msgpack:"label"`
}

func main() {
	bootstrap := flag.String("bootstrap", "127.0.0.1:9092", "Kafka brokers")
	topic := flag.String("topic", "detections", "where results are")
	group := flag.String("group", "example-go", "consumer group")
	count := flag.Int("count", math.MaxInt, "end after so many results")
	flag.Parse()
	log.SetFlags(0)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(*bootstrap, ",")...),
		kgo.ConsumeTopics(*topic),
		kgo.ConsumerGroup(*group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(), // partitions stay ours until what was polled is committed
	)
	if err != nil {
		log.Fatal(err)
	}
	err = read(ctx, client, *count)
	client.CloseAllowingRebalance()
	if err != nil {
		log.Fatal(err)
	}
}

func read(ctx context.Context, client *kgo.Client, count int) error {
	for count > 0 {
		fetches := client.PollRecords(ctx, min(count, 500))
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		records := fetches.Records()
		for i, record := range records {
			if err := show(record); err != nil {
				// What was shown before it is done with; this one is read again after an upgrade.
				return firstOf(err, client.CommitRecords(ctx, records[:i]...))
			}
		}
		if err := client.CommitRecords(ctx, records...); err != nil {
			return err
		}
		client.AllowRebalance()
		count -= len(records)
	}
	return nil
}

func show(record *kgo.Record) error {
	var head struct {
		V int `msgpack:"v"`
	}
	if err := msgpack.Unmarshal(record.Value, &head); err != nil {
		return fmt.Errorf("%s/%d/%d: %w", record.Topic, record.Partition, record.Offset, err)
	}
	if head.V > version {
		return fmt.Errorf("%s/%d/%d is of version %d; this program reads %d: upgrade it",
			record.Topic, record.Partition, record.Offset, head.V, version)
	}
	var answer result
	if err := msgpack.Unmarshal(record.Value, &answer); err != nil {
		return fmt.Errorf("%s/%d/%d: %w", record.Topic, record.Partition, record.Offset, err)
	}
	fmt.Printf("%s %d %s", answer.StreamID, answer.Seq, answer.Status)
	for _, found := range answer.Detections {
		box := found.Box
		fmt.Printf(" %s %.2f [%.1f, %.1f, %.1f, %.1f]",
			found.Label, found.Score, box[0], box[1], box[2], box[3])
	}
	fmt.Println()
	return nil
}

func firstOf(errors ...error) error {
	for _, err := range errors {
		if err != nil {
			return err
		}
	}
	return nil
}
