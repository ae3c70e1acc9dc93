"""Reference implementations of CTC prefix beam search, hot words and language models: slow and
simple.
"""

import math
import random
from collections import defaultdict


def log_add(*values):
    highest = max(values)
    return (
        highest
        if highest == -math.inf
        else highest + math.log(sum(math.exp(value - highest) for value in values))
    )


def plain_search(log_probs, beam_size, bonus=None):
    """Search one utterance (T, V) with a dictionary of prefixes, frame by frame.

    `bonus(prefix, ended)` is added to the score by which prefixes are compared.
    """
    bonus = bonus or (lambda prefix, ended: 0.0)
    beam = [((), 0.0, -math.inf)]
    for frame in log_probs.double():
        following = defaultdict(lambda: [-math.inf, -math.inf])
        best, labels = frame.topk(min(beam_size, frame.numel()))
        for label, score in zip(labels.tolist(), best.tolist(), strict=True):
            for prefix, in_blank, in_token in beam:
                total = log_add(in_blank, in_token)
                if label == 0:
                    following[prefix][0] = log_add(following[prefix][0], total + score)
                    continue
                longer = following[(*prefix, label)]
                if prefix and prefix[-1] == label:
                    following[prefix][1] = log_add(following[prefix][1], in_token + score)
                    longer[1] = log_add(longer[1], in_blank + score)
                else:
                    longer[1] = log_add(longer[1], total + score)
        ranked = sorted(
            following.items(),
            key=lambda item: log_add(*item[1]) + bonus(item[0], False),
            reverse=True,
        )
        beam = [(prefix, *scores) for prefix, scores in ranked[:beam_size]]
    results = [
        (prefix, log_add(in_blank, in_token) + bonus(prefix, True))
        for prefix, in_blank, in_token in beam
    ]
    return sorted(
        ((prefix, score) for prefix, score in results if score > -math.inf),
        key=lambda item: item[1],
        reverse=True,
    )


def plain_hot_words(phrases, score):
    """Bonus of tokens within phrases and, before the end, of tokens in the suffixes that begin a
    phrase.

    `score` is that of all phrases, or one for each. A token that several phrases cover has the
    highest score, plus the lowest below 0.
    """
    scores = score if isinstance(score, list) else [score] * len(phrases)
    last_scores = dict(zip(phrases, scores, strict=True))

    def bonus(prefix, ended):
        lowest, highest = [0.0] * len(prefix), [0.0] * len(prefix)
        for phrase, value in last_scores.items():
            starts = [
                start
                for start in range(len(prefix))
                if prefix[start : start + len(phrase)] == phrase
                or (not ended and prefix[start:] == phrase[: len(prefix) - start])
            ]
            for start in starts:
                for place in range(start, min(start + len(phrase), len(prefix))):
                    lowest[place] = min(lowest[place], value)
                    highest[place] = max(highest[place], value)
        return sum(lowest) + sum(highest)

    return bonus


def plain_language_model(model, spell, weight, unit_bonus):
    """Score the complete units, `spell(prefix, ended)`, with a kenlm model, always from the
    start.
    """

    def bonus(prefix, ended):
        units = spell(prefix, ended)
        log10 = model.score(" ".join(units), bos=True, eos=ended)
        return weight * math.log(10.0) * log10 + unit_bonus * len(units)

    return bonus


def write_arpa(path, words, seed=0):
    """Write a random trigram model with back-off over `words`."""
    draw = random.Random(seed)

    def number():
        return f"{-draw.uniform(0.1, 2.5):.4f}"

    bigrams = [(a, b) for a in ["<s>", *words] for b in [*words, "</s>"] if draw.random() < 0.5]
    trigrams = [(*left, right[1]) for left in bigrams for right in bigrams if left[1] == right[0]]
    trigrams = [gram for gram in trigrams if draw.random() < 0.3]
    unigrams = [("<unk>",), ("<s>",), ("</s>",), *((word,) for word in words)]
    with open(path, "w", encoding="utf-8") as file:
        orders = (unigrams, bigrams, trigrams)
        file.write(
            "\\data\\\n" + "".join(f"ngram {n}={len(grams)}\n" for n, grams in enumerate(orders, 1))
        )
        for n, grams in enumerate(orders, 1):
            file.write(f"\n\\{n}-grams:\n")
            for gram in grams:
                back_off = f"\t{number()}" if n < 3 and gram[-1] != "</s>" else ""
                file.write(f"{number()}\t{' '.join(gram)}{back_off}\n")
        file.write("\n\\end\\\n")
    return path
