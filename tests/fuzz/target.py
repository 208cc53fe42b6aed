"""One run of the admission path: record → codec → probe → bucket → decoders → answer; of a segment
every frame.

Anything but an answer or a dead letter with a reason is a finding, and so is a small input that
costs more than its limits allow.
"""

from __future__ import annotations

import contextlib
import re
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pipeline.bucket import Bucket, BucketTable
from pipeline.decode_segment import PyAvSegments
from pipeline.decoders import make_decoder
from pipeline.item import Header, Item, Outcome
from pipeline.ports import Decoder
from pipeline.segment import SegmentLimits
from schemas.errors import FrameloomError, PoisonError, Reason
from schemas.frame import Encoding
from schemas.record import RawRecord
from schemas.result import ModelInfo
from schemas.settings import LimitSettings
from tests.builders_pictures import item as make_item
from tests.builders_pictures import jpeg, picture
from tests.fuzz.records import TOPIC
from workers.admission import Admission, Intake
from workers.anchor import Anchor, Time
from workers.answers import AnswerWriter, Destination
from workers.logs import get_log
from workers.suspects import Suspects
from workers.tickets import Claimed, OrderUnit, Segment, Settled

LIMITS = LimitSettings(max_pixels=1_000_000)
"""A million pixels, so that what a legal picture may cost is far below the limits here."""
MAX_CPU_S = 1.0
MAX_GROWTH_BYTES = 500 * 1024 * 1024
"""Of a single input: processor time, and memory at its peak beyond what was held before."""
SPARE_ADDRESS_BYTES = 3 << 30
"""Address space beyond what the process has when it begins; more is refused by the system."""

SMALL = Bucket("small", 5_000, 32, 64, 4)
LARGE = Bucket("large", 1 << 40, 64, 96, 4)
_NUMBER = re.compile(r"[-0-9×]+|'[^']*'|bytes are .*|Expected.*|Invalid.*|invalid.*")


class FindingError(Exception):
    """The input broke a promise. `args[0]` says which, the same for the same kind."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of an input. `signature` is equal for inputs that took the same way, as far as
    that shows from outside; `probed` when it passed the probe, `decoded` when pixels came of it."""

    signature: str
    probed: bool = False
    decoded: bool = False


class Target:
    """The path with everything it needs. Not for two threads.

    Args:
        max_cpu_s: processor time of one input; more is a finding.
    """

    def __init__(self, max_cpu_s: float = MAX_CPU_S) -> None:
        self._max_cpu_s = max_cpu_s
        time_ = Time(Anchor.now(), time.monotonic)
        model = ModelInfo(name="m", version="0", task="detect", conf=0.25, iou=0.7)
        self._writer = AnswerWriter(
            {"fuzz": Destination("out", "dlq", model)},
            worker="fuzz",
            max_result_bytes=LIMITS.max_result_bytes,
            anchor=time_.anchor,
            clock=time_.clock,
        )
        self._admission = Admission(
            {TOPIC: Intake("fuzz", BucketTable([SMALL, LARGE]), 1)},
            LIMITS,
            unit=OrderUnit.STREAM,
            writer=self._writer,
            suspects=Suspects(),
            time=time_,
            log=get_log("fuzz"),
        )
        self._segments = PyAvSegments(
            SegmentLimits(LIMITS.max_pixels, max_frames=60, max_us=30_000_000)
        )
        self._decoders = [_try(kind) for kind in ("opencv", "dali")]
        self._good = {b: make_item(jpeg(picture(97, 65)), Encoding.JPEG, b) for b in (SMALL, LARGE)}
        self._rows = {
            (d.name, b): self._decode(d, [self._good[b]])[1][0].clone()
            for d in self._decoders
            for b in (SMALL, LARGE)
        }

    def limit_memory(self) -> None:
        """Let the system refuse what no input may ask for."""
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        most = held + SPARE_ADDRESS_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    def run(self, record: RawRecord) -> Verdict:
        """Raises FindingError."""
        before, started_at = _reset_peak(), time.process_time()
        try:
            verdict = self._run(record)
        except FindingError:
            raise
        except FrameloomError as error:
            raise FindingError(f"{type(error).__name__}: {error}") from error
        except Exception as error:
            raise FindingError(f"unexpected {type(error).__name__}: {error}") from error
        spent, grown = time.process_time() - started_at, _peak_bytes() - before
        if spent > self._max_cpu_s:
            raise FindingError(f"slow: {verdict.signature}", spent)
        if grown > MAX_GROWTH_BYTES:
            raise FindingError(f"memory: {verdict.signature}", grown)
        return verdict

    def _run(self, record: RawRecord) -> Verdict:
        admitted = self._admission.admit(record, epoch=1)
        if isinstance(admitted, Settled):
            answer = admitted.answer
            said = dict(answer.headers).get("fl-detail", b"").decode()
            if answer.verdict is Reason.INTERNAL_ERROR:
                raise FindingError(f"internal_error: {_NUMBER.sub('#', said)}")
            return Verdict(f"{answer.verdict}: {_NUMBER.sub('#', said)[:60]}")
        if isinstance(admitted, Claimed):
            raise FindingError("a claim is let in, and none is allowed")
        if isinstance(admitted, Segment):
            return self._read_segment(admitted)
        item = admitted.item
        said = [self._decode_among(decoder, item) for decoder in self._decoders]
        for error in said:
            self._writer.of_outcome(admitted.ticket, Outcome(item, error=error))
        header, details = item.header, [_NUMBER.sub("#", e.detail) if e else "ok" for e in said]
        return Verdict(f"{_kind(header)} {details}", probed=True, decoded=None in said)

    def _read_segment(self, segment: Segment) -> Verdict:
        """Every frame that is to be answered, and what the worker makes of it."""
        kind, frames = segment.message.encoding.value, 0
        try:
            reader = self._segments.open(segment.message, segment.sampling)
        except PoisonError as error:
            return Verdict(f"{kind}: {_NUMBER.sub('#', error.detail)[:60]}")
        try:
            while True:
                frame = reader.step()
                if frame is None:
                    continue
                frames += 1
                self._admission.admit_frame(segment, frame)
                if frame.last:
                    return Verdict(f"{kind} whole", probed=True, decoded=True)
        except PoisonError as error:
            self._admission.refuse_rest(segment, error)
            said = _NUMBER.sub("#", error.detail)[:60]
            return Verdict(f"{kind} {frames > 0}: {said}", probed=True, decoded=frames > 0)
        finally:
            reader.close()

    def _decode_among(self, decoder: Decoder, item: Item) -> PoisonError | None:
        """Between two good pictures, which must come out as ever."""
        good = self._good[item.bucket]
        errors, rows = self._decode(decoder, [good, item, good])
        for place in (0, 2):
            if errors[place] is not None:
                raise FindingError(f"{decoder.name}: a neighbour was refused")
            if not torch.equal(rows[place], self._rows[decoder.name, item.bucket]):
                raise FindingError(f"{decoder.name}: a neighbour's pixels changed")
        return errors[1]

    @staticmethod
    def _decode(
        decoder: Decoder, items: list[Item]
    ) -> tuple[list[PoisonError | None], torch.Tensor]:
        into = items[0].bucket
        out = torch.from_numpy(np.full((len(items), into.height, into.width, 3), 7, np.uint8))
        errors = decoder.decode(items, out)
        if len(errors) != len(items):
            raise FindingError(f"{decoder.name}: {len(errors)} verdicts of {len(items)}")
        return errors, out


def _kind(header: Header) -> str:
    return f"{header.encoding} turned" if header.orientation > 1 else str(header.encoding)


def _try(kind: str) -> Decoder:
    return make_decoder(kind, threads=1, device="cpu")


def _reset_peak() -> int:
    """Forget the process's peak of memory; bytes held now."""
    with contextlib.suppress(OSError):  # not ours to write everywhere: peaks then only rise
        Path("/proc/self/clear_refs").write_text("5")
    return _peak_bytes()


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0
