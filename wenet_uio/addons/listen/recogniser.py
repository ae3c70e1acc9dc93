"""The recogniser that `load_model` returns: transcribe recordings, and streams."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, overload

import torch

from wenet_uio.addons.listen.chunk_stream import ChunkStream
from wenet_uio.addons.listen.endpoint import WENET_RULES, EndpointRule
from wenet_uio.addons.listen.examples import examples_of
from wenet_uio.addons.listen.inputs import Input, make_inputs
from wenet_uio.addons.listen.live import LiveOptions, LiveStream, Stream
from wenet_uio.addons.listen.options import Cutting, TranscribeOptions
from wenet_uio.addons.listen.results import Transcript, TranscriptSegment
from wenet_uio.addons.listen.speech import MARGIN
from wenet_uio.addons.listen.transcription import TakeTurn, Transcriber, decode_at_once
from wenet_uio.addons.listen.window_stream import WindowStream
from wenet_uio.audio.decoders import AudioError
from wenet_uio.base.options import values_of
from wenet_uio.export.exported import Exported
from wenet_uio.models.chunks import fitting_chunk
from wenet_uio.search.decode import Search
from wenet_uio.search.modes import check_parts, possible_modes, usual_mode
from wenet_uio.search.options import ScorerOptions, build_scorers
from wenet_uio.search.prefix_scorer import PrefixScorer
from wenet_uio.search.recogniser import Recogniser, resolve_dtype, streaming_obstacle
from wenet_uio.search.types import DecodeOptions, RequestOptions
from wenet_uio.text.labels import Tokenizer

EXPORTED_MODES = ("ctc_greedy_search", "ctc_prefix_beam_search", "attention_rescoring")
"""Modes that exported models support."""
CANNOT_STREAM = (
    "exported models cannot stream here; load the checkpoint of the run, or export for streams "
    "(export_onnx.py --runtimes streams)"
)
USUAL_CHUNK = 16
"""Encoder frames of a chunk of a stream, unless the model has a fixed size."""

log = logging.getLogger(__name__)


class SpeechRecogniser:
    """A trained model, ready for use. Not for several threads at once."""

    def __init__(self, recogniser: Recogniser, folder: Path, device: str = "auto") -> None:
        self.recogniser = recogniser
        """Config, tokenizer and model."""
        self._device = find_device(device)
        model = recogniser.model
        self._exported = isinstance(model, Exported)
        self._cannot_stream = isinstance(model, Exported) and not model.takes_streams
        """Whether the model is an export for another runtime."""
        # Read once: the folder may move while the model is used
        self._cutting = Cutting.of_run(folder).for_model(recogniser.config)
        self.examples = examples_of(folder, model, recogniser.config)
        """What the model tells people who do not know what to say."""
        self._knows_quiet = _knows_quiet(recogniser)
        # Streams that share their scorers are searched together, and share the memory of a language
        # model.
        self._build_scorers = lru_cache(maxsize=16)(_build_scorers)

    @property
    def sample_rate(self) -> int:
        """Hz; audio with another rate is resampled."""
        return self.recogniser.config.dataset_conf.resample_conf.resample_rate

    @property
    def modes(self) -> list[str]:
        """Decode modes that the model supports."""
        modes = possible_modes(self.recogniser.model)
        return [mode for mode in modes if mode in EXPORTED_MODES] if self._exported else modes

    @property
    def obstacle(self) -> str:
        """Why the model cannot encode chunk by chunk, as streams do; empty if it can."""
        if self._cannot_stream:
            return CANNOT_STREAM
        return streaming_obstacle(self.recogniser.model, self.recogniser.config.dataset_conf)

    def usual_mode(self, scored: bool = False) -> str:
        """Return the decode mode if none is given; `scored`: with hot words or a language model."""
        return usual_mode(self.recogniser.model.family, self.modes, scored)

    @overload
    def transcribe(self, audio: Sequence[Any], **options: Any) -> list[Transcript]: ...
    @overload
    def transcribe(
        self,
        audio: Any = None,
        *,
        samples: Any = None,
        sample_rate: int | None = None,
        **options: Any,
    ) -> Transcript: ...
    def transcribe(
        self,
        audio: Any = None,
        *,
        samples: Any = None,
        sample_rate: int | None = None,
        **options: Any,
    ) -> Transcript | list[Transcript]:
        """Transcribe recordings of any length.

        Args:
            audio: path or URL of an audio file, file object, or encoded bytes; or a list of them.
            samples: instead of `audio`: int16 or floats from -1 to 1, (N,) or (N, channels); or a
                list of such arrays.
            sample_rate: of `samples`, in Hz.
            options: fields of TranscribeOptions, such as mode, beam_size, hot_words,
                language_model, channel.

        Returns:
            A Transcript; for a list of inputs a list of them.

        Raises:
            AudioError, OSError: a recording cannot be read.
            TypeError, ValueError: an argument is wrong.
        """
        inputs, several = make_inputs(audio, samples, sample_rate)
        chosen = TranscribeOptions(**options)
        segments_of: list[list[TranscriptSegment]] = [[] for _ in inputs]

        for number, segment in self.iterate(inputs, chosen):
            if isinstance(segment, Exception):
                raise _named_error(segment, inputs[number].name)
            segments_of[number].append(segment)

        transcripts = [
            Transcript(tuple(segments), recording.seconds, recording.reason)
            for recording, segments in zip(inputs, segments_of, strict=True)
        ]
        return transcripts if several else transcripts[0]

    def iterate(
        self,
        inputs: Sequence[Input],
        options: TranscribeOptions,
        take_turn: TakeTurn = decode_at_once,
    ) -> Iterator[tuple[int, TranscriptSegment | Exception]]:
        """Yield (number of the input, segment) in order, as soon as each segment is recognised.

        An input that cannot be read gives its AudioError or OSError as its last item. Sound that
        is not heard, because the user chose another channel, is logged.

        Several threads may iterate at once if they share a `take_turn` that decodes in one thread.
        """
        transcriber = self._build_transcriber(options, take_turn=take_turn)
        openers = [recording.open for recording in inputs]
        with_words: set[int] = set()
        failed: set[int] = set()
        closed = 0
        segments = transcriber.transcribe(openers, self._checked_cutting(options))

        # A segment of an input, or the end of all, says that the inputs before it are complete.
        for number, segment in chain(segments, [(len(inputs), None)]):
            for complete in range(closed, number):
                if complete not in failed:
                    tracks = transcriber.tracks.pop(complete)
                    inputs[complete].close(
                        tracks,
                        has_words=complete in with_words,
                        has_speech=complete in transcriber.spoken,
                    )
                    transcriber.spoken.discard(complete)

            closed = number
            if segment is None:
                return
            if isinstance(segment, Exception):
                failed.add(number)
            else:
                with_words.add(number)
            yield number, segment

    def stream(
        self,
        *,
        sample_rate: int | None = None,
        chunk_size: int | None = None,
        left_chunks: int = -1,
        endpoints: Mapping[str, EndpointRule] | None = None,
        **options: Any,
    ) -> Stream:
        """Start to recognise speech while it arrives: `accept(samples)`, `partial`, `finish()`.

        As `live`, for one stream alone. Without `endpoints` the stream is one utterance. The log
        says if the model has an `obstacle`.
        """
        live = self.live(
            sample_rate=sample_rate,
            chunk_size=chunk_size,
            left_chunks=left_chunks,
            endpoints=endpoints or {},
            **options,
        )
        if self.obstacle:
            log.warning(
                "no streaming, the newest window is decoded again and again: %s", self.obstacle
            )

        return Stream(live)

    def live(
        self,
        *,
        sample_rate: int | None = None,
        chunk_size: int | None = None,
        left_chunks: int = -1,
        endpoints: Mapping[str, EndpointRule] = WENET_RULES,
        partial_mode: str = LiveOptions.partial_mode,
        nbest: int = 1,
        holds_quiet: bool = True,
        second_pass: bool = True,
        **options: Any,
    ) -> LiveStream:
        """Start a stream of utterances: `push(samples)`, `advance([stream, ...])`, `take()`; see
        LiveStream.

        A model that was trained with chunks encodes each chunk once. A model with an `obstacle`
        decodes the newest window again and again.

        Args:
            sample_rate: of the samples, in Hz; None: that of the model.
            chunk_size: encoder frames of a chunk; None: the size of the training, or at least 16.
            left_chunks: chunks seen before the current chunk; -1: all.
            endpoints: rules that end utterances; {}: the stream is one utterance, and its memory
                grows with its length.
            partial_mode: ctc_greedy_search or ctc_prefix_beam_search.
            nbest: most texts of an utterance; ctc_greedy_search and windows have one.
            holds_quiet, second_pass: see LiveOptions.
            options: fields of TranscribeOptions: mode, beam_size, hot words, language model,
                window, overlap, device.

        Raises:
            ValueError: an argument is wrong, or the model is an export for another runtime.
        """
        if self._cannot_stream:
            raise ValueError(f"stream: {CANNOT_STREAM}")

        chosen = replace(TranscribeOptions(**options), channel=0, one_pass=False)
        if chunk_size is None:
            chunk_size = fitting_chunk(self.recogniser.model.encoder.traits, USUAL_CHUNK)
        rate = self.sample_rate if sample_rate is None else sample_rate
        cutting = self._checked_cutting(chosen)
        search = self._build_search(chosen)
        search = search._replace(options=replace(search.options, nbest=nbest))
        in_chunks = replace(
            search.options, decoding_chunk_size=chunk_size, num_decoding_left_chunks=left_chunks
        )

        stream_type = WindowStream if self.obstacle else ChunkStream
        return stream_type(
            self._build_transcriber(chosen, search),
            self.recogniser,
            search._replace(options=in_chunks),
            LiveOptions(rate, endpoints, partial_mode, holds_quiet, second_pass),
            cutting,
        )

    def _checked_cutting(self, options: TranscribeOptions) -> Cutting:
        """Return where recordings are cut.

        Raises:
            ValueError: a time is wrong, or the window is longer than what the model hears at once.
        """
        cutting = options.cutting(self._cutting)
        family = self.recogniser.model.family
        if options.kept_quiet is None and not self._knows_quiet:
            self._knows_quiet = True  # said once
            log.info(
                "train.yaml does not say how much quiet around speech the model knows "
                "(dataset_conf.heard_quiet): %g s are kept; --kept_quiet keeps more or less",
                MARGIN,
            )
        if (
            family.decoding.longest_window is not None
            and cutting.window > family.decoding.longest_window
        ):
            raise ValueError(
                f"window {cutting.window:g}: a {family.name} hears at most "
                f"{family.decoding.longest_window:g} s at once"
            )

        return cutting

    def _build_transcriber(
        self,
        options: TranscribeOptions,
        search: Search | None = None,
        take_turn: TakeTurn = decode_at_once,
    ) -> Transcriber:
        """Return what transcribes with some options; None: with the search that they name."""
        if options.one_pass and self._exported:
            raise ValueError(
                "one_pass: exported models encode each segment alone; load the checkpoint of the "
                "run"
            )
        return Transcriber(
            self.recogniser,
            search or self._build_search(options),
            device=self._chosen_device(options),
            batch_size=1 if self._exported else options.batch_size,
            channel=options.channel,
            one_pass=options.one_pass,
            take_turn=take_turn,
        )

    def _build_search(self, options: TranscribeOptions) -> Search:
        """Return the search of the options.

        Raises:
            ValueError: the model does not support the mode.
        """
        modes, mode = self.modes, self._decode_mode(options)
        check_parts(self.recogniser.model, [mode])
        if mode not in modes:
            raise ValueError(
                f"mode {mode}: exported models support {', '.join(modes)}; load the checkpoint of "
                "the run"
            )

        known_names = {field.name for field in fields(DecodeOptions)}
        if unknown := set(options.decoding) - known_names:
            raise ValueError(
                f"decoding: unknown {', '.join(sorted(unknown))}; known: {', '.join(sorted(known_names))}"
            )

        named = values_of(RequestOptions, options)
        decoding = {**named, **options.decoding, "token_times": True, "nbest": 1}

        device = self._chosen_device(options)
        scorer_values = values_of(ScorerOptions, options)
        scorer_values["hot_words"] = tuple(options.hot_words)  # hashable
        scorers = self._build_scorers(
            ScorerOptions(**scorer_values),
            (mode,),
            self.recogniser.tokenizer,
            device,
            _last_change(options.language_model),
        )

        return Search([mode], self._set_dtype(DecodeOptions(**decoding), device), scorers)

    def _chosen_device(self, options: TranscribeOptions) -> torch.device:
        """Return the device of the options, else that of `load_model`."""
        return self._device if options.device is None else find_device(options.device)

    def _decode_mode(self, options: TranscribeOptions) -> str:
        """Return the decode mode of the options."""
        if options.mode is None and (options.timestamps or options.decoding.get("timestamps")):
            return "attention"
        return options.mode or self.usual_mode(
            scored=bool(options.hot_words or options.language_model)
        )

    def _set_dtype(self, options: DecodeOptions, device: torch.device) -> DecodeOptions:
        """Return the options with the arithmetic of the model, unless they state one."""
        if not self._exported:
            return resolve_dtype(options, self.recogniser.config, device)

        if options.dtype not in (None, "fp32"):
            raise ValueError(
                f"dtype {options.dtype}: an exported model has the arithmetic of its export"
            )

        return options


def _knows_quiet(recogniser: Recogniser) -> bool:
    """Tell whether the config or the family of a model says how much quiet it knows."""
    heard = recogniser.config.dataset_conf.heard_quiet
    return heard is not None or recogniser.model.family.decoding.kept_quiet > 0


def _build_scorers(
    options: ScorerOptions,
    modes: tuple[str, ...],
    tokenizer: Tokenizer,
    device: torch.device,
    changed: int,
) -> list[PrefixScorer]:
    """Build scorers; in a cache, `changed` tells a language model from the one that it replaced."""
    return build_scorers(options, modes, tokenizer, device, names=("hot_words", "language_model"))


def _last_change(path: str | Path | None) -> int:
    """Return the time of a file's last change, 0 without a file."""
    return Path(path).stat().st_mtime_ns if path and Path(path).exists() else 0


def find_device(name: str) -> torch.device:
    """Return the device of a name; auto is a GPU if there is one.

    Raises:
        ValueError: there is no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
        return torch.device(name)

    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device {name}: unknown; known: auto, cpu, cuda, cuda:N") from None

    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device {name}: {torch.cuda.device_count()} GPUs found; use device cpu")

    return device


def _named_error(error: Exception, name: str) -> Exception:
    """Return an AudioError whose message begins with the name of the input."""
    if isinstance(error, AudioError) and not str(error).startswith(f"{name}: "):
        return AudioError(f"{name}: {error}")
    return error
