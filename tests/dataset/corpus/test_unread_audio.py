"""Audio that could not be read when a list was indexed, and came back."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.support.data.kaldi_features import write_ark
from tests.support.data.read_only import lock_folder, shared_folder, unprivileged
from tests.support.storage.servers import serving
from wenet_uio.audio.decoders import AudioError, AudioInfo
from wenet_uio.audio.read import audio_info
from wenet_uio.bin import check_data, index_data, plan_report
from wenet_uio.dataset.corpus import raw_index
from wenet_uio.dataset.corpus.index import ListIndex
from wenet_uio.dataset.corpus.open_list import build_index, ensure_index, index_of
from wenet_uio.dataset.corpus.unread_audio import looking_again
from wenet_uio.dataset.kinds.conversation import ConversationCorpus
from wenet_uio.dataset.open import open_corpus

RATE = 16000
COUNT = 5
AWAY = 3
"""Files of the list that are away at first."""
Opened = Callable[[], str]
"""Opens the list of a corpus; returns its digest."""


@pytest.fixture
def audio(tmp_path: Path) -> Path:
    """A folder of recordings 0.wav, 1.wav, …, each of another length."""
    folder = tmp_path / "audio"
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(COUNT):
        noise = random.normal(0, 0.1, RATE // 2 + 100 * number)
        soundfile.write(folder / f"{number}.wav", noise, RATE)
    return folder


def write_list(folder: Path, line: Callable[[int], dict[str, object]]) -> str:
    path = folder / "x.list"
    path.write_text("".join(json.dumps(line(number)) + "\n" for number in range(COUNT)))
    return str(path)


def raw(path: str) -> Opened:
    return lambda: open_corpus(path, "raw").digest


def plain(audio: Path) -> Opened:
    return raw(
        write_list(audio.parent, lambda n: {"key": f"{n}", "wav": f"{audio}/{n}.wav", "txt": "a"})
    )


def segments(audio: Path) -> Opened:
    where = {"start": 0.1, "end": 0.4, "txt": "a"}
    return raw(
        write_list(audio.parent, lambda n: {"key": f"{n}", "wav": f"{audio}/{n}.wav", **where})
    )


def beside(audio: Path) -> Opened:
    """Paths are relative to the list, as NeMo's."""
    return raw(
        write_list(audio.parent, lambda n: {"audio_filepath": f"audio/{n}.wav", "text": "a"})
    )


def uris(audio: Path) -> Opened:
    return raw(
        write_list(
            audio.parent, lambda n: {"key": f"{n}", "wav": f"file://{audio}/{n}.wav", "txt": "a"}
        )
    )


def durations(audio: Path) -> Opened:
    """The lines state durations, and the rate is that of the first audio."""
    for number in range(AWAY):
        soundfile.write(audio / f"{number}.wav", np.full(4000, 0.1), 8000)
    return raw(
        write_list(
            audio.parent,
            lambda n: {"audio_filepath": f"audio/{n}.wav", "text": "a", "duration": 0.5},
        )
    )


def mixture(audio: Path) -> Opened:
    plain(audio)
    path = audio.parent / "x.yaml"
    path.write_text(f"- {{type: raw, data_list: {audio.parent}/x.list}}\n")
    return raw(str(path))


def features(audio: Path) -> Opened:
    """Stored features, at bytes of archives."""
    for number in range(COUNT):
        write_ark(audio, {f"{number}": np.ones((40 + number, 23), np.float32)})
        (audio / "feats.ark").rename(audio / f"{number}.wav")
    return raw(
        write_list(audio.parent, lambda n: {"key": f"{n}", "wav": f"{audio}/{n}.wav:2", "txt": "a"})
    )


def conversation(audio: Path) -> Opened:
    path = write_list(
        audio.parent,
        lambda n: {
            "id": f"{n}",
            "conversations": [
                {"from": "user", "value": f"audio/{n}.wav", "type": "audio"},
                {"from": "assistant", "value": "yes", "type": "text"},
            ],
        },
    )
    return lambda: ConversationCorpus(path, 0.08, "<audio>").digest


FORMS = (plain, segments, beside, uris, durations, mixture, features, conversation)


def missing(file: Path) -> None:
    file.unlink()


def without_folder(file: Path) -> None:
    file.rename(file.parent.parent / file.name)
    if not any(file.parent.iterdir()):
        file.parent.rmdir()


def below_a_file(file: Path) -> None:
    """The folder is not mounted, and its place is a file."""
    shutil.rmtree(file.parent, ignore_errors=True)
    file.parent.write_text("")


def dangling(file: Path) -> None:
    file.unlink()
    file.symlink_to("nowhere")


def empty(file: Path) -> None:
    file.write_bytes(b"")


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:30])


def damaged(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))
    os.utime(file, ns=(0, 0))


FAULTS = (missing, below_a_file, dangling, empty, cut_short, damaged)


def indexes(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.idx") if path.is_file()]


@pytest.mark.third
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("form", FORMS)
def test_audio_that_came_back_is_indexed_as_if_it_had_been_there(
    audio: Path, caplog: pytest.LogCaptureFixture, form: Callable[[Path], Opened], fault
) -> None:
    opened = form(audio)
    whole = opened()
    for index in indexes(audio.parent):
        index.unlink()

    copy = audio.parent / "copy"
    shutil.copytree(audio, copy)
    for number in range(AWAY):
        if audio.is_dir():
            fault(audio / f"{number}.wav")

    partial = _digest_or_error(opened)
    assert partial != whole
    if audio.is_dir():
        shutil.rmtree(audio)
    else:
        audio.unlink()
    copy.rename(audio)
    if audio.is_dir() and "no " not in partial:
        assert _digest_or_error(opened) == partial  # a list stays as it is until it is looked for

    with caplog.at_level(logging.INFO), looking_again():
        assert opened() == whole
    assert "are there now, or have changed: the list is indexed again" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO), looking_again():
        assert opened() == whole
    assert not caplog.text


def _digest_or_error(opened: Opened) -> str:
    try:
        return opened()
    except ValueError as error:
        return str(error)


def test_a_file_that_is_still_wrong_does_not_index_the_list_again(audio: Path) -> None:
    opened = plain(audio)
    missing(audio / "0.wav")
    damaged(audio / "1.wav")
    before = opened()
    (index,) = indexes(audio.parent)
    state = index.stat()
    with looking_again():
        assert opened() == before
    assert index.stat() == state


def test_a_file_that_came_back_shorter_has_the_length_that_it_has(audio: Path) -> None:
    opened = plain(audio)
    missing(audio / "0.wav")
    opened()
    soundfile.write(audio / "0.wav", np.full(1600, 0.1), RATE)
    with looking_again():
        opened()
    index = ensure_index(f"{audio.parent}/x.list", "raw")
    assert index.columns["num_samples"][0] == 1600
    assert index.bad == []


def test_a_file_that_goes_away_when_others_come_back_is_bad_and_looked_for_again(
    audio: Path,
) -> None:
    opened = plain(audio)
    whole = opened()
    index_of(f"{audio.parent}/x.list").unlink()
    files = [audio / f"{number}.wav" for number in range(2)]
    files[0].rename(audio / "away0")
    opened()
    files[1].rename(audio / "away1")
    (audio / "away0").rename(files[0])
    with looking_again():
        opened()
    assert [key for key, _ in ensure_index(f"{audio.parent}/x.list", "raw").bad] == ["1"]
    (audio / "away1").rename(files[1])
    with looking_again():
        assert opened() == whole


@pytest.mark.parametrize("form", [plain, beside, segments, conversation])
def test_a_disk_that_fails_ends_indexing_with_the_path(
    audio: Path, form: Callable[[Path], Opened]
) -> None:
    """The memory of a process is a regular file whose first page cannot be read."""
    opened = form(audio)
    (audio / "3.wav").unlink()
    (audio / "3.wav").symlink_to("/proc/self/mem")
    with pytest.raises(OSError, match=r"Input/output error: '.*audio/3\.wav'"):
        opened()
    assert not indexes(audio.parent)
    (audio / "3.wav").unlink()
    soundfile.write(audio / "3.wav", np.full(RATE, 0.1), RATE)
    opened()
    assert len(indexes(audio.parent)) == 1


def test_a_read_that_failed_once_inside_a_decoder_loses_no_file(
    audio: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libsndfile reports an error of the disk as damage."""
    opened = plain(audio)
    whole = opened()
    index_of(f"{audio.parent}/x.list").unlink()
    failures = ["1.wav", "3.wav"]

    def failing(path: str) -> AudioInfo:
        name = Path(path).name
        if name in failures:
            failures.remove(name)
            raise AudioError(f"{path}: System error.")
        return audio_info(path)

    monkeypatch.setattr(raw_index, "audio_info", failing)
    assert opened() == whole
    assert failures == []


@pytest.mark.parametrize("form", [plain, beside, conversation])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_audio_that_this_user_may_not_read_ends_indexing_with_the_path(
    form: Callable[[Path], Opened], what: str
) -> None:
    with shared_folder() as folder:
        audio = folder / "audio"
        audio.mkdir()
        for number in range(COUNT):
            soundfile.write(audio / f"{number}.wav", np.full(RATE, 0.1), RATE)
        opened = form(audio)
        folder.chmod(0o777)
        ((audio / "3.wav") if what == "file" else audio).chmod(0)
        try:
            with unprivileged(), pytest.raises(OSError, match=r"Permission denied: '.*\.wav'"):
                opened()
        finally:
            audio.chmod(0o755)


@pytest.mark.parametrize("wav", ["a" * 5000, "loop", "folder", "pipe"])
def test_a_path_that_names_no_file_of_audio_is_a_bad_sample(audio: Path, wav: str) -> None:
    (audio / "loop").symlink_to("loop")
    (audio / "folder").mkdir()
    os.mkfifo(audio / "pipe")
    path = write_list(
        audio.parent,
        lambda n: {"key": f"{n}", "wav": f"{audio}/{wav if n == 1 else f'{n}.wav'}", "txt": "a"},
    )
    assert [key for key, _ in build_index(path, "raw").bad] == ["1"]
    with looking_again():
        assert [key for key, _ in ensure_index(path, "raw").bad] == ["1"]


def test_a_list_in_a_read_only_folder_whose_index_lacks_audio_has_another_in_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with shared_folder() as folder:
        monkeypatch.setenv("WENET_UIO_CACHE", str(folder / "cache"))
        audio = folder / "audio"
        audio.mkdir()
        for number in range(COUNT):
            soundfile.write(audio / f"{number}.wav", np.full(RATE + number, 0.1), RATE)
        opened = plain(audio)
        whole = opened()
        index_of(folder / "x.list").unlink()
        (audio / "2.wav").rename(folder / "2.wav")
        assert opened() != whole
        (folder / "2.wav").rename(audio / "2.wav")
        (folder / "cache").mkdir()
        (folder / "cache").chmod(0o777)
        lock_folder(audio)
        folder.chmod(0o555)
        with unprivileged():
            with looking_again():
                assert opened() == whole
            assert opened() == whole


def test_processes_that_start_together_index_the_list_again_once(audio: Path) -> None:
    opened = plain(audio)
    whole = opened()
    index_of(f"{audio.parent}/x.list").unlink()
    (audio / "2.wav").rename(audio / "away")
    opened()
    (audio / "away").rename(audio / "2.wav")
    statuses = []
    for _ in range(4):
        process = os.fork()
        if not process:
            with looking_again():
                os._exit(opened() != whole)
        statuses.append(process)
    assert [os.waitpid(process, 0)[1] for process in statuses] == [0] * 4
    assert sorted(path.name for path in audio.parent.iterdir()) == ["audio", "x.list", "x.list.idx"]


def test_an_opened_index_that_was_made_again_is_not_mapped_by_another_process(audio: Path) -> None:
    opened = plain(audio)
    (audio / "2.wav").rename(audio / "away")
    opened()
    index = ensure_index(f"{audio.parent}/x.list", "raw")
    read, arguments = index.__reduce__()
    assert isinstance(read(*arguments), ListIndex)
    (audio / "away").rename(audio / "2.wav")
    with looking_again():
        opened()
    with pytest.raises(ValueError, match=r"x\.list\.idx: made again with other samples since"):
        read(*arguments)
    assert index.summary.samples == COUNT - 1


@pytest.fixture
def commands(audio: Path) -> dict[str, list[str]]:
    """Commands that look again, by their module."""
    path = f"{audio.parent}/x.list"
    config = audio.parent / "train.yaml"
    units = audio.parent / "units.txt"
    units.write_text("<blank> 0\n<unk> 1\na 2\n<sos/eos> 3\n")
    config.write_text(
        f"tokenizer: char\ntokenizer_conf: {{symbol_table_path: {units}}}\n"
        "encoder: conformer\ndecoder: transformer\n"
    )
    return {
        "index": [path, "--data_type", "raw"],
        "check": [path, "--no_audio", "--nj", "1"],
        "plan": ["--data_list", path, "--data_type", "raw", "--config", str(config)],
    }


@pytest.mark.parametrize("name", ["index", "check", "plan"])
def test_commands_look_again(audio: Path, commands: dict[str, list[str]], name: str) -> None:
    opened = plain(audio)
    whole = opened()
    index_of(f"{audio.parent}/x.list").unlink()
    (audio / "2.wav").rename(audio / "away")
    assert opened() != whole
    (audio / "away").rename(audio / "2.wav")
    main = {"index": index_data, "check": check_data, "plan": plan_report}[name].main
    assert main(commands[name]) == 0
    assert opened() == whole


def test_audio_of_a_store_that_was_not_there_is_asked_for_again(
    audio: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WENET_UIO_CACHE", str(audio.parent / "cache"))
    monkeypatch.setenv("WENET_UIO_DEADLINE", "1")
    with serving(audio) as server:
        path = write_list(
            audio.parent, lambda n: {"key": f"{n}", "wav": f"{server.url}/{n}.wav", "txt": "a"}
        )
        (audio / "2.wav").rename(audio / "away")
        partial = ensure_index(path, "raw")
        assert [key for key, _ in partial.bad] == ["2"]
        (audio / "away").rename(audio / "2.wav")
        with looking_again():
            mended = ensure_index(path, "raw")
        assert mended.bad == []
        index_of(path).unlink()
        assert ensure_index(path, "raw").summary == mended.summary != partial.summary


def test_a_store_that_does_not_answer_does_not_stop_who_looks_again(
    audio: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WENET_UIO_CACHE", str(audio.parent / "cache"))
    monkeypatch.setenv("WENET_UIO_DEADLINE", "0.5")
    (audio / "2.wav").rename(audio / "away")
    with serving(audio) as server:
        path = write_list(
            audio.parent, lambda n: {"key": f"{n}", "wav": f"{server.url}/{n}.wav", "txt": "a"}
        )
        before = ensure_index(path, "raw").summary
    with looking_again():
        assert ensure_index(path, "raw").summary == before
