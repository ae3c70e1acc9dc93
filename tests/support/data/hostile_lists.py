"""Hostile lines of raw lists and shard lists, each with a pattern of the reason for which it is
refused.
"""

import json

DEEP = "[" * 100_000 + "]" * 100_000


def line(**fields):
    return json.dumps({"key": "bad", "wav": "a.wav", "txt": "x", **fields})


def stated(name, value):
    """A line in which a number is written as JSON does not write it."""
    return line(**{"duration": 0.5, name: "VALUE"}).replace('"VALUE"', value)


RAW = {
    "duration NaN": (stated("duration", "NaN"), "must be seconds"),
    "duration Infinity": (stated("duration", "Infinity"), "must be seconds"),
    "duration minus Infinity": (stated("duration", "-Infinity"), "must be seconds"),
    "duration 1e300": (stated("duration", "1e300"), "1e.300 s are more than 4294967295 samples"),
    "duration of 400 digits": (stated("duration", "9" * 400), "must be seconds"),
    "duration of 5000 digits": (stated("duration", "9" * 5000), "not JSON"),
    "duration negative": (stated("duration", "-3"), "no audio between"),
    "duration zero": (stated("duration", "0"), "no audio between"),
    "duration a list": (stated("duration", "[1]"), "must be seconds"),
    "duration an object": (stated("duration", "{}"), "must be seconds"),
    "duration a word": (stated("duration", '"long"'), "must be seconds"),
    "start NaN": (stated("start", "NaN"), "must be seconds"),
    "start negative": (stated("start", "-1"), "must be seconds"),
    "start 1e300": (line(start=1e300), "no audio between"),
    "end Infinity": (line(end=float("inf")), "must be seconds"),
    "end before start": (line(start=0.3, end=0.2), "no audio between"),
    "sampling_rate a word": (stated("sampling_rate", '"16k"'), "sampling_rate must be"),
    "sampling_rate a list": (stated("sampling_rate", "[16000]"), "sampling_rate must be"),
    "sampling_rate NaN": (stated("sampling_rate", "NaN"), "sampling_rate must be"),
    "sampling_rate Infinity": (stated("sampling_rate", "Infinity"), "sampling_rate must be"),
    "sampling_rate in kHz": (stated("sampling_rate", "16"), "sampling_rate must be"),
    "sampling_rate 1e18": (stated("sampling_rate", "1000000000000000000"), "sampling_rate must be"),
    "NUL in the path": (line(wav="a\0.wav"), r"wav holds a NUL character"),
    "NUL as a byte": (line().replace("a.wav", "a\0.wav"), "not JSON"),
    "half a surrogate pair in the path": (line(wav="\ud800.wav"), "half of a surrogate pair"),
    "half a surrogate pair in the text": (line(txt="\udfff"), "half of a surrogate pair"),
    "half a surrogate pair in the key": (line(key="\ud800"), "half of a surrogate pair"),
    "half a surrogate pair in another field": (
        line(speaker=["\udc80"]),
        "half of a surrogate pair",
    ),
    "half a surrogate pair as bytes": (
        line(txt="VALUE").encode().replace(b"VALUE", b"\xed\xa0\x80"),
        "not UTF-8",
    ),
    "deep nesting": (line(x="VALUE").replace('"VALUE"', DEEP), "nested too deeply"),
    "nothing but brackets": ("[" * 200_000, "nested too deeply|not JSON"),
    "Latin-1": (line(txt="VALUE").encode().replace(b"VALUE", b"caf\xe9"), "not UTF-8"),
    "half a line": (line()[:20], "not JSON"),
    "a number": ("7", "expected an object"),
    "no audio": ('{"key": "bad", "txt": "x"}', "lacks wav"),
    "text null": (line(txt=None), "lacks txt"),
    "key a list": (line(key=["a"]), "key must be a string, found list"),
    "key of blanks": (line(key=" \n"), "the key is empty"),
    "no name to make a key of": ('{"wav": "/", "txt": "x"}', "the key is empty"),
    "a path longer than any": (line(wav="a" * 100_000), "File name too long"),
    "an unknown transport": (line(wav="gopher://host/a.wav"), "gopher"),
}


def as_bytes(text):
    """The bytes of a line of RAW."""
    return text if isinstance(text, bytes) else text.encode()


MANY = "9" * 11
SHARD = {
    "four fields": (b"a.tar\tm.json\t7\t8", "expected a tar, a manifest and a shard_id"),
    "a shard_id that is no number": (
        b"a.tar\tm.json\tseven",
        "expected a tar, a manifest and a shard_id",
    ),
    "a shard_id of 5000 digits": (b"a.tar\tm.json\t" + b"9" * 5000, "more than 18 digits"),
    "Latin-1": (b"caf\xe9.tar", "not UTF-8"),
    "NUL": (b"a\0.tar", "holds a NUL character"),
    "99 billion shards": (f"a_{{0..{MANY}}}.tar".encode(), "stand for 100000000000 paths"),
    "a product of ranges": (b"{0..9999}_{0..9999}.tar", "stand for 100000000 paths"),
    "a range of 5000 digits": (b"a_{0.." + b"9" * 5000 + b"}.tar", "more than 18 digits"),
    "a range that ends before it begins": (b"a_{5..3}.tar", "end before they begin"),
    "two tars for three manifests": (b"a_{0..1}.tar\tm_{0..2}.json", "2 tars and 3 manifests"),
}
