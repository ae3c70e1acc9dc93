"""The final texts of a stream come from the search of the model's own family."""

from __future__ import annotations

import pytest

import wenet_uio
from tests.addons.listen.conftest import TRANSDUCER, write_model
from wenet_uio.addons.serve.messages import Start
from wenet_uio.addons.serve.metrics import Metrics
from wenet_uio.addons.serve.options import ServeOptions
from wenet_uio.addons.serve.served_models import ServedModel


@pytest.mark.parametrize(
    ("sections", "start", "mode"),
    [
        ({}, Start(), "attention_rescoring"),
        (TRANSDUCER, Start(), "rnnt_greedy_search"),
        (TRANSDUCER, Start(hot_words=("ab",)), "rnnt_beam_search"),
    ],
    ids=["attention", "transducer", "transducer with hot words"],
)
def test_a_stream_is_searched_as_the_recordings_of_its_family(tmp_path, sections, start, mode):
    folder = write_model(tmp_path / "model", sections)
    recogniser = wenet_uio.load_model(folder, device="cpu")
    model = ServedModel(recogniser, ServeOptions(), Metrics())
    stream, _ = model.open_stream(start)
    assert list(stream._search.modes) == [mode]
