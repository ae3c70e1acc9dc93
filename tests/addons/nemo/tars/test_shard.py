import io
import itertools
import re
import tarfile

import lhotse
import pytest
import soundfile

from tests.support.data.nemo_sets import convert, corpus_of, entries_of, entry_of, write
from tests.support.data.tars import everything, wav


def read_by_the_rules_of_nemo(folder, shard, text_field="text", lang_field="lang"):
    """Cuts of lhotse, made as NeMo's adapter makes them: tar in order, entries by the name without
    -subN.
    """
    by_member: dict = {}
    for entry in entries_of(folder / f"sharded_manifests/manifest_{shard}.json"):
        by_member.setdefault(
            re.sub(r"-sub\d+(?=(\.\w+)?$)", "", entry["audio_filepath"]), []
        ).append(entry)
    with tarfile.open(folder / f"audio_{shard}.tar") as tar:
        for member in tar:
            data = tar.extractfile(member).read()
            info = soundfile.info(io.BytesIO(data))
            source = lhotse.AudioSource("memory", [0], data)
            recording = lhotse.Recording(
                member.name, [source], info.samplerate, info.frames, info.duration
            )
            for entry in sorted(
                by_member.pop(member.name), key=lambda each: each["audio_filepath"]
            ):
                start = entry.get("offset", 0.0)
                cut = recording.to_cut().truncate(offset=start, duration=entry["duration"])
                cut.id = entry["audio_filepath"]
                text = lhotse.SupervisionSegment(
                    cut.id,
                    recording.id,
                    0,
                    cut.duration,
                    0,
                    entry[text_field],
                    entry.get(lang_field),
                )
                cut.supervisions = [text]
                standard = ("audio_filepath", "duration", "offset", text_field, lang_field)
                cut.custom = {key: value for key, value in entry.items() if key not in standard}
                yield cut
    assert not by_member


@pytest.mark.parametrize(
    "options", [(), ("--slice_with_offset",), ("--keep_files_together",), ("--sort_in_shards",)]
)
def test_segments_of_one_recording_are_read_by_the_rules_of_nemo_with_nothing_lost(
    tmp_path, options
):
    entries = []
    for number in range(3):
        path = tmp_path / f"long{number}.wav"
        path.write_bytes(wav(3.0, seed=number))
        for part in range(4):
            fields = {
                "offset": part * 0.5,
                "duration": 0.4,
                "text": f"{number} {part}",
                "lang": "de",
                "mark": part,
            }
            entries.append({"audio_filepath": str(path), **fields})
    manifest = write(tmp_path / "m.json", entries)
    assert convert(manifest, tmp_path / "set", "--shuffle", *options, shards=3) == 0
    cuts = [cut for shard in range(3) for cut in read_by_the_rules_of_nemo(tmp_path / "set", shard)]
    found = {cut.supervisions[0].text: cut for cut in cuts}
    assert len(cuts) == len(found) == len(entries)
    for entry in entries:
        cut = found[entry["text"]]
        rate = cut.sampling_rate
        start, count = round(entry["offset"] * rate), round(entry["duration"] * rate)
        expected = soundfile.read(entry["audio_filepath"])[0][start : start + count]
        assert cut.load_audio()[0] == pytest.approx(expected, abs=1e-4)
        assert (cut.supervisions[0].language, cut.custom["mark"]) == ("de", entry["mark"])
    ours = corpus_of(tmp_path / "set", shards=3)
    assert ours.bad == []
    assert {u.text: u.key for u in everything(ours)} == {
        f"{number} {part}": f"long{number}_{part * 0.5:g}" if part else f"long{number}"
        for number in range(3)
        for part in range(4)
    }
    if options == ("--keep_files_together",):
        tars = [tarfile.open(tmp_path / f"set/audio_{shard}.tar").getnames() for shard in range(3)]
        members = [f"{tmp_path}/long{number}".replace("/", "_") + ".wav" for number in range(3)]
        assert sorted(itertools.chain(*tars)) == members


def test_names_that_would_be_equal_in_the_tar_are_told_apart(tmp_path):
    paths = ("a/b.wav", "a_b.wav", "x-sub1.wav", "x.wav")
    for name in paths:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(wav(0.3, seed=len(name)))
    entries = [
        {"audio_filepath": name, "duration": 0.3, "text": name}
        for name in ("a/b.wav", "a_b.wav", "x-sub1.wav", "x.wav")
    ]
    manifest = write(tmp_path / "m.json", [*entries, entries[0]])
    assert convert(manifest, tmp_path / "set", shards=1) == 0
    names = [
        each["audio_filepath"] for each in entries_of(tmp_path / "set/tarred_audio_manifest.json")
    ]
    assert names == ["a_b.wav", "a_b_2.wav", "x_sub1.wav", "x.wav", "a_b-sub1.wav"]
    corpus = corpus_of(tmp_path / "set", shards=1)
    for utterance in everything(corpus):
        assert bytes(utterance.audio) == (tmp_path / utterance.text).read_bytes()


def test_clashing_names_of_files_get_folders_in_their_keys_as_in_the_raw_list(tmp_path):
    entries = []
    for folder in ("p", "q"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "same.wav"
        path.write_bytes(wav(0.3, seed=ord(folder)))
        entries.append(entry_of(path, folder))
    convert(write(tmp_path / "m.json", entries), tmp_path / "set", shards=2)
    assert [u.key for u in everything(corpus_of(tmp_path / "set", shards=2))] == [
        "p-same",
        "q-same",
    ]
