"""``python -m deploy.generate``: renew everything that is generated, or only the steps that you name."""

import subprocess
import sys

import click
from deploy.generate import REPOSITORY
from deploy.generate.steps import STEPS, write

_BY_TESTS = {
    "notifications": ("tests/rules/test_notifications.py",),
    "bad-night": ("tests/golden", "-k", "bad-night"),
    "goldens": ("tests/drivers", "tests/golden", "-k", "not bad-night"),
}
"""Tests that write the files they otherwise compare; one scenario takes as long as all others together."""
_FIRST, _MEANWHILE = ("rules",), ("bad-night", "goldens")
"""Everything reads the rules, and nothing reads the goldens, which take the longest."""
_THEN = ("notifications", *(name for name in STEPS if name not in _FIRST))


def _command(name: str) -> list[str]:
    if name in _BY_TESTS:
        return [sys.executable, "-m", "pytest", "--quiet", "--regenerate", *_BY_TESTS[name]]
    return [sys.executable, "-m", "deploy.generate", name]


def _run(name: str) -> None:
    if subprocess.run(_command(name), cwd=REPOSITORY, check=False).returncode != 0:
        raise click.ClickException(f"failed: {name}")


def _all() -> None:
    """Run each step in a process of its own, so that none sees what another had read before."""
    for name in _FIRST:
        _run(name)
    meanwhile = [subprocess.Popen(_command(name), cwd=REPOSITORY) for name in _MEANWHILE]
    try:
        for name in _THEN:
            _run(name)
    finally:
        failed = [name for name, each in zip(_MEANWHILE, meanwhile, strict=True) if each.wait() != 0]
    if failed:
        raise click.ClickException(f"failed: {', '.join(failed)}")
    subprocess.run(["git", "status", "--short"], cwd=REPOSITORY, check=True)  # noqa: S607 - git of the path


@click.command(epilog="Read the diff before you commit it: git diff --text.")
@click.argument("steps", nargs=-1, type=click.Choice((*STEPS, *_BY_TESTS)))
def main(steps: tuple[str, ...]) -> None:
    """Renew what is generated; without STEPS, all of it, in the right order."""
    if not steps:
        _all()
    for name in steps:
        if name in _BY_TESTS:
            _run(name)
        else:
            write(STEPS[name])


if __name__ == "__main__":
    main(prog_name="python -m deploy.generate")
