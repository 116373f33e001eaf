"""Runs the unit tests under every supported Python of this host: ``python -m tests.pythons``."""

import argparse
import os
import subprocess
import sys

from tests.conftest import REPOSITORY
from tests.distribution import SUPPORTED, install, interpreters, make_environment


def main() -> int:
    """Exit status: 0 if the tests pass under each."""
    parser = argparse.ArgumentParser(description=__doc__, epilog="Further arguments are pytest's.")
    parser.add_argument("--python", action="append", choices=SUPPORTED, help="only this version; may be repeated")
    arguments, for_pytest = parser.parse_known_args()
    found = interpreters()
    failed = []
    for version in arguments.python or found:
        if version not in found:
            parser.error(f"no Python {version} on this host, only {', '.join(found)}; install it, with pyenv for one")
        print(f"Python {version}: {found[version]}", flush=True)  # noqa: T201 - this is what the command is for
        if _unit_tests(version, for_pytest) != 0:
            failed.append(version)
    missing = [version for version in SUPPORTED if version not in found]
    print(f"failed: {', '.join(failed) or 'none'}; not on this host: {', '.join(missing) or 'none'}")  # noqa: T201 - as above
    return 1 if failed else 0


def _unit_tests(version: str, for_pytest: list[str]) -> int:
    environment = REPOSITORY / ".venv" / "pythons" / version
    python = make_environment(interpreters()[version], environment, REPOSITORY / "requirements" / "dev.txt")
    install(python, "--no-deps", "--no-build-isolation", "--editable", str(REPOSITORY))
    command = [str(python), "-m", "pytest", "tests/unit", "tests/documents", *for_pytest]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=REPOSITORY, env=clean, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
