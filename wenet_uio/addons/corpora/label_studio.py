"""Read Label Studio's exports: JSON and JSON-MIN; its CSV, TSV and ASR_MANIFEST are tables and
manifests.

A task has one audio file. Regions with times are utterances, and a text without a region is that of
the whole file.

Source: the pages "Export annotations" and "Audio transcription" of Label Studio's manual.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wenet_uio.dataset.formats.data_list import RawLine
from wenet_uio.dataset.formats.errors import ListError
from wenet_uio.dataset.formats.rows import AUDIO_COLUMNS
from wenet_uio.prepare.audio_search import named_audio_key, without_upload
from wenet_uio.prepare.corpus_parts import tell_left_out
from wenet_uio.prepare.encodings import decode_file
from wenet_uio.prepare.separated import part_key

Region = dict[str, Any]
"""`start`, `end`, `channel`, `speaker` and `text` of a part of a recording, as far as it has them."""


def read_label_studio(path: str, text_field: str | None = None) -> list[RawLine]:
    """Read the tasks of an export. Tasks and regions without a text are left out, and counted.

    Args:
        text_field: name of the control that has the texts, such as `transcription`.

    Raises:
        ListError: the file is no JSON array of tasks, or a task has no audio.
    """
    lines: list[RawLine] = []
    without_text: list[str] = []
    for number, task in enumerate(_read_tasks(path), 1):
        wav = _task_audio(task, f"{path}: task {task.get('id', number)}")
        regions = list(_task_regions(task, text_field))
        lines += [_region_line(wav, region) for region in regions if region.get("text")]
        if not any(region.get("text") for region in regions):
            without_text.append(wav)

    tell_left_out(f"{path}: tasks without a text", without_text)
    return lines


def _read_tasks(path: str) -> list[dict[str, Any]]:
    """Read the tasks of an export of Label Studio."""
    try:
        tasks = json.loads(decode_file(path).text)
    except (ValueError, RecursionError) as error:
        raise ListError(f"{path}: not JSON ({error}); export it again") from None

    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise ListError(f"{path}: expected an array of tasks, as Label Studio exports it")
    return tasks


def _task_audio(task: Mapping[str, Any], place: str) -> str:
    """Return the path of the audio of a task, as its data names the audio."""
    data = task.get("data", task)
    names = [name for name in AUDIO_COLUMNS if isinstance(data.get(name), str)]
    if not names:
        raise ListError(f"{place}: no audio; its data has {', '.join(map(str, data))}")
    return without_upload(data[names[0]])


def _task_regions(task: Mapping[str, Any], text_field: str | None) -> Iterator[Region]:
    """Yield the parts of a task, and the whole as a part without times."""
    if "annotations" not in task:
        yield from _minimum_regions(task, text_field or "transcription")
        return

    annotations = [work for work in task["annotations"] if not work.get("was_cancelled")]
    # Of several annotators, the one whose work was declared to be right
    best = [work for work in annotations if work.get("ground_truth")] or annotations
    regions: dict[str, Region] = {}
    for result in best[0].get("result", []) if best else []:
        region = regions.setdefault(result.get("id", ""), {})
        region |= _region_fields(result, text_field)

    yield from sorted(regions.values(), key=lambda region: region.get("start", 0.0))


def _region_fields(result: Mapping[str, Any], text_field: str | None) -> Region:
    """Return what one result says of its region: times, and a speaker or a text."""
    value = result.get("value", {})
    region = {name: value[name] for name in ("start", "end", "channel") if name in value}
    if "labels" in value:
        region["speaker"] = " ".join(value["labels"])
    if "text" in value and text_field in (None, result.get("from_name")):
        region["text"] = _joined_text(value["text"])

    return region


def _minimum_regions(task: Mapping[str, Any], text_field: str) -> Iterator[Region]:
    """Yield the parts of a task of JSON-MIN, which has a list of times beside a list of texts."""
    text = task.get(text_field)
    timed = [value for value in task.values() if _is_timed(value)]
    if not timed:
        yield {"text": _joined_text(text)}
        return

    texts = text if isinstance(text, list) else [text]
    for region, own_text in zip(timed[0], texts, strict=False):
        speaker = {"speaker": " ".join(region["labels"])} if region.get("labels") else {}
        yield {**region, **speaker, "text": _joined_text(own_text)}


def _is_timed(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(region, dict) and {"start", "end"} <= region.keys() for region in value
    )


def _joined_text(value: object) -> str:
    texts: Sequence[object] = value if isinstance(value, list) else [value]
    return " ".join(" ".join(str(text or "").split()) for text in texts).strip()


def _region_line(wav: str, region: Region) -> RawLine:
    extra = {name: region[name] for name in ("speaker", "channel") if name in region}
    start, end = float(region.get("start", 0.0)), region.get("end")
    key = named_audio_key(wav) if end is None else part_key(wav, start)
    return RawLine(
        key, wav, region["text"], start, end and float(end), extra, is_named_by_audio=True
    )
