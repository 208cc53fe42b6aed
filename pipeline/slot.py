"""Slots: the double buffer of a device. A slot owns the input tensor of one batch."""

from __future__ import annotations

from enum import Enum

import torch

from pipeline.bucket import Bucket


class SlotState(Enum):
    """FREE → DECODING → DECODED → INFERRING → FREE."""

    FREE = "free"
    DECODING = "decoding"
    DECODED = "decoded"
    INFERRING = "inferring"


_NEXT = {
    SlotState.FREE: SlotState.DECODING,
    SlotState.DECODING: SlotState.DECODED,
    SlotState.DECODED: SlotState.INFERRING,
    SlotState.INFERRING: SlotState.FREE,
}


class Slot:
    """One half of the double buffer: an input buffer that grows to the largest bucket and stays.

    The state is changed under the device's lock; the buffer belongs to the stage that has the slot.
    """

    def __init__(self, index: int, torch_device: torch.device) -> None:
        self.index = index
        self.state = SlotState.FREE
        self._buffer = torch.empty(0, dtype=torch.uint8, device=torch_device)

    def enter(self, state: SlotState) -> None:
        """The one legal next state, or RuntimeError."""
        if _NEXT[self.state] is not state:
            raise RuntimeError(f"slot {self.index}: {self.state.value} → {state.value} is illegal")
        self.state = state

    def frames(self, bucket: Bucket) -> torch.Tensor:
        """uint8 (bucket.max_batch, height, width, 3), a view of the slot's buffer."""
        shape = (bucket.max_batch, bucket.height, bucket.width, 3)
        size = bucket.max_batch * bucket.height * bucket.width * 3
        if self._buffer.numel() < size:
            self._buffer = torch.empty(size, dtype=torch.uint8, device=self._buffer.device)
        return self._buffer[:size].view(shape)
