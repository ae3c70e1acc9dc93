"""Pairs of texts as scoring meets them: empty sides, repeated words, numbers, many scripts."""

from __future__ import annotations

import random

WORDS = (
    *("the", "the", "the", "cat", "sat", "on", "one", "twenty", "five", "hundred", "Colour", "uh"),
    *("don't", "it's", "Mr.", "$5", "3.5", "50%", "1,000", "first", "GREY", "-", "...", "[noise]"),
    *(
        "café",
        "Ünder",
        "straße",
        "ИДУ",
        "домой",
        "我",
        "爱",
        "你",
        "ＯＫ",
        "नमस्ते",
        "hmm",
        "(aside)",
    ),
)


def random_text(draw: random.Random, longest: int) -> str:
    """Draw a text; one of five is empty, and one of three repeats a word."""
    words = draw.choices(WORDS, k=draw.randint(1, longest)) if draw.random() > 0.2 else []
    if words and draw.random() < 1 / 3:
        words += [words[-1]] * draw.randint(1, 3)
    return " ".join(words)


def random_pairs(count: int, seed: int, longest: int = 8) -> list[tuple[str, str]]:
    """Draw pairs of a reference and a hypothesis, which is the reference with changes, or another
    text.
    """
    draw = random.Random(seed)
    pairs: list[tuple[str, str]] = []
    for _ in range(count):
        reference = random_text(draw, longest)
        kept = [word for word in reference.split() if draw.random() < 0.8]
        other = random_text(draw, 2).split()
        hypothesis = " ".join(kept + other) if draw.random() < 0.8 else random_text(draw, longest)
        pairs.append((reference, hypothesis))
    return pairs


SPOKEN = (
    "the",
    "cat",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "straße",
    "домой",
    "我",
    "爱",
    "don't",
    "uh",
)


def random_trn_pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Draw pairs of a reference in sclite's format, with alternations and optional words, and a
    hypothesis of plain words.
    """
    draw = random.Random(seed)
    pairs: list[tuple[str, str]] = []
    for _ in range(count):
        words = draw.choices(SPOKEN, k=draw.randint(1, 7)) if draw.random() > 0.15 else []
        reference: list[str] = []
        for word in words:
            kind = draw.random()
            if kind < 0.15:
                reference.append(random_alternation(draw, word))
            elif kind < 0.25:
                reference.append(f"({word})")
            else:
                reference.append(word)

        kept = [word for word in words if draw.random() < 0.8]
        for _ in range(draw.choice((0, 0, 1, 1, 2))):
            kept.insert(draw.randint(0, len(kept)), draw.choice(SPOKEN))
        pairs.append((" ".join(reference), " ".join(kept)))
    return pairs


def random_alternation(draw: random.Random, word: str, depth: int = 0) -> str:
    """Draw an alternation of a word with other words, no word, or a further alternation."""
    alternatives = [word, " ".join(draw.choices(SPOKEN, k=draw.randint(1, 2)))]
    if draw.random() < 0.4:
        alternatives.append("@")
    if depth < 2 and draw.random() < 0.3:
        alternatives.append(f"{draw.choice(SPOKEN)} {random_alternation(draw, word, depth + 1)}")
    draw.shuffle(alternatives)
    if draw.random() < 0.2:
        return f"{{{'/'.join(alternatives)}}}"
    return f"{{ {' / '.join(alternatives)} }}"
