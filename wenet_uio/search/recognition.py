"""Decode a test set: batches in, one set of files for each decode mode out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from wenet_uio.base.files import written_aside
from wenet_uio.base.messages import hides_bar
from wenet_uio.base.uris import shown
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.types import Batch, SampleRef, Skipped
from wenet_uio.search.confidence import rounded_confidence, word_confidence
from wenet_uio.search.decode import Search, check_search, decode
from wenet_uio.search.modes import check_parts
from wenet_uio.search.recogniser import FrameClock, Recogniser
from wenet_uio.search.types import Hypothesis, NBest
from wenet_uio.text.labels import Tokenizer


@dataclass
class Recognition:
    """Results of decoding a test set."""

    texts: dict[str, dict[str, str]] = field(default_factory=dict)
    """{mode: {key: text}}."""
    nbests: dict[str, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)
    """{mode: {key: hypotheses as JSON}}; empty unless n-best lists are wanted."""
    skipped: list[Skipped] = field(default_factory=list)
    """Utterances that could not be read."""
    seconds: float = 0.0
    """Length of the decoded audio."""

    def join(self, other: Recognition) -> None:
        """Add the results of other utterances."""
        for mode, texts in other.texts.items():
            self.texts.setdefault(mode, {}).update(texts)
        for mode, nbests in other.nbests.items():
            self.nbests.setdefault(mode, {}).update(nbests)

        self.skipped += other.skipped
        self.seconds += other.seconds


def recognize(
    recogniser: Recogniser,
    batches: Iterable[Batch],
    search: Search,
    *,
    device: torch.device,
    nbests: bool = False,
    utterances: int | None = None,
) -> Recognition:
    """Decode every batch in every mode; the encoder runs once for all modes.

    Args:
        nbests: fill `Recognition.nbests`.
        utterances: number of utterances, for the progress bar; None shows no bar.

    Raises:
        ValueError: for a mode that the model was not trained for.
    """
    model, tokenizer = recogniser.model, recogniser.tokenizer
    clock = recogniser.clock if nbests else None
    check_parts(model, search.modes)
    check_search(model, search.modes, search.options)
    recognition = Recognition(
        {mode: {} for mode in search.modes}, {mode: {} for mode in search.modes if nbests}
    )
    model.to(device).eval()
    has_language = "language" in model.family.decoding.options
    hide_bar = True if utterances is None else hides_bar()

    with tqdm(total=utterances, desc="decoding", unit="utt", disable=hide_bar) as bar:
        for batch in batches:
            if len(batch):
                moved = batch.to(device)
                search_of_batch = _set_languages(search, batch) if has_language else search
                decoded = decode(model, moved.feats, moved.feats_lengths, *search_of_batch)
                _add_hypotheses(recognition, batch.keys, decoded, tokenizer, clock)

            recognition.skipped.extend(batch.skipped)
            recognition.seconds += batch.seconds
            bar.update(len(batch) + len(batch.skipped))

    return recognition


def _set_languages(search: Search, batch: Batch) -> Search:
    """Return the search with the language of each utterance: its field `lang`, else the option."""
    assert not isinstance(search.options.language, tuple)
    languages = tuple(fields.get("lang") or search.options.language for fields in batch.extra)
    return search._replace(options=replace(search.options, language=languages))


def _add_hypotheses(
    recognition: Recognition,
    keys: Iterable[str],
    decoded: dict[str, list[NBest]],
    tokenizer: Tokenizer,
    clock: FrameClock | None,
) -> None:
    """Add the hypotheses of a batch; n-best lists only with a clock."""
    for mode, nbests in decoded.items():
        for key, nbest in zip(keys, nbests, strict=True):
            recognition.texts[mode][key] = tokenizer.detokenize(nbest[0].tokens)
            if clock:
                recognition.nbests[mode][key] = [
                    hypothesis_record(hypothesis, tokenizer, clock) for hypothesis in nbest
                ]


def corpus_keys(corpus: Corpus) -> list[str]:
    """Return keys of all utterances, in the order of the list."""
    return [
        corpus.key(SampleRef(shard, row))
        for shard in range(corpus.num_shards)
        for row in range(corpus.samples[shard])
    ]


def hypothesis_record(
    hypothesis: Hypothesis, tokenizer: Tokenizer, clock: FrameClock
) -> dict[str, Any]:
    """Return a hypothesis as an object of nbest.jsonl.

    The object has `text` and `score`. If the probabilities of the tokens are known, the object also
    has `words`, each with `word` and `confidence`. If the hypothesis has token times, the object also
    has `confidence` (absent without tokens) and `tokens`, each with `token`, `time` in seconds and
    `confidence`. In the mode attention, `confidence` is that of the decoder, also without token
    times. From a decoder with a prompt come `language`, and with timestamps `segments`, each with
    `start` and `end` in seconds (null: the end of the utterance) and `text`.
    """
    values: dict[str, Any] = {
        "text": tokenizer.detokenize(hypothesis.tokens),
        "score": round(hypothesis.score, 4),
    }
    if hypothesis.language is not None:
        values["language"] = hypothesis.language

    if hypothesis.spans is not None:
        values["segments"] = [
            {
                "start": round(span.start, 3),
                "end": None if span.end is None else round(span.end, 3),
                "text": tokenizer.detokenize(hypothesis.tokens[span.first : span.last]),
            }
            for span in hypothesis.spans
        ]

    confidence = hypothesis.decoder_confidence
    if confidence is None:
        confidence = hypothesis.confidence
    if confidence is not None:
        values["confidence"] = rounded_confidence(confidence)

    confidences = hypothesis.token_confidences
    if confidences is None:
        return values

    values["words"] = [
        {"word": word, "confidence": rounded_confidence(word_confidence(confidences[first:last]))}
        for word, first, last in tokenizer.words(hypothesis.tokens)
    ]
    if hypothesis.frames is not None:
        values["tokens"] = [
            {
                "token": tokenizer.symbol(token),
                "time": round(clock.middle(frame), 3),
                "confidence": rounded_confidence(confidence),
            }
            for token, frame, confidence in zip(
                hypothesis.tokens, hypothesis.frames, confidences, strict=True
            )
        ]

    return values


def write_recognition(
    recognition: Recognition, keys: Iterable[str], result_dir: str | Path
) -> None:
    """Write the results of each mode, in the order of `keys`.

    RESULT_DIR/<mode>/text          `key text` lines
    RESULT_DIR/<mode>/nbest.jsonl   JSON lines with `key` and its `hypotheses`, best first; only with n-best lists
    RESULT_DIR/skipped              `key reason: detail` lines; empty if every utterance was read
    """
    result_dir, keys = Path(result_dir), list(keys)
    for mode, texts in recognition.texts.items():
        with written_aside(result_dir / mode / "text", "w") as file:
            file.writelines(f"{key} {texts[key]}".rstrip() + "\n" for key in keys if key in texts)

    for mode, nbests in recognition.nbests.items():
        with written_aside(result_dir / mode / "nbest.jsonl", "w") as file:
            for key in keys:
                if key in nbests:
                    record = {"key": key, "hypotheses": nbests[key]}
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")

    with written_aside(result_dir / "skipped", "w") as file:
        for sample in recognition.skipped:
            file.write(shown(f"{sample.key} {sample.reason}: {sample.detail}\n"))
