"""Whether codes of a newer driver are noticed; lines of nverror.h of open-gpu-kernel-modules 595.45.04."""

from pathlib import Path

import pytest
from tests import newest_xids

KNOWN = "#define C2C_FATAL_LINK_FAILURE   (173)\n#define ROBUST_CHANNEL_LAST_ERROR (9999)\n"


@pytest.mark.parametrize(("more", "missing"), [("", []), ("#define A_NEW_ERROR (9998)\n", ["9998 A_NEW_ERROR"])])
def test_codes_that_the_table_lacks_are_listed_and_fail(
    more: str, missing: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nverror.h").write_text(KNOWN + more)
    monkeypatch.setattr("sys.argv", ["newest_xids", str(tmp_path / "nverror.h")])
    assert newest_xids.main() == bool(missing)
    assert [line for line in capsys.readouterr().out.splitlines() if line[0].isdigit()] == missing
    with pytest.raises(SystemExit):
        newest_xids.missing_in("<html>404: Not Found</html>")
