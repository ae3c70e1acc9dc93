"""Kinds of trained models x what a training that starts from them does.

Each cell trains one epoch from a source and uses the result: it is validated before the first step,
loaded, transcribes, is averaged, and the files of the source stay as they are. The cells cover all
pairs of a source, the weights that are trained, the units, and how the run is started. A model of
each family is exported but a Whisper: the check of its export compares texts, and random weights
decode hundreds of tokens, which differ by rounding. The cells are printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from types import ModuleType

import pytest
import torch
import yaml

import wenet_uio
from tests.bin.test_train_from import FINE_TUNING, digest, funasr, hugging_face, icefall, openai
from tests.support import preloaded
from tests.support.models.whisper_layouts import write_full_vocabulary
from tests.support.train.training_corpus import write_corpus
from wenet_uio.bin import average_model, export_jit, export_onnx
from wenet_uio.models.lora import is_lora
from wenet_uio.train.trained_model import open_trained_model

ROOT = Path(__file__).parents[2]
LORA = ("use_lora=true", "only_optimize_lora=true", "lora_conf.lora_rank=2")
UNITS = ("<blank>", "<sos>", "<eos>", "<unk>", "c", "z", "a", "b", "y", "<sos/eos>")
"""Other units than those of any source; some have the same names."""
KILLED_AT = 3
"""Update of the weights at which a run is killed; an epoch has so many."""
OWN = ("run", "epoch", "export", "lora", "wenet")
WHISPERS = ("openai", "huggingface")
SOURCES = (*OWN, *WHISPERS, "funasr", "icefall")
WEIGHTS = ("all", "without encoder", "low-rank")
RUNS = ("one rank", "two ranks", "killed")
EXPORTS = {"run": "jit", "funasr": "onnx", "icefall": "onnx"}


@dataclass(frozen=True)
class Cell:
    """A source, and what a training from it does."""

    source: str
    weights: str
    """Which weights are trained."""
    other_units: bool
    run: str
    """How the training is started."""

    def __str__(self) -> str:
        units = "other units" if self.other_units else "its units"
        return f"{self.source}, {self.weights}, {units}, {self.run}"

    @property
    def options(self) -> list[str]:
        """Options of train.py."""
        units = ["--symbol_table", "other.txt"] if self.other_units else []
        frozen = ["--freeze_modules", "encoder"] if self.weights == "without encoder" else []
        keys = LORA if self.weights == "low-rank" else ()
        return [*units, *frozen, *(("--override_config", *keys) if keys else ())]


WITHOUT_LORA = ("funasr", "icefall")
"""Sources without attention that takes low-rank weights."""


def cell_of(row: int, column: int) -> Cell:
    """Return a cell; the rows and columns go through the units and the runs."""
    source, weights = SOURCES[row], WEIGHTS[column]
    if source in WITHOUT_LORA and weights == "low-rank":
        weights = "all"

    other_units = (row + column) % 2 == 1 and source not in WHISPERS
    return Cell(source, weights, other_units, RUNS[(row + column) % 3])


CELLS = [cell_of(row, column) for row in range(len(SOURCES)) for column in range(len(WEIGHTS))]
USUAL = [cell_of(row, row % len(WEIGHTS)) for row in range(len(SOURCES))]
"""Cells that run in every change: each source, each kind of weights, and each way to run."""


def test_the_cells_cover_all_pairs() -> None:
    """A Whisper has no other units; two sources have no low-rank weights."""
    rows = [(cell.source, cell.weights, cell.other_units, cell.run) for cell in CELLS]
    kinds = (SOURCES, WEIGHTS, (False, True), RUNS)
    impossible = set(product(WHISPERS, [True])) | set(product(WITHOUT_LORA, ["low-rank"]))
    for first, second in combinations(range(4), 2):
        wanted = set(product(kinds[first], kinds[second])) - impossible
        assert {(row[first], row[second]) for row in rows} == wanted


def test_the_usual_cells_cover_each_source_and_each_way() -> None:
    assert {cell.source for cell in USUAL} == set(SOURCES)
    assert {cell.weights for cell in USUAL} == set(WEIGHTS)
    assert {cell.other_units for cell in USUAL} == {False, True}
    assert {cell.run for cell in USUAL} == set(RUNS)


def train(
    home: Path,
    model_dir: str,
    *options: object,
    ranks: int = 1,
    killed: bool = False,
    fails: bool = False,
) -> str:
    """Train, which may be killed or end with an error -> standard error."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    script = (
        ["tests/support/train/killed_once.py", KILLED_AT] if killed else ["wenet_uio/bin/train.py"]
    )
    command = [
        *(launch if ranks > 1 else []),
        *(ROOT / script[0], *script[1:]),
        *("--train_data", "train.list", "--cv_data", "cv.list"),
        *("--model_dir", model_dir, "--device", "cpu", *options),
    ]
    done = preloaded.run(command, cwd=home)
    assert (done.returncode != 0) == (killed or fails), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def weights(path: Path) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)


def call(tool: ModuleType, *options: object) -> None:
    """Run a command in this process."""
    tool.main([*map(str, options)])


def average(run: Path, *options: str) -> None:
    call(average_model, "--dst_model", run / "avg.pt", "--src_path", run, "--num", 1, *options)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus, the config of a fine-tuning, and other units."""
    home = write_corpus(tmp_path_factory.mktemp("starts"))
    (home / "finetune.yaml").write_text(yaml.safe_dump({**FINE_TUNING, "save_interval": 1}))
    (home / "other.txt").write_text("".join(f"{unit} {n}\n" for n, unit in enumerate(UNITS)))
    return home


@pytest.fixture(scope="module")
def sources(home: Path, golden: Path, golden2: Path) -> dict[str, Path]:
    """{name: what --from is given}."""
    folder = home / "sources"
    folder.mkdir()
    train(home, "sources/run", "--config", "train.yaml", "--override_config", "max_epoch=1")
    average(folder / "run")
    lora = ("--from", "sources/run", "--override_config", *LORA)
    train(home, "sources/lora", "--config", "finetune.yaml", *lora)
    model = ("--config", folder / "run/train.yaml", "--checkpoint", folder / "run/avg.pt")
    check = ("--check_data", home / "cv.list", "--num_check", 2)
    call(export_jit, *model, "--output_file", folder / "run/final.zip", *check)

    whisper = openai(folder / "openai", golden2)
    for model_folder in (folder / "openai", hugging_face(folder, golden2)):
        write_full_vocabulary(model_folder / "multilingual.tiktoken")
    return {
        "run": folder / "run",
        "epoch": folder / "run/epoch_0.pt",
        "export": folder / "run/final.zip",
        "lora": folder / "lora/epoch_0.pt",
        "wenet": golden / "conformer",
        "openai": whisper,
        "huggingface": folder / "whisper",
        "funasr": funasr(folder, golden2),
        "icefall": icefall(folder, golden2),
    }


def trained(home: Path, start: Path, cell: Cell, model_dir: str, run: str) -> Path:
    """Train a cell -> the folder of the run."""
    options = ("--config", "finetune.yaml", "--from", start, *cell.options)
    if run == "killed":
        train(home, model_dir, *options, killed=True)

    said = train(home, model_dir, *options, ranks=2 if run == "two ranks" else 1)
    assert ("resuming after step" if run == "killed" else "before fine-tuning: cv loss") in said
    return home / model_dir


def check_weights(run: Path, cell: Cell) -> None:
    """Check which weights the training has changed."""
    first, last = weights(run / "init.pt"), weights(run / "final.pt")
    assert first.keys() == last.keys()
    changed = {name for name in first if not torch.equal(first[name], last[name])}
    assert changed
    if cell.weights == "without encoder":
        assert not any(name.startswith("encoder.") for name in changed)
    if cell.weights == "low-rank":
        assert all(map(is_lora, changed))


def check_start(run: Path, start: Path) -> None:
    """Check that the first weights are those of the source; low-rank ones of the source are merged."""
    converted = run / "from"
    source = open_trained_model(
        converted if converted.exists() else start, run / "unused", make=False
    )
    before, first = source.read_weights(), weights(run / "init.pt")
    assert all(torch.equal(first[name], before[name]) for name in first if not is_lora(name))


def export(run: Path, kind: str, audio: Path) -> None:
    """Export the average of a run by the command of its family."""
    model = ("--config", run / "train.yaml", "--checkpoint", run / "avg.pt")
    check = ("--check_data", audio.with_name("cv.list"), "--num_check", 2)
    if kind == "jit":
        call(export_jit, *model, *check, "--output_file", run / "final.zip")
        assert wenet_uio.load_model(run / "final.zip").transcribe(audio).text is not None
    else:
        limit = ("--int8_tolerance", 100)  # of random weights
        call(export_onnx, *model, *check, *limit, "--output_dir", run / "onnx")
        assert any((run / "onnx/offline").glob("*.onnx"))


@pytest.mark.parametrize(
    "cell",
    [pytest.param(cell, marks=() if cell in USUAL else pytest.mark.all) for cell in CELLS],
    ids=str,
)
def test_a_training_starts_from_it_and_its_result_is_a_model_as_any_other(
    home: Path, sources: dict[str, Path], cell: Cell, capsys: pytest.CaptureFixture[str]
) -> None:
    start = sources[cell.source]
    of_source = start if start.is_dir() else start.parent
    before = digest(of_source)
    audio = home / "cv1.wav"

    run = trained(home, start, cell, f"exp/{CELLS.index(cell)}", cell.run)
    if not cell.other_units:
        check_start(run, start)
    check_weights(run, cell)
    if cell.run == "killed":
        quiet = weights(trained(home, start, cell, f"{run}_quiet", "one rank") / "final.pt")
        final = weights(run / "final.pt")
        assert all(torch.equal(final[name], quiet[name]) for name in quiet)

    recogniser = wenet_uio.load_model(run, device="cpu")
    said = recogniser.transcribe(audio).text
    average(run, *(["--merge_lora"] if cell.weights == "low-rank" else []))
    averaged = wenet_uio.load_model(run, device="cpu")
    assert averaged.transcribe(audio).text == said

    if CELLS.index(cell) % len(WEIGHTS) == 0 and cell.source in EXPORTS:
        export(run, EXPORTS[cell.source], audio)

    assert digest(of_source) == before
    with capsys.disabled():
        print(f"{cell}: {said!r}")


def test_a_published_whisper_that_knows_english_only_is_trained(
    home: Path, published_whisper: Path
) -> None:
    before = digest(published_whisper)
    short = ("max_steps=1", "dataset_conf.batch_conf.batch_size=2", "save_interval=5")
    options = (
        "--config",
        "finetune.yaml",
        "--from",
        str(published_whisper),
        "--override_config",
        *short,
    )
    assert "before fine-tuning: cv loss" in train(home, "exp/published", *options)

    run = home / "exp/published"
    assert yaml.safe_load((run / "train.yaml").read_text())["output_dim"] == 51864
    check_start(run, published_whisper)
    recogniser = wenet_uio.load_model(run, device="cpu")
    assert isinstance(recogniser.transcribe(home / "cv1.wav", beam_size=1).text, str)
    assert digest(published_whisper) == before


@pytest.mark.parametrize("source", WITHOUT_LORA)
def test_low_rank_weights_alone_need_attention_that_takes_them(
    home: Path, sources: dict[str, Path], source: str
) -> None:
    options = ("--config", "finetune.yaml", "--from", sources[source], "--override_config", *LORA)
    said = train(home, "exp/refused", *options, fails=True)
    (reason,) = said.splitlines()[-1:]
    assert reason.startswith("error: ")
    assert "takes low-rank weights" in reason
