"""Fixtures that find the shared corpora, and make tiny ones; tests whose corpora are absent skip
and say why.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import urllib.request
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import soundfile
from hypothesis import settings

from tests.support import preloaded
from tests.support.data.packing import pack
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.prepare.list_making import make_raw_list
from wenet_uio.prepare.sharding import ShardOptions

# The plan's guarantees are two properties: 100 random cases, with --all 400. For 20,000:
#   bash tests/run.sh tests/dataset/plan/test_epoch_plan.py --hypothesis-profile thorough
settings.register_profile("quick", max_examples=10, deadline=None)
settings.register_profile("suite", max_examples=50, deadline=None)
settings.register_profile("all", max_examples=200, deadline=None)
settings.register_profile("thorough", max_examples=10_000, deadline=None)
settings.load_profile("suite")


LONG_FILES = (
    "test_soak.py",
    "addons/test_absence.py",
    "matrix/test_ends.py",
    "matrix/test_entrances.py",
    "dataset/test_workers.py",
    "bin/test_launch.py",
    "train/test_memory.py",
    "matrix/test_audio.py",
    "matrix/test_starts.py",
    "bin/test_train.py",
    "bin/test_train_from.py",
    "train/test_kills.py",
    "test_ray.py",
    "lab/benchmark/test_benchmarks.py",
    "dataset/corpus/test_remote_index.py",
    "addons/publish/test_push.py",
    "train/test_objective.py",
    "train/test_trackers.py",
    "bin/test_export_jit.py",
    "dataset/chain/test_compiled.py",
    "docs/test_search.py",
    "tools/test_setup_env.py",
    "train/test_engines.py",
    "train/test_engine.py",
    "addons/listen/test_recogniser.py",
    "examples/test_corpora.py",
    "models/test_golden2.py",
    "models/test_batches.py",
    "examples/test_recipes.py",
    "addons/serve/test_page.py",
    "matrix/test_locks.py",
    "dataset/storage/test_faults.py",
    "dataset/storage/test_http_faults.py",
    "dataset/test_loops_over_ranks.py",
    "addons/runtimes/test_onnx_graphs.py",
    "examples/test_wenets_document.py",
    "docs/test_how_to.py",
)
"""The longest test files. They start first, so that the processes of the suite end at about the
same time."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all",
        action="store_true",
        help="also run the tests marked `all`: every cell of the matrices, foreign runtimes, faults",
    )


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts the tests in the background has them ignore SIGINT, and so would every process under test.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "all: takes long; runs with --all only")
    config.addinivalue_line("markers", "third: every third cell runs; all of them with --all only")
    if config.getoption("--all") and not config.getoption("--hypothesis-profile"):
        settings.load_profile("all")
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        os.environ[preloaded.SHARED] = preloaded.python()
    else:  # a process that imports the tests: the garbage collector would pass again and again over what stays, for 4 s
        gc.disable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--all"):
        long = [item for item in items if item.get_closest_marker("all")] + two_of_three(items)
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=long)

    root = Path(__file__).parent
    order = {root / path: number for number, path in enumerate(LONG_FILES)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


def two_of_three(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return two of three cells of each test that is marked `third`; other tests keep others."""
    cells: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("third"):
            cells.setdefault((item.path, item.originalname), []).append(item)
    return [
        item
        for (_, name), of_test in cells.items()
        for number, item in enumerate(of_test)
        if (number - crc32(name.encode()) % min(3, len(of_test))) % 3
    ]


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over all that was imported: 0.3 s at each `gc.collect()`, and
    in forked processes a copy of this memory.
    """
    gc.freeze()
    gc.enable()


def _folder(variable: str) -> Path:
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"{variable} is not set")
    return Path(value)


@pytest.fixture(scope="session")
def corpora() -> Path:
    """Folder of small real corpora (fsdd, yesno, ...)."""
    return _folder("WENET_UIO_CORPORA")


@pytest.fixture(scope="session")
def golden() -> Path:
    """Folder of WeNet models with the outputs WeNet computes from them."""
    return _folder("WENET_UIO_GOLDEN")


@pytest.fixture(scope="session")
def golden2() -> Path:
    """Folder of further models of WeNet, with its example configs and the names of its keys."""
    return _folder("WENET_UIO_GOLDEN2")


@pytest.fixture(scope="session")
def published_whisper() -> Path:
    """Folder with weights and vocabulary of OpenAI's tiny.en."""
    return _folder("WENET_UIO_MODELS")


@pytest.fixture(scope="session")
def seeds() -> Path:
    """Folder of the documents that users come from."""
    return _folder("WENET_UIO_SEEDS")


@pytest.fixture(scope="session")
def nemo_examples() -> Path:
    """Folder of the examples in NeMo's documentation of data sets, one file each; index.tsv says
    what each is for.
    """
    return _folder("WENET_UIO_NEMO_EXAMPLES")


@pytest.fixture(scope="session")
def nemo_train_ds(nemo_examples: Path) -> Path:
    """Folder of the data sections in NeMo's published configurations, beside its examples."""
    folder = nemo_examples.parent / "nemo_train_ds"
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist")
    return folder


@cache
def _tones(count: int, rate: int, channels: int) -> list[bytes]:
    """wav files of the utterances of `make_utterances`."""
    random = np.random.default_rng(0)
    wavs = []
    for _ in range(count):
        samples = int(rate * random.uniform(0.3, 1.2))
        tone = 0.3 * np.sin(2 * np.pi * random.uniform(100, 1000) / rate * np.arange(samples))
        noise = random.normal(0, 0.01, (samples, channels))
        wav = io.BytesIO()
        soundfile.write(wav, tone[:, None] + noise, rate, subtype="PCM_16", format="WAV")
        wavs.append(wav.getvalue())
    return wavs


@pytest.fixture
def make_utterances(tmp_path: Path) -> Callable[..., list[RawLine]]:
    """Write `count` wav files of tones, 0.3 to 1.2 s, and return the lines of their raw list."""

    def make(count: int, rate: int = 16000, channels: int = 1) -> list[RawLine]:
        lines = []
        for number, wav in enumerate(_tones(count, rate, channels)):
            path = tmp_path / "wav" / f"utt{number:04d}.wav"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(wav)
            lines.append(RawLine(path.stem, str(path), "abc"[: 1 + number % 3]))
        return lines

    return make


@pytest.fixture
def make_lists(
    tmp_path: Path, make_utterances: Callable[..., list[RawLine]]
) -> Callable[..., dict[str, str]]:
    """Make the same utterances into a raw list and a shard list; returns their paths by data
    type.
    """

    def make(count: int, per_shard: int = 10, **options: int) -> dict[str, str]:
        lines = make_utterances(count, **options)
        lists = {kind: str(tmp_path / f"{kind}.list") for kind in ("raw", "shard")}
        assert make_raw_list(lines, lists["raw"], per_shard) == []
        assert (
            pack(lines, tmp_path / "shards", lists["shard"], ShardOptions(per_shard=per_shard))
            == []
        )
        return lists

    return make


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """s3://corpora on a server on loopback, named in the environment; gives its file system."""
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "toy")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "toy")
    s3fs.S3FileSystem.clear_instance_cache()
    # Servers of one process share it
    urllib.request.urlopen(f"http://{host}:{port}/moto-api/reset", data=b"").close()
    store = s3fs.S3FileSystem(use_listings_cache=False)
    store.mkdir("corpora")
    yield store
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()
