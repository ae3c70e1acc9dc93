"""Recognise speech while it arrives: samples in, the text so far out.

`ChunkStream` runs the encoder chunk by chunk with caches; the result equals that of `simulate_streaming`.
`WindowStream` serves models that need the whole context: it decodes the newest window again and again.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol

import numpy as np
import torch

from wenet_uio.audio.read import INT16_SCALE
from wenet_uio.config.dataset import DatasetConf
from wenet_uio.dataset.chain.waveform import resample
from wenet_uio.dataset.frames import frame_count
from wenet_uio.models import ASRModel
from wenet_uio.models.encoder import ChunkEncoder
from wenet_uio.search.decode import Search, decode_encoded
from wenet_uio.search.recogniser import Recogniser
from wenet_uio.search.results import Transcript
from wenet_uio.search.speech import Segment
from wenet_uio.search.transcription import Passage, Token, Transcriber, join

STEP = 0.5
"""Seconds of new audio after which a window is decoded again."""
FILTER = 16
"""Input samples, at the lower of both rates, that a resampled sample depends on at each side; more than it needs."""
NEVER_MORE = "the stream has ended: start another one for the next utterance"


class Stream(Protocol):
    """An utterance that is recognised while it arrives."""

    def accept(self, samples: np.ndarray | torch.Tensor) -> None:
        """Add samples (N,) of one channel: int16, or floats from -1 to 1.

        Raises:
            ValueError: the samples have another shape or type, or the stream has ended.
        """
        ...

    @property
    def partial(self) -> str:
        """The text so far; later samples may change it."""
        ...

    def finish(self) -> Transcript:
        """End the utterance and return its final text.

        Raises:
            ValueError: the stream has ended before.
        """
        ...


def obstacle_of(recogniser: Recogniser) -> str:
    """The reason why a model cannot encode chunk by chunk; empty if it can."""
    return obstacle_of_model(recogniser.model, recogniser.config.dataset_conf)


def obstacle_of_model(model: ASRModel, conf: DatasetConf) -> str:
    """See `obstacle_of`; for a model without its tokenizer."""
    encoder = model.encoder
    if not (encoder.use_dynamic_chunk or encoder.static_chunk_size):
        return "the model was trained with full context only; train with use_dynamic_chunk"
    if encoder.obstacle:
        return encoder.obstacle
    if model.ctc_weight == 0:
        return "the model was trained with ctc_weight 0, and partial texts come from CTC"
    if any(own.evaluation for own in conf.operators):
        return "the train.yaml names operators, which need whole utterances"
    if conf.feats_type == "log_mel_spectrogram" or not frame_count(conf).snip_edges:
        return "its features need whole utterances (log_mel_spectrogram, or snip_edges: false)"
    return ""


class StreamResampler:
    """Resamples a waveform that arrives in parts to the samples that `resample` gives for the whole waveform."""

    def __init__(self, source_rate: int, target_rate: int) -> None:
        self._rates = source_rate, target_rate
        ratio = Fraction(source_rate, target_rate)
        self._source, self._target = ratio.numerator, ratio.denominator
        self._context = -(-FILTER * max(source_rate, target_rate) // (target_rate * self._source))
        """Blocks of `_source` input samples that must be known at each side of a block."""
        self._buffer = torch.zeros(0)
        self._left = 0
        """Blocks at the start of the buffer whose output was returned before."""

    def accept(self, waveform: torch.Tensor, *, last: bool = False) -> torch.Tensor:
        """Add samples (N,), and return the resampled ones that no later sample can change; with `last`, all."""
        if self._source == self._target:
            return waveform
        self._buffer = torch.cat((self._buffer, waveform))
        ready = len(self._buffer) // self._source - self._context
        if not last and ready <= self._left:
            return waveform.new_zeros(0)
        if not len(self._buffer):
            return self._buffer
        resampled = resample(self._buffer, *self._rates)
        found = resampled[self._left * self._target : None if last else ready * self._target]
        self._buffer = self._buffer[max(0, ready - self._context) * self._source :]
        self._left = min(ready, self._context)
        return found


class _Waveform:
    """Checks and resamples the samples of a stream; float32 on the scale of int16."""

    def __init__(self, sample_rate: int, conf: DatasetConf) -> None:
        self.rate = conf.resample_conf.resample_rate
        self._resampler = StreamResampler(sample_rate, self.rate)
        self._ended = False
        self.accepted = 0
        """Samples at the rate of the model."""

    def accept(self, samples: np.ndarray | torch.Tensor, *, last: bool = False) -> torch.Tensor:
        if self._ended:
            raise ValueError(NEVER_MORE)
        self._ended = last
        found = torch.as_tensor(samples)
        if found.dim() != 1:
            raise ValueError(f"samples: expected one channel (N,), found shape {tuple(found.shape)}")
        if found.is_floating_point():
            found = found.float() * INT16_SCALE
        elif found.dtype != torch.int16:
            raise ValueError(f"samples: expected int16, or floats from -1 to 1; found {found.dtype}")
        if not bool(torch.isfinite(found).all()):
            raise ValueError("samples: not all are numbers")
        resampled = self._resampler.accept(found.float(), last=last)
        self.accepted += len(resampled)
        return resampled


class ChunkStream:
    """A stream of a model that can encode chunk by chunk."""

    def __init__(
        self,
        transcriber: Transcriber,
        recogniser: Recogniser,
        search: Search,
        sample_rate: int,
    ) -> None:
        """Start an utterance.

        Args:
            transcriber: computes features and words.
            search: its options have the size of the chunks and the number of left chunks.
            sample_rate: of the samples, in Hz.

        Raises:
            ValueError: the size of the chunks is not above 0.
        """
        model, options = recogniser.model, search.options
        chunk_size = model.encoder.static_chunk_size or options.decoding_chunk_size
        if chunk_size < 1:
            raise ValueError(f"decoding_chunk_size {chunk_size}: a stream needs 1 or more encoder frames")
        self._transcriber, self._model, self._search = transcriber, model, search
        conf = recogniser.config.dataset_conf
        self._waveform, self._frames = _Waveform(sample_rate, conf), frame_count(conf)
        self._encoder = ChunkEncoder(model.encoder, chunk_size, options.num_decoding_left_chunks)
        self._device = next(model.parameters()).device
        self._samples = torch.zeros(0)
        self._encoded: list[torch.Tensor] = []
        self._units: list[int] = []
        self._label = model.blank

    def accept(self, samples: np.ndarray | torch.Tensor) -> None:
        """As Stream.accept."""
        self._encode(self._waveform.accept(samples), last=False)

    @property
    def partial(self) -> str:
        """As Stream.partial, by CTC greedy search."""
        return self._transcriber.tokenizer.detokenize(self._units)

    def finish(self) -> Transcript:
        """As Stream.finish; the search decodes the whole utterance."""
        self._encode(self._waveform.accept(torch.zeros(0), last=True), last=True)
        end = self._waveform.accepted / self._waveform.rate
        encoded = torch.cat(self._encoded, dim=1)
        if not encoded.size(1):
            return Transcript((), end)
        lengths = torch.tensor([encoded.size(1)], device=encoded.device)
        ((nbest,),) = decode_encoded(self._model, (encoded, lengths), self._search).values()
        return _transcript(self._transcriber, self._transcriber.tokens(nbest[0], Segment(0.0, end)), end)

    @torch.inference_mode()
    def _encode(self, samples: torch.Tensor, *, last: bool) -> None:
        """Encode the new samples, and extend the text by the best labels of the new encoder frames."""
        samples = torch.cat((self._samples, samples))
        frames = int(self._frames(len(samples)))
        self._samples = samples[frames * self._frames.shift :]
        if not frames and not last:
            return
        used = samples[: (frames - 1) * self._frames.shift + self._frames.window] if frames else samples[:0]
        example = self._transcriber.features("", used, self._frames.sample_rate)
        feats = torch.zeros(0, self._transcriber.feature_dim) if example is None else example.feats
        assert feats is not None, "the chain computes features"
        encoded = self._encoder.accept(feats.unsqueeze(0).to(self._device), last=last)
        self._encoded.append(encoded)
        if encoded.size(1):
            for label in self._model.ctc_log_probs(encoded, self._search.options.blank_penalty)[0].argmax(1).tolist():
                if label not in (self._label, self._model.blank):
                    self._units.append(label)
                self._label = label


class WindowStream:
    """A stream of a model that needs the whole context: the newest window is decoded again every STEP seconds."""

    def __init__(
        self, transcriber: Transcriber, conf: DatasetConf, sample_rate: int, window: float, overlap: float
    ) -> None:
        """Start an utterance.

        Args:
            window: longest piece that is decoded at once, in seconds.
            overlap: seconds that neighbouring windows share.
        """
        self._transcriber, self._waveform = transcriber, _Waveform(sample_rate, conf)
        self._most, self._overlap = round(window * self._waveform.rate), round(overlap * self._waveform.rate)
        self._window = torch.zeros(0)
        self._start = 0
        """Place of the window in the stream, in samples."""
        self._fresh = 0
        """Samples that were not decoded yet."""
        self._done: list[Token] = []
        """Tokens of the windows before."""
        self._heard: list[Token] = []
        """All tokens so far."""

    def accept(self, samples: np.ndarray | torch.Tensor) -> None:
        """As Stream.accept."""
        self._extend(self._waveform.accept(samples), STEP)

    @property
    def partial(self) -> str:
        """As Stream.partial."""
        return self._transcriber.tokenizer.detokenize(token.unit for token in self._heard)

    def finish(self) -> Transcript:
        """As Stream.finish."""
        self._extend(self._waveform.accept(torch.zeros(0), last=True), 0.0)
        return _transcript(self._transcriber, self._heard, self._waveform.accepted / self._waveform.rate)

    def _extend(self, samples: torch.Tensor, step: float) -> None:
        self._window = torch.cat((self._window, samples))
        self._fresh += len(samples)
        while len(self._window) > self._most:
            self._done = self._hear(self._most)
            self._window = self._window[self._most - self._overlap :]
            self._start += self._most - self._overlap
            self._fresh = len(self._window)
        if self._fresh and self._fresh >= step * self._waveform.rate:
            self._heard = self._hear(len(self._window))
            self._fresh = 0

    def _hear(self, samples: int) -> list[Token]:
        """All tokens up to `samples` samples of the window."""
        example = self._transcriber.features("", self._window[:samples], self._waveform.rate)
        found = self._transcriber.decode([] if example is None else [example])
        rate = self._waveform.rate
        segment = Segment(self._start / rate, (self._start + samples) / rate)
        tokens = self._transcriber.tokens(found[""][0], segment) if found else []
        if not self._start:
            return tokens
        return join(self._done, tokens, Segment(segment.start, segment.start + self._overlap / rate))


def _transcript(transcriber: Transcriber, tokens: list[Token], end: float) -> Transcript:
    """The tokens of a stream of `end` seconds as one segment; no segment without tokens."""
    return Transcript((transcriber.segment(Passage(Segment(0.0, end), tokens)),) if tokens else (), end)


def start_stream(
    transcriber: Transcriber, recogniser: Recogniser, search: Search, sample_rate: int, window: tuple[float, float]
) -> tuple[Stream, str]:
    """Start a stream chunk by chunk, or of windows if the model needs the whole context.

    Args:
        window: length and overlap of windows, in seconds.

    Returns:
        The stream, and the reason why it decodes windows; empty if it does not.
    """
    obstacle = obstacle_of(recogniser)
    if obstacle:
        return WindowStream(transcriber, recogniser.config.dataset_conf, sample_rate, *window), obstacle
    return ChunkStream(transcriber, recogniser, search, sample_rate), ""
