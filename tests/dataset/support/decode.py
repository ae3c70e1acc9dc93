"""Decodes the files named on standard input in a process that may take little memory; run by test_audio.py.

    decode.py MEGABYTES < paths

Prints a JSON line a file: [path, length as the header has it, decoded length, rate, channels], or [path, error].
"""

import json
import resource
import sys

import av  # noqa: F401 - so that its libraries are there before memory is counted

from wenet_uio.audio.read import AudioError, audio_info, read_audio


def main() -> None:
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    limit = taken + int(sys.argv[1]) * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for path in sys.stdin.read().splitlines():
        try:
            with open(path, "rb") as file:
                encoded = file.read()
            found = []
            for source in (path, encoded):  # raw and shard mode
                info = audio_info(source)
                waveform, rate = read_audio(source)
                assert rate == info.sample_rate
                found.append([info.num_samples, len(waveform), rate, info.channels])
            assert found[0] == found[1]
            print(json.dumps([path, *found[0]]))
        except AudioError as error:
            print(json.dumps([path, str(error)]))


if __name__ == "__main__":
    main()
