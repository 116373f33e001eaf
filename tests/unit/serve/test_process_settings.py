"""What a daemon loads, and how its interpreter is set."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpu_triage.serve.process_settings import keep_memory_flat

pytestmark = pytest.mark.slow

HEAVY = (
    *("ssl", "hashlib", "prometheus_client", "http.client", "yaml", "email", "statistics", "unittest", "difflib"),
    *("markdown_it", "gpu_triage.serve.handbook"),
)
"""What most exporters never need: HTTPS, a baseline, jobs' files, a configuration file, mistakes in one, runbooks."""


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def test_a_daemon_loads_nothing_that_most_exporters_never_need() -> None:
    program = (
        "import sys\nsys.argv = ['gpu-triage', '--version']\n"
        "from gpu_triage.__main__ import main\n"
        "try:\n    main()\n"
        f"except SystemExit:\n    print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    assert run(program).splitlines()[-1] == "[]"


def test_the_first_process_of_a_container_ends_at_sigterm_while_it_loads() -> None:
    program = (
        "import os, signal, gpu_triage.__main__ as entry\npid = os.getpid()\nos.getpid = lambda: 1\n"
        "entry.load = lambda: os.kill(pid, signal.SIGTERM)\n"
        "try:\n    entry.main()\nexcept SystemExit as end:\n    print(end.code)\n"
    )
    assert run(program) == "143\n"


def test_ssl_can_be_loaded_by_whoever_needs_it() -> None:
    program = (
        "from gpu_triage.__main__ import _load_asyncio_without_openssl as load\n"
        "load()\nimport ssl, gpu_triage.serve.tls\nprint(ssl.create_default_context().verify_mode.name)\n"
    )
    assert run(program) == "CERT_REQUIRED\n"


def test_a_scrape_does_not_wait_for_its_turn_and_what_is_loaded_is_left_alone_by_collections() -> None:
    program = (
        "import gc, sys\nfrom gpu_triage.serve.process_settings import answer_promptly\n"
        "answer_promptly()\nprint(sys.getswitchinterval() <= 0.001, gc.get_freeze_count() > 1000)\n"
    )
    assert run(program) == "True True\n"


@pytest.mark.parametrize(
    "users", ["", "basic_auth_users: {nina: $2b$04$JmaQCGFQ4LN0NlJ3kCnOuuiq1oyV6c9jYnPXrCKmMlYUFDXcWjY.O}"]
)
def test_what_checks_passwords_is_loaded_with_them(users: str, tmp_path: Path) -> None:
    path = tmp_path / "web.yml"
    path.write_text(users)
    program = "import sys\nfrom gpu_triage.serve.security import SecuritySource\n"
    assert run(f"{program}SecuritySource({str(path)!r})\nprint('bcrypt' in sys.modules)").strip() == str(bool(users))


def test_the_c_library_takes_its_settings_and_one_without_arenas_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run("import gpu_triage.serve.process_settings as own\nprint(own.keep_memory_flat())") == "True\n"
    monkeypatch.setattr("ctypes.CDLL", lambda _name: object())
    assert not keep_memory_flat()


def test_the_copy_of_the_code_holds_what_is_imported_later_and_not_the_other_commands() -> None:
    program = (
        "import zipfile, gpu_triage.driver.own_code as own\nown.keep_code()\n"
        "names = set(zipfile.ZipFile(open(own.kept_code(), 'rb')).namelist())\n"
        "later = {'gpu_triage/read/xid/codes.json', 'gpu_triage/serve/handbook/symptoms.toml'}\n"
        "commands = [name for name in names if name.startswith('gpu_triage/cli')]\n"
        "print(any(name.startswith('yaml/') for name in names), later - names, commands)\n"
    )
    assert run(program) == "True set() []\n"
