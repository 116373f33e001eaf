import pytest
from tests.command_line import Ran, Run

from gpu_triage.cli.main import group
from gpu_triage.cli.run import run_cli


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def command(*arguments: object) -> Ran:
        capsys.readouterr()
        code = run_cli(group, list(map(str, arguments)))
        return Ran(code, *capsys.readouterr())

    return command
