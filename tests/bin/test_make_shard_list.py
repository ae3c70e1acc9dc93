import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.support import preloaded
from wenet_uio.dataset.corpus.open_list import open_list

ROOT = Path(__file__).parents[2]
TOOL = [str(ROOT / "tools" / "make_shard_list.py"), "wav.scp", "text", "s", "list"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def call(folder, *options):
    return preloaded.run([*TOOL, *options], cwd=folder, env=ENVIRONMENT, timeout=120)


@pytest.fixture(scope="module")
def fsdd(corpora, tmp_path_factory):
    """A copy of 900 recordings of FSDD with `wav.scp` and `text`."""
    folder = tmp_path_factory.mktemp("fsdd")
    (folder / "wav").mkdir()
    wavs = [
        folder / "wav" / path.name
        for path in sorted((corpora / "fsdd" / "recordings").glob("*.wav"))[:900]
    ]
    for wav in wavs:
        shutil.copy(corpora / "fsdd" / "recordings" / wav.name, wav)
    (folder / "wav.scp").write_text("".join(f"{wav.stem} {wav}\n" for wav in wavs))
    (folder / "text").write_text("".join(f"{wav.stem} {wav.stem[0]}\n" for wav in wavs))
    return folder


def contents(folder):
    found = [
        folder / "list",
        folder / "list.json",
        *(path for path in (folder / "s").rglob("*") if path.is_file()),
    ]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


OPTIONS = ("--num_utts_per_shard", "30", "--nj", "2", "--audio_format", "flac", "--shuffle")


def test_a_repeated_run_after_kills_ends_with_the_bytes_of_an_undisturbed_run(fsdd):
    undisturbed = call(fsdd, *OPTIONS)
    assert undisturbed.returncode == 0, undisturbed.stderr
    expected = contents(fsdd)
    assert sum(name.endswith(".tar") for name in expected) == 30
    shutil.rmtree(fsdd / "s")
    for receipts in (1, 10, 18):  # killed three times, ever later
        packing = subprocess.Popen(
            [preloaded.python(), *TOOL, *OPTIONS], cwd=fsdd, env=ENVIRONMENT, stderr=subprocess.PIPE
        )
        while len(list((fsdd / "s").glob(".packed/*.json"))) < receipts:
            assert packing.poll() is None
            time.sleep(0.005)
        packing.kill()
        packing.communicate(timeout=60)
    last = call(fsdd, *OPTIONS)
    assert last.returncode == 0, last.stderr
    assert "of 30 shards were there already" in last.stderr
    assert contents(fsdd) == expected


def test_five_broken_files_of_900_are_named_and_the_others_packed(fsdd, tmp_path):
    work = tmp_path / "work"
    shutil.copytree(fsdd, work, ignore=shutil.ignore_patterns("s", "list*"))
    scp = (work / "wav.scp").read_text().replace(str(fsdd), str(work))
    (work / "wav.scp").write_text(scp)
    wavs = sorted((work / "wav").glob("*.wav"))
    damage = {
        7: lambda data: b"",
        240: lambda data: data[: len(data) // 2],
        450: lambda data: b"no audio at all\n" * 50,
        660: lambda data: data[:44],
    }
    for number, change in damage.items():
        wavs[number].write_bytes(change(wavs[number].read_bytes()))
    wavs[899].unlink()
    broken = [wavs[number].stem for number in (*damage, 899)]

    done = call(work, "--nj", "2")
    assert done.returncode == 1
    assert [line.split(": ")[1] for line in done.stderr.splitlines() if line.startswith("error: ")][
        :5
    ] == broken
    assert "list: 895 utterances, " in done.stderr
    assert "5 bad" in done.stderr
    assert [key for key, _ in json.loads((work / "list.json").read_text())["bad"]] == broken
    assert open_list_in(work).num_samples == 895
    assert call(work, "--nj", "2", "--allow_bad").returncode == 0


def open_list_in(folder):
    before = os.getcwd()
    os.chdir(folder)
    try:
        return open_list("list", "shard")
    finally:
        os.chdir(before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--max_bytes_per_shard", "much"),
            "a size is a number of bytes such as 500MB, 1GB or 1GiB, not 'much'",
        ),
        (("--filter_group", "5"), "a group is SHORTEST:LONGEST in seconds, such as 0.1:5, not '5'"),
        (
            ("--filter_group", "0:5", "4:9"),
            "groups 0_5 and 4_9 overlap; end one where the next begins",
        ),
        (("--nj", "0"), "the number of workers must be 1 or more, found 0"),
    ],
)
def test_options_that_make_no_sense_are_one_line(tmp_path, options, message):
    (tmp_path / "wav.scp").write_text("a /a.wav\n")
    (tmp_path / "text").write_text("a one\n")
    done = call(tmp_path, *options)
    assert (done.returncode, done.stderr) == (1, f"error: {message}\n")
    assert sorted(os.listdir(tmp_path)) == ["text", "wav.scp"]
