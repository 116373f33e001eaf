"""Two builds of a release are equal, what it states is true, and wheel and chart are upgraded and rolled back."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from deploy.release.files import copied
from deploy.release.statements import KEY, checksums, sha256, sign
from tests.conftest import REPOSITORY, RequiresTool
from tests.distribution import install, interpreters, make_environment
from tests.documents.pages import shown
from tests.e2e.processes import exporter, wait_for
from tests.program_output import output_of
from tests.released import CLOCKS_SECONDS, KINDS, NEWER, Packages, checkout, make, release

from gpu_triage import __version__

pytestmark = pytest.mark.timeout(1800)


def test_two_builds_of_a_commit_are_equal(tmp_path_factory: pytest.TempPathFactory) -> None:
    first, elsewhere = release(), tmp_path_factory.mktemp("elsewhere")
    before = os.umask(0o077)
    try:
        clone = checkout(elsewhere)
    finally:
        os.umask(before)
    image = ("image",) if list(first.glob("*-image.tar")) else ()
    make(clone, elsewhere / "files", *KINDS, *image, environment={"TZ": "Pacific/Auckland", "LC_ALL": "C"})
    files = [path for path in (elsewhere / "files").iterdir() if path.name != "SHA256SUMS"]
    assert checksums(files) == (first / "SHA256SUMS").read_text()


def test_a_version_is_not_built_from_another_commit_than_its_tag(tmp_path: Path) -> None:
    clone = checkout(tmp_path)
    git = ("git", "-C", str(clone), "-c", "user.name=a", "-c", "user.email=a@example.org")
    output_of(*git, "tag", "--annotate", "--message", "a", "v1.0.0")
    assert copied(clone, tmp_path / "same", "1.0.0").folder.is_dir()
    output_of(*git, "commit", "--quiet", "--allow-empty", "--message", "a")
    with pytest.raises(RuntimeError, match=r"^1\.0\.0 has been released from [0-9a-f]{40}; raise __version__"):
        copied(clone, tmp_path / "other", "1.0.0")


def test_a_release_lists_its_files_where_they_come_from_and_what_they_contain() -> None:
    folder = release()
    output_of("sh", "-c", 'cd "$0" && sha256sum --check --strict SHA256SUMS', str(folder))
    names = {path.name for path in folder.iterdir()}
    summed = {name: digest for digest, name in map(str.split, (folder / "SHA256SUMS").read_text().splitlines())}
    assert {*summed, "SHA256SUMS"} == names
    found = [json.loads(path.read_bytes()) for path in folder.glob("*.provenance.json")]
    subjects = {each["name"]: each["digest"]["sha256"] for statement in found for each in statement["subject"]}
    assert subjects.items() <= summed.items()
    assert {name for name in names if name.endswith((".whl", ".deb", ".rpm", ".tgz", ".tar.gz", ".tar"))} <= {*subjects}
    definition = found[0]["predicate"]["buildDefinition"]
    assert definition["internalParameters"]["python"] == sys.version
    made_from = {each["uri"]: each["digest"] for each in definition["resolvedDependencies"]}
    commit = output_of("git", "-C", REPOSITORY, "rev-parse", "HEAD").strip()
    assert made_from["git:gpu-triage-exporter"] == {"gitCommit": commit}
    assert made_from["Dockerfile"] == {"sha256": sha256(REPOSITORY / "Dockerfile")}
    for bill in (folder / f"{name}.cdx.json" for name in names if name.endswith((".deb", ".rpm", ".tar"))):
        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill.read_text()) is None
        components = {each["name"] for each in json.loads(bill.read_bytes())["components"]}
        assert "h11" in components
        assert ({"libc6", "python3"} <= components) == bill.name.endswith("-image.tar.cdx.json")


def test_a_later_run_keeps_what_an_earlier_one_states_and_refuses_a_changed_file(tmp_path: Path) -> None:
    rules = f"gpu-triage-rules-{__version__}.tar.gz"
    make(REPOSITORY, tmp_path, "rules")
    make(REPOSITORY, tmp_path, "dashboards")
    output_of("sh", "-c", 'cd "$0" && sha256sum --check --strict SHA256SUMS', str(tmp_path))
    assert f"  {rules}.provenance.json\n" in (tmp_path / "SHA256SUMS").read_text()
    (tmp_path / rules).write_bytes(b"other")
    with pytest.raises(AssertionError, match="was changed after its build; remove it"):
        make(REPOSITORY, tmp_path, "chart")


def test_the_documented_commands_accept_the_signature_and_refuse_another_file(
    tmp_path: Path, requires_tool: RequiresTool
) -> None:
    gpg = [str(requires_tool("gpg")), "--homedir", str(tmp_path / "signer"), "--batch", "--quiet"]
    (tmp_path / "signer").mkdir(mode=0o700)
    output_of(*gpg, "--passphrase", "", "--quick-generate-key", "release@example.org", "ed25519", "sign")
    (tmp_path / "key.asc").write_text(output_of(*gpg, "--armor", "--export"))
    secret = output_of(*gpg, "--armor", "--export-secret-keys")
    # Fails with the key in its environment, as everything that builds must not have it.
    (tmp_path / "git").write_text('#!/bin/sh\n[ -z "$RELEASE_SIGNING_KEY" ] && PATH=${PATH#*:} && exec git "$@"\n')
    (tmp_path / "git").chmod(0o755)
    make(REPOSITORY, tmp_path, "rules", environment={KEY: secret, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    (file,) = tmp_path.glob("*.tar.gz")
    file.with_name(f"{file.name}.provenance.json").unlink()
    commands = " && ".join(each.command for each in shown(REPOSITORY / "docs/install.md", "Verify a release"))
    commands = re.sub(r"gpu-triage-exporter_\S+\.deb", file.name, commands)
    (tmp_path / "user").mkdir(mode=0o700)

    def verified() -> int:
        environment = {**os.environ, "GNUPGHOME": str(tmp_path / "user")}
        return subprocess.run(["sh", "-c", commands], cwd=tmp_path, env=environment, check=False).returncode

    assert verified() == 0
    file.write_bytes(b"other")
    assert verified() != 0
    (tmp_path / "SHA256SUMS").write_text(checksums([file]))
    assert verified() != 0  # signed was another list
    (tmp_path / "SHA256SUMS").write_text(checksums([tmp_path / "key.asc"]))
    sign(tmp_path / "SHA256SUMS", secret)
    assert verified() != 0  # not listed
    for home in ("signer", "user"):
        output_of("gpgconf", "--homedir", tmp_path / home, "--kill", "all")


def test_pip_upgrades_the_wheel_and_rolls_it_back(newer: Packages, tmp_path: Path) -> None:
    inside = make_environment(
        interpreters()[newer.python], tmp_path / "venv", REPOSITORY / "requirements" / "runtime.txt"
    )
    program = (str(inside), "-I", str(tmp_path / "venv" / "bin" / "gpu-triage"))
    flags = ("--simulate", "dual-a10", "--state.directory", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    began: Callable[[str], list[str]] = re.compile(r'^gpu_finding_since.*"pcie.width".* (\S+)$', re.MULTILINE).findall
    seconds: list[float] = []
    for folder, version in ((release(), __version__), (newer.deb.parent, NEWER), (release(), __version__)):
        install(inside, "--no-deps", "--reinstall", *map(str, folder.glob("*.whl")))
        with exporter(tmp_path, *flags, program=program) as running:
            wait_for(lambda: began(running.metrics()))
            assert f'version="{version}"' in running.metrics()
            seconds += map(float, began(running.metrics()))
    assert seconds == [pytest.approx(seconds[0], abs=CLOCKS_SECONDS)] * 3
