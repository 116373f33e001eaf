"""The storage a thread waits for, derived from its wait channel (``/proc/PID/task/TID/wchan``)."""

from __future__ import annotations

import re
from typing import Final

PAGE_CACHE: Final = "local disks or the page cache"
"""For functions shared by all file systems, from which the specific one cannot be identified."""

_STORAGE: Final = (
    # Lustre's client: I/O (cl_, vvp_, osc_), locks (ldlm_) and requests (ptlrpc_).
    ("Lustre", re.compile(r"(?:ptlrpc|ldlm|cl_sync|cl_io|cl_lock|vvp|osc|lov|mdc|ll)_\w+")),
    ("GPFS", re.compile(r"cxi[A-Z]\w+|gpfs\w*|mmfs\w*")),
    ("WEKA", re.compile(r"weka\w+")),
    ("BeeGFS", re.compile(r"(?:Fhgfs|BeeGFS|beegfs|fhgfs)\w*")),
    ("CephFS", re.compile(r"(?:ceph|rbd)_\w+")),
    ("FUSE", re.compile(r"request_wait_answer|fuse_\w+")),
    ("NFS", re.compile(r"(?:nfs|nfs3|nfs4|pnfs|rpc|rpcauth|xprt)_\w+|__rpc_\w+")),
    ("SMB", re.compile(r"(?:cifs|smb2|SMB2)_\w+|wait_for_response")),
    ("GPUDirect Storage", re.compile(r"nvfs_\w+")),
    (
        PAGE_CACHE,
        re.compile(
            r"(?:__)?(?:folio_wait|folio_lock|wait_on_page|lock_page|filemap)\w*|(?:blk|blkdev|submit_bio|bio|iomap|dio|"
            r"jbd2|ext4|xfs|btrfs|zfs|md|raid5|dm|nvme|io_schedule|bit_wait_io|wait_on_buffer|do_blockdev|__blkdev|"
            r"wbt|rq_qos|balance_dirty_pages|cv_wait_common)\w*"
        ),
    ),
)


def storage_behind(wait_channel: str) -> str | None:
    """Kind of storage a thread waits for in this kernel function; None if it is not storage or unknown.

    >>> storage_behind("ptlrpc_set_wait"), storage_behind("folio_wait_bit_common"), storage_behind("nv_ioctl")
    ('Lustre', 'local disks or the page cache', None)
    """
    return next((name for name, functions in _STORAGE if functions.fullmatch(wait_channel)), None)
