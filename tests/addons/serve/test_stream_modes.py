"""The final texts of a stream come from the search of the model's own family."""

from __future__ import annotations

import pytest

import wenet_uio
from tests.addons.listen.conftest import TRANSDUCER, write_model
from wenet_uio.addons.serve.app import Server
from wenet_uio.addons.serve.messages import Start
from wenet_uio.addons.serve.options import ServeOptions


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
    server = Server(wenet_uio.load_model(folder, device="cpu"), "model", ServeOptions())
    stream, _ = server._open_stream(server._model, start)
    assert list(stream._search.modes) == [mode]
