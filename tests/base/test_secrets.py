"""Runs on a faulty server whose URLs have credentials: nothing that they print or write has a
credential.
"""

import json
import runpy
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.support import preloaded
from tests.support.storage.servers import serving
from tests.support.train.training_corpus import CONFIG, write_corpus
from wenet_uio.config import load_config, save_config
from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.open import open_corpus
from wenet_uio.dataset.storage.versions import DriverError
from wenet_uio.dataset.types import Skipped
from wenet_uio.prepare.list_making import make_raw_list, manifest_path
from wenet_uio.search.recognition import Recognition, write_recognition

ROOT = Path(__file__).parents[2]
SECRETS = (b"pa55word", b"s1gnature", b"t0ken")
TRUE_URIS = (".list", ".idx", "own.yaml")
"""Suffixes of files that keep the true URIs, because they are read again."""
FAULTS = {"train1.wav": 404, "train2.wav": "reset", "cv1.wav": 404}


QUERIES = (
    "X-Amz-Signature=s1gnature&Expires=9",
    "sig=s1gnature&se=2030",
    "OSSAccessKeyId=t0ken&Signature=s1gnature",
)
"""Signatures as several stores write them."""


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Folder of a run. The audio and tars of its lists are on a faulty server that wants
    credentials.
    """
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WENET_UIO_DEADLINE", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    served, folder = tmp_path / "served", tmp_path / "run"
    served.mkdir()
    folder.mkdir()
    write_corpus(served)
    (served / "train3.wav").write_bytes(b"RIFF")
    with serving(served) as server:
        url = server.url.replace("://", "://user:pa55word@")
        for part in ("train", "cv"):
            lines = [
                json.loads(line) for line in (served / f"{part}.list").read_text().splitlines()
            ]
            with open(folder / f"{part}.list", "w") as file:
                for number, line in enumerate(lines):
                    wav = f"{url}/{Path(line.pop('wav')).name}?{QUERIES[number % 3]}"
                    duration = 0.5 + 0.05 * (number % 7) + (7 if number == 5 else 0)
                    file.write(json.dumps({**line, "wav": wav, "duration": duration}) + "\n")
        (folder / "units.txt").write_text((served / "units.txt").read_text())
        write_tarred(served, folder, url)
        server.fault = lambda path, number: FAULTS.get(path.lstrip("/"))
        yield folder


def write_tarred(served, folder, url):
    """Two tars, one of them damaged, with a manifest of NeMo; own.yaml mixes them with
    train.list.
    """
    with open(served / "tarred.json", "w") as manifest:
        for number in range(2):
            with tarfile.open(served / f"audio_{number}.tar", "w") as tar:
                for item in range(4):
                    name = f"train{8 + 4 * number + item}.wav"
                    tar.add(served / name, f"t{name}")
                    tar.add(served / "units.txt", f"t{name.removesuffix('.wav')}.txt")
                    entry = {
                        "audio_filepath": f"t{name}",
                        "text": "ab",
                        "duration": 0.5,
                        "shard_id": number,
                    }
                    manifest.write(json.dumps(entry) + "\n")
    damaged = served / "audio_1.tar"
    damaged.write_bytes(damaged.read_bytes()[:40_000])
    source = {
        "type": "nemo_tarred",
        "tarred_audio_filepaths": f"{url}/audio_{{0..1}}.tar?{QUERIES[0]}",
        "manifest_filepath": f"{url}/tarred.json?token=t0ken",
    }
    dataset_conf = {**CONFIG["dataset_conf"], "max_bad_ratio": 1}
    data = [{"type": "raw", "data_list": "train.list"}, source]
    (folder / "own.yaml").write_text(
        yaml.safe_dump(
            {**CONFIG, "max_epoch": 1, "report": True, "data": data, "dataset_conf": dataset_conf}
        )
    )


def assert_no_secret(folder, *outputs):
    """Look into every file below a folder that does not have to keep the true URI, and into
    outputs.
    """
    found = [str(text) for text in outputs for secret in SECRETS if secret.decode() in text]
    files = [
        path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(TRUE_URIS)
    ]
    assert files
    found += [str(path) for path in files if any(secret in path.read_bytes() for secret in SECRETS)]
    assert found == []


def train(folder, config, *options):
    command = [
        ROOT / "wenet_uio/bin/train.py",
        "--config",
        config,
        "--cv_data",
        "cv.list",
        "--model_dir",
        "exp",
    ]
    return preloaded.run([*command, "--device", "cpu", "--num_workers", 1, *options], cwd=folder)


def test_a_training_run_writes_and_prints_no_secret_and_resumes(corpus):
    done = train(corpus, "own.yaml")
    assert done.returncode == 0, done.stderr
    ledger = [
        json.loads(line) for line in (corpus / "exp/bad_samples.jsonl").read_text().splitlines()
    ]
    reasons = {(line["key"], line["reason"]) for line in ledger}
    assert {("train1", "unreadable"), ("train2", "unreadable"), ("train3", "unreadable")} <= reasons
    assert {("train5", "changed_length"), ("cv1", "unreadable")} <= reasons
    details = " ".join(line["detail"] for line in ledger)
    assert "@127.0.0.1" in details
    assert "/train1.wav?…: HTTP 404" in details
    assert "prefetch: http://…@127.0.0.1" in done.stderr
    assert {path.name for path in (corpus / "exp").iterdir()} >= {
        "train.yaml",
        "environment.yaml",
        "report.html",
        "README.md",
    }
    sources = yaml.safe_load((corpus / "exp/train.yaml").read_text())["data"]["sources"]
    assert sources[1]["manifest_filepath"].endswith("/tarred.json?…")
    assert load_config(corpus / "exp/train.yaml").data  # it can be read, for decoding
    assert_no_secret(corpus, done.stdout, done.stderr)
    assert_no_secret(corpus.parent / "cache")

    again = train(corpus, "own.yaml", "--override_config", "max_epoch=2")
    assert again.returncode == 0, again.stderr
    assert_no_secret(corpus, again.stdout, again.stderr)


def test_the_data_of_a_train_yaml_without_its_secrets_is_refused(corpus, monkeypatch):
    save_config(load_config(corpus / "own.yaml"), corpus / "train.yaml")
    monkeypatch.chdir(corpus)
    conf = load_config("train.yaml").data
    assert conf.sources[1].manifest_filepath.endswith("/tarred.json?…")
    with pytest.raises(
        DriverError, match="was hidden when it was written to a report or train.yaml"
    ):
        open_corpus(conf, "raw")
    assert open_corpus(load_config("own.yaml").data, "raw").num_samples


@pytest.mark.parametrize("data", ["train.list", "mixture.yaml", "tars.list"])
def test_a_check_writes_and_prints_no_secret(data, corpus, monkeypatch, capfd):
    sources = yaml.safe_load((corpus / "own.yaml").read_text())["data"]
    (corpus / "mixture.yaml").write_text(yaml.safe_dump(sources))
    url = json.loads((corpus / "cv.list").read_text().splitlines()[0])["wav"].rpartition("/")[0]
    (corpus / "tars.list").write_text(
        "".join(f"{url}/audio_{number}.tar?{QUERIES[1]}\n" for number in range(3))
    )
    command = ["check_data.py", data, "--html", "out/check.html", "--json", "--nj", "1"]
    command += (
        ["--data_type", "shard"]
        if data == "tars.list"
        else ["--fix", "fixed.list"] * (data == "train.list")
    )
    (corpus / "out").mkdir()
    monkeypatch.chdir(corpus)
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(ROOT / "tools/check_data.py"), run_name="__main__")
    out, err = capfd.readouterr()
    assert end.value.code == 1, err
    assert "?…" in out
    assert json.loads(out.splitlines()[-1])["losses"] > 0
    assert "http://…@127.0.0.1" in (corpus / "out/check.html").read_text()
    (corpus / "mixture.yaml").unlink()
    assert_no_secret(corpus, out, err)
    assert_no_secret(corpus.parent / "cache")


def test_lists_of_what_was_left_out_show_no_secret(tmp_path, monkeypatch):
    from wenet_uio.addons.listen.alignment import write_alignments

    monkeypatch.setenv("WENET_UIO_DEADLINE", "0.5")
    lost = "http://user:pa55word@127.0.0.1:1/a.wav?sig=s1gnature"
    recognition = Recognition(skipped=[Skipped("a", "unreadable", f"{lost}: HTTP 404", False)])
    write_recognition(recognition, [], tmp_path / "recognition")
    write_alignments({}, {"a": f"unreadable: {lost}: HTTP 404"}, tmp_path / "alignment")
    lines = [
        RawLine("a", lost, "x", 2.0, 1.0, {"duration": -1.0}),
        RawLine("b", "b.wav", "x", extra={"duration": 1.0}),
    ]
    make_raw_list(lines, str(tmp_path / "data.list"), 10)
    assert "http://…@127.0.0.1:1/a.wav?…" in manifest_path(tmp_path / "data.list").read_text()
    assert_no_secret(tmp_path)
