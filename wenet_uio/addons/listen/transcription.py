"""Transcribe recordings of any length: cut into segments, recognise each, join the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from heapq import merge
from itertools import chain, groupby, islice
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from wenet_uio.addons.listen.one_pass import RecordingFrames, check_one_pass
from wenet_uio.addons.listen.options import Cutting
from wenet_uio.addons.listen.passages import (
    Passage,
    Token,
    join_windows,
    span_in_recording,
    split_passages,
    spread_evenly,
)
from wenet_uio.addons.listen.results import (
    TAIL,
    TranscriptSegment,
    TranscriptToken,
    TranscriptWord,
)
from wenet_uio.addons.listen.speech import LEAST_MARGIN, Segment, Speech
from wenet_uio.addons.listen.stream_audio import StreamFeatures
from wenet_uio.addons.listen.tracks import ChosenChannel, Track, Tracks, choose_tracks
from wenet_uio.audio.decoders import AudioError, Channel
from wenet_uio.audio.read import AudioReader, Source, audio_info
from wenet_uio.dataset.chain.padding import pad
from wenet_uio.dataset.dataset import build_chain
from wenet_uio.dataset.types import Batch, Example, SkipSample
from wenet_uio.models.arithmetic import autocast, dtype_for
from wenet_uio.search.confidence import word_confidence
from wenet_uio.search.decode import Search, decode, decode_encoded
from wenet_uio.search.recogniser import Recogniser
from wenet_uio.search.types import Hypothesis, NBest
from wenet_uio.text.symbols import WORD_START

ROUNDED = 64
"""Batches are padded to a multiple of these feature frames: memory of ever new lengths would grow
for hours."""
NOBODY = 0.5
"""Estimate that nobody speaks, from which the words of a segment need the recogniser's own support."""
UNHEARD = 0.1
"""Mean probability of the tokens, at their frames; below it the recogniser finds blank instead of them.
A decoder that is asked for words gives some for noise too, with probabilities below 0.01."""
Undecoded = TypeVar("Undecoded")
"""A segment before it is decoded: an example, or encoder frames (T', D)."""


class TakeTurn(Protocol):
    """Decides when segments are decoded, and together with which others."""

    def __call__(
        self,
        search: Search,
        decode: Callable[[list[Undecoded]], list[NBest | None]],
        segments: list[Undecoded],
    ) -> list[NBest | None]:
        """Return the hypotheses of segments, in their order.

        Args:
            search: that of `decode`. Segments with equal searches may be decoded together.
        """
        ...


def decode_at_once(
    search: Search,
    decode: Callable[[list[Undecoded]], list[NBest | None]],
    segments: list[Undecoded],
) -> list[NBest | None]:
    """Decode segments at once and alone."""
    return decode(segments)


def faded(waveform: torch.Tensor, samples: int, ends: tuple[bool, bool]) -> torch.Tensor:
    """Return a waveform (N,) whose first or last `samples` rise from 0 or fall to 0: quiet that is
    cut is no click.

    Args:
        ends: whether the start and the end are faded.
    """
    if not any(ends) or len(waveform) < 2 * samples:
        return waveform

    ramp, changed = torch.linspace(0.0, 1.0, samples), waveform.clone()
    if ends[0]:
        changed[:samples] *= ramp
    if ends[1]:
        changed[-samples:] *= ramp.flip(0)
    return changed


class _OpenTrack(NamedTuple):
    """A channel of a recording that is being transcribed."""

    track: Track
    reader: AudioReader
    frames: RecordingFrames | None
    """None unless the encoder sees the channel in one pass."""

    def read(self, segment: Segment) -> tuple[torch.Tensor, int]:
        """Return the waveform (samples,) of a segment and its sample rate in Hz."""
        waveform, rate = self.reader.read(*segment, self.track.channel)
        return torch.from_numpy(waveform), rate


class _Piece(NamedTuple):
    """A segment of one of several recordings, before and after it is recognised."""

    recording: int
    passage: int
    """Windows of a long passage share its number."""
    source: _OpenTrack | None
    """None if the recording cannot be read."""
    segment: Segment
    no_speech_probability: float | None = None
    """See Speech; None where speech was not looked for."""
    fades: tuple[bool, bool] = (False, False)
    """Whether the quiet at the start and at the end is faded in and out, because it was cut."""
    tokens: list[Token] = []  # noqa: RUF012 - replaced, never changed
    texts: tuple[str, ...] = ("",)
    """Of the hypotheses, best first, as many as `nbest` of the search."""
    is_speechless: bool = False
    """Whether the model finds that nobody speaks, and the detector doubts; it has no words then."""
    error: Exception | None = None
    """Why the recording cannot be read."""


class Recognised(NamedTuple):
    """The speech between two pauses of a recording."""

    segment: Segment
    tokens: list[Token]
    texts: tuple[str, ...]
    """Of the hypotheses, best first; only one of a passage that was joined from windows."""
    no_speech_probability: float | None
    """See Speech; None where speech was not looked for."""
    is_speechless: bool
    """Whether nobody speaks; there are no words then."""
    track: Track


class Transcriber:
    """Recognises recordings of any length; memory does not grow with the length."""

    def __init__(
        self,
        recogniser: Recogniser,
        search: Search,
        *,
        device: torch.device | str = "cpu",
        batch_size: int = 8,
        channel: ChosenChannel | None = None,
        one_pass: bool = False,
        take_turn: TakeTurn = decode_at_once,
    ) -> None:
        """Move the model to `device`.

        Args:
            search: exactly one mode, with `token_times` in its options.
            batch_size: segments that are recognised together.
            channel: what is transcribed of a recording; None: see `choose_tracks`.
            one_pass: the encoder sees each recording as a whole, and the search its segments.
            take_turn: decodes batches of segments, perhaps in another thread.

        Raises:
            ValueError: the model cannot encode a recording in one pass.
        """
        self.tokenizer, self.clock = recogniser.tokenizer, recogniser.clock
        self._model = recogniser.model.to(device).eval()
        self._search, self._take_turn = search, take_turn
        self._device, self._batch_size = device, batch_size
        conf = recogniser.config.dataset_conf
        self._channel: ChosenChannel | None = channel
        self._usual_channel: Channel = conf.singal_channel_conf.channel
        self.tracks: dict[int, Tracks] = {}
        """Of each recording that was opened, by its number; whoever asks removes them."""
        self.spoken: set[int] = set()
        """Numbers of the recordings in which somebody speaks; whoever asks removes them."""
        self.feature_dim = conf.feature_dim
        self._chain = build_chain(conf, None, training=False)
        self._conf, self._one_pass = conf, one_pass
        # A log_mel_spectrogram can have a fixed length (pad_or_trim), which must stay.
        rounds = self._model.masks_padding and conf.feats_type != "log_mel_spectrogram"
        self._multiple = ROUNDED if rounds else 1
        if one_pass:
            check_one_pass(self._model, conf, search.options)

    def transcribe(
        self, recordings: Iterable[Callable[[], Source]], cutting: Cutting
    ) -> Iterator[tuple[int, TranscriptSegment | Exception]]:
        """Yield (number of the recording, passage) in order; see `passages`."""
        for number, recognised in self.passages(recordings, cutting):
            if isinstance(recognised, Exception):
                yield number, recognised
                continue

            if not recognised.is_speechless:
                self.spoken.add(number)
            for passage in split_passages(recognised.segment, recognised.tokens):
                segment = self.segment(passage, recognised.no_speech_probability)
                yield number, replace(segment, track=recognised.track)

    def passages(
        self, recordings: Iterable[Callable[[], Source]], cutting: Cutting
    ) -> Iterator[tuple[int, Recognised | Exception]]:
        """Yield (number of the recording, what was recognised between two pauses) in order.

        Batches have segments of several recordings.

        A recording that cannot be read yields its AudioError or OSError as its last item.

        Args:
            recordings: each function gives a recording when its turn comes.
        """
        pieces = self._cut_recordings(recordings, cutting)
        batches = iter(lambda: list(islice(pieces, self._batch_size)), [])
        recognised = chain.from_iterable(map(self._recognise_pieces, batches))
        failed = -1

        # Pieces with equal recording and passage are the windows of one passage.
        for (number, _), group in groupby(recognised, key=lambda piece: piece[:2]):
            first, *later = group
            if number == failed:
                continue

            errors = [piece.error for piece in (first, *later) if piece.error]
            if errors or first.source is None:
                failed = number
                yield number, errors[0]
                continue

            tokens, (start, end), texts = first.tokens, first.segment, first.texts
            for piece in later:
                tokens = join_windows(tokens, piece.tokens, Segment(piece.segment.start, end))
                end = piece.segment.end
            if later:
                texts = (self.tokenizer.detokenize([token.unit for token in tokens]),)

            yield (
                number,
                Recognised(
                    Segment(start, end),
                    tokens,
                    texts,
                    first.no_speech_probability,
                    all(piece.is_speechless for piece in (first, *later)),
                    first.source.track,
                ),
            )

    def segment(
        self, passage: Passage, no_speech_probability: float | None = None
    ) -> TranscriptSegment:
        """Return text, words and tokens of a passage."""
        half = self.clock.step / 2  # of a frame, in seconds
        units = [token.unit for token in passage.tokens]
        tokens = [
            TranscriptToken(self.tokenizer.symbol(token.unit), token.time, token.confidence)
            for token in passage.tokens
        ]
        # From the last word to the first: a word may last until the next one starts.
        words: list[TranscriptWord] = []
        next_start = passage.segment.end
        for text, first, last in reversed(self.tokenizer.words(units)):
            word_tokens = tuple(tokens[first:last])
            confidence = word_confidence([token.confidence for token in word_tokens])
            # The token of the space before a word may be anywhere in the pause.
            letters = [token for token in word_tokens if not token.text.endswith(WORD_START)]
            first_letter = letters[0] if letters else word_tokens[0]
            # The time of a token is the middle of its frame.
            start, heard_until = first_letter.time - half, word_tokens[-1].time + half
            end = max(heard_until, min(next_start, heard_until + TAIL))
            words.append(TranscriptWord(text, start, end, confidence, word_tokens))
            next_start = start

        words.reverse()
        language = passage.tokens[0].language if passage.tokens else None
        text = self.tokenizer.detokenize(units)
        return TranscriptSegment(
            *passage.segment, text, tuple(words), tuple(tokens), language, no_speech_probability
        )

    def _cut_recordings(
        self, recordings: Iterable[Callable[[], Source]], cutting: Cutting
    ) -> Iterator[_Piece]:
        """Yield the segments of each recording; one that cannot be read gives a piece with an error."""
        for number, open_recording in enumerate(recordings):
            try:
                yield from self._cut_recording(number, open_recording(), cutting)
            except (AudioError, OSError) as error:
                yield _Piece(number, -1, None, Segment(0.0, 0.0), error=error)

    def _cut_recording(self, number: int, source: Source, cutting: Cutting) -> Iterator[_Piece]:
        """Yield the segments of a recording; passages of all its tracks are in order of their
        starts.
        """
        self.tracks[number] = choose_tracks(source, self._channel, self._usual_channel)
        chosen = self.tracks[number].chosen
        info = audio_info(source)
        seconds = info.num_samples / info.sample_rate
        spoken: list[list[tuple[_OpenTrack, Speech]]] = []
        for track in chosen:
            frames = self._one_pass_frames(source, track.channel)
            opened = _OpenTrack(track, AudioReader(source), frames)
            passages = cutting.passages(source, track.channel, in_turns=len(chosen) > 1)
            spoken.append([(opened, passage) for passage in passages])

        in_order = merge(*spoken, key=lambda item: item[1].segment.start)
        for index, (opened, passage) in enumerate(in_order):
            whole = passage.segment
            for segment in cutting.windows(whole):
                fades = (
                    segment.start == whole.start > 0.0,
                    segment.end == whole.end < seconds,
                )
                yield _Piece(
                    number, index, opened, segment, passage.no_speech_probability, fades=fades
                )

    def _recognise_pieces(self, pieces: list[_Piece]) -> list[_Piece]:
        """Recognise pieces together."""
        if self._one_pass:
            return self._recognise_frames(pieces)

        recognised = list(pieces)
        examples: dict[int, Example] = {}  # by the indexes of their pieces
        for index, piece in enumerate(pieces):
            if piece.source is None:
                continue

            try:
                waveform, rate = piece.source.read(piece.segment)
            except (AudioError, OSError) as error:
                recognised[index] = piece._replace(error=error)
                continue

            waveform = faded(waveform, round(LEAST_MARGIN * rate), piece.fades)
            example = self.features(str(index), waveform, rate)
            if example is not None:
                examples[index] = example

        if not examples:
            return recognised

        nbests = self._take_turn(self._search, self._decode_examples, list(examples.values()))
        for index, nbest in zip(examples, nbests, strict=True):
            recognised[index] = self._add_hypotheses(pieces[index], nbest, pieces[index].segment)

        return recognised

    @torch.inference_mode()
    def _decode_examples(self, examples: list[Example]) -> list[NBest | None]:
        """Decode examples that have features, also of several recordings; see `_search_transcripts`."""
        keys = [str(number) for number in range(len(examples))]
        keyed = [replace(example, key=key) for key, example in zip(keys, examples, strict=True)]
        batch, feats = self._batch(keyed)
        options, decoding = self._search.options, self._model.family.decoding
        with self._arithmetic():
            encoded = decoding.encode(self._model, feats, batch.feats_lengths, options)
            nbests = self._search_transcripts(encoded)
        by_key = dict(zip(batch.keys, nbests, strict=True))
        return [by_key[key] for key in keys]

    def _add_hypotheses(self, piece: _Piece, nbest: NBest | None, segment: Segment) -> _Piece:
        """Return a piece with what was recognised in `segment` of it.

        It has no words if the detector and the recogniser agree that nobody speaks, or if the model
        itself finds so, `nbest` None.
        """
        if nbest is None:
            return piece._replace(is_speechless=True)

        confidence = nbest[0].confidence
        if confidence is not None and confidence < UNHEARD:
            no_speech = piece.no_speech_probability
            if no_speech is not None and no_speech >= NOBODY:
                return piece._replace(is_speechless=True)

        texts = [
            self.tokenizer.detokenize(hypothesis.tokens)
            for hypothesis in nbest[: self._search.options.nbest]
        ]
        return piece._replace(tokens=self.tokens(nbest[0], segment), texts=tuple(texts))

    def _one_pass_frames(self, source: Source, channel: Channel) -> RecordingFrames | None:
        """Return the encoder frames of a recording, to be computed when they are needed; None unless
        they are computed in one pass.
        """
        if not self._one_pass:
            return None

        features = StreamFeatures(self._conf, self.features)
        rate = self._conf.resample_conf.resample_rate
        return RecordingFrames(source, channel, rate, features, self._model, self.clock)

    @torch.inference_mode()
    def _recognise_frames(self, pieces: list[_Piece]) -> list[_Piece]:
        """Recognise pieces together, from the encoder frames of their recordings."""
        recognised = list(pieces)
        spoken: list[tuple[int, Segment]] = []
        encoded: list[torch.Tensor] = []
        with self._arithmetic():
            for index, piece in enumerate(pieces):
                if piece.source is None or piece.source.frames is None:
                    continue

                try:
                    first, frames = piece.source.frames.between(piece.segment)
                except (AudioError, OSError) as error:
                    recognised[index] = piece._replace(error=error)
                    continue

                if len(frames):
                    spoken.append((index, Segment(first * self.clock.step, piece.segment.end)))
                    encoded.append(frames)

        if not encoded:
            return recognised

        nbests = self._take_turn(self._search, self._decode_frames, encoded)
        for (index, segment), nbest in zip(spoken, nbests, strict=True):
            recognised[index] = self._add_hypotheses(pieces[index], nbest, segment)

        return recognised

    @torch.inference_mode()
    def _decode_frames(self, encoded: list[torch.Tensor]) -> list[NBest | None]:
        """Search encoder frames (T', D) of segments, also of several recordings."""
        lengths = torch.tensor([len(frames) for frames in encoded], device=self._device)
        batch = pad_sequence(encoded, batch_first=True)
        with self._arithmetic():
            return self._search_transcripts((batch, lengths))

    def _search_transcripts(self, encoded: tuple[torch.Tensor, torch.Tensor]) -> list[NBest | None]:
        """Search encoder frames (B, T', D) of lengths (B,), and apply the rules of the family.

        Returns:
            The hypotheses of each segment; None: nobody speaks in it.
        """
        (nbests,) = decode_encoded(self._model, encoded, self._search).values()
        check = self._model.family.decoding.check_transcripts
        if check is None:
            return [*nbests]
        detokenize = self.tokenizer.detokenize
        return check(self._model, encoded, self._search.options, nbests, detokenize)

    def _arithmetic(self) -> AbstractContextManager[object]:
        """Return the context for the arithmetic of the options."""
        device = torch.device(self._device)
        return autocast(device, dtype_for(self._search.options.dtype or "fp32", device))

    def decode(self, examples: list[Example]) -> dict[str, NBest]:
        """Decode examples that have features.

        Returns:
            {key: hypotheses}.
        """
        if not examples:
            return {}

        batch, feats = self._batch(examples)
        (nbests,) = decode(self._model, feats, batch.feats_lengths, *self._search).values()
        return dict(zip(batch.keys, nbests, strict=True))

    def _batch(self, examples: list[Example]) -> tuple[Batch, torch.Tensor]:
        """Return examples as a batch, and its features (B, T, F) with a length of few sizes."""
        batch = pad(examples, self.feature_dim).to(self._device)
        padding = -batch.feats.size(1) % self._multiple
        return batch, functional.pad(batch.feats, (0, 0, 0, padding))

    def features(self, key: str, waveform: torch.Tensor, sample_rate: int) -> Example | None:
        """Return features of a waveform on the scale of int16.

        None if it is too short for one frame, or if an operator of the user leaves it out.
        """
        example = Example(key, "", waveform, sample_rate, 0)
        try:
            for operator in self._chain:
                example = operator(example)
        except SkipSample:
            return None

        return example

    def tokens(self, hypothesis: Hypothesis, segment: Segment) -> list[Token]:
        """Return tokens with their times in the recording.

        They are evenly spaced if CTC has no path through them.
        """
        language = hypothesis.language
        confidences = hypothesis.token_confidences or (None,) * len(hypothesis.tokens)
        if hypothesis.spans is not None:
            tokens: list[Token] = []
            for span in hypothesis.spans:
                place = span_in_recording(span, segment)
                own = slice(span.first, span.last)
                timed = spread_evenly(hypothesis.tokens[own], place)
                for (unit, time), confidence in zip(timed, confidences[own], strict=True):
                    tokens.append(Token(unit, time, confidence, place, language))

            return tokens

        if hypothesis.frames is None:
            times = [time for _, time in spread_evenly(hypothesis.tokens, segment)]
        else:
            times = [segment.start + self.clock.middle(frame) for frame in hypothesis.frames]

        measured = zip(hypothesis.tokens, times, confidences, strict=True)
        return [
            Token(unit, time, confidence, None, language) for unit, time, confidence in measured
        ]
