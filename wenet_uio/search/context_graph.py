"""Hot words: token sequences that earn a bonus (an Aho-Corasick automaton, in tensors)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path

import torch

from wenet_uio.text.table import numbered_lines
from wenet_uio.text.tokenizer import Tokenizer

_NO_KEY = torch.iinfo(torch.int64).max
"""Behind all transitions."""


class ContextGraph:
    """A PrefixScorer: every token that lies within an occurrence of a phrase earns the bonus, once.

    A phrase that is begun earns as it grows, and gives back what it does not complete: "new yo" counts 6 tokens on the
    way to "new york", and 3 of them stay after "new ya" where "new" is a phrase too. Phrases may begin with, contain
    and overlap one another. So the whole bonus of a finished sequence is `score` times its tokens in phrases.

    The state is that of the automaton: the longest tail of the sequence that begins a phrase, and which tokens of that
    tail have not earned for good. Source: Aho and Corasick 1975.
    """

    state_size = 1

    def __init__(self, phrases: Sequence[Sequence[int]], score: float, device: torch.device | str = "cpu") -> None:
        """`phrases` are token ids; empty ones are not read."""
        self.most = score if score >= 0 else torch.inf  # a negative one can be given back many times at once
        transitions, pending = _automaton(phrases)
        keys, order = torch.tensor(list(transitions), device=device).sort()
        targets, earned = zip(*transitions.values(), strict=True)
        self._keys = keys
        self._targets = torch.tensor(targets, device=device)[order]
        self._earned = score * torch.tensor(earned, dtype=torch.float64, device=device)[order]
        self._pending = score * torch.tensor(pending, dtype=torch.float64, device=device)

    def extend(
        self, states: torch.Tensor, tokens: torch.Tensor, wanted: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As PrefixScorer.extend."""
        place, known = self._find(states << 32 | tokens.unsqueeze(1))
        afresh, begins = self._find(tokens.contiguous())  # where no phrase goes on, one may begin
        afresh = afresh.masked_fill(~begins, len(self._keys) - 1).unsqueeze(1)
        place = torch.where(known, place, afresh)  # (B, N, K)
        return self._targets[place].unsqueeze(3), self._earned[place] - self._pending[states]

    def end(self, states: torch.Tensor) -> torch.Tensor:
        """As PrefixScorer.end: phrases that were begun only give back."""
        return -self._pending[states.squeeze(2)]

    def _find(self, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Place of each transition `state << 32 | token`, and whether there is one."""
        place = torch.searchsorted(self._keys, keys)
        return place, self._keys[place] == keys


def read_phrases(path: str | Path, tokenizer: Tokenizer) -> tuple[list[list[int]], list[str]]:
    """Read hot phrases, one a line, as token ids; phrases with characters outside the units are the second result.

    Raises:
        ValueError: when no phrase is left.
    """
    phrases: list[list[int]] = []
    unknown: list[str] = []
    for _, line in numbered_lines(path):
        if not line.strip():
            continue
        tokens = tokenizer.splitter(line)
        if all(token in tokenizer.symbols for token in tokens):
            phrases.append([tokenizer.symbols[token] for token in tokens])
        else:
            unknown.append(line.strip())
    if not phrases:
        raise ValueError(f"{path}: no phrase in it that the units can spell; expected one phrase a line")
    return phrases, unknown


def _trie(phrases: Sequence[Sequence[int]]) -> tuple[list[dict[int, int]], list[int], list[int]]:
    """Nodes: {token: child}, depth, and depth again where a phrase ends, else 0. Node 0 is the root."""
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
    """The automaton of all phrases; state 0 is that of the empty sequence.

    Returns:
        {state << 32 | token: (next state, tokens that are pending there or earn for good on the way)}, but for what
        does as in state 0; its last key stands for all that leads to state 0 and earns nothing. And of each state how
        many tokens are pending: they have earned, but not for good.
    """
    children, depth, ends = _trie(phrases)
    following = _following(children, depth, ends)
    tail = [(1 << size) - 1 for size in depth]
    stays = [~((1 << size) - 1) for size in ends]
    states = [(0, 0)]  # node, and in bits the tokens before it that are pending, the last one lowest
    numbers = {states[0]: 0}
    transitions: dict[int, tuple[int, int]] = {}
    for number, (node, pending) in enumerate(states):  # grows as it goes
        key, begun = number << 32, pending << 1 | 1
        for token, target in following[node].items():
            counted = begun & tail[target]
            state = target, counted & stays[target]
            found = numbers.setdefault(state, len(states))
            if found == len(states):
                states.append(state)
            transitions[key | token] = found, counted.bit_count()
    transitions[_NO_KEY] = 0, 0
    return transitions, [pending.bit_count() for _, pending in states]


def _following(children: list[dict[int, int]], depth: list[int], ends: list[int]) -> list[dict[int, int]]:
    """{token: next node} of each node, but for those that lead where the root's lead.

    Widens `ends` to the longest phrase that ends at each node, whichever tail of it that is.
    """
    following: list[dict[int, int]] = [{} for _ in children]
    fail = [0] * len(children)
    queue = deque([0])
    while queue:
        node = queue.popleft()
        ends[node] = max(ends[node], ends[fail[node]])
        if node:
            following[node] = following[fail[node]] | children[node]
        for token, child in children[node].items():
            if node:
                fail[child] = following[fail[node]].get(token, children[0].get(token, 0))
            queue.append(child)
    following[0] = children[0]
    return following
