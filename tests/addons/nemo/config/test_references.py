import pytest

from wenet_uio.addons.nemo.config.layout import reference_targets
from wenet_uio.addons.nemo.config.references import Unresolved, missing_in, resolve_references
from wenet_uio.config import ConfigError, load_config

VALUES = {
    "train_ds": {
        "manifest_filepath": "a.json",
        "sample_rate": "${..sample_rate}",
        "max_duration": "${.limits.most}",
        "limits": {"most": 20, "least": "${..manifest_filepath}"},
        "labels": "${model.labels[1]}",
    },
    "model of NeMo": {"sample_rate": 8000, "labels": ["a", "b"], "name": "rate"},
    "validation_ds": {
        "manifest_filepath": "${model.train_ds.manifest_filepath}",
        "limits": "${model.train_ds.limits}",
        "sample_rate": "${model.sample_${model.name}}",
        "text": "at ${model.sample_rate} Hz, \\${kept}",
    },
}


def resolved(**values):
    return resolve_references(values, reference_targets)


def test_references_lead_to_values_of_the_file():
    found = resolve_references(VALUES, reference_targets)
    train, validation = found["train_ds"], found["validation_ds"]
    assert (train["sample_rate"], train["max_duration"], train["labels"]) == (8000, 20, "b")
    assert validation["manifest_filepath"] == "a.json"
    assert validation["limits"] == {"most": 20, "least": "a.json"}
    assert validation["sample_rate"] == 8000
    assert validation["text"] == "at 8000 Hz, ${kept}"


def test_references_read_the_environment(monkeypatch):
    monkeypatch.setenv("DATA", "/corpora")
    monkeypatch.setenv("SIZE", "16")
    found = resolved(
        path="${oc.env:DATA}/a.json",
        size="${oc.env:SIZE}",
        default="${oc.env:NOT_THERE,${.size}}",
        text="${oc.env:NOT_THERE,'some text'}",
        decoded="${oc.decode:'[1, 2]'}",
        selected="${oc.select:not_there,7}",
    )
    assert found == {
        "path": "/corpora/a.json",
        "size": 16,
        "default": 16,
        "text": "some text",
        "decoded": "[1, 2]",
        "selected": 7,
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("${model.not_there}", "the file has no key model.not_there"),
        ("${oc.env:NOT_THERE}", "the variable NOT_THERE is not set"),
        ("${now:%Y}", "the resolver now is unknown; known: oc.env"),
        ("${a}", "the references lead back to themselves"),
        ("x ${b", "the reference has no closing brace"),
        ("${}", "the file has no key"),
    ],
)
def test_a_reference_that_leads_nowhere_is_no_error_until_its_key_is_read(text, problem):
    found = resolved(a=text)["a"]
    assert isinstance(found, Unresolved)
    assert problem in found.problem


def test_a_reference_to_a_missing_value_is_missing_itself():
    found = resolved(a="???", b="${a}", c="${a}/x")
    assert list(missing_in(found)) == ["a", "b", "c"]


def test_a_key_that_is_read_says_which_reference_leads_nowhere(tmp_path):
    (tmp_path / "t.yaml").write_text("train_ds: {max_duration: '${model.most}'}")
    with pytest.raises(ConfigError, match=r"train_ds.max_duration: \$\{model.most\}: the file has"):
        load_config(tmp_path / "t.yaml")
    (tmp_path / "t.yaml").write_text("train_ds: {num_workers: '${model.most}'}\nmax_epoch: 3")
    assert load_config(tmp_path / "t.yaml").max_epoch == 3
    (tmp_path / "t.yaml").write_text("max_epoch: '${epochs}'")
    with pytest.raises(ConfigError, match=r"max_epoch: \$\{epochs\}: the file has no key epochs"):
        load_config(tmp_path / "t.yaml")


def test_the_yaml_of_a_trained_model_reads_no_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "word")
    (tmp_path / "t.yaml").write_text("data: '${oc.env:SECRET}'")
    assert load_config(tmp_path / "t.yaml").data == "word"
    assert load_config(tmp_path / "t.yaml", of_model=True).data == "${oc.env:SECRET}"
