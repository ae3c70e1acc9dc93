"""Recordings that are decoded in processes of their own."""

import io
import os
import signal
import subprocess
import tracemalloc
from contextlib import contextmanager
from multiprocessing.connection import Pipe
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.addons.serve.decoders import children, decoders
from tests.support import preloaded
from tests.support.audio.crashing import MARK, crash_at_marked
from tests.support.audio.every_format import samples_of_every_format
from tests.support.serve.raw_clients import until
from wenet_uio.addons.serve.decoder_process import DecoderProcesses, ProcessDecoder
from wenet_uio.addons.serve.decoder_worker import watch_decoder
from wenet_uio.addons.serve.messages import LimitError
from wenet_uio.audio.decoders import AudioError, Opened
from wenet_uio.audio.interruption import interruptible
from wenet_uio.audio.read import AudioReader, audio_info, read_audio


def encoded(samples, kind="WAV"):
    file = io.BytesIO()
    soundfile.write(file, samples, 16000, format=kind)
    return file.getvalue()


NOISE = np.random.default_rng(0).normal(0, 3000, 48000).astype(np.int16)
WAV = encoded(NOISE)


@pytest.fixture(scope="module")
def processes():
    processes = DecoderProcesses()
    processes.start()
    yield processes
    processes.stop()


def outcome_of(source):
    """Length, format and parts of a recording as bytes, or the error."""
    try:
        info = audio_info(source)
        reader = AudioReader(source)
        places = [
            (0.0, 0.3, 0),
            (0.2, 0.7, None),
            (0.1, info.num_samples / info.sample_rate, "mix"),
        ]
        parts = [reader.read(*place) for place in places]
    except AudioError as error:
        return str(error)
    return info, [(part.tobytes(), part.shape, rate) for part, rate in parts]


FORMATS = samples_of_every_format()
USUAL = [
    "wav_pcm_16.wav",
    "flac_pcm_16.flac",
    "cut_flac_pcm_16.flac",
    "ogg_opus.ogg",
    "features.npy",
]


@pytest.mark.parametrize(
    "names", [USUAL, pytest.param(sorted(FORMATS), marks=pytest.mark.all)], ids=["usual", "all"]
)
def test_every_format_whole_and_damaged_has_the_samples_and_errors_of_this_process(
    processes, names
):
    for name in names:
        try:
            with processes.decode(FORMATS[name]) as opened:
                apart = outcome_of(opened)
        except AudioError as error:
            apart = str(error)
        assert apart == outcome_of(FORMATS[name]), name


def test_a_decoder_that_crashes_is_an_error_in_one_line_and_the_next_recording_is_decoded(
    processes,
):
    for number, name in ((signal.SIGSEGV, "SIGSEGV"), (signal.SIGABRT, "SIGABRT")):
        with processes.decode(WAV) as opened:
            (decoder,) = decoders(processes)
            os.kill(decoder, number)
            for _ in range(2):  # also who reads on gets the reason
                with pytest.raises(AudioError) as caught:
                    read_audio(opened)
        assert str(caught.value) == (
            f"the decoder crashed its process ({name}); remove or convert the audio"
        )
    with processes.decode(WAV) as opened:
        assert outcome_of(opened) == outcome_of(WAV)


def test_a_decoder_that_crashes_ends_no_decoder_beside_it(processes):
    with processes.decode(WAV) as first, processes.decode(WAV) as second:
        for decoder in decoders(processes)[:1]:
            os.kill(decoder, signal.SIGSEGV)
        errors = [isinstance(outcome_of(opened), str) for opened in (first, second)]
    assert sorted(errors) == [False, True]


def test_a_decoder_that_is_killed_is_no_fault_of_the_recording(processes):
    with processes.decode(WAV) as opened:
        (decoder,) = decoders(processes)
        os.kill(decoder, signal.SIGKILL)
        with pytest.raises(LimitError, match="was killed; did memory run out"):
            read_audio(opened)


def test_signals_to_the_group_of_the_server_end_no_decoder(processes):
    with processes.decode(WAV) as opened:
        forker = processes._forker.pid
        for process in (forker, *children(forker), *decoders(processes)):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(process, number)
        assert outcome_of(opened) == outcome_of(WAV)


def test_the_process_that_forks_is_started_again_when_it_has_died(processes):
    os.kill(processes._forker.pid, signal.SIGKILL)
    processes._forker.wait()
    with processes.decode(WAV) as opened:
        assert outcome_of(opened) == outcome_of(WAV)


def test_a_decoder_ends_with_its_block_whatever_it_does(processes):
    with pytest.raises(ZeroDivisionError), processes.decode(WAV) as opened:
        (decoder,) = decoders(processes)
        os.kill(decoder, signal.SIGSTOP)
        with interruptible(lambda: 1 / 0):
            read_audio(opened)
    assert until(lambda: not decoders(processes))


def test_decoders_end_when_the_server_is_killed():
    reading, writing = os.pipe()
    server = os.fork()
    if not server:
        os.close(reading)
        mine = DecoderProcesses()
        with mine.decode(WAV):
            numbers = [mine._forker.pid, *decoders(mine)]
            os.write(writing, " ".join(map(str, numbers)).encode())
            signal.pause()
    numbers = [int(number) for number in os.read(reading, 100).split()]
    assert len(numbers) == 2
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
    assert until(lambda: not any(is_running(number) for number in numbers))


def test_a_decoder_has_no_token_and_no_file_of_the_server(monkeypatch, tmp_path):
    monkeypatch.setenv("WENET_UIO_SERVE_TOKEN", "secret-of-the-server")
    mine = DecoderProcesses()
    with open(tmp_path / "file", "w") as file, mine.decode(WAV):
        os.set_inheritable(file.fileno(), True)
        (decoder,) = decoders(mine)
        variables = Path(f"/proc/{decoder}/environ").read_bytes()
        opened = [os.readlink(link) for link in Path(f"/proc/{decoder}/fd").iterdir()]
    mine.stop()
    assert b"secret" not in variables
    assert [name for name in opened if str(tmp_path) in name] == []
    # its connection, and the standard streams without the connection of the process that forks
    assert sum(name.startswith("socket:") for name in opened) == 1


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@contextmanager
def decoded_by_a_fork(content):
    """The decoder of a process that is forked from this one, which tests have changed."""
    connection, of_worker = Pipe()
    status, status_of_worker = os.pipe()
    watcher = os.fork()
    if not watcher:
        connection.close()
        os.close(status)
        watch_decoder(of_worker.fileno(), status_of_worker)
        os._exit(0)
    of_worker.close()
    os.close(status_of_worker)
    with connection, os.fdopen(status, "rb") as status_file:
        yield ProcessDecoder(connection, status_file, content)
    os.waitpid(watcher, 0)


def test_a_recording_that_crashes_its_decoder_is_an_error_in_one_line(monkeypatch):
    crash_at_marked(monkeypatch)
    marked = NOISE.copy()
    marked[0] = MARK
    with decoded_by_a_fork(encoded(marked)) as decoder, pytest.raises(AudioError) as caught:
        read_audio(Opened(decoder))
    assert str(caught.value) == (
        "the decoder crashed its process (SIGSEGV); remove or convert the audio"
    )


def test_decoding_has_bounded_memory():
    # A process of its own: one that has run other tests has freed memory, which no limit counts.
    decoded = subprocess.run(
        [preloaded.python(), "-c", DECODE_WITH_LITTLE_MEMORY], capture_output=True, text=True
    )
    assert decoded.stdout.splitlines() == [
        "960000 samples",
        "decoding needs more than 64 MiB of memory",
    ], decoded.stderr


DECODE_WITH_LITTLE_MEMORY = """
import numpy as np

from tests.addons.serve.test_decoder_process import decoded_by_a_fork, encoded
from wenet_uio.addons.serve import decoder_worker
from wenet_uio.audio.decoders import AudioError, Excerpt, Opened
from wenet_uio.audio.read import read_audio

decoder_worker.MOST_BYTES = 64 << 20
half_an_hour = encoded(np.zeros(30 * 16000 * 60, np.int16), "FLAC")
with decoded_by_a_fork(half_an_hour) as decoder:
    print(len(decoder.read(Excerpt(0.0, 60.0, 0))), "samples")
    try:
        read_audio(Opened(decoder))
    except AudioError as error:
        print(error)
"""


def test_the_server_does_not_keep_the_bytes_of_a_recording_that_another_process_has(processes):
    tracemalloc.start()
    try:
        with processes.decode(bytes(memoryview(WAV)) + bytes(20 << 20)):
            kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 10 << 20
