from wenet_uio.dataset.corpus.recent import Recent


def test_the_value_that_was_used_longest_ago_is_replaced():
    recent = Recent(2)
    recent.put(1, "a")
    recent.put(2, "b")
    assert recent.get(1) == "a"
    recent.put(3, "c")
    assert [recent.get(number) for number in (1, 2, 3)] == ["a", None, "c"]


def test_the_oldest_value_can_be_dropped_and_an_empty_collection_stays_empty():
    recent = Recent(2)
    recent.put(1, "a")
    recent.drop_oldest()
    recent.drop_oldest()
    assert recent.get(1) is None


def test_the_values_of_an_owner_can_be_dropped():
    recent, owner = Recent(9), object()
    recent.put((owner, 1), "a")
    recent.put((object(), 1), "b")
    recent.put(1, "c")
    recent.drop_all_of(owner)
    assert list(recent._values.values()) == ["b", "c"]
