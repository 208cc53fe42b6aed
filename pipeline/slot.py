"""Slots: the double buffer of a device. A slot owns the input tensor of one batch."""

from __future__ import annotations

from enum import Enum

import torch

from pipeline.bucket import Bucket


class SlotState(Enum):
    """FREE → DECODING → DECODED → INFERRING → (on a GPU: RETURNING →) FREE."""

    FREE = "free"
    DECODING = "decoding"
    DECODED = "decoded"
    INFERRING = "inferring"
    RETURNING = "returning"
    """The model is done; its results are on their way into main memory."""


_NEXT = {
    SlotState.FREE: frozenset({SlotState.DECODING}),
    SlotState.DECODING: frozenset({SlotState.DECODED}),
    SlotState.DECODED: frozenset({SlotState.INFERRING}),
    SlotState.INFERRING: frozenset({SlotState.RETURNING, SlotState.FREE}),
    SlotState.RETURNING: frozenset({SlotState.FREE}),
}


class Slot:
    """A slot's place in its round. Changed under the device's lock."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.state = SlotState.FREE

    def enter(self, state: SlotState) -> None:
        """A legal next state, or RuntimeError."""
        if state not in _NEXT[self.state]:
            raise RuntimeError(f"slot {self.index}: {self.state.value} → {state.value} is illegal")
        self.state = state


class HostSlot(Slot):
    """One half of the double buffer in main memory: an input buffer that grows to the largest
    bucket and stays. It belongs to the stage that has the slot."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self._buffer = torch.empty(0, dtype=torch.uint8)
        self._view: tuple[Bucket, torch.Tensor] | None = None
        """Of the latest bucket: two stages of every batch ask for it."""

    def frames(self, bucket: Bucket) -> torch.Tensor:
        """uint8 (bucket.max_batch, height, width, 3), a view of the slot's buffer."""
        if self._view is not None and self._view[0] is bucket:
            return self._view[1]
        size = frames_bytes(bucket)
        if self._buffer.numel() < size:
            self._buffer = torch.empty(size, dtype=torch.uint8)
        view = self._buffer[:size].view(frames_shape(bucket))
        self._view = (bucket, view)
        return view


def frames_shape(bucket: Bucket) -> tuple[int, int, int, int]:
    """Of the bucket's largest batch: (max_batch, height, width, 3)."""
    return (bucket.max_batch, bucket.height, bucket.width, 3)


def frames_bytes(bucket: Bucket) -> int:
    """What the bucket's largest batch takes, uint8."""
    return bucket.max_batch * bucket.height * bucket.width * 3
