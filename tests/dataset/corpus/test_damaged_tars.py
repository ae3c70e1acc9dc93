"""A tar that is cut short is told by whoever opens its list, and a mended one is indexed anew."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from tests.support.data.tars import wav, write_tar
from wenet_uio.base.messages import said_once
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.corpus.unread_audio import looking_again

KEYS = "abcdef"
SOUND = wav(0.1)
MEMBER = 1024 + (len(SOUND) + 511) // 512 * 512 + 512
"""Bytes of an utterance in the tar: text, then audio, each with a header."""
CUTS = {
    "in an utterance": 2 * MEMBER + 1500,
    "between utterances": 3 * MEMBER,
    "in a header": 3 * MEMBER + 100,
}
FORMS = {"plain": "x.tar", "scheme": "x.tar", "packed": "x.tar.gz"}


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    """A tar of six utterances."""
    said_once.clear()
    members = [member for key in KEYS for member in ((f"{key}.txt", "a"), (f"{key}.wav", SOUND))]
    return Path(write_tar(tmp_path / "whole.tar", members)).read_bytes()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cut", CUTS)
def test_a_tar_that_is_cut_short_is_told_and_a_mended_one_is_indexed_anew(
    tmp_path, whole, cut, form, caplog
):
    tar = tmp_path / FORMS[form]
    pack = gzip.compress if form == "packed" else bytes
    (tmp_path / "sound.tar").write_bytes(whole)
    tar.write_bytes(pack(whole[: CUTS[cut]]))
    path = tmp_path / "data.list"
    name = f"file://{tar}" if form == "scheme" else str(tar)
    path.write_text(f"{name}\n{tmp_path}/sound.tar\n")

    before = open_list(str(path), "shard")
    assert before.num_samples == len(KEYS) + CUTS[cut] // MEMBER
    told = [warning for warning in before.warnings if "damaged" in warning]
    assert len(told) == 1
    assert told[0].startswith(f"{path}: 1 of 2 shards may be damaged ({tar} ")
    assert told[0] in caplog.messages

    tar.write_bytes(pack(whole))
    os.utime(tar, ns=(1, 1))  # a copy that keeps the time of the sender
    assert open_list(str(path), "shard").num_samples == before.num_samples
    with looking_again():
        mended = open_list(str(path), "shard")
    assert mended.num_samples == 2 * len(KEYS)
    assert not any("damaged" in warning for warning in mended.warnings)


def test_a_long_list_names_the_first_damaged_tars_and_counts_the_others(tmp_path, whole):
    for number in range(5):
        (tmp_path / f"{number}.tar").write_bytes(whole[: (number + 1) * MEMBER])
    path = tmp_path / "data.list"
    path.write_text("".join(f"{tmp_path}/{number}.tar\n" for number in range(5)))
    (told, *_) = open_list(str(path), "shard").warnings
    assert "5 of 5 shards may be damaged" in told
    assert f"{tmp_path}/2.tar ends at byte" in told
    assert "and 2 more" in told
    assert f"{tmp_path}/3.tar" not in told
