"""What is wrong with a mixture is said in one line each."""

import pytest

from wenet_uio.config.base import ConfigError, parse
from wenet_uio.config.mixture import MixtureConf, load_mixture


@pytest.mark.parametrize("weight", [".inf", "1e308", "-1", "0", ".nan", "1e16"])
def test_a_weight_that_is_no_share_is_refused_by_name(tmp_path, weight):
    path = tmp_path / "mix.yaml"
    path.write_text(
        f"- {{type: raw, data_list: a.list, weight: {weight}}}\n"
        "- {type: raw, data_list: b.list, weight: 1}\n"
    )
    with pytest.raises(ConfigError, match=r"mix.yaml: sources\.0.*weight"):
        load_mixture(path)


@pytest.mark.parametrize("weight", [1e-9, 0.5, 1, 1e15])
def test_weights_of_any_usual_size_are_taken(weight):
    sources = [{"type": "raw", "data_list": "a.list", "weight": weight}]
    assert parse(MixtureConf, sources, "x").sources[0].weight == weight


@pytest.mark.parametrize(
    ("sources", "problem"),
    [
        ([{"type": "nemmo"}], r"sources\.0\.type: unknown; did you mean 'nemo'\?, found 'nemmo'$"),
        ([{"type": "group", "input_cfg": [{"type": "rw"}]}], r"input_cfg\.0\.type: .*'raw'\?"),
        ([{"type": "a:b"}], r"sources\.0\.type: unknown; known: raw, shard, .*, found 'a:b'$"),
        ([{}], r"sources\.0\.type: required key is missing$"),
        (["a.list"], r"sources\.0: expected a dictionary, found 'a\.list'$"),
        (
            [{"type": "raw", "data_list": "a", "batch_conf": 3}],
            "batch_conf: expected a dictionary, f",
        ),
    ],
)
def test_a_source_without_a_type_or_of_an_unknown_one_is_one_line(sources, problem):
    with pytest.raises(ConfigError, match=problem):
        parse(MixtureConf, {"sources": sources}, "m.yaml")
