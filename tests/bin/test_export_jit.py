"""export_jit.py from checkpoint to checked files."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from subprocess import CompletedProcess

import numpy
import pytest
import soundfile
import torch
import yaml

from tests.support import preloaded
from wenet_uio.bin import export_jit
from wenet_uio.config import load_config
from wenet_uio.export.torchscript import from_torchscript
from wenet_uio.models import build_model


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A folder with train.yaml, random final.pt, and a list of three utterances."""
    (tmp_path / "units.txt").write_text("<blank> 0\n<unk> 1\n<sos/eos> 2\na 3\nb 4\n")
    config = {
        "encoder": "conformer",
        "encoder_conf": {
            "output_size": 16,
            "attention_heads": 2,
            "linear_units": 32,
            "num_blocks": 1,
        },
        "decoder": "bitransformer",
        "decoder_conf": {
            "attention_heads": 2,
            "linear_units": 32,
            "num_blocks": 1,
            "r_num_blocks": 1,
        },
        "model_conf": {"reverse_weight": 0.3},
        "tokenizer": "char",
        "tokenizer_conf": {"symbol_table_path": str(tmp_path / "units.txt")},
        "dataset_conf": {"fbank_conf": {"num_mel_bins": 40}},
    }
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(config))
    torch.manual_seed(0)
    torch.save(
        build_model(load_config(tmp_path / "train.yaml")).state_dict(), tmp_path / "final.pt"
    )
    noise = numpy.random.default_rng(0)
    with (tmp_path / "data.list").open("w") as file:
        for i in range(3):
            wav = tmp_path / f"{i}.wav"
            soundfile.write(wav, 0.1 * noise.standard_normal(16000 + 3000 * i), 16000)
            file.write(json.dumps({"key": f"utt{i}", "wav": str(wav), "txt": "ab"}) + "\n")
    return tmp_path


def export(folder: Path, *more: object) -> CompletedProcess:
    command = ["-m", "wenet_uio.bin.export_jit", "--config", folder / "train.yaml"]
    command += ["--checkpoint", folder / "final.pt", "--output_file", folder / "final.zip"]
    command += ["--check_data", folder / "data.list", "--num_check", 2, *more]
    return preloaded.run(command)


def test_both_files_are_written_and_checked(trained):
    done = export(trained, "--output_quant_file", trained / "final_quant.zip")
    assert done.returncode == 0, done.stderr
    assert (
        "final.zip: 2 of 2 utterances and 3 of 3 short beginnings as the checkpoint decodes them"
        in done.stdout
    )
    assert (
        "of 3 short beginnings as the checkpoint decodes them"
        in done.stdout.split("final_quant.zip", 1)[1]
    )
    for name in ("final.zip", "final_quant.zip"):
        assert from_torchscript((trained / name).read_bytes()).subsampling_rate() == 4


def exported_as_wenet_does(folder: Path) -> None:
    """Call export_jit.py with the options of stage 6 of WeNet's recipes."""
    files = {"config": "train.yaml", "checkpoint": "final.pt", "output_file": "final.zip"}
    files |= {"output_quant_file": "final_quant.zip"}
    words = [word for name, file in files.items() for word in (f"--{name}", str(folder / file))]
    export_jit.main(words)


@pytest.mark.all
def test_without_check_data_a_validation_set_that_the_yaml_names_is_taken(trained, capsys):
    """As `validation_ds` of NeMo names it."""
    with open(trained / "train.yaml", "a") as file:
        file.write(f"cv_data: [{{type: raw, data_list: {trained / 'data.list'}}}]\n")
    start = {"cv_data": {"list": "data of the config", "utterances": 3, "hours": 0.1}}
    (trained / "environment.yaml").write_text(yaml.safe_dump([start]))

    exported_as_wenet_does(trained)
    told = capsys.readouterr()
    assert "checked with data of the config, the validation set of the run" in told.err
    assert "final.zip: 3 of 3 utterances" in told.out


@pytest.mark.parametrize("data_type", ["raw", "shard"])
def test_without_check_data_the_validation_set_of_the_run_is_taken(data_type, trained, capsys):
    data_list = trained / "data.list"
    if data_type == "shard":
        with tarfile.open(trained / "0.tar", "w") as tar:
            for name in ("0.wav", "1.wav", "2.wav"):
                tar.add(trained / name, name)
                tar.addfile(tarfile.TarInfo(name.replace("wav", "txt")))
        data_list = trained / "shards.list"
        data_list.write_text(f"{trained}/0.tar\n")
    start = {"cv_data": {"list": str(data_list), "utterances": 3, "hours": 0.1}}
    (trained / "environment.yaml").write_text(yaml.safe_dump([{}, start]))

    exported_as_wenet_does(trained)
    told = capsys.readouterr()
    assert f"the export is checked with {data_list}, the validation set of the run" in told.err
    assert "final.zip: 3 of 3 utterances and 3 of 3 short beginnings as the che" in told.out
    assert (trained / "final_quant.zip").exists()


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        pytest.param(None, "does not name the validation set of a run)", marks=pytest.mark.all),
        pytest.param("the list", "gone.list", marks=pytest.mark.all),
        ("the audio", "0.wav: No such file or directory"),
    ],
)
def test_without_check_data_and_without_the_validation_set_noise_is_taken(
    lost, reason, trained, capsys
):
    if lost is not None:
        named = trained / ("data.list" if lost == "the audio" else "gone.list")
        start = {"cv_data": {"list": str(named), "utterances": 3, "hours": 0.1}}
        (trained / "environment.yaml").write_text(yaml.safe_dump([start]))
    for path in trained.glob("*.wav"):
        path.unlink()

    exported_as_wenet_does(trained)
    told = capsys.readouterr()
    assert "the export is checked with noise, not with speech: give --check_data LIST (" in told.err
    assert reason in told.err
    assert "final.zip: 20 of 20 utterances and 3 of 3 short beginnings as the che" in told.out
    assert (trained / "final_quant.zip").exists()


class Forgetful:
    """A runtime that multiplies its caches by 0."""

    def __init__(self, runtime):
        self.runtime = runtime

    def __getattr__(self, name):
        return getattr(self.runtime, name)

    def forward_encoder_chunk(self, *inputs):
        output, att_cache, cnn_cache = self.runtime.forward_encoder_chunk(*inputs)
        return output, att_cache * 0, cnn_cache * 0


def test_a_model_that_can_stream_is_checked_in_chunks_too(trained, monkeypatch, capsys):
    config = yaml.safe_load((trained / "train.yaml").read_text())
    config["encoder_conf"] |= {
        "causal": True,
        "cnn_module_kernel": 8,
        "cnn_module_norm": "layer_norm",
    }
    config["encoder_conf"] |= {"use_dynamic_chunk": True}
    (trained / "train.yaml").write_text(yaml.safe_dump(config))
    torch.manual_seed(0)
    torch.save(build_model(load_config(trained / "train.yaml")).state_dict(), trained / "final.pt")
    given = [
        ("config", "train.yaml"),
        ("checkpoint", "final.pt"),
        ("check_data", "data.list"),
        ("output_file", "a.zip"),
    ]
    words = [text for name, file in given for text in (f"--{name}", str(trained / file))]
    export_jit.main(words)
    offline, chunks, size = capsys.readouterr().out.splitlines()
    same = "3 of 3 utterances and 3 of 3 short beginnings as the checkpoint decodes them"
    assert offline.startswith(f"{trained}/a.zip: {same}")
    assert chunks.startswith(f"{trained}/a.zip, in chunks of 16: {same}")
    assert size.endswith(" MB")
    (trained / "a.zip").unlink()
    monkeypatch.setattr(
        export_jit, "from_torchscript", lambda content: Forgetful(from_torchscript(content))
    )
    with pytest.raises(ValueError, match="a.zip, in chunks of 16: not written"):
        export_jit.main(words)
    assert not (trained / "a.zip").exists()


def test_a_missing_checkpoint_is_one_line_and_nothing_is_written(trained):
    (trained / "final.pt").unlink()
    done = export(trained)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert not list(trained.glob("*final.zip*"))


def test_weights_of_another_model_are_one_line(trained):
    torch.save({"w": torch.zeros(1)}, trained / "final.pt")
    done = export(trained)
    assert done.returncode == 1
    assert "not the weights of this model" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_model_beyond_the_tolerance_is_not_written(trained):
    done = export(trained, "--tolerance", -1)
    assert done.returncode == 1
    assert "final.zip: not written: log-probabilities differ by more than -1" in done.stderr
    assert not list(trained.glob("*final.zip*"))
