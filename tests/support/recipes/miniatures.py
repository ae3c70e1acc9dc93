"""Miniatures of corpora in their official layouts, with the quirks of these corpora, and the
expected texts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.support.recipes.files import Texts, lines, noise
from tests.support.recipes.voices import voices as voices


def yesno(root: Path) -> Texts:
    """Names are transcripts; in the order of names the 1st, 5th and 9th are test, the second is
    development.
    """
    names = [
        f"{number >> 3 & 1}_0_0_0_1_{number >> 2 & 1}_{number >> 1 & 1}_{number & 1}"
        for number in range(12)
    ]
    for name in names:
        noise(root / "waves_yesno" / f"{name}.wav", 8000, seconds=1.0)  # frames for eight words
    lines(root / "waves_yesno" / "README", "a file that is no recording")
    said = {name: name.replace("_", " ").replace("0", "NO").replace("1", "YES") for name in names}
    test, dev = [names[0], names[4], names[8]], [names[1]]
    train = [name for name in names if name not in test + dev]
    return {
        part: {name: said[name] for name in of}
        for part, of in (("train", train), ("dev", dev), ("test", test))
    }


def fsdd(root: Path) -> Texts:
    """recordings/{digit}_{speaker}_{index}.wav; index 0 to 4 is test, 5 to 7 development."""
    expected: Texts = {"train": {}, "dev": {}, "test": {}}
    for part, index in (("test", 0), ("test", 4), ("dev", 5), ("train", 8), ("train", 49)):
        for digit, word in ((1, "one"), (7, "seven")):
            noise(root / "recordings" / f"{digit}_theo_{index}.wav", 8000)
            expected[part][f"theo_{digit}_{index:02d}"] = word
    lines(root / "metadata.py", "metadata = {'theo': {'gender': 'male'}}")
    return expected


def dspspeech20(root: Path) -> Texts:
    """speech_data/{speaker}/{speaker}-{word}-{index}.wav; words from 12 on are English."""
    expected: Texts = {"train": {}, "dev": {}, "test": {}}
    part_of = {"16307130001": "train", "16307130004": "dev", "16307130009": "test"}
    for speaker, part in part_of.items():
        for word, text in (("00", "数字"), ("11", "饭店"), ("12", None)):
            noise(root / "speech_data" / speaker / f"{speaker}-{word}-01.wav")
            if text:
                expected[part][f"{speaker}-{word}-01"] = text
    return expected


def speechocean762(root: Path) -> Texts:
    """WAVE/SPEAKER*/*.WAV in upper case; Kaldi directories, whose tables have tabs and paths from
    the corpus.
    """
    expected: Texts = {"train": {}, "dev": {}, "test": {}}
    part_of = {"0001": "train", "0003": "test", "0006": "dev", "0024": "train"}
    tables: dict[str, list[list[str]]] = {"train": [], "test": []}
    for speaker, part in part_of.items():
        for number in (11, 35):
            key = f"{speaker[:4]}{number:05d}"
            noise(root / "WAVE" / f"SPEAKER{speaker}" / f"{key}.WAV", format="WAV")
            tables["test" if part == "test" else "train"].append([key, speaker, "I'M  READY"])
            expected[part][key] = "I'M READY"
    for folder, rows in tables.items():
        lines(
            root / folder / "wav.scp",
            *(f"{key}\tWAVE/SPEAKER{speaker}/{key}.WAV" for key, speaker, _ in rows),
        )
        lines(root / folder / "text", *(f"{key}\t{text}" for key, _, text in rows))
        lines(root / folder / "utt2spk", *(f"{key}\t{speaker}" for key, speaker, _ in rows))
    return expected


def aishell(root: Path) -> Texts:
    """One transcript for all parts, with spaces between words; recordings without line, a line
    without recording.
    """
    corpus, rows = root / "data_aishell", []
    expected: Texts = {"train": {}, "dev": {}, "test": {}}
    for part, speaker in (("train", "S0002"), ("dev", "S0724"), ("test", "S0764")):
        for number in (122, 123, 124):
            key = f"BAC009{speaker}W{number:04d}"
            noise(corpus / "wav" / part / speaker / f"{key}.wav")
            if number != 124:
                rows.append(f"{key} 而 对 楼市 成交  抑制")
                expected[part][key] = "而对楼市成交抑制"
    lines(
        corpus / "transcript" / "aishell_transcript_v0.8.txt", *rows, "BAC009S0916W0495 没 有 录音"
    )
    lines(root / "resource_aishell" / "lexicon.txt", "楼市 l ou2 sh ix4")
    return expected


def aishell2(root: Path) -> Texts:
    """Kaldi tables with tabs; two channels of dev and test, of which Mic is used; Latin letters,
    quotes, brackets.
    """
    expected: Texts = {}
    tested = [
        (f"AISHELL-DEV-TEST-SET/{channel}/{part}", part)
        for channel in ("iOS", "Mic")
        for part in ("dev", "test")
    ]
    for folder, part in [("AISHELL-2/iOS/data", "train"), *tested]:
        first = "M" if "Mic" in folder else "I"
        keys = [f"{first}{part[0].upper()}0001W000{number}" for number in (1, 2)]
        for key in keys:
            noise(root / folder / "wav" / key[:6] / f"{key}.wav")
        lines(root / folder / "wav.scp", *(f"{key}\twav/{key[:6]}/{key}.wav" for key in keys))
        lines(
            root / folder / "trans.txt",
            *(f"{key}\t打开'(t恤)' let's" for key in keys),
            "IX9999W0001\t没有录音",
        )
        expected[part] = dict.fromkeys(keys, "打开T恤LET'S")
    return expected


def librispeech(root: Path) -> Texts:
    """{part}/{speaker}/{chapter}/: flac and the texts of a chapter; more parts than the options
    name.
    """
    expected: Texts = {"train": {}, "dev": {}, "test_clean": {}, "test_other": {}}
    text = "THE MISTRESS'S CHILD AT FIFTEEN HAD LEARNED A GREAT MANY THINGS"
    for part in (
        "train-clean-100",
        "train-clean-360",
        "dev-clean",
        "dev-other",
        "test-clean",
        "test-other",
    ):
        chapter = (
            root
            / part
            / "84"
            / {"train": "1", "dev-c": "2", "dev-o": "3"}.get(part[:5], str(len(part)) + part[-1])
        )
        keys = [f"84-{chapter.name}-000{number}" for number in (0, 1)]
        for key in keys:
            noise(chapter / f"{key}.flac")
        lines(chapter / f"84-{chapter.name}.trans.txt", *(f"{key} {text}" for key in keys))
        kind = {"tra": "train", "dev": "dev"}.get(part[:3], part.replace("-", "_"))
        if part != "train-clean-360":
            expected[kind] |= dict.fromkeys(keys, text)
    lines(root / "SPEAKERS.TXT", "84 | F | dev-clean | 8.02 | Christie Nowak")
    return expected


def an4(root: Path) -> Texts:
    """Sphere files, one with an upper-case suffix; a transcript with marks for train, without marks
    for test.
    """
    expected: Texts = {"train": {}, "dev": {}, "test": {}}
    rows: dict[str, list[str]] = {"train": [], "test": []}
    for part, folder, speaker in (
        ("train", "an4_clstk", "fash"),
        ("dev", "an4_clstk", "fbbh"),
        ("test", "an4test_clstk", "fcaw"),
    ):
        for number in (251, 253):
            key = f"an{number}-{speaker}-b"
            suffix = "SPH" if (number, part) == (253, "train") else "sph"
            noise(root / "wav" / folder / speaker / f"{key}.{suffix}", format="NIST", endian="BIG")
            expected[part][key] = "GO FORWARD ELEVEN"
            mark = "GO FORWARD ELEVEN" if part == "test" else "<s> GO FORWARD ELEVEN </s>"
            rows["test" if part == "test" else "train"].append(f"{mark} ({key})")
    for part, texts in rows.items():
        lines(root / "etc" / f"an4_{part}.transcription", *texts)
    return expected


def wenetspeech(root: Path) -> Texts:
    """Whole opus recordings cut by time; subsets that contain one another; a missing recording."""
    audios = []
    expected: Texts = {"train": {}, "dev": {}, "test_net": {}, "test_meeting": {}}
    plan = {
        "Y0000000001_train": ("train/youtube/B00000", ["L", "M", "S"], "train"),
        "Y0000000002_large": ("train/youtube/B00000", ["L"], None),
        "Y0000000003_dev": ("dev/youtube/B00000", ["DEV"], "dev"),
        "Y0000000004_net": ("test_net/youtube/B00000", ["TEST_NET"], "test_net"),
        "Y0000000005_meeting": ("test_meeting/youtube/B00000", ["TEST_MEETING"], "test_meeting"),
        "Y0000000006_gone": ("train/youtube/B00000", ["L", "M", "S"], None),
    }
    for aid, (folder, subsets, part) in plan.items():
        path = f"audio/{folder}/{aid}.opus"
        if "gone" not in aid:
            noise(root / path, seconds=2.0, format="OGG", subtype="OPUS")
        segments = [
            {"sid": f"{aid}_S0000{number}", "begin_time": 0.5 * number, "end_time": 0.5 * number + 0.4,
             "confidence": 1.0, "subsets": subsets, "text": "怎么样这些 OK"}
            for number in range(3)
        ]  # fmt: skip
        audios.append(
            {"aid": aid, "duration": 2.0, "path": path, "source": "youtube", "segments": segments}
        )
        if part:
            expected[part] = {segment["sid"]: "怎么样这些OK" for segment in segments}
    lines(
        root / "WenetSpeech.json",
        json.dumps({"dataset": "WenetSpeech", "audios": audios}, ensure_ascii=False),
    )
    return expected


def fisher(root: Path) -> Texts:
    """Two channels of mu-law; comments, noises, uncertain words, odd lines, a known error, a call
    without transcript.

    Short turns are joined.
    """
    expected: Texts = {"train": {}, "dev": {}, "test": {}}
    for call, part in (("fe_03_00001", "train"), ("fe_03_00156", "dev"), ("fe_03_00027", "test")):
        noise(
            root / f"LDC2004S13/fisher_eng_tr_sp_d1/audio/000/{call}.sph",
            8000,
            30.0,
            2,
            format="NIST",
            subtype="ULAW",
            endian="BIG",
        )
        lines(
            root / f"LDC2004T19/fe_03_p1_tran/data/trans/000/{call}.txt",
            f"# {call}.sph",
            "# Transcribed at the LDC",
            "",
            "0.50 2.00 A: [laughter] hi i'm on t._v.",
            "2.10 4.00 B: ((mhm)) yeah",
            "4.10 4.00 B: backwards",
            "4.20  5.00 A: okay [sigh]",
            "5.10 20.00 A: it's a long one",
            "20.50 21.50 B: right",
        )
        expected[part] = {
            f"{call}_A_000050_002000": "<LAUGHTER> HI I'M ON T V OKAY <NOISE> IT'S A LONG ONE",
            f"{call}_B_002050_002150": "RIGHT",
        }
    noise(
        root / "LDC2005S13/fisher_eng_tr_sp_d1/audio/058/fe_03_05851.sph",
        8000,
        1.0,
        2,
        format="NIST",
        subtype="ULAW",
        endian="BIG",
    )
    return expected


def hub5(root: Path) -> Texts:
    """An stm with comments, alternatives, fragments, asides, segments that are not scored; data of
    the Fisher recipe.

    Beside it lies another corpus of telephone calls.
    """
    noise(
        root / "LDC97S62" / "disc1" / "sw02001.sph",
        8000,
        1.0,
        2,
        format="NIST",
        subtype="ULAW",
        endian="BIG",
    )
    for call in ("sw_4390", "en_4156"):
        path = root / "LDC2002S09" / "hub5e_00" / "english" / f"{call}.sph"
        noise(path, 8000, 10.0, 2, format="NIST", subtype="ULAW", endian="BIG")
    lines(
        root / "LDC2002T43" / "2000_hub5_eng_eval_tr" / "reference" / "hub5e00.english.000405.stm",
        ';; CATEGORY "0" "" ""',
        "sw_4390 A sw_4390_A 0.50 2.50 <O,sw,M,sw-M> (%HESITATION) I'VE { GOT / GOTTEN } TH- THIS "
        "(THA- OKAY)",
        "sw_4390 A sw_4390_A 2.50 3.00 <O,sw,M,sw-M> IGNORE_TIME_SEGMENT_IN_SCORING",
        "sw_4390 B sw_4390_B 1.25 2.00 <O,sw,F,sw-F> <B_ASIDE> RIGHT <E_ASIDE>",
        "en_4156 A en_4156_A 3.10 4.00 <O,en,F,en-F> OH UH-HUH",
        "en_4156 B inter_segment_gap 0.00 3.10 <O,en,F,en-F>",
    )
    expected = {
        "test_swbd": {
            "sw_4390_A_000050_000250": "I'VE GOT THIS OKAY",
            "sw_4390_B_000125_000200": "RIGHT",
        },
        "test_callhome": {"en_4156_A_000310_000400": "OH UHHUH"},
        "train": {},
        "dev": {},
    }
    for part in ("train", "dev"):
        wav = root / "fisher" / "wav" / f"fe_{part}_A.wav"
        noise(wav, 8000, 2.0)
        lines(root / "fisher" / part / "wav.scp", f"{wav.stem} {wav}")
        lines(root / "fisher" / part / "segments", f"fe_{part}_A_1 {wav.stem} 0.100 1.900")
        lines(root / "fisher" / part / "text", f"fe_{part}_A_1 <NOISE> OKAY SO WE TALK ABOUT PETS")
        expected[part] = {f"fe_{part}_A_1": "<NOISE> OKAY SO WE TALK ABOUT PETS"}
    return expected


def custom(root: Path) -> Texts:
    """A TSV with columns of other names in any order; audio of several formats, some of it cut by
    time.

    A file has a space in its name, and files of all parts have the same names.
    """
    expected: Texts = {"train": {}, "dev": {}, "test": {}}
    rows = ["sentence\tstart\tend\tpath\tsplit\tkey"]
    for part, called in (("train", "train"), ("dev", "validation"), ("test", "test")):
        noise(root / "audio" / part / "long.flac", 44100, 2.0, 2)
        noise(root / "audio" / part / "a take.wav", 8000)
        for name, cut, text in (
            ("long.flac", "0\t0.5", "zero"),
            ("long.flac", "0.5\t1.25", "one  TWO"),
            ("a take.wav", "\t", "three"),
        ):
            key = f"{part} {name.split('.')[0]} {text.split()[0]}"
            rows.append(f"{text}\t{cut}\t{part}/{name}\t{called}\t{key}")
            expected[part][key.replace(" ", "_")] = " ".join(text.split())
    lines(root / "transcripts.tsv", *rows)
    return expected


OPTIONS: Mapping[str, tuple[str, ...]] = {
    "yesno": ("--data", "{}/waves_yesno"),
    "librispeech": ("--train_parts", "train-clean-100", "--bpe", "24"),
    "an4": ("--bpe", "15"),
    "aishell2": ("--channel", "Mic"),
    "wenetspeech": ("--subset", "S"),
    "fisher": ("--bpe", "24", "--min_slice_duration", "10"),
    "custom": ("--data", "{}/transcripts.tsv", "--audio", "{}/audio"),
    "hub5": ("--bpe", "16", "--fisher", "{}/fisher"),
}
"""Options of a recipe besides --data; {} stands for the folder of the corpus."""
