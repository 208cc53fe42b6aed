"""Loading and running real (untrained, very narrow) Ultralytics networks."""

from __future__ import annotations

import copy
import functools
import hashlib
import pickle
import shutil
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.random_weights import write_random_yolov8
from pipeline.bucket import Bucket
from pipeline.model import YoloModel, load_model
from pipeline.ports import Model
from schemas.errors import ConfigError, FatalError
from tests.builders_models import NO_FRAMES, a_checkpoint, a_network, some_frames

WAIT_S = 180.0
CONF, IOU = 0.25, 0.7


def load(path: Path | str, *, device: str = "cpu", threads: int = 0) -> YoloModel:
    return load_model(str(path), device=device, conf=CONF, iou=IOU, threads=threads)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "narrow.pt"
    return write_random_yolov8(path, width=0.125, classes=3)


@pytest.fixture
def model(checkpoint: Path) -> YoloModel:
    return load(checkpoint)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever Ultralytics would fetch or install fails the test."""

    def forbidden(*args: object, **_: object) -> None:
        pytest.fail(f"touched the network: {args}")

    for name in ("safe_download", "get_github_assets"):
        monkeypatch.setattr(f"ultralytics.utils.downloads.{name}", forbidden)
    monkeypatch.setattr(subprocess, "check_output", forbidden)


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    """Networks this small only lose by more threads. Gives torch its thread count back."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def two_classes() -> Any:
    """A network of its own for each test, labelled `class0` and `class1`."""
    return copy.deepcopy(_two_classes())


@functools.cache
def _two_classes() -> Any:
    return a_network(nc=2)


# --- a loaded model ---------------------------------------------------------------------------


def test_a_model_says_what_it_is(model: YoloModel, checkpoint: Path) -> None:
    port: Model = model
    assert port.info.name == "narrow"
    assert port.info.version == hashlib.sha256(checkpoint.read_bytes()).hexdigest()[:12]
    assert (port.info.task, port.info.conf, port.info.iou) == ("detect", CONF, IOU)
    assert port.labels == {0: "class0", 1: "class1", 2: "class2"}
    assert model.stride == 32
    assert model.device == torch.device("cpu")


def test_predictions_are_float32_boxes_in_bucket_pixels_and_scores(model: YoloModel) -> None:
    raw = model.infer(some_frames(2))
    assert raw.dtype == torch.float32
    assert raw.shape == (2, 4 + 3, 12 * 8 + 6 * 4 + 3 * 2)
    assert raw[:, 4:].min() >= 0
    assert raw[:, 4:].max() <= 1
    reach = 16 * 32  # of the coarsest anchors
    assert raw[:, :2].min() > -reach
    assert raw[:, :2].max() < 96 + reach
    assert raw[:, 2:4].min() >= 0
    assert raw[:, 2:4].max() < 2 * reach


def test_a_row_does_not_depend_on_its_batch_or_on_the_calls_before(model: YoloModel) -> None:
    frames = some_frames(5)
    alone = torch.cat([model.infer(frames[i : i + 1]) for i in range(5)])
    model.infer(some_frames(5, 96, 64))
    model.infer(some_frames(2))
    together = model.infer(frames)
    # Kernels differ with the batch size, by rounding; anchors of another shape differ by pixels.
    torch.testing.assert_close(together[:, :4], alone[:, :4], rtol=0.0, atol=0.2)
    torch.testing.assert_close(together[:, 4:], alone[:, 4:], rtol=0.0, atol=1e-3)


def test_frames_are_read_as_rgb_in_0_to_1_and_left_as_they_are(model: YoloModel) -> None:
    frames = some_frames(2)
    before = frames.clone()
    seen: list[torch.Tensor] = []
    model._network.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
    model.infer(frames)
    assert torch.equal(frames, before)
    for channel in range(3):
        assert torch.equal(seen[0][:, channel], frames[..., channel].float() / 255)


def test_labels_may_be_a_list(tmp_path: Path) -> None:
    network = two_classes()
    network.names = ["car", "bus"]
    assert load(a_checkpoint(tmp_path / "list.pt", network)).labels == {0: "car", 1: "bus"}


def test_half_precision_weights_run_in_float32(tmp_path: Path) -> None:
    model = load(a_checkpoint(tmp_path / "half.pt", two_classes().half()))
    assert model.infer(some_frames(1)).dtype == torch.float32


def test_auto_takes_the_device_there_is(checkpoint: Path) -> None:
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    assert load(checkpoint, device="auto").device.type == kind


@pytest.mark.parametrize("frames", NO_FRAMES.values(), ids=NO_FRAMES)
def test_frames_of_another_kind_are_a_bug(model: YoloModel, frames: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="frames must be uint8"):
        model.infer(frames)


# --- warm-up ----------------------------------------------------------------------------------


def test_warm_up_runs_each_shape_alone_and_at_its_largest_batch(model: YoloModel) -> None:
    seen: list[tuple[int, ...]] = []
    model._network.register_forward_pre_hook(lambda _, args: seen.append(tuple(args[0].shape)))
    model.warm_up(
        [
            Bucket("480p", 100, 64, 96, 3),
            Bucket("4k", 1000, 64, 96, 2),
            Bucket("tall", 100, 96, 64, 1),
        ]
    )
    assert seen == [(1, 3, 64, 96), (3, 3, 64, 96), (1, 3, 96, 64)]


def test_warm_up_refuses_a_bucket_between_strides(model: YoloModel) -> None:
    with pytest.raises(ConfigError, match=r"odd.*32"):
        model.warm_up([Bucket("odd", 100, 64, 100, 1)])


# --- threads ----------------------------------------------------------------------------------


def test_a_second_thread_is_refused_while_one_runs(model: YoloModel) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold(*_: object) -> None:
        entered.set()
        assert leave.wait(WAIT_S)

    hook = model._network.register_forward_pre_hook(hold)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(model.infer, some_frames(1))
        try:
            assert entered.wait(WAIT_S)
            with pytest.raises(RuntimeError, match="two threads"):
                model.infer(some_frames(1))
        finally:
            leave.set()
        assert running.result(WAIT_S).shape[0] == 1
    hook.remove()
    assert model.infer(some_frames(1)).shape[0] == 1, "free again, for any thread"


def test_a_failed_call_leaves_the_model_free(model: YoloModel) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no")

    hook = model._network.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="no"):
        model.infer(some_frames(1))
    hook.remove()
    assert model.infer(some_frames(1)).shape[0] == 1


def test_the_calling_thread_gets_the_thread_count(checkpoint: Path) -> None:
    model = load(checkpoint, threads=3)

    def run() -> int:
        model.infer(some_frames(1))
        return torch.get_num_threads()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run).result(WAIT_S) == 3


def test_a_failed_device_is_fatal(model: YoloModel) -> None:
    def fail(*_: object) -> None:
        raise torch.AcceleratorError("device-side assert")

    model._network.register_forward_pre_hook(fail)
    with pytest.raises(FatalError, match="device-side assert"):
        model.infer(some_frames(1))


# --- what is refused --------------------------------------------------------------------------


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothere\.pt: no such file"):
        load(tmp_path / "nothere.pt")
    with pytest.raises(ConfigError, match=r"no such file"):
        load(tmp_path / "no folder" / "yolov8n.pt")
    (tmp_path / "folder.pt").mkdir()
    with pytest.raises(ConfigError, match=r"not a file"):
        load(tmp_path / "folder.pt")


@pytest.mark.parametrize("name", ["model.onnx", "model", "https://example.org/yolov8n"])
def test_only_pt_files_are_weights(name: str) -> None:
    with pytest.raises(ConfigError, match=r"\.pt"):
        load(name)


@pytest.mark.parametrize(
    "content",
    [b"", b"not a checkpoint", b"PK\x03\x04 cut short", pickle.dumps({"a": 1}, protocol=2)],
    ids=["empty", "text", "zip", "pickle"],
)
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broken.pt"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken\.pt: not a checkpoint"):
        load(file)


def test_a_text_and_a_file_cut_short_are_told_apart(tmp_path: Path, checkpoint: Path) -> None:
    file = tmp_path / "page.pt"
    file.write_bytes(b"hello")
    with pytest.raises(ConfigError, match=r"page\.pt: .*it is no PyTorch weights file$"):
        load(file)
    file.write_bytes(checkpoint.read_bytes()[:-1000])
    with pytest.raises(ConfigError, match=r"page\.pt: .*it is cut short; fetch it anew$"):
        load(file)


def test_an_error_that_says_little_says_its_kind(tmp_path: Path) -> None:
    file = tmp_path / "old.pt"
    file.write_bytes(b"\x80\x02he")
    with pytest.raises(ConfigError, match=r"\(\w+Error: .+\)"):
        load(file)


def test_yolov5_is_refused_by_name(tmp_path: Path, checkpoint: Path) -> None:
    file = tmp_path / "yolov5n.pt"
    file.write_bytes(checkpoint.read_bytes())
    with pytest.raises(ConfigError, match=r"YOLOv5 is not supported, .*YOLOv8 family"):
        load(file)


@pytest.mark.parametrize(
    "value", [{"model": None}, {"weights": 1}, [1, 2], torch.zeros(3)], ids=str
)
def test_a_checkpoint_without_a_network_is_refused(tmp_path: Path, value: object) -> None:
    torch.save(value, tmp_path / "other.pt")
    with pytest.raises(ConfigError, match=r"other\.pt: not a checkpoint"):
        load(tmp_path / "other.pt")


def test_a_network_that_is_no_yolo_is_refused(tmp_path: Path) -> None:
    file = a_checkpoint(tmp_path / "linear.pt", torch.nn.Sequential(torch.nn.Linear(1, 1)))
    with pytest.raises(ConfigError, match="Sequential is no YOLO"):
        load(file)


@pytest.mark.parametrize(
    ("kind", "task"),
    [
        ("v8/yolov8-seg", "segment"),
        ("v8/yolov8-pose", "pose"),
        ("v8/yolov8-obb", "obb"),
        ("v8/yolov8-cls", "classify"),
    ],
)
def test_other_tasks_are_refused_by_name(tmp_path: Path, kind: str, task: str) -> None:
    file = a_checkpoint(tmp_path / "other.pt", a_network(kind, nc=2))
    with pytest.raises(ConfigError, match=f"detection model is needed.*{task}"):
        load(file)


def test_end_to_end_heads_are_refused(tmp_path: Path) -> None:
    network = a_network("26/yolo26", width=0.125, nc=2)
    network.model[-1].end2end = True
    file = a_checkpoint(tmp_path / "e2e.pt", network)
    with pytest.raises(ConfigError, match="end-to-end"):
        load(file)


def test_models_for_other_pictures_than_rgb_are_refused(tmp_path: Path) -> None:
    file = a_checkpoint(tmp_path / "gray.pt", a_network(nc=2, channels=1))
    with pytest.raises(ConfigError, match="1 colour channels"):
        load(file)


@pytest.mark.parametrize(
    "names",
    [None, ["car"], {0: "car", 2: "bus"}, {0: "car", 1: " "}, ["a", "b", "c"]],
    ids=str,
)
def test_labels_must_name_every_class(tmp_path: Path, names: object) -> None:
    network = two_classes()
    network.names = names
    with pytest.raises(ConfigError, match="2 classes"):
        load(a_checkpoint(tmp_path / "labels.pt", network))


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "mps", "cuda:99", ""])
def test_a_device_that_is_not_there_is_refused(checkpoint: Path, device: str) -> None:
    with pytest.raises(ConfigError, match="device"):
        load(checkpoint, device=device)


# --- trust, fetching, installing --------------------------------------------------------------


class Payload:
    """Unpickling it writes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.write_text, (self.target, "ran")


def test_a_checkpoint_with_code_in_it_is_refused_and_does_not_run(tmp_path: Path) -> None:
    target = tmp_path / "ran"
    file = a_checkpoint(tmp_path / "evil.pt", Payload(target))
    with pytest.raises(ConfigError, match="not a checkpoint"):
        load(file)
    assert not target.exists()


def test_whoever_trusts_a_file_can_have_its_own_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = two_classes()
    network.note = Payload(tmp_path / "ran")
    file = a_checkpoint(tmp_path / "own.pt", network)
    with pytest.raises(ConfigError):
        load(file)
    monkeypatch.setenv("ULTRALYTICS_SAFE_LOAD", "false")
    load(file)
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("safe", ["true", "false"])
def test_a_missing_package_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, safe: str
) -> None:
    module: Any = types.ModuleType("some_package_nobody_has")
    module.Thing = type("Thing", (), {"__module__": module.__name__})
    monkeypatch.setitem(sys.modules, module.__name__, module)
    file = a_checkpoint(tmp_path / "needy.pt", module.Thing())
    monkeypatch.delitem(sys.modules, module.__name__)
    monkeypatch.setattr("ultralytics.utils.checks.AUTOINSTALL", True)
    monkeypatch.setenv("ULTRALYTICS_SAFE_LOAD", safe)
    with pytest.raises(ConfigError, match="not a checkpoint"):
        load(file)


def test_a_published_name_is_fetched_to_its_place(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(*, url: str, file: Path, **_: object) -> None:
        assert url.endswith("/yolov8n.pt")
        shutil.copy(checkpoint, file)

    monkeypatch.setattr("ultralytics.utils.downloads.safe_download", fetch)
    monkeypatch.chdir(tmp_path)
    assert load("yolov8n.pt").info.name == "yolov8n"
    assert (tmp_path / "yolov8n.pt").is_file()


def test_a_failed_fetch_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr("ultralytics.utils.downloads.safe_download", fail)
    with pytest.raises(ConfigError, match=r"yolov8n\.pt: no such file.*offline.*no route"):
        load(tmp_path / "yolov8n.pt")


def test_a_broken_file_with_a_published_name_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "yolov8n.pt").write_bytes(b"broken")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="not a checkpoint"):
        load("yolov8n.pt")
    assert (tmp_path / "yolov8n.pt").read_bytes() == b"broken"


def test_a_name_that_ultralytics_would_change_is_refused(tmp_path: Path, checkpoint: Path) -> None:
    shutil.copy(checkpoint, tmp_path / "camera's.pt")
    with pytest.raises(ConfigError, match="rename it"):
        load(tmp_path / "camera's.pt")
