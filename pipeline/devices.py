"""The device that a worker's batches run on."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from pipeline.bucket import Bucket
from pipeline.cuda_graphs import GraphableModel, GraphedModel, TorchGraphs
from pipeline.cuda_runtime import TorchCuda
from pipeline.guard import Guard
from pipeline.latency import Table
from pipeline.ports import Device, Lane, Model
from pipeline.processor_time import NoMeter, ProcessorMeter
from pipeline.slots import ThreadedDevice
from pipeline.slots_cuda import CudaDevice


def make_device(
    lanes: Mapping[str, Lane],
    *,
    torch_device: str,
    slots: int,
    guard: Guard,
    model_threads: int = 0,
) -> Device:
    """The device for these lanes, its threads started. On a GPU every bucket's largest batch runs
    once before.

    Args:
        lanes: by route name; all on one device.
        torch_device: `cpu`, `cuda` or `cuda:N`.
        slots: see `ThreadedDevice` and `CudaDevice`.
        guard: stands around every native call.
        model_threads: that models have on a CPU; 0: one per core.

    Raises:
        FatalError: the GPU failed.
    """
    where = torch.device(torch_device)
    if where.type == "cpu":
        # Threads that DALI keeps cannot be told from the model's.
        known = all(lane.decoder.name == "opencv" for lane in lanes.values())
        meter = ProcessorMeter(model_threads) if known else NoMeter()
        return ThreadedDevice(lanes, slots=slots, meter=meter, guard=guard)
    return CudaDevice(lanes, TorchCuda(where), slots=slots, guard=guard)


def with_graphs(model: Model, *, wanted: bool) -> Model:
    """The model behind CUDA graphs, where they are wanted, it runs on a GPU, and its runs may be
    recorded (torch's may). They are recorded when it warms up."""
    if not wanted or model.device.type != "cuda" or not isinstance(model, GraphableModel):
        return model
    return GraphedModel(model, TorchGraphs(model.device))


def with_preferred(model: Model, bucket: Bucket, surface: Mapping[int, float]) -> None:
    """Where the model is behind graphs, record those of the sizes at which the batcher ends the
    bucket's batches.

    Args:
        surface: batch size → seconds, of the bucket.
    """
    if isinstance(model, GraphedModel) and surface:
        table = Table(surface)
        for size in (table.plateau(), table.worthwhile()):
            if size is not None:
                model.prefer(bucket, size)
