"""Checks that load native libraries, each in a process of its own: `python -m
frameloom.doctor_child CHECK`, the plan as JSON on standard input, findings as JSON on the last line
of standard output. A library that crashes or hangs while it is imported costs its check alone."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from frameloom.doctor_finding import Finding, ok, problem, skipped, warning
from frameloom.doctor_models import models
from schemas.errors import ConfigError
from schemas.settings import Settings

DRIVER = Path("/proc/driver/nvidia/version")
_MODEL_FREE_BYTES = 1 << 30
_SAMPLE = (64, 48)
"""Width and height of the picture that is decoded."""


def opencv(settings: Settings) -> Iterator[Finding]:
    """Every worker decodes with it in the end, whatever comes first."""
    del settings
    try:
        import cv2
        import numpy as np
    except ImportError as error:
        yield problem("opencv", f"cannot be imported: {error}", "pip install opencv-python")
        return
    picture = np.full((_SAMPLE[1], _SAMPLE[0], 3), 90, np.uint8)
    missing = [form for form in ("jpg", "png", "webp") if not _reads(cv2, picture, form)]
    if missing:
        yield problem(
            "opencv",
            f"version {cv2.__version__} cannot decode {', '.join(missing)}",
            "pip install --force-reinstall opencv-python",
        )
    else:
        yield ok("opencv", f"version {cv2.__version__} decodes JPEG, PNG and WebP")


def _reads(cv2: Any, picture: object, form: str) -> bool:
    try:
        encoded = cv2.imencode(f".{form}", picture)[1]
        got = cv2.imdecode(encoded, cv2.IMREAD_COLOR)
    except cv2.error:
        return False
    return got is not None and got.shape[:2] == (_SAMPLE[1], _SAMPLE[0])


def dali(settings: Settings) -> Iterator[Finding]:
    """The faster decoder, where it is installed."""
    wanted = settings.device.decoder
    if wanted == "opencv":
        yield skipped("dali", "device.decoder is opencv")
        return
    report = problem if wanted == "dali" else warning
    install = "pip install 'frameloom[dali]' (Linux), or set device.decoder: opencv"
    try:
        import nvidia.dali as library
    except ImportError as error:
        yield report("dali", f"is not installed ({error}); OpenCV decodes instead", install)
        return
    try:
        fault = _decode_with_dali(settings.device.name)
    except ConfigError as error:
        yield skipped("dali", f"version {library.__version__}; needs the device: {error}")
        return
    except Exception as error:  # noqa: BLE001 (whatever a native library raises is its finding)
        fault = f"{type(error).__name__}: {error}".splitlines()[0]
    if fault:
        yield report("dali", f"version {library.__version__} does not decode: {fault}", install)
    else:
        yield ok("dali", f"version {library.__version__} decodes a test picture")


def _decode_with_dali(device: str) -> str:
    """What is wrong with a picture that it decoded; empty when nothing is."""
    import cv2
    import numpy as np
    import torch

    from pipeline.bucket import Bucket
    from pipeline.decode_dali import DaliDecoder
    from pipeline.item import Coordinates, Header, Item
    from pipeline.letterbox import letterbox
    from pipeline.model import find_device
    from schemas.frame import Encoding, FrameMessage

    where = find_device(device)
    width, height = _SAMPLE
    data = cv2.imencode(".jpg", np.full((height, width, 3), 90, np.uint8))[1].tobytes()
    bucket = Bucket("doctor", 1 << 40, height, width, 1)
    item = Item(
        attempt_id=0,
        coordinates=Coordinates("doctor", 0, 0),
        epoch=0,
        route="doctor",
        frame=FrameMessage(
            stream_id="doctor", seq=0, captured_at_us=0, encoding=Encoding.JPEG,
            data=memoryview(data),
        ),
        header=Header(Encoding.JPEG, width, height),
        bucket=bucket,
        geometry=letterbox(width, height, width, height),
        received_at=0.0,
    )  # fmt: skip
    out = torch.zeros((1, height, width, 3), dtype=torch.uint8, device=where)
    device_id = (where.index or 0) if where.type == "cuda" else None
    decoder = DaliDecoder(threads=1, device_id=device_id)
    try:
        error = decoder.decode([item], out)[0]
    finally:
        decoder.close()
    if error is not None:
        return str(error)
    level = float(out.float().mean())
    return "" if abs(level - 90) < 3 else f"a grey of 90 came out as {level:.0f}"


def device(settings: Settings) -> Iterator[Finding]:
    """What the model would run on."""
    try:
        import torch

        from pipeline.model import find_device
    except ImportError as error:
        yield problem("device", f"torch cannot be imported: {error}", "pip install -e .")
        return
    wanted, driver = settings.device.name, _driver()
    built = f"torch {torch.__version__}"
    try:
        where = find_device(wanted)
    except ConfigError as error:
        hint = f"the driver is {driver}" if driver else "there is no NVIDIA driver (nvidia-smi)"
        yield problem("device", f"{error}; {built}, {hint}", "set device.name: auto, or cpu")
        return
    if where.type != "cuda":
        if driver and wanted == "auto":
            yield warning(
                "device",
                f"an NVIDIA driver ({driver}) is there, and {built} sees no GPU: CPU",
                "install the CUDA build of torch, or give the container --gpus all",
            )
        else:
            yield ok("device", f"{where}, {built}")
        return
    properties = torch.cuda.get_device_properties(where)
    free, total = torch.cuda.mem_get_info(where)
    said = (
        f"{where}: {properties.name}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free, driver "
        f"{driver or 'unknown'}, CUDA {torch.version.cuda}, {built}"
    )
    if free < _MODEL_FREE_BYTES:
        yield warning("device", said, "end what else runs on the GPU (nvidia-smi)")
    else:
        yield ok("device", said)


def _driver() -> str:
    """Version of the NVIDIA kernel driver; empty where there is none."""
    try:
        found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", DRIVER.read_text())
    except OSError:
        return ""
    return found[1] if found else "unknown"


CHECKS: Mapping[str, Callable[[Settings], Iterator[Finding]]] = {
    "opencv": opencv,
    "dali": dali,
    "device": device,
    "models": models,
}


def main() -> None:
    """Run the check named on the command line."""
    # Libraries print what they like; the answer alone goes to standard output.
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    settings = msgspec.json.decode(sys.stdin.buffer.read(), type=Settings)
    findings = list(CHECKS[sys.argv[1]](settings))
    answer.write(msgspec.json.encode(findings) + b"\n")
    answer.flush()


if __name__ == "__main__":
    main()
