"""Rules between settings: what a key's own type and range cannot say."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from schemas.claim_uri import UriError, parse_prefix
from schemas.settings_check import Violation
from schemas.settings_kafka import KafkaSettings
from schemas.settings_keys import Guarantee, Order, Settings
from schemas.settings_routes import RouteSettings
from schemas.settings_yaml import Path


def violations(settings: Settings) -> Iterator[Violation]:
    """Every broken rule, in the order of the keys. None means that the settings can work."""
    yield from _timeouts(settings)
    yield from _security(settings.kafka)
    for index, route in enumerate(settings.routes):
        yield from _route(index, route, settings.limits.max_detections)
    yield from _names_and_topics(settings.routes)
    if settings.window.min_wait_ms > settings.window.max_wait_ms:
        yield Violation(
            ("window", "min_wait_ms"),
            f"must not exceed window.max_wait_ms ({settings.window.max_wait_ms})",
            other=("window", "max_wait_ms"),
        )
    delivery = settings.delivery
    if delivery.guarantee is Guarantee.EXACTLY_ONCE and delivery.order is Order.NONE:
        yield Violation(
            ("delivery", "order"),
            "has no effect with delivery.guarantee exactly_once: a transaction holds the answers "
            "of a partition in source order",
        )
    yield from _claim_check(settings)
    if settings.flow.max_bytes < settings.limits.max_record_bytes:
        yield Violation(
            ("flow", "max_bytes"),
            f"must be at least limits.max_record_bytes ({settings.limits.max_record_bytes}), "
            "or the largest record could never be admitted",
            other=("limits", "max_record_bytes"),
        )


def _claim_check(settings: Settings) -> Iterator[Violation]:
    claims, lifecycle, here = settings.claim_check, settings.lifecycle, "claim_check"
    for index, prefix in enumerate(claims.allowed_prefixes):
        try:
            parse_prefix(prefix)
        except UriError as error:
            yield Violation((here, "allowed_prefixes", index), str(error))
    for index, network in enumerate(claims.allowed_networks):
        try:
            ipaddress.ip_network(network)
        except ValueError:
            yield Violation(
                (here, "allowed_networks", index),
                "is no address and no network such as 10.1.0.0/16 (bits beyond its length are 0)",
            )
    if not claims.enabled:
        return
    if not claims.allowed_prefixes:
        yield Violation((here, "allowed_prefixes"), "is empty: nothing could be fetched")
    if claims.max_bytes > settings.flow.max_bytes:
        yield Violation(
            (here, "max_bytes"),
            f"must not exceed flow.max_bytes ({settings.flow.max_bytes})",
            other=("flow", "max_bytes"),
        )
    for name in ("revoke_timeout_ms", "drain_timeout_ms"):
        budget = getattr(lifecycle, name)
        if claims.timeout_ms >= budget:
            yield Violation(
                (here, "timeout_ms"),
                f"must be less than lifecycle.{name} ({budget}), or a picture that is late keeps "
                "the worker from settling in time",
                other=("lifecycle", name),
            )


def _timeouts(settings: Settings) -> Iterator[Violation]:
    kafka, lifecycle = settings.kafka, settings.lifecycle
    if kafka.heartbeat_interval_ms * 3 > kafka.session_timeout_ms:
        yield Violation(
            ("kafka", "heartbeat_interval_ms"),
            f"must be at most a third of kafka.session_timeout_ms ({kafka.session_timeout_ms}), "
            "or one lost heartbeat costs the partitions",
            other=("kafka", "session_timeout_ms"),
        )
    for name in ("revoke_timeout_ms", "drain_timeout_ms"):
        budget = getattr(lifecycle, name)
        if kafka.rebalance_timeout_ms <= budget:
            yield Violation(
                ("kafka", "rebalance_timeout_ms"),
                f"must be greater than lifecycle.{name} ({budget}), or other workers take the "
                "partitions while this one still settles them, and its commit fails",
                other=("lifecycle", name),
            )


def _security(kafka: KafkaSettings) -> Iterator[Violation]:
    protocol = kafka.security_protocol
    sasl = protocol.startswith("SASL_")
    for name in ("sasl_mechanism", "sasl_username", "sasl_password"):
        given = getattr(kafka, name) is not None
        if sasl and not given:
            yield Violation(("kafka", name), f"is needed by security_protocol {protocol}")
        if given and not sasl:
            yield Violation(("kafka", name), f"has no effect with security_protocol {protocol}")
    if not protocol.endswith("SSL"):
        for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
            if getattr(kafka, name) is not None:
                yield Violation(("kafka", name), f"has no effect with security_protocol {protocol}")
    if kafka.ssl_keyfile is not None and kafka.ssl_certfile is None:
        yield Violation(("kafka", "ssl_keyfile"), "needs kafka.ssl_certfile")


def _route(index: int, route: RouteSettings, max_detections: int) -> Iterator[Violation]:
    here: Path = ("routes", index)
    if route.max_det > max_detections:
        yield Violation(
            (*here, "max_det"),
            f"must not exceed limits.max_detections ({max_detections})",
            other=("limits", "max_detections"),
        )
    if route.classes is not None and len(set(route.classes)) != len(route.classes):
        yield Violation((*here, "classes"), "names a class twice")
    if route.segment_sample_fps is not None and route.segment_sample_every > 1:
        yield Violation(
            (*here, "segment_sample_every"),
            "has no effect with segment_sample_fps: set one",
        )
    seen: set[str] = set()
    for place, bucket in enumerate(route.buckets):
        if bucket.name in seen:
            yield Violation(
                (*here, "buckets", place, "name"), "is the name of another bucket of this route"
            )
        seen.add(bucket.name)


def _names_and_topics(routes: list[RouteSettings]) -> Iterator[Violation]:
    names: set[str] = set()
    inputs: dict[str, str] = {}
    for index, route in enumerate(routes):
        if route.name in names:
            yield Violation(("routes", index, "name"), "is the name of another route")
        names.add(route.name)
        if route.input in inputs:
            yield Violation(
                ("routes", index, "input"),
                f"is the input of route {inputs[route.input]} too: one offset cannot carry two "
                "answers; run the second model in a group of its own",
            )
        inputs.setdefault(route.input, route.name)
    outputs = {route.output for route in routes}
    for index, route in enumerate(routes):
        for name in ("output", "dead_letter"):
            if getattr(route, name) in inputs:
                yield Violation(
                    ("routes", index, name),
                    f"is the input of route {inputs[getattr(route, name)]}: "
                    "answers would come back as frames",
                )
        if route.dead_letter in outputs:
            yield Violation(
                ("routes", index, "dead_letter"),
                "is an output too: consumers of results cannot read dead letters",
            )
