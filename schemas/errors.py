"""The error tree. Errors are caught by type, never by text.

FrameloomError
├── TransientError        trying again may succeed (broker away, time-out, out of memory)
├── PoisonError           this record can never succeed: it becomes a dead letter with `code`
├── WireError             bytes that should be a result are not one
├── FatalError            the process must end without committing what it holds
└── ConfigError           a setting or an argument is wrong: exit code 2, names where it came from
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Stable reason codes of dead letters (header `fl-reason`). Never rename one; add new ones."""

    EMPTY_RECORD = "empty_record"
    """The record has no value (a tombstone) or an empty one."""
    RECORD_TOO_LARGE = "record_too_large"
    """The value is longer than `limits.max_record_bytes`."""
    BAD_ENVELOPE = "bad_envelope"
    """Neither a frame map (MessagePack or JSON) nor a known picture; or a key that is missing,
    of wrong type, out of range or too long."""
    UNSUPPORTED_VERSION = "unsupported_version"
    """The frame's `v` is higher than this worker reads."""
    UNSUPPORTED_ENCODING = "unsupported_encoding"
    """The picture's format (named in `fl-detail`) is not one this worker decodes."""
    ENCODING_MISMATCH = "encoding_mismatch"
    """The bytes are not of the encoding that the frame names, or raw bytes of the wrong length."""
    TRUNCATED_HEADER = "truncated_header"
    """The picture ends before its size is known."""
    BAD_HEADER = "bad_header"
    """The picture's header contradicts its format."""
    ZERO_SIZE = "zero_size"
    """Width or height is zero (or negative)."""
    TOO_MANY_PIXELS = "too_many_pixels"
    """The header claims more than `limits.max_pixels` (decompression bomb)."""
    TOO_MANY_SCANS = "too_many_scans"
    """A progressive JPEG with more than `limits.max_scans` scans, or more than its size
    allows (decoding time bomb)."""
    TOO_MUCH_METADATA = "too_much_metadata"
    """A PNG with more compressed texts and profiles than a decoder should unpack (time bomb)."""
    CLAIM_REFUSED = "claim_refused"
    """The frame names a picture that this worker may not fetch: claims are off, or its place is
    not allowed."""
    CLAIM_TOO_LARGE = "claim_too_large"
    """The claim's `length` is above `claim_check.max_bytes`."""
    CLAIM_MISSING = "claim_missing"
    """Nothing is there, or it is not handed out."""
    CLAIM_MISMATCH = "claim_mismatch"
    """What is there has another length or digest than the claim."""
    CLAIM_TIMEOUT = "claim_timeout"
    """It could not be fetched in `claim_check.timeout_ms`."""
    CLAIM_FAILED = "claim_failed"
    """The place failed again and again: no connection, a server's error, a transfer cut short."""
    DECODE_FAILED = "decode_failed"
    """Every decoder of the ladder refused the picture; or a segment is damaged, and what came
    before the damage was answered."""
    SEGMENT_TOO_LONG = "segment_too_long"
    """A segment with more frames than `limits.max_segment_frames`, or of more time than
    `limits.max_segment_ms`; what is within the limits was answered."""
    INFERENCE_FAILED = "inference_failed"
    """The model failed on this frame alone, after its batch was bisected."""
    RESULT_TOO_LARGE = "result_too_large"
    """The answer is larger than the output topic takes."""
    CRASH = "crash"
    """The worker died with the record in native code, repeatedly, the last time with it alone."""
    TIMEOUT = "timeout"
    """Native code did not return from the record in time, repeatedly, the last time alone."""
    INTERNAL_ERROR = "internal_error"
    """An unexpected error that could be traced to this record alone."""


class FrameloomError(Exception):
    """Base of every error that this project raises on purpose."""


class TransientError(FrameloomError):
    """Trying again may succeed."""


class PoisonError(FrameloomError):
    """A record that can never succeed. It becomes a dead letter and hurts nobody else.

    Attributes:
        code: stable reason code, header `fl-reason`.
        detail: one sentence for a human, header `fl-detail` (cut to 1 KiB there).
        stage: where it was found: `codec`, `claim`, `probe`, `segment`, `decode`, `infer`,
            `return` (from a GPU), `post`, `result` or `admission` (`fl-stage`).
    """

    def __init__(self, code: Reason, detail: str, *, stage: str) -> None:
        super().__init__(f"{code.value}: {detail}")
        self.code = code
        self.detail = detail
        self.stage = stage


class WireError(FrameloomError):
    """Bytes read as a result are not one, or are of a later version. For consumers of results."""


class FatalError(FrameloomError):
    """The process must end without committing what it holds."""


class ConfigError(FrameloomError):
    """A setting or an argument is wrong. The message names the key, the value and its source."""
