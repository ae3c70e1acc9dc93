import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support import preloaded
from wenet_uio.config.batch import BatchConf

ROOT = Path(__file__).parents[2]
CMVN = ("--train_config", "train.yaml", "--in_scp", "wav.scp", "--out_cmvn", "cmvn")
REPORT_KEYS = {
    *("utterances", "hours", "batches", "steps", "padding", "fill"),
    *("filtered", "lost", "duplicated", "skew", "seconds", "digest"),
}


def tool(name, *arguments, cwd=None):
    return preloaded.run([ROOT / "tools" / name, *arguments], cwd=cwd)


@pytest.fixture
def kaldi_dir(make_utterances, tmp_path):
    lines = make_utterances(30)
    (tmp_path / "wav.scp").write_text("".join(f"{line.key} {line.wav}\n" for line in lines))
    (tmp_path / "text").write_text("".join(f"{line.key} {line.text}\n" for line in lines))
    (tmp_path / "train.yaml").write_text(
        "dataset_conf: {batch_conf: {batch_type: dynamic, max_frames_in_batch: 500}}\n"
    )
    return tmp_path


def test_the_plan_report_of_raw_and_shard_lists_is_the_same(kaldi_dir):
    assert tool("make_raw_list.py", "wav.scp", "text", "raw.list", cwd=kaldi_dir).returncode == 0
    assert (
        tool(
            "make_shard_list.py", "wav.scp", "text", "shards", "shard.list", cwd=kaldi_dir
        ).returncode
        == 0
    )
    reports = []
    for kind in ("raw", "shard"):
        done = tool(
            "plan_report.py", "--data_list", f"{kind}.list", "--data_type", kind, "--config", "train.yaml",
            "--world_size", "2", "--json", cwd=kaldi_dir,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        reports.append(json.loads(done.stdout.splitlines()[-1]))
    raw, shard = reports
    assert raw["digest"] == shard["digest"]
    assert (raw["utterances"], raw["lost"], raw["duplicated"]) == (30, 0, 0)
    assert raw["steps"] == -(-raw["batches"] // 2)
    assert set(raw) >= REPORT_KEYS


PLAN = ("--data_list", "raw.list", "--data_type", "raw", "--config", "train.yaml")


def test_the_plots_of_the_plan_are_on_the_page_with_the_figures(kaldi_dir):
    assert tool("make_raw_list.py", "wav.scp", "text", "raw.list", cwd=kaldi_dir).returncode == 0
    done = tool(
        "plan_report.py", *PLAN, "--world_size", "2", "--json", "--plot", "plan.html", cwd=kaldi_dir
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    page = (kaldi_dir / "plan.html").read_text()
    assert page.count("<svg ") == 4
    assert "src=" not in page
    for name in ("utterances", "padding", "skew", "digest"):
        assert f"<th>{name}<td>{report[name]}\n" in page
    assert "<th>sources<td>raw.list: 30\n" in page


def test_a_plot_of_an_unknown_kind_is_one_line_before_any_work(kaldi_dir):
    # There is no raw.list yet
    done = tool("plan_report.py", *PLAN, "--plot", "plan.png", cwd=kaldi_dir)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: plan.png: the page with the plots is written as .html"
    ]


def test_cmvn_statistics_are_wenets_json(kaldi_dir):
    done = tool("compute_cmvn_stats.py", *CMVN, cwd=kaldi_dir)
    assert done.returncode == 0, done.stderr
    stats = json.loads((kaldi_dir / "cmvn").read_text())
    assert set(stats) == {"mean_stat", "var_stat", "frame_num"}
    assert len(stats["mean_stat"]) == len(stats["var_stat"]) == 80

    wider = (*CMVN, "--override_config", "dataset_conf.fbank_conf.num_mel_bins=40", "max_epoch=3")
    assert tool("compute_cmvn_stats.py", *wider, cwd=kaldi_dir).returncode == 0
    assert len(json.loads((kaldi_dir / "cmvn").read_text())["mean_stat"]) == 40


@pytest.mark.parametrize(
    "arguments",
    [
        ("make_raw_list.py", "wav.scp", "text", "out"),
        ("make_shard_list.py", "wav.scp", "text", "s", "out"),
    ],
)
def test_a_failed_utterance_is_named_and_the_exit_is_not_zero(kaldi_dir, arguments):
    wav = (kaldi_dir / "wav.scp").read_text().split()[1]
    os.remove(wav)
    done = tool(*arguments, cwd=kaldi_dir)
    assert done.returncode == 1
    assert "error: utt0000: " in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("make_raw_list.py", "wav.scp", "text", "out"),
        ("make_shard_list.py", "wav.scp", "text", "s", "out"),
    ],
)
def test_a_text_without_its_wav_is_one_line_and_nothing_is_written(kaldi_dir, arguments):
    with open(kaldi_dir / "text", "a") as file:
        file.write("orphan abc\n")
    before = sorted(kaldi_dir.iterdir())
    done = tool(*arguments, cwd=kaldi_dir)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: text: orphan without audio in wav.scp; take them out of the text or add the audio"
    ]
    assert sorted(kaldi_dir.iterdir()) == before


def test_a_misspelt_key_is_one_line_and_nothing_is_written(kaldi_dir):
    (kaldi_dir / "train.yaml").write_text("dataset_conf: {fbank_cnf: {}}\n")
    done = tool("compute_cmvn_stats.py", *CMVN, cwd=kaldi_dir)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: train.yaml: dataset_conf.fbank_cnf: unknown key; did you mean 'fbank_conf'?"
    ]
    assert not (kaldi_dir / "cmvn").exists()


@pytest.mark.parametrize("path", sorted((ROOT / "tools").glob("*.py")), ids=lambda path: path.name)
def test_help_and_unknown_options(path, monkeypatch, capsys):
    for option, status in (("--help", 0), ("--no_such_option", 2)):
        monkeypatch.setattr(sys, "argv", [str(path), option])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(path), run_name="__main__")
        assert end.value.code == status
    assert capsys.readouterr().out.startswith("usage:")


def test_estimated_bins_can_be_pasted_into_a_config(kaldi_dir):
    (kaldi_dir / "units.txt").write_text("<blank> 0\n<unk> 1\na 2\nb 3\nc 4\n")
    (kaldi_dir / "train.yaml").write_text("tokenizer_conf: {symbol_table_path: units.txt}\n")
    tool("make_raw_list.py", "wav.scp", "text", "raw.list", cwd=kaldi_dir)
    options = ["raw.list", "--data_type", "raw", "--config", "train.yaml", "--num_bins", "3"]
    for more, dimensions in (([], 1), (["--num_token_bins", "2"], 2)):
        done = tool("estimate_duration_bins.py", *options, *more, cwd=kaldi_dir)
        assert done.returncode == 0, done.stderr
        conf = yaml.safe_load(done.stdout)["batch_conf"]
        assert {
            len(end) if isinstance(end, list) else 1 for end in conf["bucket_duration_bins"]
        } == {dimensions}
        BatchConf(**conf, bucket_batch_size=[4] * len(conf["bucket_duration_bins"]))


def test_samples_of_a_shard_are_listed_and_extracted(kaldi_dir):
    assert (
        tool("make_shard_list.py", "wav.scp", "text", "shards", "list", cwd=kaldi_dir).returncode
        == 0
    )
    shard = "shards/shards_000000000.tar"
    done = tool("extract_shard.py", shard, cwd=kaldi_dir)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [
        f"utt{number:04d}" for number in range(30)
    ]
    done = tool(
        "extract_shard.py", shard, "--keys", "utt0003", "--json", "--to", "out", cwd=kaldi_dir
    )
    assert json.loads(done.stdout)["txt"] == "a"
    assert sorted(path.name for path in (kaldi_dir / "out").iterdir()) == [
        "utt0003.txt",
        "utt0003.wav",
    ]
    done = tool("extract_shard.py", shard, "--keys", "none*", cwd=kaldi_dir)
    assert (done.returncode, done.stderr) == (1, f"error: no sample with such a key in {shard}\n")


def test_a_closed_pipe_is_not_an_error(kaldi_dir):
    tool("make_shard_list.py", "wav.scp", "text", "shards", "list", cwd=kaldi_dir)
    command = [
        preloaded.python(),
        ROOT / "tools" / "extract_shard.py",
        *["shards/shards_000000000.tar"] * 200,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    listing = subprocess.Popen(command, cwd=kaldi_dir, env=environment, text=True, **pipes)
    assert listing.stdout.readline().startswith("utt0000")
    listing.stdout.close()
    assert listing.stderr.read() == ""
    assert listing.wait(timeout=60) == 141


def test_manifests_are_converted_there_and_back(kaldi_dir):
    done = tool(
        "convert_manifest.py",
        ".",
        "manifest.json",
        "--from",
        "kaldi",
        "--to",
        "nemo",
        cwd=kaldi_dir,
    )
    assert done.returncode == 0, done.stderr
    understood, *shown, made = done.stdout.splitlines()
    assert understood == ".: a Kaldi directory (--form kaldi); 30 utterances in 30 audio files"
    assert len(shown) == 3
    assert made == "manifest.json: 30 utterances"
    done = tool(
        "convert_manifest.py",
        "manifest.json",
        "back",
        "--from",
        "nemo",
        "--to",
        "kaldi",
        cwd=kaldi_dir,
    )
    assert done.returncode == 0, done.stderr
    for table in ("wav.scp", "text"):
        assert (kaldi_dir / "back" / table).read_text() == (kaldi_dir / table).read_text()


def test_profile_data_says_where_the_time_goes(make_lists, tmp_path):
    units = ["<blank>", "<unk>", "a", "b", "c", "<sos/eos>"]
    (tmp_path / "units.txt").write_text(
        "".join(f"{unit} {number}\n" for number, unit in enumerate(units))
    )
    config = {
        "tokenizer": "char",
        "tokenizer_conf": {"symbol_table_path": str(tmp_path / "units.txt")},
        "dataset_conf": {
            "fbank_conf": {"dither": 1.0},
            "batch_conf": {"batch_type": "static", "batch_size": 4},
        },
    }
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(config))
    options = (make_lists(40)["shard"], "--data_type", "shard", "--config", tmp_path / "train.yaml")
    done = tool("profile_data.py", *options, "--batches", 5, "--speed", 1e9, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["batches"] == 5
    assert report["workers"] > 1000
    assert {"read", "decode", "Dither", "ComputeFbank", "SpecAug"} <= report["ms_per_batch"].keys()
    assert "audio seconds per second" in done.stderr
    done = tool("profile_data.py", *options, "--batches", 0)
    assert done.returncode == 2
    assert done.stderr.endswith("error: argument --batches: expected 1 or more, found 0\n")
