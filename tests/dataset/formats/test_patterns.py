import pytest

from wenet_uio.dataset.formats.errors import ListError, MissingFileError
from wenet_uio.dataset.formats.patterns import MOST_PATHS, expand


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("a.tar", ["a.tar"]),
        ("{08..10}.tar", ["08.tar", "09.tar", "10.tar"]),
        ("{3..3}_OP_0..1_CL_", ["30", "31"]),
        ("a_(0..1).tar", ["a_0.tar", "a_1.tar"]),
        ("{a,b,c}.tar", ["a.tar", "b.tar", "c.tar"]),
        ("_OP_a,b_CL_/{0..1}.tar", ["a/0.tar", "b/0.tar", "a/1.tar", "b/1.tar"]),
        ("{a,b{1..2}}.tar", ["a.tar", "b1.tar", "b2.tar"]),
        ("{a}{}{x,}.tar", ["{a}{}x.tar", "{a}{}.tar"]),
        ("s3://b/{0..1}?x.tar", ["s3://b/0?x.tar", "s3://b/1?x.tar"]),
    ],
)
def test_ranges_expand_in_order_and_keep_their_width(pattern, paths):
    assert expand(pattern) == paths


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (f"{{1..{MOST_PATHS + 1}}}.tar", "stand for 4194305 paths; 4194304 is the limit"),
        ("{0..99999999999}.tar", "stand for 100000000000 paths"),
        ("{a,b}" * 30, "its alternatives stand for 1073741824 paths"),
        ("{0..9}" * 30, "stand for 1000000000000000000000000000000 paths"),
        ("{0.." + "9" * 10_000 + "}", "more than 18 digits"),
        ("{" + "0" * 10_000 + "..1}", "more than 18 digits"),
        ("{2..1}.tar", "end before they begin"),
        ("{0..1}{2..1}.tar", "end before they begin"),
        ("a\0{0..1}", "NUL"),
    ],
)
def test_a_pattern_without_a_use_is_refused_at_once(pattern, message):
    with pytest.raises(ListError, match=message):
        expand(pattern)


def test_a_glob_that_matches_no_file_is_a_missing_file(tmp_path):
    (tmp_path / "a_0.tar").touch()
    assert expand(f"{tmp_path}/a_*.tar") == [f"{tmp_path}/a_0.tar"]
    with pytest.raises(MissingFileError, match="a_1[*].tar matches no file"):
        expand(f"{tmp_path}/a_{{0..1}}*.tar")


@pytest.mark.parametrize("name", ["a_{0..1}.tar", "a_(0..1).tar", "a_[x].tar", "a_*.tar"])
def test_the_name_of_a_file_that_exists_is_no_pattern(tmp_path, name):
    (tmp_path / name).touch()
    assert expand(f"{tmp_path}/{name}") == [f"{tmp_path}/{name}"]
