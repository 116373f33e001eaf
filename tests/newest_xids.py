"""Compare our table of Xids with a driver's: ``python -m tests.newest_xids nverror.h``, of open-gpu-kernel-modules.

The file is src/common/sdk/nvidia/inc/nverror.h of https://github.com/NVIDIA/open-gpu-kernel-modules; without a name,
the newest is fetched from there. Exit status 1 if the table lacks codes.
"""

import re
import sys
import urllib.request
from pathlib import Path
from typing import Final

from gpu_triage.read.xid.codes import XID_CODES

_NEWEST: Final = (
    "https://raw.githubusercontent.com/NVIDIA/open-gpu-kernel-modules/main/src/common/sdk/nvidia/inc/nverror.h"
)
_DEFINED: Final = re.compile(r"^#define\s+(\w+)\s+\((\d{1,4})\)", re.MULTILINE)
_NO_XID: Final = re.compile(r"LAST_ERROR|RECOVERY_LEVEL|FAKE_ERROR|UNUSED|RESERVED|RC_LOGGING_ENABLED")


def missing_in(header: str) -> list[str]:
    """The Xids that this header defines and our table lacks, as ``173 C2C_FATAL_LINK_FAILURE``."""
    defined = {int(code): name for name, code in _DEFINED.findall(header) if not _NO_XID.search(name)}
    if not defined:
        raise SystemExit("no Xid is defined in this file: is it nverror.h?")
    return [f"{code} {name}" for code, name in sorted(defined.items()) if code not in XID_CODES]


def main() -> int:
    if len(sys.argv) > 1:
        header = Path(sys.argv[1]).read_text(encoding="utf-8")
    else:
        with urllib.request.urlopen(_NEWEST, timeout=30) as answer:
            header = answer.read(1 << 20).decode()
    missing = missing_in(header)
    sys.stdout.write("\n".join(missing) or "our table has every Xid of this driver")
    sys.stdout.write("\n")
    return int(bool(missing))


if __name__ == "__main__":
    raise SystemExit(main())
