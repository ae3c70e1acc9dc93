"""Hot words: token sequences that earn a bonus (an Aho-Corasick automaton, in tensors)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path

import torch

from wenet_uio.text.table import numbered_lines
from wenet_uio.text.tokenizer import Tokenizer

LONGEST = 60
"""Tokens of a phrase: which of its tokens have earned is kept in the bits of an integer."""


class ContextGraph:
    """A PrefixScorer: every token that lies within an occurrence of a phrase earns the bonus, once.

    A phrase that is begun earns as it grows, and gives back what it does not complete: "new yo" counts 6 tokens on the
    way to "new york", and 3 of them stay after "new ya" where "new" is a phrase too. Phrases may begin with, contain
    and overlap one another. So the whole bonus of a finished sequence is `score` times its tokens in phrases.

    The state is a node of the automaton (the longest tail of the sequence that begins a phrase) and, in bits, which
    tokens of that tail have not earned for good. Source: Aho and Corasick 1975.
    """

    state_size = 2

    def __init__(self, phrases: Sequence[Sequence[int]], score: float, device: torch.device | str = "cpu") -> None:
        """`phrases` are token ids; empty ones are not read.

        Raises:
            ValueError: for a phrase of more than 60 tokens.
        """
        too_long = next((phrase for phrase in phrases if len(phrase) > LONGEST), None)
        if too_long is not None:
            raise ValueError(f"a hot phrase has {len(too_long)} tokens; up to {LONGEST} are possible")
        self.score = score
        self.most = score if score >= 0 else torch.inf  # a negative one can be given back many times at once
        children, depth, ends = _trie(phrases)
        transitions = _transitions(children, depth, ends)
        self._keys, order = torch.tensor(list(transitions) or [-1], device=device).sort()
        self._targets = torch.tensor(list(transitions.values()) or [0], device=device)[order]
        self._tail = _low_bits(torch.tensor(depth, device=device))
        self._open = ~_low_bits(torch.tensor(ends, device=device))

    def extend(
        self, states: torch.Tensor, tokens: torch.Tensor, wanted: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As PrefixScorer.extend."""
        node, open_bits = (part.unsqueeze(2) for part in states.unbind(dim=2))  # (B, N, 1)
        keys = node << 32 | tokens.unsqueeze(1)
        target, from_root = self._find(torch.stack((keys, keys & 0xFFFFFFFF)))
        target = torch.where(target < 0, from_root, target).clamp(min=0)
        counted = (open_bits << 1 | 1) & self._tail[target]
        after, before = _count_bits(torch.stack((counted, open_bits.expand_as(counted))))
        return torch.stack((target, counted & self._open[target]), dim=3), self.score * (after - before).double()

    def end(self, states: torch.Tensor) -> torch.Tensor:
        """As PrefixScorer.end: phrases that were begun only give back."""
        return -self.score * _count_bits(states[..., 1]).double()

    def _find(self, keys: torch.Tensor) -> torch.Tensor:
        """Node that each transition `node << 32 | token` leads to, or -1."""
        place = torch.searchsorted(self._keys, keys).clamp(max=len(self._keys) - 1)
        return torch.where(self._keys[place] == keys, self._targets[place], -1)


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


def _transitions(children: list[dict[int, int]], depth: list[int], ends: list[int]) -> dict[int, int]:
    """{node << 32 | token: next node}, but for those that lead where the root's lead.

    Widens `ends` to the longest phrase that ends at each node, whichever tail of it that is.
    """
    transitions: list[dict[int, int]] = [{} for _ in children]
    fail = [0] * len(children)
    queue = deque([0])
    while queue:
        node = queue.popleft()
        ends[node] = max(ends[node], ends[fail[node]])
        if node:
            transitions[node] = transitions[fail[node]] | children[node]
        for token, child in children[node].items():
            if node:
                fail[child] = transitions[fail[node]].get(token, children[0].get(token, 0))
            queue.append(child)
    transitions[0] = children[0]
    return {node << 32 | token: target for node, row in enumerate(transitions) for token, target in row.items()}


def _low_bits(count: torch.Tensor) -> torch.Tensor:
    return (torch.ones_like(count) << count) - 1


def _count_bits(bits: torch.Tensor) -> torch.Tensor:
    """Ones in non-negative 64-bit integers: sums of pairs, of fours, of bytes (Warren, Hacker's Delight)."""
    bits = bits - (bits >> 1 & 0x5555555555555555)
    bits = (bits & 0x3333333333333333) + (bits >> 2 & 0x3333333333333333)
    return ((bits + (bits >> 4) & 0x0F0F0F0F0F0F0F0F) * 0x0101010101010101) >> 56
