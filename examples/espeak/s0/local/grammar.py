"""The commands of the recipe: a small grammar for each language."""

from __future__ import annotations

import random
import re

Grammar = dict[str, tuple[str, ...]]
"""Symbol -> its alternatives. `{symbol}` in an alternative stands for that symbol. `command` is the
start symbol of a sentence, `short` that of what people say on its own: a digit, some digits."""

ENGLISH: Grammar = {
    "command": (
        "turn {switch} the {device}",
        "turn {switch} the {device} in the {room}",
        "set the {device} to {number}",
        "set a timer for {number} {unit}",
        "wake me at {number} {number}",
        "{move} the {opening} in the {room}",
        "call {digit} {digit} {digit} {digit}",
        "dial {digit} {digit} {digit} {digit} {digit} {digit}",
        "play song {number}",
        "volume {direction} by {digit}",
    ),
    "short": (
        "{digit}",
        "{digit}",
        "{digit}",
        "{digit} {digit}",
        "{digit} {digit} {digit}",
        "{number}",
    ),
    "switch": ("on", "off"),
    "device": ("light", "lamp", "fan", "heater", "radio", "oven"),
    "room": ("kitchen", "bedroom", "garage", "office"),
    "opening": ("door", "window", "curtain"),
    "move": ("open", "close"),
    "direction": ("up", "down"),
    "unit": ("seconds", "minutes", "hours"),
    "digit": ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    "ten": ("twenty", "thirty", "forty", "fifty"),
    "number": ("{digit}", "ten", "eleven", "twelve", "{ten}", "{ten} {digit}"),
}

MANDARIN: Grammar = {
    "command": (
        "{switch}{device}",
        "{switch}{room}的{device}",
        "把{device}调到{number}",
        "{number}{unit}后提醒我",
        "早上{number}点叫我",
        "{move}{room}的{opening}",
        "打电话{digit}{digit}{digit}{digit}",
        "拨号{digit}{digit}{digit}{digit}{digit}{digit}",
        "播放第{number}首歌",
        "音量调{direction}{digit}格",
    ),
    "short": (
        "{digit}",
        "{digit}",
        "{digit}",
        "{digit}{digit}",
        "{digit}{digit}{digit}",
        "{number}",
    ),
    "switch": ("打开", "关闭"),
    "device": ("电灯", "台灯", "风扇", "暖气", "收音机", "烤箱"),
    "room": ("厨房", "卧室", "车库", "书房"),
    "opening": ("大门", "窗户", "窗帘"),
    "move": ("推开", "拉上"),
    "direction": ("高", "低"),
    "unit": ("秒", "分钟", "小时"),
    "digit": ("零", "一", "二", "三", "四", "五", "六", "七", "八", "九"),
    "ten": ("二十", "三十", "四十", "五十"),
    "number": ("{digit}", "十", "十一", "十二", "{ten}", "{ten}{digit}"),
}

GRAMMARS = {"en": ENGLISH, "zh": MANDARIN}
_DRAWS_PER_SENTENCE = 1000


def sentence(grammar: Grammar, rng: random.Random, symbol: str = "command") -> str:
    """Draw one sentence; all alternatives of a symbol have the same probability."""
    alternative = rng.choice(grammar[symbol])
    return re.sub(r"\{(\w+)\}", lambda name: sentence(grammar, rng, name[1]), alternative)


def sentences(grammar: Grammar, count: int, rng: random.Random) -> list[str]:
    """Draw `count` different sentences.

    Raises:
        ValueError: the grammar has too few sentences.
    """
    distinct: dict[str, None] = {}
    for _ in range(count * _DRAWS_PER_SENTENCE):
        if len(distinct) == count:
            break
        distinct[sentence(grammar, rng)] = None

    if len(distinct) < count:
        raise ValueError(
            f"the grammar gave only {len(distinct)} different sentences of the {count} requested"
        )

    return list(distinct)
