"""Decode the files whose paths are on standard input, in a process with limited memory.
`test_read.py` runs this.

    decode.py MEGABYTES < paths

Prints one JSON line per file: [path, length in the header, decoded length, rate, channels], or
[path, error].
"""

import json
import resource
import sys

import av  # noqa: F401 - loads its libraries before memory is counted

from wenet_uio.audio.decoders import AudioError
from wenet_uio.audio.read import audio_info, read_audio


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
