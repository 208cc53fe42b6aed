"""The topics of the routes and their record limits."""

from __future__ import annotations

from frameloom.topics import topic_specs
from schemas.settings import MIB, LimitSettings, RouteSettings, Settings


def limit_of(settings: Settings, topic: str) -> int:
    specs = topic_specs(settings, partitions=4, replication=1)
    return int(specs[topic].configs["max.message.bytes"])


def test_a_dead_letter_of_the_largest_record_fits() -> None:
    settings = Settings(limits=LimitSettings(max_record_bytes=3 * MIB))
    assert limit_of(settings, "frames") >= 3 * MIB
    assert limit_of(settings, "frames.dlq") == limit_of(settings, "frames") + 64 * 1024


def test_partitions_and_replication_are_passed_on() -> None:
    specs = topic_specs(Settings(), partitions=6, replication=3)
    assert {name: spec.partitions for name, spec in specs.items()} == {
        "frames": 6,
        "detections": 6,
        "frames.dlq": 1,
    }
    assert {spec.replication_factor for spec in specs.values()} == {3}


def test_routes_may_share_topics() -> None:
    settings = Settings(
        routes=[
            RouteSettings(name="a", input="in-a", output="out", dead_letter="dlq"),
            RouteSettings(name="b", input="in-b", output="out", dead_letter="dlq"),
        ]
    )
    assert set(topic_specs(settings, partitions=2, replication=1)) == {"in-a", "in-b", "out", "dlq"}
