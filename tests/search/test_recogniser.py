import os

import pytest
import torch
import yaml

from wenet_uio.config import load_config, parse_config
from wenet_uio.models import build_model
from wenet_uio.search.recogniser import load_recogniser, use_static_batches

CONFIG = {
    "encoder_conf": {"output_size": 8, "attention_heads": 2, "linear_units": 8, "num_blocks": 1},
    "decoder": "transformer",
    "decoder_conf": {"attention_heads": 2, "linear_units": 8, "num_blocks": 1},
    "tokenizer_conf": {"symbol_table_path": "dict/units.txt"},
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A folder exp/run with train.yaml and final.pt; its yaml names dict/units.txt by the path at
    training time.
    """
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "exp/run"
    folder.mkdir(parents=True)
    (tmp_path / "dict").mkdir()
    (tmp_path / "dict/units.txt").write_text("<blank> 0\n<unk> 1\na 2\n<sos/eos> 3\n")
    (folder / "train.yaml").write_text(yaml.safe_dump(CONFIG))
    torch.save(build_model(load_config(folder / "train.yaml")).state_dict(), folder / "final.pt")
    return folder


def test_files_of_the_yaml_are_found_from_another_folder(run, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    recogniser = load_recogniser("../exp/run")
    assert recogniser.tokenizer.symbol(2) == "a"
    assert recogniser.clock.step == pytest.approx(0.04)
    os.rename(tmp_path / "dict/units.txt", run / "units.txt")
    assert load_recogniser("../exp/run", "../exp/run/final.pt").tokenizer.symbol(2) == "a"


def test_a_folder_without_weights_is_an_error(run):
    (run / "final.pt").unlink()
    with pytest.raises(FileNotFoundError, match=r"exp/run: neither avg\.pt nor final\.pt in it"):
        load_recogniser(run)


def test_batches_for_decoding_are_static():
    config = use_static_batches(parse_config(CONFIG, "train.yaml"), 3)
    assert (
        config.dataset_conf.batch_conf.batch_type,
        config.dataset_conf.batch_conf.batch_size,
    ) == ("static", 3)
    with pytest.raises(ValueError, match="--batch_size: expected 1 or more, found 0"):
        use_static_batches(config, 0)
