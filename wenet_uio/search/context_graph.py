"""Hot words: token sequences with a bonus (an Aho-Corasick automaton in tensors)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import torch

from wenet_uio.text.labels import Tokenizer

_NO_KEY = torch.iinfo(torch.int64).max
"""Key of the last transition, larger than all others."""


class ContextGraph:
    """A PrefixScorer with a bonus for each token that lies within an occurrence of a phrase.

    The bonus of a token is given as soon as a phrase may begin there, and is taken back if the
    phrase is not completed. With characters as tokens, "new yo" has the bonus of 6 tokens on the
    way to "new york". If "new" is a phrase too, 3 of them remain after "new ya". Phrases may begin
    with, contain and overlap each other. The total bonus of a finished sequence is `score` times
    the number of its tokens within phrases.

    The state of the automaton is the longest suffix of the sequence that begins a phrase, together
    with the tokens of that suffix whose bonus may be taken back. Source: Aho and Corasick 1975.
    """

    state_size = 1

    def __init__(
        self, phrases: Sequence[Sequence[int]], score: float, device: torch.device | str = "cpu"
    ) -> None:
        """Build the automaton of `phrases` (token ids; empty phrases are ignored)."""
        # One token can take back many negative bonuses at once, so their growth has no limit.
        self.most = score if score >= 0 else torch.inf

        transitions, pending = _automaton(phrases)
        keys, order = torch.tensor(list(transitions), device=device).sort()
        targets, earned = zip(*transitions.values(), strict=True)

        self._keys = keys
        self._targets = torch.tensor(targets, device=device)[order]
        self._earned = score * torch.tensor(earned, dtype=torch.float64, device=device)[order]
        self._pending = score * torch.tensor(pending, dtype=torch.float64, device=device)

    def begin(self) -> ContextGraph:
        """As PrefixScorer.begin."""
        return self

    def extend(
        self, states: torch.Tensor, tokens: torch.Tensor, wanted: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As PrefixScorer.extend."""
        continuation, continues = self._find(states << 32 | tokens.unsqueeze(1))

        # Where no phrase continues, a new one may begin: a transition of state 0, whose key is the
        # token. Else the last transition leads to state 0 without a bonus.
        beginning, begins = self._find(tokens.contiguous())
        beginning = beginning.masked_fill(~begins, len(self._keys) - 1).unsqueeze(1)

        transition = torch.where(continues, continuation, beginning)  # (B, N, K)
        next_states = self._targets[transition].unsqueeze(3)
        return next_states, self._earned[transition] - self._pending[states]

    def end(self, states: torch.Tensor) -> torch.Tensor:
        """As PrefixScorer.end: take back the bonus of incomplete phrases."""
        return -self._pending[states.squeeze(2)]

    def _find(self, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Look up transitions by their keys `state << 32 | token`: index, and whether it exists."""
        index = torch.searchsorted(self._keys, keys)
        return index, self._keys[index] == keys


def tokenize_phrases(
    lines: Iterable[str], tokenizer: Tokenizer
) -> tuple[list[list[int]], list[str]]:
    """Spell phrases in units; empty phrases are left out.

    Returns:
        Token ids of each phrase, and the phrases that the units cannot spell.
    """
    phrases: list[list[int]] = []
    unknown: list[str] = []
    for line in lines:
        if not line.strip():
            continue
        for tokens in tokenizer.spellings(line):
            if all(token in tokenizer.symbols for token in tokens):
                phrases.append([tokenizer.symbols[token] for token in tokens])
            else:
                unknown.append(line.strip())

    return phrases, unknown


def _trie(phrases: Sequence[Sequence[int]]) -> tuple[list[dict[int, int]], list[int], list[int]]:
    """Build the trie of the phrases; node 0 is the root.

    Returns:
        For each node: {token: child}, its depth, and the length of the phrase that ends there (0:
            none).
    """
    children: list[dict[int, int]] = [{}]
    depth, ends = [0], [0]
    for phrase in phrases:
        node = 0
        for token in phrase:
            if token not in children[node]:
                children[node][token] = len(children)
                children.append({})
                depth.append(depth[node] + 1)
                ends.append(0)
            node = children[node][token]

        ends[node] = depth[node]

    return children, depth, ends


def _automaton(phrases: Sequence[Sequence[int]]) -> tuple[dict[int, tuple[int, int]], list[int]]:
    """Build the automaton of all phrases; state 0 is the state of the empty sequence.

    A token is pending in a state if its bonus was given but may still be taken back.

    Returns:
        {state << 32 | token: (next state, tokens pending there or final after this step)}, without
        the transitions that equal those of state 0. The key _NO_KEY stands for all transitions to
        state 0 without a bonus. The second result is the number of pending tokens of each state.
    """
    children, depth, ends = _trie(phrases)
    next_nodes = _next_nodes(children, depth, ends)

    # A state is a trie node and a bit for each token of its sequence: 1 if the bonus of that token
    # is pending. The lowest bit is the newest token.
    states = [(0, 0)]
    state_numbers = {states[0]: 0}
    in_sequence = [(1 << length) - 1 for length in depth]  # bits of the tokens of a node
    not_final = [~((1 << length) - 1) for length in ends]  # bits that no complete phrase covers

    transitions: dict[int, tuple[int, int]] = {}
    for number, (node, pending) in enumerate(states):  # the loop appends to `states`
        pending_with_token = pending << 1 | 1
        for token, target in next_nodes[node].items():
            counted = pending_with_token & in_sequence[target]
            state = target, counted & not_final[target]
            target_number = state_numbers.setdefault(state, len(states))
            if target_number == len(states):
                states.append(state)

            transitions[number << 32 | token] = target_number, counted.bit_count()

    transitions[_NO_KEY] = 0, 0
    return transitions, [pending.bit_count() for _, pending in states]


def _next_nodes(
    children: list[dict[int, int]], depth: list[int], ends: list[int]
) -> list[dict[int, int]]:
    """Find {token: next node} of each node, without the transitions that equal those of the root.

    Updates `ends` to the length of the longest phrase that is a suffix of each node's sequence.
    """
    next_nodes: list[dict[int, int]] = [{} for _ in children]
    fail = [0] * len(children)
    """For each node the longest other node whose sequence is a suffix of its own."""

    queue = deque([0])  # breadth first: a node comes after its suffixes, which are shorter
    while queue:
        node = queue.popleft()
        ends[node] = max(ends[node], ends[fail[node]])
        if node:
            next_nodes[node] = next_nodes[fail[node]] | children[node]

        for token, child in children[node].items():
            if node:
                fail[child] = next_nodes[fail[node]].get(token, children[0].get(token, 0))
            queue.append(child)

    next_nodes[0] = children[0]
    return next_nodes
