"""Numbers of English texts as words."""

import pytest

from wenet_uio.text.normalize import spell_numbers


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("I have 2 cats, 13 dogs.", "I have two cats, thirteen dogs."),
        ("the 1st, 2nd, 3rd, 12th, 20th and 21st", "the first, second, third, twelfth, twentieth and twenty first"),
        ("8th 9th 5th 40th 99th", "eighth ninth fifth fortieth ninety ninth"),
        ("50% of 42", "fifty percent of forty two"),
        ("Chapter 12. It was 5-", "Chapter twelve. It was five-"),
    ],
)  # fmt: skip
def test_numbers_with_one_reading_become_words(written, spoken):
    assert spell_numbers(written) == spoken


@pytest.mark.parametrize(
    "text",
    [
        *("1990", "2648", "100", "0", "007", "10:30", "3.5", "1,000", "5-10", "$5", "B12", "20s"),
        *("1/2", "10%%", "+5", "3rds", "", "no digits at all"),
    ],
)
def test_other_texts_stay_as_they_are(text):
    assert spell_numbers(text) == text


def test_every_number_below_a_hundred_has_words_of_its_own():
    cardinals = {spell_numbers(str(number)) for number in range(1, 100)}
    ordinals = {spell_numbers(f"{number}th") for number in range(1, 100)}
    assert len(cardinals) == len(ordinals) == 99
    assert not cardinals & ordinals
    assert not any(letter.isdigit() for text in cardinals | ordinals for letter in text)
