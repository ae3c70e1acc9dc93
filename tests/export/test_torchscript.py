"""final.zip has the methods that the runtime calls, and gives the numbers of the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
import torch

from tests.export.conftest import make_case
from wenet_uio.export.check import compare, recognise_all
from wenet_uio.export.exported import ExportedModel
from wenet_uio.export.torchscript import from_torchscript, to_torchscript
from wenet_uio.search import DecodeOptions, ctc_prefix_beam_search, decode

CASES = ("transformer", "conformer", "u2pp")
EOS = 11
OPTIONS = DecodeOptions()


@cache
def content(case):
    """final.zip of one of CASES, which is exported once for all tests of this process."""
    return to_torchscript(make_case(case))


@pytest.fixture
def plainly() -> Iterator[None]:
    """The optimiser of torch takes a second for each model; only the calls of the runtime run with
    it.
    """
    with torch.jit.optimized_execution(False):
        yield


def as_cpp_decodes(
    runtime, feats, chunk_size, left_chunks, beam_size=10, ctc_weight=0.3, reverse_weight=0.0
):
    """Decode features (T, F) as WeNet's C++ runtime does with final.zip (torch_asr_model.cc,
    asr_decoder.cc) -> n-best.

    The runtime reads the frames of one chunk, keeps the last frames for the next chunk, and runs
    the model if it has more than one window. The prefix beam search is ours; the n-best list is
    rescored row by row, as the runtime does.
    """
    rate, context = runtime.subsampling_rate(), runtime.right_context() + 1
    cached, unread, started = feats[:0], feats, False
    att_cache = cnn_cache = torch.zeros(0, 0, 0, 0)
    offset, encoder_outs, log_probs = 0, [], []
    while len(unread):
        wanted = chunk_size * rate if started else (chunk_size - 1) * rate + context
        frames, unread = (
            (unread[:wanted], unread[wanted:]) if chunk_size > 0 else (unread, unread[:0])
        )
        if len(cached) + len(frames) > context:
            chunk = torch.cat((cached, frames)).unsqueeze(0)
            out, att_cache, cnn_cache = runtime.forward_encoder_chunk(
                chunk, offset, chunk_size * left_chunks, att_cache, cnn_cache
            )
            offset += out.size(1)
            encoder_outs.append(out)
            log_probs.append(runtime.ctc_activation(out))
            cached = frames[-(context - rate) :]
        started = True
    nbest = ctc_prefix_beam_search(torch.cat(log_probs, 1), torch.tensor([offset]), beam_size)[0]
    longest = max(len(hypothesis.tokens) for hypothesis in nbest) + 1
    hyps = torch.zeros(len(nbest), longest, dtype=torch.int64)
    for row, hypothesis in enumerate(nbest):
        hyps[row, : len(hypothesis.tokens) + 1] = torch.tensor(
            [runtime.sos_symbol(), *hypothesis.tokens]
        )
    lengths = torch.tensor([len(hypothesis.tokens) + 1 for hypothesis in nbest])
    probs, r_probs = runtime.forward_attention_decoder(
        hyps, lengths, torch.cat(encoder_outs, 1), reverse_weight
    )

    def score(rows, tokens):
        return float(
            sum(rows[place, token] for place, token in enumerate((*tokens, runtime.eos_symbol())))
        )

    rescored = []
    for row, hypothesis in enumerate(nbest):
        total = score(probs[row], hypothesis.tokens)
        if runtime.is_bidirectional_decoder() and reverse_weight > 0:
            backward = score(r_probs[row], hypothesis.tokens[::-1])
            total = (1 - reverse_weight) * total + reverse_weight * backward
        rescored.append((total + ctc_weight * hypothesis.score, hypothesis.tokens))
    return sorted(rescored, reverse=True)


@pytest.mark.parametrize("case", CASES)
def test_the_exported_model_returns_the_properties_that_the_runtime_reads(case):
    runtime = from_torchscript(content(case))
    assert (runtime.subsampling_rate(), runtime.right_context()) == (4, 6)
    assert (runtime.sos_symbol(), runtime.eos_symbol()) == (EOS, EOS)
    assert runtime.is_bidirectional_decoder() == (case == "u2pp")


@pytest.mark.third
@torch.no_grad()
@pytest.mark.parametrize(
    ("case", "chunk_size", "left_chunks"),
    [
        ("transformer", -1, -1),
        ("conformer", -1, -1),
        ("u2pp", -1, -1),
        ("u2pp", 4, -1),
        ("u2pp", 4, 2),
        ("u2pp", 2, 4),
    ],
)
def test_the_calls_of_the_cpp_runtime_give_the_attention_rescoring_of_the_checkpoint(
    make_model, examples, case, chunk_size, left_chunks
):
    model = make_model(case)
    runtime = from_torchscript(content(case))
    options = DecodeOptions(decoding_chunk_size=chunk_size, num_decoding_left_chunks=left_chunks)
    for _, feats in examples[:3]:
        expected = decode(
            model, feats, torch.tensor([feats.size(1)]), ["attention_rescoring"], options
        )
        found = as_cpp_decodes(
            runtime, feats[0], chunk_size, left_chunks, reverse_weight=model.reverse_weight
        )
        assert [tokens for _, tokens in found] == [
            nbest.tokens for nbest in expected["attention_rescoring"][0]
        ]
        scores = torch.tensor([score for score, _ in found])
        expected_scores = torch.tensor(
            [nbest.score for nbest in expected["attention_rescoring"][0]]
        )
        torch.testing.assert_close(scores, expected_scores, atol=1e-3, rtol=1e-4)


@pytest.mark.usefixtures("plainly")
@pytest.mark.parametrize("case", CASES)
def test_exported_model_decodes_as_the_checkpoint(make_model, examples, case):
    model = make_model(case)
    runtime = from_torchscript(content(case))
    agreement = compare(
        ExportedModel(runtime, model), recognise_all(model, examples, 4, OPTIONS), OPTIONS
    )
    assert (agreement.utterances, agreement.beginnings) == (4, 3)
    assert agreement.differences == ()
    assert agreement.largest < 1e-4


@pytest.mark.third
@pytest.mark.usefixtures("plainly")
@pytest.mark.parametrize("case", CASES)
def test_int8_model_stays_near_the_checkpoint_and_does_not_change_it(make_model, examples, case):
    model = make_model(case)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    runtime = from_torchscript(to_torchscript(model, quantize=True))
    agreement = compare(
        ExportedModel(runtime, model), recognise_all(model, examples, 3, OPTIONS), OPTIONS
    )
    assert 0 < agreement.largest < 0.2
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@torch.no_grad()
@pytest.mark.usefixtures("plainly")
@pytest.mark.parametrize("left_chunks", [-1, 2])
def test_exported_model_streams_as_the_checkpoint_does(make_model, left_chunks):
    model, chunk = make_model("u2pp"), 4
    exported = ExportedModel(from_torchscript(content("u2pp")), model)
    feats, lengths = torch.randn(1, 131, 40), torch.tensor([131])
    expected, _ = model.encode(feats, lengths, chunk, left_chunks)
    found, found_lengths = exported.encode(feats, lengths, chunk, left_chunks)
    assert found_lengths.tolist() == [expected.size(1)]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
