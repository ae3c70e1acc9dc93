"""Every layout of a corpus of one's own becomes a recipe that trains an epoch, through the steps of
its run.sh.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
import soundfile
import torch

from examples.custom.s0.local import prepare_data
from tests.support.data.corpus_layouts import LAYOUTS, Said, recordings
from wenet_uio.bin import compute_cmvn_stats, make_dict, make_raw_list, new_recipe, train

PARTS = ("train", "dev", "test")
TINY = [
    *(
        "max_epoch=1",
        "encoder_conf.num_blocks=1",
        "encoder_conf.input_layer=conv1d2",  # spelled digits have too few frames for a quarter
        "encoder_conf.output_size=16",
        "encoder_conf.linear_units=16",
    ),
    *(
        "decoder_conf.num_blocks=1",
        "decoder_conf.linear_units=16",
        "dataset_conf.fbank_conf.num_mel_bins=20",
    ),
    *("dataset_conf.speed_perturb=false", "observe_interval=0", "report=false"),
]


def common_voice(folder: Path, said: Sequence[Said]) -> Path:
    """The audio in `clips`, and a table with the columns of Common Voice."""
    (folder / "clips").mkdir(parents=True)
    rows = ["client_id\tpath\tsentence_id\tsentence\tup_votes\tdown_votes\tage\tlocale"]
    for each in said:
        name = f"common_voice_en_{each.wav.stem}.mp3"
        soundfile.write(folder / "clips" / name, each.samples, 8000)
        rows.append(f"{each.wav.stem.split('_')[1]}\t{name}\t1\t{each.text}\t2\t0\t\ten")
    (folder / "validated.tsv").write_text("".join(f"{row}\n" for row in rows))
    return folder / "validated.tsv"


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, marks=pytest.mark.all if number % 3 else ())
        for number, form in enumerate([*sorted(LAYOUTS), "tsv"])
    ],
)
def test_every_layout_becomes_a_recipe_that_trains_an_epoch(
    form: str,
    corpora: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    def call(tool: ModuleType, *arguments: object) -> None:
        monkeypatch.setattr(sys, "argv", [tool.__name__, *map(str, arguments)])
        assert not tool.main()

    corpus = {**LAYOUTS, "tsv": common_voice}[form](
        tmp_path / "my corpus", recordings(corpora, takes=1)
    )
    audio = ("--audio", corpus.parent / "clips") if form == "tsv" else ()
    call(new_recipe, "own", "--from", corpus, *audio, "--examples", tmp_path / "examples")
    assert f"(--form {form}); 20 utterances" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path / "examples" / "own" / "s0")
    call(prepare_data, corpus, "data", *audio)
    conf, tiny = "conf/train_conformer.yaml", ("--override_config", *TINY)
    cmvn = ("--in_scp", "data/train/wav.scp", "--out_cmvn", "data/train/global_cmvn")
    call(compute_cmvn_stats, "--train_config", conf, *cmvn, *tiny)
    call(make_dict, "data/train/text", "data/dict/units.txt")
    for part in PARTS:
        cuts = (
            ("--segments", f"data/{part}/segments")
            if Path("data", part, "segments").exists()
            else ()
        )
        call(
            make_raw_list,
            *cuts,
            f"data/{part}/wav.scp",
            f"data/{part}/text",
            f"data/{part}/data.list",
        )
    lists = ("--train_data", "data/train/data.list", "--cv_data", "data/dev/data.list")
    call(train, "--config", conf, *lists, "--model_dir", "exp", "--device", "cpu", *tiny)
    weights = torch.load("exp/epoch_0.pt", weights_only=True)
    assert all(torch.isfinite(value).all() for value in weights.values())
    assert sum(len(Path("data", part, "text").read_text().splitlines()) for part in PARTS) == 20
