import random

import pytest
import torch

from wenet_uio.addons.listen.options import Cutting, TranscribeOptions
from wenet_uio.addons.listen.passages import Passage, Token, join_windows
from wenet_uio.addons.listen.results import TAIL, srt_lines
from wenet_uio.addons.listen.speech import USUAL_MARGINS, Segment, cut_windows
from wenet_uio.addons.listen.transcription import Transcriber, faded
from wenet_uio.config import parse_config
from wenet_uio.search.recogniser import FrameClock
from wenet_uio.search.types import Hypothesis
from wenet_uio.text.char import CharSplitter
from wenet_uio.text.labels import Tokenizer
from wenet_uio.train.checkpoint import RunFolder


def units(tokens):
    return [token.unit for token in tokens]


@pytest.mark.parametrize("vocabulary", [1, 2, 5, 100])
def test_windows_join_to_the_tokens_of_the_recording_despite_jitter(vocabulary):
    draw = random.Random(vocabulary)
    for _ in range(200):
        times = [
            0.2 * place + draw.uniform(0, 0.1) + 0.5 for place in range(300) if draw.random() < 0.7
        ]
        spoken = [Token(draw.randrange(vocabulary), time, 1.0) for time in times]
        joined, end = None, 0.0
        for window in cut_windows(Segment(0.0, 61.0), 20.0, 4.0):
            in_window = [token for token in spoken if window.start <= token.time < window.end]
            in_window = [
                token._replace(time=token.time + draw.uniform(-0.02, 0.02)) for token in in_window
            ]
            joined = (
                in_window
                if joined is None
                else join_windows(joined, in_window, Segment(window.start, end))
            )
            end = window.end
        assert units(joined) == units(spoken)


def test_errors_at_the_edges_of_windows_are_removed():
    left = [Token(1, 1.0, 1), Token(2, 2.0, 1), Token(3, 3.0, 1), Token(99, 3.9, 1)]  # cut at 4 s
    right = [Token(98, 2.0, 1), Token(3, 3.0, 1), Token(4, 4.0, 1)]  # begins at 2 s
    assert units(join_windows(left, right, Segment(2.0, 4.0))) == [1, 2, 3, 4]


def test_windows_without_a_common_token_are_cut_at_the_middle():
    left = [Token(1, 2.5, 1), Token(2, 3.5, 1)]
    right = [Token(3, 2.6, 1), Token(4, 3.6, 1)]
    assert units(join_windows(left, right, Segment(2.0, 4.0))) == [1, 4]
    assert units(join_windows([], right, Segment(2.0, 4.0))) == [4]


@pytest.mark.parametrize(
    "bad",
    [
        {"overlap": 0},
        {"window": 5, "overlap": 3},
        {"pause": -1.0},
        {"usual": 0.0},
        {"detector": "x"},
    ],
)
def test_wrong_times_are_refused_by_name(bad):
    with pytest.raises(ValueError, match=list(bad)[-1]):
        Cutting(**bad)


def test_segments_are_limited_to_the_lengths_of_training_utterances(tmp_path):
    assert Cutting.of_run(tmp_path) == Cutting()  # a folder without environment.yaml
    run = RunFolder(tmp_path)
    run.note_start({"started": "2026-01-01 00:00:00"})
    assert Cutting.of_run(tmp_path) == Cutting()
    run.note_start({"utterance_seconds": {"median": 0.4, "most": 0.7, "longest": 2.0}})
    assert Cutting.of_run(tmp_path) == Cutting(usual=0.7, window=2.0, overlap=1.0)
    run.note_start({"utterance_seconds": {"median": 12.0, "most": 16.0, "longest": 35.0}})
    assert Cutting.of_run(tmp_path) == Cutting()


class Spelling(Transcriber):
    """A transcriber without a model, for subtitles."""

    def __init__(self):
        self.tokenizer = Tokenizer(
            CharSplitter(), {letter: unit for unit, letter in enumerate("▁abcdefgh")}
        )
        self.clock = FrameClock(step=0.04, offset=0.0, shift=0.01)


def spoken_passage(text, start, step=0.1):
    letters = Spelling().tokenizer.symbols
    tokens = [
        Token(letters[letter.replace(" ", "▁")], start + place * step, 1.0)
        for place, letter in enumerate(text)
    ]
    return Passage(Segment(start, start + len(text) * step), tokens)


def test_words_last_until_the_next_begins_or_the_segment_ends():
    words = Spelling().segment(spoken_passage("ab c", 1.0)).words
    assert [word.text for word in words] == ["ab", "c"]
    assert [word.start for word in words] == pytest.approx([0.98, 1.28])
    assert [word.end for word in words] == pytest.approx([1.28, 1.4])


def test_a_word_before_a_pause_ends_soon_after_its_last_token_and_with_its_segment():
    tokens = [Token(1, 1.0, 1.0), Token(0, 1.1, 1.0), Token(2, 9.0, 1.0), Token(0, 9.1, 1.0)]
    passage = Passage(Segment(0.0, 60.0), [*tokens, Token(3, 59.99, 1.0)])
    words = Spelling().segment(passage).words
    assert [word.end for word in words] == pytest.approx([1.02 + TAIL, 9.02 + TAIL, 60.01])
    cues = Spelling().segment(passage).cues()
    assert [cue.text for cue in cues] == ["a", "b", "c"]
    assert Spelling().segment(Passage(Segment(0.0, 1.0), [])).words == ()


def test_a_word_begins_with_its_first_letter_not_with_the_space_in_the_pause_before():
    tokens = [Token(0, 0.5, 1.0), Token(1, 3.0, 1.0), Token(0, 3.5, 1.0), Token(2, 7.0, 1.0)]
    words = Spelling().segment(Passage(Segment(0.0, 8.0), tokens)).words
    assert [word.start for word in words] == pytest.approx([2.98, 6.98])
    assert [len(word.tokens) for word in words] == [2, 2]


def test_what_is_not_known_of_a_word_is_null_and_no_part_of_a_mean():
    spelling = Spelling()
    whole = Segment(0.0, 2.0)
    tokens = spelling.tokens(Hypothesis((1, 0, 2), -3.0), whole)
    assert [token.confidence for token in tokens] == [None] * 3
    (first, second) = spelling.segment(Passage(whole, tokens)).words
    assert (first.confidence, second.confidence) == (None, None)
    assert second.to_dict()["confidence"] is None

    half = [tokens[0]._replace(confidence=0.9), *tokens[1:]]
    (first, second) = spelling.segment(Passage(whole, half)).words
    assert (first.confidence, second.confidence) == (0.9, None)


def test_a_word_of_many_improbable_tokens_is_written_with_a_confidence_above_0():
    tokens = [Token(1, 1.0, 1e-30) for _ in range(50)]
    (word,) = Spelling().segment(Passage(Segment(0.0, 2.0), tokens)).words
    assert 0 < word.confidence < 1e-4
    assert word.to_dict()["confidence"] == 1e-4


def test_words_with_the_same_frame_do_not_end_before_they_begin():
    tokens = [Token(1, 1.0, 1.0), Token(0, 1.0, 1.0), Token(2, 1.0, 1.0)]
    words = Spelling().segment(Passage(Segment(0.5, 1.0), tokens)).words
    assert [word.end - word.start for word in words] == pytest.approx([0.04, 0.04])


def test_subtitles_break_at_pauses_between_words_and_do_not_overlap():
    passages = [
        spoken_passage("ab cd", 0.5),
        spoken_passage("ef", 1.2),
        spoken_passage("gh " * 60, 3600.0),
    ]
    cues = [
        cue.split("\n")
        for cue in srt_lines([cue for each in passages for cue in Spelling().segment(each).cues()])
    ]
    assert [cue[0] for cue in cues] == [str(number + 1) for number in range(len(cues))]
    assert cues[0][1:3] == ["00:00:00,480 --> 00:00:01,180", "ab cd"]  # the next cue begins
    # Shown for a second, although the speech is shorter
    assert cues[1][1:3] == [
        "00:00:01,180 --> 00:00:02,180",
        "ef",
    ]
    assert cues[2][1].startswith("00:59:59,980 --> 01:00:0")
    assert all(set(cue[2].split()) == {"gh"} and len(cue[2]) <= 80 for cue in cues[2:])
    assert sum(len(cue[2].split()) for cue in cues[2:]) == 60


def test_tokens_without_ctc_times_are_evenly_spaced():
    tokens = Spelling().tokens(Hypothesis((1, 2), 0.0), Segment(10.0, 14.0))
    assert [token.time for token in tokens] == [11.0, 13.0]


def test_quiet_that_was_cut_is_faded_and_nothing_else_changes():
    waveform = torch.ones(100)
    both = faded(waveform, 20, (True, True))
    assert (float(both[0]), float(both[-1])) == (0.0, 0.0)
    assert torch.equal(both, both.flip(0))
    assert bool((both[:20].diff() > 0).all())
    assert torch.equal(both[20:80], waveform[20:80])
    assert torch.equal(faded(waveform, 20, (False, True))[:80], waveform[:80])
    assert torch.equal(waveform, torch.ones(100))
    assert faded(waveform, 20, (False, False)) is waveform
    assert faded(waveform, 60, (True, True)) is waveform  # too short to be faded


def test_the_quiet_that_is_kept_is_that_of_the_option_else_of_the_training_else_usual():
    unknown = Cutting().for_model(parse_config({"output_dim": 9}, "test"))
    heard = {"heard_quiet": {"before": 0.35, "behind": 0.0}}
    known = Cutting().for_model(parse_config({"output_dim": 9, "dataset_conf": heard}, "test"))
    assert unknown.margins == USUAL_MARGINS
    assert known.margins == (0.35, 0.02)
    for cutting in (known, unknown):
        assert TranscribeOptions().cutting(cutting) == cutting
        assert TranscribeOptions(kept_quiet=0.5).cutting(cutting).margins == (0.5, 0.5)
        assert TranscribeOptions(kept_quiet=0.0).cutting(cutting).margins == (0.02, 0.02)
    for wrong in (-0.1, float("nan")):
        with pytest.raises(ValueError, match="kept_quiet: expected 0 or more seconds, found"):
            TranscribeOptions(kept_quiet=wrong)
