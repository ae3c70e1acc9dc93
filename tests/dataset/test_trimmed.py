"""Utterances of which the features keep a part are said."""

import json

import numpy as np
import pytest
import soundfile

from tests.support.data.loading import loader
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.dataset import note_of_trimmed


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("bound", [None, 1.0, 1.5])
@pytest.mark.parametrize("longest", [0.9, 1.0, 1.1])
@pytest.mark.parametrize("trims", [True, False, "in evaluation"])
def test_utterances_that_lose_their_end_are_said_and_no_others(
    tmp_path, training, bound, longest, trims
):
    data_list = tmp_path / "data.list"
    with open(data_list, "w") as file:
        for number, seconds in enumerate((0.5, longest)):
            soundfile.write(tmp_path / f"{number}.wav", np.zeros(int(16000 * seconds)), 16000)
            line = {"key": str(number), "wav": f"{number}.wav", "txt": "a"}
            file.write(json.dumps(line) + "\n")

    conf = {
        "feats_type": "log_mel_spectrogram",
        "log_mel_spectrogram_conf": {
            "pad_or_trim": bool(trims),
            "pad_in_training": trims is True,
            "max_duration": 1,
        },
        "filter_conf": {"max_duration": bound},
    }
    corpus = loader(data_list, "raw", training, conf).corpus
    note = note_of_trimmed(corpus, DatasetConf.model_validate(conf), training=training)
    trims_here = trims is True or (trims == "in evaluation" and not training)
    expected = trims_here and longest > 1 and not (training and bound == 1.0)
    assert (note is not None) == expected
    if note:
        assert note.startswith(f"{data_list}: utterances of up to 1.1 s, of which the model hears ")
