"""Names of models on a hub."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wenet_uio.base.hub_address import hub_address, is_hub_address

PARTS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True)
REVISIONS = st.none() | st.from_regex(r"[a-z0-9](?:[a-z0-9/_-]|\.(?!\.)){0,20}", fullmatch=True)


@given(PARTS, PARTS, REVISIONS)
def test_all_forms_of_an_address_are_the_same(org, name, revision):
    address = hub_address(f"{org}/{name}", revision)
    assert address.name == f"{org}/{name}"
    assert address.revision == revision
    assert is_hub_address(address)
    assert hub_address(str(address)) == address
    assert hub_address(str(address), revision) == address


@pytest.mark.parametrize(
    "text",
    [
        *("name", "org/../name", "org/name/avg.pt", "org/name@", "org/name@../x", "org/name@a..b"),
        *("org/name@-x", "org/name@a b", "/org/name", "org/", "@v1", "", "org/na\u00efve"),
    ],
)
def test_another_form_is_an_error_that_names_it(text):
    for given_text in (text, f"hf://{text}"):
        with pytest.raises(ValueError, match="expected"):
            hub_address(given_text)


def test_two_revisions_are_an_error_unless_they_are_the_same():
    assert hub_address("org/name@v1", "v1").revision == "v1"
    with pytest.raises(ValueError, match="two revisions, v1 and v2"):
        hub_address("org/name@v1", "v2")
