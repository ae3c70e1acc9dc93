"""Recordings of any length: cut, recognised piece by piece, and put together again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import yaml

from wenet_uio.audio.read import audio_info, read_audio
from wenet_uio.config import Config, load_config
from wenet_uio.dataset.chain.features import feature_operators
from wenet_uio.dataset.chain.padding import pad
from wenet_uio.dataset.chain.waveform import Resample
from wenet_uio.dataset.types import Example, Operator, SkipSample
from wenet_uio.models import ASRModel, build_model
from wenet_uio.models.weights import load_weights
from wenet_uio.search.decode import decode
from wenet_uio.search.prefix_scorer import PrefixScorer
from wenet_uio.search.speech import Segment, measure_levels, speech_segments, windows
from wenet_uio.search.timing import FrameClock
from wenet_uio.search.types import DecodeOptions, Hypothesis
from wenet_uio.text.tokenizer import Tokenizer, build_tokenizer
from wenet_uio.train.checkpoint import ENVIRONMENT

CHECKPOINTS = ("avg.pt", "final.pt")
PATHS = {
    "tokenizer_conf": ("symbol_table_path", "bpe_path", "non_lang_syms_path"),
    "cmvn_conf": ("cmvn_file",),
}
"""Keys of the yaml that name files."""
SAME_TIME = 0.2
"""Seconds: a token that two windows hear within so much of one another is the same one."""


class Token(NamedTuple):
    """A token on the clock of the recording."""

    unit: int
    time: float
    """Seconds to its middle."""
    confidence: float


class Passage(NamedTuple):
    """What is said between two pauses."""

    segment: Segment
    tokens: list[Token]


class Word(NamedTuple):
    """A word of a passage."""

    text: str
    start: float
    end: float
    """Seconds."""
    confidence: float


@dataclass(frozen=True)
class Cutting:
    """How long recordings are cut.

    Raises:
        ValueError: for times that do not fit one another.
    """

    pause: float | None = 0.4
    """Seconds of quiet that make a cut; None: windows only."""
    usual: float = 15.0
    """Seconds that a segment exceeds only where it has no pause at all, however short."""
    window: float = 20.0
    """Seconds that the recogniser hears at a time, at most."""
    overlap: float = 4.0
    """Seconds that windows share where there is no pause to cut at."""

    def __post_init__(self) -> None:
        if not 0 < self.overlap <= self.window / 2:
            raise ValueError(f"overlap: expected above 0 and at most half the window, found {self.overlap}")
        for name in ("pause", "usual"):
            seconds = getattr(self, name)
            if seconds is not None and seconds <= 0:
                raise ValueError(f"{name}: expected above 0, found {seconds}")

    @classmethod
    def of_run(cls, folder: str | Path) -> Cutting:
        """Segments as long as the utterances that the model of a run was trained on; the defaults where no run says."""
        path = Path(folder, ENVIRONMENT)
        starts = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else None
        seconds = starts[-1].get("utterance_seconds") if starts else None
        if not seconds or not seconds["most"]:
            return cls()
        window = min(seconds["longest"], cls.window)
        return cls(usual=min(seconds["most"], cls.usual), window=window, overlap=min(cls.overlap, window / 2))

    def segments(self, source: str, channel: int) -> list[tuple[int, Segment]]:
        """(number of the passage, what to recognise at a time) of a file."""
        if self.pause is None:
            info = audio_info(source)
            passages = [Segment(0.0, info.num_samples / info.sample_rate)]
        else:
            passages = speech_segments(measure_levels(source, channel), self.pause, self.usual)
        return [
            (number, piece)
            for number, passage in enumerate(passages)
            for piece in windows(passage, self.window, self.overlap)
        ]


class Transcriber:
    """A trained model that reads recordings of any length, in memory that their length does not change."""

    def __init__(
        self,
        config: Config,
        tokenizer: Tokenizer,
        model: ASRModel,
        *,
        mode: str,
        options: DecodeOptions,
        scorers: Sequence[PrefixScorer] = (),
        device: torch.device | str = "cpu",
        batch_size: int = 8,
    ) -> None:
        """`options` ask for token times; `batch_size` segments are recognised at a time."""
        self.tokenizer, self.clock = tokenizer, FrameClock.of(model, config.dataset_conf)
        self._model = model.to(device).eval()
        self._mode, self._options, self._scorers = mode, options, scorers
        self._device, self._batch_size = device, batch_size
        self._channel = config.dataset_conf.singal_channel_conf.channel
        self._feature_dim = config.dataset_conf.feature_dim
        self._chain: tuple[Operator, ...] = (
            Resample(config.dataset_conf.resample_conf.resample_rate),
            *feature_operators(config.dataset_conf, training=False),
        )

    def transcribe(self, source: str, cutting: Cutting) -> Iterator[Passage]:
        """Passages of a file, as they are recognised; those without a word are left out.

        Raises:
            AudioError: the file cannot be read.
        """
        pieces = iter(cutting.segments(source, self._channel))
        batches = iter(lambda: list(islice(pieces, self._batch_size)), [])
        heard = (each for batch in batches for each in self._hear(source, batch))
        for _, group in groupby(heard, key=lambda item: item[0]):
            (_, (start, end), tokens), *others = group
            for _, segment, more in others:
                tokens = join(tokens, more, Segment(segment.start, end))
                end = segment.end
            if tokens:
                yield Passage(Segment(start, end), tokens)

    def words(self, tokens: Sequence[Token]) -> list[Word]:
        """Words of a passage; CTC's peaks say when, so that they seem shorter than they are."""
        half = self.clock.step / 2
        return [
            Word(text, tokens[first].time - half, tokens[last - 1].time + half, _mean(tokens[first:last]))
            for text, first, last in self.tokenizer.words([token.unit for token in tokens])
        ]

    def text(self, tokens: Sequence[Token]) -> str:
        """Text of the tokens."""
        return self.tokenizer.detokenize(token.unit for token in tokens)

    def _hear(self, source: str, pieces: list[tuple[int, Segment]]) -> list[tuple[int, Segment, list[Token]]]:
        """Recognise pieces of a file together: (number of the passage, segment, tokens)."""
        examples = [self._example(source, place, segment) for place, (_, segment) in enumerate(pieces)]
        batch = pad([example for example in examples if example is not None], self._feature_dim).to(self._device)
        nbests = []
        if len(batch):
            nbests = decode(self._model, batch.feats, batch.feats_lengths, [self._mode], self._options, self._scorers)[
                self._mode
            ]
        best = {int(key): nbest[0] for key, nbest in zip(batch.keys, nbests, strict=True)}
        return [
            (number, segment, self._tokens(best[place], segment) if place in best else [])
            for place, (number, segment) in enumerate(pieces)
        ]

    def _example(self, source: str, place: int, segment: Segment) -> Example | None:
        """Features of a segment; None where it is too short for a frame."""
        waveform, rate = read_audio(source, segment.start, segment.end, self._channel)
        example = Example(str(place), "", torch.from_numpy(waveform), rate, 0)
        try:
            for operator in self._chain:
                example = operator(example)
        except SkipSample:
            return None
        return example

    def _tokens(self, hypothesis: Hypothesis, segment: Segment) -> list[Token]:
        """Tokens on the clock of the recording; spread evenly where CTC has no path through them."""
        count = len(hypothesis.tokens)
        if hypothesis.frames is None:
            times = [segment.start + (segment.end - segment.start) * (place + 0.5) / count for place in range(count)]
            return [Token(unit, time, 0.0) for unit, time in zip(hypothesis.tokens, times, strict=True)]
        times = [segment.start + self.clock.middle(frame) for frame in hypothesis.frames]
        return list(map(Token, hypothesis.tokens, times, hypothesis.confidences))


def join(left: list[Token], right: list[Token], shared: Segment) -> list[Token]:
    """Tokens of two windows as one: none twice, none cut, where both heard `shared` seconds.

    The windows part behind a token that both hear at the same time, the one nearest the middle of what they share;
    where they agree on none, at the middle.
    """
    middle = (shared.start + shared.end) / 2
    first = sum(token.time < shared.start - SAME_TIME for token in left)
    last = sum(token.time <= shared.end + SAME_TIME for token in right)
    if common := _heard_twice(left[first:], right[:last]):
        here, there = min(common, key=lambda pair: abs(left[first + pair[0]].time - middle))
        return left[: first + here + 1] + right[there + 1 :]
    return [token for token in left if token.time < middle] + [token for token in right if token.time >= middle]


def _heard_twice(left: list[Token], right: list[Token]) -> list[tuple[int, int]]:
    """Places of tokens that are one another's nearest in time among those of the same unit."""
    if not left or not right:
        return []
    apart = abs(np.subtract.outer([token.time for token in left], [token.time for token in right]))
    other = np.not_equal.outer([token.unit for token in left], [token.unit for token in right])
    apart[other | (apart > SAME_TIME)] = np.inf
    nearest = (apart == apart.min(axis=0)) & (apart == apart.min(axis=1, keepdims=True)) & (apart < np.inf)
    return [(int(here), int(there)) for here, there in np.argwhere(nearest)]


def load_recogniser(folder: str | Path, checkpoint: str | Path | None) -> tuple[Config, Tokenizer, ASRModel]:
    """Load train.yaml and weights of an experiment; files that the yaml names are looked for around the folder too.

    Raises:
        OSError: a file is missing. ValueError: one does not fit.
    """
    folder = Path(folder)
    if checkpoint is None:
        checkpoint = next((folder / name for name in CHECKPOINTS if (folder / name).is_file()), None)
        if checkpoint is None:
            raise FileNotFoundError(f"{folder}: neither {' nor '.join(CHECKPOINTS)} in it; name one with --checkpoint")
    config = load_config(folder / "train.yaml")
    changes = {}
    for section, names in PATHS.items():
        conf = getattr(config, section)
        found = {name: _locate(getattr(conf, name), folder) for name in names if getattr(conf, name)}
        changes[section] = conf.model_copy(update=found)
    config = config.model_copy(update=changes)
    tokenizer = build_tokenizer(config)
    model = build_model(config)
    load_weights(model, checkpoint)
    return config, tokenizer, model


def _locate(path: str, folder: Path) -> str:
    """A path of the yaml, which was true where the model was trained: beneath the folder or one above it, or in it."""
    above = [folder.resolve(), *folder.resolve().parents]
    places = [*(parent / path for parent in above), folder / Path(path).name, Path(path)]
    return str(next((place for place in places if place.is_file()), path))


def _mean(tokens: Sequence[Token]) -> float:
    return sum(token.confidence for token in tokens) / len(tokens)
