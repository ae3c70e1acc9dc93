"""Recognise live streams chunk by chunk, with models whose encoders have caches.

Chunks of several streams run as a batch.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
import torch

from wenet_uio.addons.listen.endpoint import BLANK_THRESHOLD, Endpointer, silent_by_blank
from wenet_uio.addons.listen.live import (
    END,
    NOBODY_SPEAKS,
    LiveOptions,
    LiveStream,
    Spoken,
    try_step,
)
from wenet_uio.addons.listen.options import Cutting
from wenet_uio.addons.listen.speech import Segment
from wenet_uio.addons.listen.stream_audio import StreamFeatures
from wenet_uio.addons.listen.transcription import Transcriber
from wenet_uio.models.chunks import ChunkEncoder, encode_chunks, places_of_equal
from wenet_uio.search import ctc_prefix_beam
from wenet_uio.search.ctc_prefix_beam import PrefixBeam
from wenet_uio.search.decode import Search, decode_encoded
from wenet_uio.search.recogniser import Recogniser
from wenet_uio.search.types import NBest

DOUBT = 1.0
"""Seconds of blank in which a model may miss words that are loud: CTC of whole words has a peak for
each, and finds blank between them. Only what follows is silence."""


class ChunkStream(LiveStream):
    """A stream whose chunks are encoded once each.

    An utterance ends with the chunk in which a rule holds; the next chunk begins with empty caches.
    """

    def __init__(
        self,
        transcriber: Transcriber,
        recogniser: Recogniser,
        search: Search,
        options: LiveOptions,
        cutting: Cutting,
    ) -> None:
        """Start the first utterance.

        Args:
            transcriber: computes features and words, and runs the second pass.
            search: of the stream; its options have the size of the chunks and the number of left
                chunks.
            cutting: of the second pass.

        Raises:
            ValueError: the size of the chunks is not above 0.
        """
        self._conf = conf = recogniser.config.dataset_conf
        self._model, self._search = recogniser.model, search
        static_chunk_size = self._model.encoder.traits.static_chunk_size
        super().__init__(
            transcriber,
            conf.resample_conf.resample_rate,
            options,
            cutting,
            has_full_context=not static_chunk_size,
        )
        chunk_size = static_chunk_size or search.options.decoding_chunk_size
        if chunk_size < 1:
            raise ValueError(
                f"decoding_chunk_size {chunk_size}: a stream needs 1 or more encoder frames"
            )

        self._chunk_size = chunk_size
        self._device = self._model.device
        self._partial_beam = options.partial_mode in ctc_prefix_beam.MODES
        self._has_beam = self._partial_beam or search.modes[0] in ctc_prefix_beam.MODES
        # A frame is silent if the model's own probability of the blank is above BLANK_THRESHOLD.
        # The searched probabilities have the penalty subtracted from the logit of the blank, so
        # the threshold, as log odds, moves by the same amount.
        odds = math.log(BLANK_THRESHOLD / (1 - BLANK_THRESHOLD)) - search.options.blank_penalty
        self._silent_above = torch.tensor(odds).sigmoid().item()
        self._endpointer = Endpointer(transcriber.clock.step, options.endpoints)
        self._start_utterance()

    def _start_utterance(self) -> None:
        """Forget the last utterance: features, caches, frames, labels and hypotheses."""
        self._features = StreamFeatures(self._conf, self._transcriber.features)
        self._encoder = ChunkEncoder(
            self._model.encoder, self._chunk_size, self._search.options.num_decoding_left_chunks
        )
        self._frames = 0
        """Encoder frames of the utterance."""
        self._encoded: list[torch.Tensor] = []
        self._units: list[int] = []
        """Labels of CTC greedy search."""
        self._label = self._model.blank
        """Label of the last frame."""
        self._blank_frames = 0
        """Frames since the last one that was not blank."""
        self._rule = ""
        """Name of the rule that holds."""
        self._beam: PrefixBeam | None = None
        if self._has_beam:
            _, options, scorers = self._search
            self._beam = PrefixBeam(1, options.beam_size, self._model.blank, scorers, self._device)

    @property
    def ready(self) -> bool:
        """As LiveStream.ready."""
        if self.finished:
            return False
        return self._audio.ended or self._audio.queued >= self._wanted_samples

    @property
    def _wanted_samples(self) -> int:
        """Queued samples with which a chunk is complete."""
        missing = self._encoder.missing
        if not missing:
            return 0
        return math.ceil(self._features.missing_samples(missing) * self._audio.ratio)

    @property
    def _recognised_seconds(self) -> float:
        return self._utterance_start / self._rate + self._frames * self._transcriber.clock.step

    @staticmethod
    def step(streams: Sequence[ChunkStream]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """As LiveStream.step: features, a chunk of each stream, CTC, search, ends of utterances."""
        active = [stream for stream in streams if try_step([stream], stream._absorb_audio)]
        complete = [stream for stream in active if not stream._encoder.missing]
        outputs = encode_chunks([stream._encoder for stream in complete])
        chunks = list(zip(complete, outputs, strict=True))
        for indexes in places_of_equal(stream._batch_kind(output) for stream, output in chunks):
            _search_chunks([chunks[index] for index in indexes])

        # The search may have ended a stream by an error.
        for stream in active:
            if not stream.finished:
                try_step([stream], stream._produce_event)

    def _batch_kind(self, output: torch.Tensor) -> Hashable:
        """Return what is equal in chunks that are searched together."""
        return id(self._model), self._search.options.blank_penalty, output.size(1)

    def _absorb_audio(self) -> None:
        """Compute the features that the next chunk needs from the queued samples."""
        while self._encoder.missing:
            samples = self._take_heard(self._wanted_samples)
            if samples is None:
                return
            if self._is_quiet:
                # The rules hold for the quiet that is held back, too.
                frames = self._new_quiet_frames(self._transcriber.clock.step)
                if frames:
                    silent = np.ones(frames, bool)
                    self._rule = self._endpointer.accept(silent, has_words=False) or ""
                return

            feats = self._features.accept(samples)
            if feats is not None:
                self._encoder.put(feats.to(self._device))
            if self._audio.empty:
                self._encoder.end()

    def _take_chunk(self, encoded: torch.Tensor, labels: list[int], silent: np.ndarray) -> None:
        """Take the encoder frames of a chunk (1, T', D).

        Args:
            labels: best label of each frame.
            silent: (T',) whether the model finds blank in each frame.
        """
        silent = self._silent_frames(silent)
        self._encoded.append(encoded)
        self._frames += len(labels)
        for label in labels:
            if label not in (self._label, self._model.blank):
                self._units.append(label)
            self._label = label

        self._rule = self._endpointer.accept(silent, bool(self._units)) or ""

    def _silent_frames(self, blank: np.ndarray) -> np.ndarray:
        """Tell which frames of the next chunk are silent for the rules, (T',).

        Quiet frames are silent: a model may hear words in quiet that it was not trained with. Loud
        frames are if the model has found blank for longer than DOUBT.

        Args:
            blank: (T',) whether the model finds blank.
        """
        if self._gate is None:
            return blank

        clock = self._transcriber.clock
        last_speech = (self._gate.last_speech - self._utterance_start) / self._rate
        silent = np.zeros(len(blank), bool)
        for frame, is_blank in enumerate(blank):
            self._blank_frames = self._blank_frames + 1 if is_blank else 0
            is_quiet = clock.middle(self._frames + frame) > last_speech
            silent[frame] = is_quiet or self._blank_frames * clock.step > DOUBT

        return silent

    def _produce_event(self) -> None:
        """Produce the Partial or the Final."""
        if self._audio.empty and self._encoder.missing:
            self._rule = END

        if self._rule:
            self._finish_utterance()
        elif self._partial_beam and self._beam is not None:
            self._show_partial(self._hypothesis_texts(self._beam.nbests()[0]))
        else:
            self._show_partial([self._transcriber.tokenizer.detokenize(self._units)])

    def _finish_utterance(self) -> None:
        """Recognise the whole utterance, and begin the next one."""
        clock, rule = self._transcriber.clock, self._rule
        start = self._utterance_start / self._rate
        end = self._audio.seconds if rule == END else start + clock.edge(self._frames)
        count = self._heard if rule == END else round(self._frames * clock.step * self._rate)
        spoken = NOBODY_SPEAKS

        if self._cutting is None and self._frames and self._hears_voice():
            nbest = self._search_utterance()
            tokens = self._transcriber.tokens(nbest[0], Segment(start, end))
            spoken = Spoken(tokens, self._hypothesis_texts(nbest))

        speech, speech_start = self._end_speech(count)
        if self._cutting is not None and count:
            spoken = self._recognise_again(speech, speech_start, self._cutting)

        self._start_utterance()
        self._conclude_utterance(end, spoken, rule)

    def _search_utterance(self) -> NBest:
        """Search the encoder frames of the utterance; prefix beam search has run already."""
        encoded = torch.cat(self._encoded, dim=1)
        lengths = torch.tensor([self._frames], device=encoded.device)
        prefixes = None if self._beam is None else self._beam.nbests()
        results = decode_encoded(self._model, (encoded, lengths), self._search, prefixes)
        ((nbest,),) = results.values()  # one mode, one utterance
        return nbest

    def _hypothesis_texts(self, nbest: NBest) -> list[str]:
        """Return the texts of the hypotheses, as many as `nbest` of the options."""
        detokenize = self._transcriber.tokenizer.detokenize
        return [detokenize(hypothesis.tokens) for hypothesis in nbest[: self._search.options.nbest]]


def _search_chunks(chunks: Sequence[tuple[ChunkStream, torch.Tensor]]) -> None:
    """Search chunks (1, T', D) of one kind."""
    streams, outputs = zip(*chunks, strict=True)
    model, options = streams[0]._model, streams[0]._search.options
    log_probs = model.ctc_log_probs(torch.cat(outputs), options.blank_penalty)
    labels = log_probs.argmax(dim=2).tolist()
    blanks = log_probs[:, :, model.blank : model.blank + 1].cpu().numpy()

    for row, (stream, output) in enumerate(chunks):
        silent = silent_by_blank(blanks[row], threshold=stream._silent_above)
        stream._take_chunk(output, labels[row], silent)

    # Beams advance together if they are of one kind.
    with_beam = [
        (row, stream._beam) for row, stream in enumerate(streams) if stream._beam is not None
    ]
    for indexes in places_of_equal(beam.kind for _, beam in with_beam):
        rows, beams = zip(*(with_beam[index] for index in indexes), strict=True)
        members = [streams[row] for row in rows]
        try_step(members, PrefixBeam.advance_together, beams, log_probs[list(rows)])
