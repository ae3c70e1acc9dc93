"""An add-on is taken away: everything that does not name it works as before.

In every change all add-ons are taken away at once; with `--all` each of them alone, too, also from the
quick tests.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import preloaded
from tests.support.import_graph import tree_of
from tests.support.train.training_corpus import write_corpus

ROOT = Path(__file__).resolve().parents[2]
ADDONS = ROOT / "wenet_uio/addons"
GROUPS = ("families", "encoders")
"""Folders of add-ons."""
FOLDERS = sorted(
    str(path.parent.relative_to(ADDONS))
    for path in (*ADDONS.glob("*/__init__.py"), *ADDONS.glob("*/*/__init__.py"))
    if path.parent.name not in GROUPS and path.parent.parent.name in ("addons", *GROUPS)
)

TRAIN = "wenet_uio.bin.train --train_data train.list --cv_data cv.list --model_dir exp --config"
CONVERT = "wenet_uio.bin.convert_manifest --to raw"
FILES = {
    "muon.yaml": "optim: muon\n",
    "nemo.yaml": "model: {train_ds: {manifest_filepath: train.json}}\n",
    "sources.yaml": "- {type: nemo, manifest_filepath: a.json}\n",
    "reference.yaml": "cv_data: ${oc.env:LIST}\n",
    "talk.srt": "1\n00:00:00,000 --> 00:00:00,500\naa\n",
    "table.xlsx": "",
    "latin.csv": "audio,text\ncv0.wav,\u00fc\n",
    "text_first.tsv": "aa\tcv0.wav\nbb\tcv1.wav\n",
    "onnx/encoder.onnx": "",
}
"""Files that ask for an add-on."""
ASKED = [
    ("optim", f"{TRAIN} muon.yaml"),
    ("optim", f"{TRAIN} train.yaml --override_config optim=scaled_adam"),
    ("nemo", f"{TRAIN} nemo.yaml"),
    ("nemo", f"{TRAIN} reference.yaml"),
    ("nemo", f"{TRAIN} train.yaml --override_config ++model.train_ds.manifest_filepath=a.json"),
    ("nemo", "wenet_uio.bin.convert_to_tarred --manifest_path a.json --target_dir b"),
    (
        "nemo",
        "wenet_uio.bin.train --config train.yaml --train_data sources.yaml "
        "--cv_data cv.list --model_dir exp",
    ),
    ("corpora", f"{CONVERT} talk.srt out.list"),
    ("corpora", f"{CONVERT} table.xlsx out.list"),
    ("corpora", f"{CONVERT} latin.csv out.list"),
    ("corpora", f"{CONVERT} text_first.tsv out.list"),
    ("corpora", "wenet_uio.bin.pseudo_lists unlabelled cv.list out.list"),
    ("listen", "wenet_uio.bin.transcribe --model exp talk.wav"),
    ("listen", "wenet_uio.bin.align --help"),
    ("runtimes", "wenet_uio.bin.export_onnx --help"),
    ("runtimes", "wenet_uio.bin.transcribe --model onnx talk.wav"),
    ("serve", "wenet_uio.bin.serve --model exp"),
]
"""Folder that was taken away, and a command that asks for it."""


def run_without(
    folders: Sequence[str], arguments: list[str], place: Path
) -> subprocess.CompletedProcess[str]:
    """Run a Python command in a folder, where the package has not these add-ons."""
    copy = place / "path/wenet_uio"
    shutil.copytree(
        ROOT / "wenet_uio",
        copy,
        ignore=shutil.ignore_patterns("*.pyc.*"),  # files that Python is writing just now
        copy_function=os.link,
    )
    (copy / "__init__.py").unlink()
    shutil.copy(ROOT / "wenet_uio/__init__.py", copy)  # no link: it is another package
    for folder in folders:
        shutil.rmtree(copy / "addons" / folder)
    return subprocess.run(
        [preloaded.python(), *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(place / "path")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def write_forms(place: Path) -> None:
    """Write the utterances of cv.list as tables and as texts beside their audio."""
    lines = [json.loads(line) for line in (place / "cv.list").open()]
    rows = "".join(f"{line['wav']}\t{line['txt']}\n" for line in lines)
    (place / "titled.tsv").write_text(f"path\tsentence\n{rows}")
    (place / "bare.tsv").write_text(rows)
    (place / "pairs").mkdir()
    for line in lines:
        shutil.copy(line["wav"], place / "pairs")
        (place / "pairs" / Path(line["wav"]).name).with_suffix(".txt").write_text(line["txt"])


@pytest.mark.parametrize(
    "folders",
    [FOLDERS, *(pytest.param([folder], marks=pytest.mark.all) for folder in FOLDERS)],
    ids=lambda folders: folders[0] if len(folders) == 1 else "all",
)
def test_without_an_add_on_the_rest_is_imported_and_a_model_is_trained_and_used(
    folders: list[str], tmp_path: Path
) -> None:
    write_corpus(tmp_path, max_epoch=1)
    write_forms(tmp_path)
    script = [str(ROOT / "tests/support/without_folder.py")]
    done = run_without(folders, script, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    missing = json.loads(done.stdout.splitlines()[-1])
    assert all(module.startswith("wenet_uio.addons.") for module in missing), missing
    gone = tuple("'wenet_uio.addons." + folder.replace("/", ".") for folder in folders)
    assert all(any(name in why for name in gone) for why in missing.values()), missing
    assert (tmp_path / "result/attention_rescoring/text").is_file()
    assert (tmp_path / "exp/final.zip").is_file()
    texts = {
        form: [json.loads(line)["txt"] for line in (tmp_path / f"{form}.list").open()]
        for form in ("titled", "bare", "pairs", "kaldi")
    }
    assert all(found == ["aa", "bb", "cc", "aa", "bb"] for found in texts.values()), texts


@pytest.mark.all
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("folder", ["all", *FOLDERS])
def test_without_an_add_on_the_quick_tests_pass_or_are_told_what_was_taken_away(
    folder: str,
) -> None:
    """Each is a run of pytest with some 1,700 tests; `bash tests/without.sh FOLDER` runs the rest."""
    named = (ROOT / "tests/quick.txt").read_text(encoding="utf-8").split()
    kept = [name for name in named if not name.startswith("tests/addons")]
    done = subprocess.run(
        ["bash", ROOT / "tests/without.sh", folder, *kept],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr


@pytest.mark.parametrize(("folder", "command"), ASKED)
def test_whoever_asks_for_what_was_taken_away_gets_one_line_that_names_it(
    folder: str, command: str, tmp_path: Path
) -> None:
    write_corpus(tmp_path, max_epoch=1)
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="latin-1")
    done = run_without([folder], ["-m", *command.split()], tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert f"wenet_uio.addons.{folder}" in done.stderr
    assert "this installation was made without it" in done.stderr


def test_no_other_test_imports_an_add_on_before_it_runs() -> None:
    """Whoever takes a folder away takes its tests too; the others are still collected."""
    importers = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("*.py")
        if not path.is_relative_to(ROOT / "tests/addons")
        and "wenet_uio.addons." in path.read_text(encoding="utf-8")
        for node in tree_of(path).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        and "wenet_uio.addons." in ast.unparse(node)
    ]
    assert importers == []


def test_a_public_name_of_an_add_on_that_was_taken_away_says_so(
    tmp_path: Path,
) -> None:
    done = run_without(["listen"], ["-c", "import wenet_uio; wenet_uio.load_model"], tmp_path)
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: load_model: wenet_uio.addons.listen: this installation was made without it"
    )
