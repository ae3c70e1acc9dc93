import pytest
import torch

from wenet_uio.config import parse_config
from wenet_uio.dataset.types import Batch, Skipped
from wenet_uio.families.hybrid import HYBRID
from wenet_uio.search import DecodeOptions
from wenet_uio.search.decode import Search
from wenet_uio.search.recogniser import Recogniser
from wenet_uio.search.recognition import recognize, write_recognition
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer

CPU = torch.device("cpu")


class FakeModel(torch.nn.Module):
    """A model whose posteriors are its features; counts the passes of its encoder."""

    vocab_size = 27
    blank = 0
    ctc_weight = 1.0
    family = HYBRID
    passes = 0

    def encode(self, feats, feats_lengths, *chunks):
        self.passes += 1
        return feats, feats_lengths

    def ctc_log_probs(self, encoder_out, blank_penalty):
        return encoder_out.log_softmax(-1)


def recogniser(model, tokenizer):
    return Recogniser(parse_config({}, "train.yaml"), tokenizer, model)


def batch(texts, skipped=()):
    labels = [[ord(char) - ord("a") + 1 for char in text] for text in texts.values()]
    lengths = torch.tensor([len(row) for row in labels])
    feats = torch.zeros(len(labels), max(map(len, labels), default=0), 27)
    for row, label in enumerate(labels):
        feats[row, range(len(label)), label] = 20.0
    return Batch(
        tuple(texts), feats, lengths, torch.zeros(len(labels), 0), lengths, 1.0, skipped=skipped
    )


@pytest.fixture
def tokenizer():
    return Tokenizer(
        CharSplitter(), {"<blank>": 0} | {chr(ord("a") + place): place + 1 for place in range(26)}
    )


def test_the_encoder_runs_once_a_batch_whatever_the_number_of_modes(tokenizer):
    model = FakeModel()
    batches = [
        batch({"u3": "abc", "u1": "de"}),
        batch({}),
        batch({"u2": "f"}, (Skipped("u4", "unreadable", "cut"),)),
    ]
    modes = ["ctc_prefix_beam_search", "ctc_greedy_search"]
    found = recognize(
        recogniser(model, tokenizer), batches, Search(modes, DecodeOptions()), device=CPU
    )
    assert model.passes == 2
    assert found.texts == {mode: {"u3": "abc", "u1": "de", "u2": "f"} for mode in modes}
    assert [sample.key for sample in found.skipped] == ["u4"]
    assert found.seconds == 3.0


def test_results_are_written_in_the_order_of_the_list(tmp_path, tokenizer):
    batches = [
        batch({"u3": "abc", "u1": "de"}),
        batch({}, (Skipped("u2", "unreadable", "cut short"),)),
    ]
    search = Search(["ctc_greedy_search"], DecodeOptions())
    found = recognize(recogniser(FakeModel(), tokenizer), batches, search, device=CPU)
    found.texts["ctc_greedy_search"]["u4"] = ""
    write_recognition(found, ["u1", "u2", "u3", "u4"], tmp_path)
    assert (tmp_path / "ctc_greedy_search" / "text").read_text() == "u1 de\nu3 abc\nu4\n"
    assert (tmp_path / "skipped").read_text() == "u2 unreadable: cut short\n"
