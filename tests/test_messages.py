from wenet_uio.messages import listed


def test_all_of_a_few_items_are_listed():
    assert listed(["a", "b"], 2) == "a, b"
    assert listed([], 2) == ""


def test_the_first_of_many_items_are_listed_and_the_others_counted():
    assert listed(dict.fromkeys("abcd"), 2) == "a, b and 2 more"
    assert listed(["a", "b", "c"], 1, "; ") == "a and 2 more"
