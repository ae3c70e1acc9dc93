import pytest
import torch

from wenet_uio.search.ctc_path import align_tokens, collapse_labels, ctc_greedy_search


def test_repeats_are_merged_blanks_removed_and_the_frame_is_the_peak_of_a_run():
    labels = torch.tensor([[0, 3, 3, 0, 3, 5, 5], [5, 5, 5, 0, 0, 3, 3]])
    scores = -torch.tensor([[9.0, 2, 1, 9, 4, 1, 1], [3, 2, 1, 9, 9, 1, 1]])
    paths = collapse_labels(labels, scores, torch.tensor([7, 5]), blank=0)
    assert [path.tokens for path in paths] == [(3, 3, 5), (5,)]
    assert [path.peaks for path in paths] == [(2, 4, 5), (2,)]
    assert [path.scores for path in paths] == [(-1, -4, -1), (-1,)]
    assert [(path.starts, path.ends) for path in paths] == [((1, 4, 5), (3, 5, 7)), ((0,), (3,))]


def test_runs_do_not_cross_utterances():
    labels = torch.tensor([[0, 4], [4, 4]])
    assert [
        path.tokens
        for path in collapse_labels(labels, labels.float(), torch.tensor([2, 2]), blank=0)
    ] == [(4,), (4,)]


def test_a_run_that_continues_in_the_padding_ends_with_its_utterance():
    (path,) = collapse_labels(
        torch.tensor([[0, 4, 4, 4]]), torch.zeros(1, 4), torch.tensor([3]), blank=0
    )
    assert (path.starts, path.ends) == ((1,), (3,))


def test_only_blanks_or_no_frames_give_no_tokens():
    zeros = torch.zeros(2, 3, dtype=torch.long)
    for labels, lengths in ((zeros, [3, 0]), (zeros[:, :0], [0, 0])):
        paths = collapse_labels(labels, labels.float(), torch.tensor(lengths), blank=0)
        assert [path.tokens for path in paths] == [(), ()]


def test_greedy_search_scores_the_path_within_the_utterance():
    log_probs = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    nbests = ctc_greedy_search(log_probs, torch.tensor([5, 3]))
    best = log_probs.max(-1).values
    assert nbests[0][0].score == pytest.approx(best[0].sum().item())
    assert nbests[1][0].score == pytest.approx(best[1, :3].sum().item())
    for row, nbest in enumerate(nbests):
        assert len(nbest[0].tokens) == len(nbest[0].frames)
        assert nbest[0].confidences == pytest.approx(
            best[row, list(nbest[0].frames)].exp().tolist()
        )


def test_frames_of_given_tokens_lie_on_the_best_path_through_them():
    log_probs = torch.full((6, 3), -9.0)
    for frame, label in enumerate([0, 1, 1, 0, 1, 2]):
        log_probs[frame, label] = -0.1
    log_probs[2, 1] = -0.01
    path, score = align_tokens(log_probs, (1, 1, 2), blank=0)
    assert path.peaks == (2, 4, 5)
    assert (path.starts, path.ends) == ((1, 4, 5), (3, 5, 6))
    assert score == pytest.approx(-0.51)
    path, score = align_tokens(log_probs, (), blank=0)
    assert path.tokens == ()
    assert score == pytest.approx(log_probs[:, 0].sum().item())
    assert align_tokens(log_probs, (1, 1, 1, 1), blank=0) is None
    assert align_tokens(log_probs, (1, 0), blank=0) is None
