import io

from gpu_triage.options.progress import ProgressLine
from gpu_triage_simulator import VirtualClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_work_that_takes_long_says_on_a_terminal_how_far_it_is() -> None:
    terminal = Terminal()
    clock = VirtualClock()
    with ProgressLine(terminal, lambda: clock.now().monotonic) as line:
        for seconds, done in ((0.5, 5), (2.5, 25), (0.1, 30), (8.9, 90)):
            clock.advance(seconds)
            line.show_share("recording", done, 100)
    assert terminal.getvalue() == (
        "\r\x1b[Krecording, 25 %, about 9 s left\r\x1b[Krecording, 90 %, about 1 s left\r\x1b[K"
    )


def test_work_that_takes_no_time_and_a_file_are_told_nothing() -> None:
    for stream, now in ((Terminal(), 0.5), (io.StringIO(), 60.0)):
        with ProgressLine(stream, iter([0.0, now, now]).__next__) as line:
            line.show_share("recording", 5, 100)
        assert stream.getvalue() == ""
