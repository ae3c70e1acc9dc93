"""Hot words: token sequences with a bonus (an Aho-Corasick automaton in tensors)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import and_, mul
from typing import NamedTuple

import torch

from wenet_uio.text.labels import Tokenizer

_NO_KEY = torch.iinfo(torch.int64).max
"""Key of the last transition, larger than all others."""
MOST_SCORES = 16
"""Different scores of phrases. The time for each transition of the automaton grows with them."""
_WITH_SCORE = re.compile(r"(.*\S)\s+:([-+]?(?:\d+\.?\d*|\.\d+))\s*", re.DOTALL)
"""A phrase and its score, as sherpa and k2 write them: `new york :2.0`."""


class Phrase(NamedTuple):
    """A hot phrase in the units of a model."""

    tokens: list[int]
    score: float | None
    """Bonus of each token; None: that of all phrases without a score."""


class ContextGraph:
    """A PrefixScorer with a bonus for each token that lies within an occurrence of a phrase.

    The bonus of a token is given as soon as a phrase may begin there, and is taken back if the
    phrase is not completed. With characters as tokens, "new yo" has the bonus of 6 tokens on the
    way to "new york". If "new" is a phrase too, 3 of them remain after "new ya". Phrases may begin
    with, contain and overlap each other. The total bonus of a finished sequence is the sum over its
    tokens of the highest score of the phrases that cover the token (of negative scores the lowest).

    The state of the automaton is the longest suffix of the sequence that begins a phrase, together
    with the tokens of that suffix whose bonus may be taken back. Source: Aho and Corasick 1975.
    """

    state_size = 1

    def __init__(
        self,
        phrases: Sequence[Sequence[int]],
        score: float | Sequence[float],
        device: torch.device | str = "cpu",
    ) -> None:
        """Build the automaton of `phrases` (token ids; empty phrases are ignored).

        Args:
            score: bonus of each token of a phrase, or one for each phrase. If a phrase comes
                twice, its last score counts.

        Raises:
            ValueError: there are more than MOST_SCORES different scores.
        """
        scores = [score] * len(phrases) if isinstance(score, (int, float)) else list(score)
        different = len(set(scores))
        if different > MOST_SCORES:
            raise ValueError(
                f"hot words with {different} different scores; at most {MOST_SCORES}: round them"
            )

        self.most: float = max(scores, default=0.0)
        if min(scores, default=0.0) < 0:
            # One token can take back many negative bonuses at once, so their growth has no limit.
            self.most = torch.inf

        transitions, pending = _build_automaton(phrases, scores)
        keys, order = torch.tensor(list(transitions), device=device).sort()
        targets, earned = zip(*transitions.values(), strict=True)

        self._keys = keys
        self._targets = torch.tensor(targets, device=device)[order]
        self._earned = torch.tensor(earned, dtype=torch.float64, device=device)[order]
        self._pending = torch.tensor(pending, dtype=torch.float64, device=device)

    def begin(self) -> ContextGraph:
        """As PrefixScorer.begin."""
        return self

    def extend(
        self, states: torch.Tensor, tokens: torch.Tensor, wanted: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As PrefixScorer.extend: states (B, N, 1), tokens (B, K)."""
        continuation, continues = self._find_transitions(states << 32 | tokens.unsqueeze(1))

        # Where no phrase continues, a new one may begin: a transition of state 0, whose key is the
        # token. Else the last transition leads to state 0 without a bonus.
        beginning, begins = self._find_transitions(tokens.contiguous())
        beginning = beginning.masked_fill(~begins, len(self._keys) - 1).unsqueeze(1)

        transition = torch.where(continues, continuation, beginning)  # (B, N, K)
        next_states = self._targets[transition].unsqueeze(3)
        return next_states, self._earned[transition] - self._pending[states]

    def end(self, states: torch.Tensor) -> torch.Tensor:
        """As PrefixScorer.end: take back the bonus of incomplete phrases."""
        return -self._pending[states.squeeze(2)]

    def _find_transitions(self, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Look up transitions by their keys `state << 32 | token`.

        Returns:
            an index for each key, and whether the transition at this index has the key.
        """
        index = torch.searchsorted(self._keys, keys)  # never past the end: _NO_KEY is the last
        return index, self._keys[index] == keys


def tokenize_phrases(lines: Iterable[str], tokenizer: Tokenizer) -> tuple[list[Phrase], list[str]]:
    """Spell phrases in units; empty phrases are left out. `phrase :2.0` has a score of its own.

    Returns:
        The phrases, and those, without their scores, that the units cannot spell.
    """
    phrases: list[Phrase] = []
    unknown: list[str] = []
    for line in lines:
        if not line.strip():
            continue
        text, score = text_and_score(line)
        for tokens in tokenizer.spellings(text):
            if all(token in tokenizer.symbols for token in tokens):
                phrases.append(Phrase([tokenizer.symbols[token] for token in tokens], score))
            else:
                unknown.append(text.strip())

    return phrases, unknown


def text_and_score(line: str) -> tuple[str, float | None]:
    """Cut a line into a phrase and its score; None if the line does not end with one."""
    match = _WITH_SCORE.fullmatch(line)
    return (match[1], float(match[2])) if match else (line, None)


class _Trie(NamedTuple):
    """The trie of the phrases; node 0 is the root. One entry for each node."""

    children: list[dict[int, int]]
    """{token: child}."""
    depth: list[int]
    score: list[float]
    """Score of the phrase that ends at the node; 0 if none does."""


def _build_trie(phrases: Sequence[Sequence[int]], scores: Sequence[float]) -> _Trie:
    """Build the trie of phrases: phrases that begin alike share nodes."""
    trie = _Trie(children=[{}], depth=[0], score=[0.0])
    for phrase, score in zip(phrases, scores, strict=True):
        node = 0
        for token in phrase:
            if token not in trie.children[node]:
                trie.children[node][token] = len(trie.children)
                trie.children.append({})
                trie.depth.append(trie.depth[node] + 1)
                trie.score.append(0.0)
            node = trie.children[node][token]

        if node:
            trie.score[node] = score

    return trie


class _Level(NamedTuple):
    """A part of the scores: what those at or beyond one score have more than the next lower one.

    A mask has one bit for each token of a node's sequence; the lowest bit is the newest token.
    """

    gain: float
    """Bonus of a token within a phrase of the level."""
    begun: list[int]
    """For each node the mask of the tokens that a phrase of the level may cover."""
    open: list[int]
    """For each node the mask of the tokens that no complete phrase of the level covers."""


def _build_levels(trie: _Trie, suffix: Sequence[int], order: Sequence[int]) -> list[_Level]:
    """Cut the scores into levels: their gains add up to the score of each phrase.

    Args:
        order: nodes; each comes after its parent and its suffix.
    """
    rising = sorted({score for score in trie.score if score > 0})
    falling = sorted({score for score in trie.score if score < 0}, reverse=True)

    levels: list[_Level] = []
    for below, bound in pairwise([0.0, *rising]):
        ends = [score >= bound for score in trie.score]
        levels.append(_build_level(trie, suffix, order, ends, bound - below))
    for above, bound in pairwise([0.0, *falling]):
        ends = [score <= bound for score in trie.score]
        levels.append(_build_level(trie, suffix, order, ends, bound - above))

    return levels


def _build_level(
    trie: _Trie, suffix: Sequence[int], order: Sequence[int], ends: Sequence[bool], gain: float
) -> _Level:
    """Find, for the phrases of one level, which tokens of each node they may cover, and which they
    cover.

    Args:
        trie: of all phrases.
        suffix: for each node the longest other node whose sequence is a suffix of its own.
        order: nodes; each comes after its parent and its suffix.
        ends: for each node, whether a phrase of the level ends there.
        gain: bonus of a token within such a phrase.
    """
    leads_to_end = list(ends)
    for node in reversed(order):
        children = trie.children[node].values()
        leads_to_end[node] |= any(leads_to_end[child] for child in children)

    begun, ended = [0] * len(order), [0] * len(order)
    for node in order[1:]:
        all_tokens = (1 << trie.depth[node]) - 1  # a bit for each token from the root to the node
        begun[node] = all_tokens if leads_to_end[node] else begun[suffix[node]]
        ended[node] = all_tokens if ends[node] else ended[suffix[node]]

    return _Level(gain, begun, [~mask for mask in ended])


def _group_by_node(masks_of_levels: list[list[int]], nodes: int) -> list[tuple[int, ...]]:
    """Turn one list of masks for each level into one tuple of masks for each node."""
    if not masks_of_levels:
        return [()] * nodes
    return list(zip(*masks_of_levels, strict=True))


def _build_automaton(
    phrases: Sequence[Sequence[int]], scores: Sequence[float]
) -> tuple[dict[int, tuple[int, float]], list[float]]:
    """Build the automaton of all phrases; state 0 is the state of the empty sequence.

    A token is pending in a state, at a level, if its bonus was given but may still be taken back.

    Returns:
        {state << 32 | token: (next state, bonus of the tokens that are pending there or final after
            this step)}, without the transitions that equal those of state 0. The key _NO_KEY stands
            for all transitions to state 0 without a bonus. The second result is the bonus of the
            pending tokens of each state.
    """
    trie = _build_trie(phrases, scores)
    next_nodes, suffix, order = _link_nodes(trie)
    levels = _build_levels(trie, suffix, order)
    gains = [level.gain for level in levels]
    begun = _group_by_node([level.begun for level in levels], len(order))
    open_tokens = _group_by_node([level.open for level in levels], len(order))

    # A state is a trie node and, for each level, the mask of the tokens that are pending.
    no_tokens = (0,) * len(levels)
    states: list[tuple[int, tuple[int, ...]]] = [(0, no_tokens)]
    state_numbers = {(0, no_tokens): 0}

    transitions: dict[int, tuple[int, float]] = {}
    for number, (node, pending) in enumerate(states):  # the loop appends to `states`
        pending_with_token = [mask << 1 | 1 for mask in pending]
        for token, target in next_nodes[node].items():
            counted = tuple(map(and_, pending_with_token, begun[target]))
            still_pending = tuple(map(and_, counted, open_tokens[target]))
            target_state = target, still_pending
            target_number = state_numbers.setdefault(target_state, len(states))
            if target_number == len(states):
                states.append(target_state)

            transitions[number << 32 | token] = target_number, _sum_bonus(gains, counted)

    transitions[_NO_KEY] = 0, 0.0
    return transitions, [_sum_bonus(gains, pending) for _, pending in states]


def _sum_bonus(gains: Sequence[float], masks: Sequence[int]) -> float:
    """Return the bonus of the tokens of a mask for each level."""
    return sum(map(mul, gains, map(int.bit_count, masks)))


def _link_nodes(trie: _Trie) -> tuple[list[dict[int, int]], list[int], list[int]]:
    """Find {token: next node} of each node, without the transitions that equal those of the root.

    Returns:
        These; for each node the longest other node whose sequence is a suffix of its own; and all
        nodes, each after its parent and its suffix.
    """
    children = trie.children
    next_nodes: list[dict[int, int]] = [{} for _ in children]
    suffix = [0] * len(children)

    order = [0]  # breadth first: a node comes after its suffixes, which are shorter
    for node in order:  # the loop appends to `order`
        if node:
            next_nodes[node] = next_nodes[suffix[node]] | children[node]

        for token, child in children[node].items():
            if node:
                from_root = children[0].get(token, 0)
                suffix[child] = next_nodes[suffix[node]].get(token, from_root)
            order.append(child)

    next_nodes[0] = children[0]
    return next_nodes, suffix, order
