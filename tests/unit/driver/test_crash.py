import signal

import pytest

from gpu_triage.driver.crash import EXPLANATION, MEANINGS, ending


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "ended with code 0"),
        (3, "ended with code 3"),
        (-signal.SIGKILL, "was killed by SIGKILL"),
        (-signal.SIGBUS, f"was killed by SIGBUS ({MEANINGS[signal.SIGBUS]})"),
        (-200, "was killed by signal 200"),
    ],
)
def test_an_exit_code_is_told_in_words(code: int, words: str) -> None:
    assert ending(code) == words


def test_the_explanation_fits_and_consists_of_what_is_written_as_it_is() -> None:
    assert len(EXPLANATION) <= 500  # of a file's name, `faulthandler` writes MAX_STRING_LENGTH
    assert EXPLANATION.isascii()
    assert EXPLANATION.isprintable()
    assert all(meaning in EXPLANATION for meaning in MEANINGS.values())
