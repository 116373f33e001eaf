"""Pods and containers: which holds which GPU, according to the kubelet, and which a process on a GPU belongs to.

Of the kubelet's pod-resources service, only one response is needed (``v1.PodResourcesLister/List``), so a minimal
decoder of the protobuf wire format is included: generated code would tie this package to a range of protobuf releases,
and escape linting and type checks.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

from gpu_triage.driver.kernel.files import read_names
from gpu_triage.errors import ConfigError, HostReadFailed
from gpu_triage.machine import Holder, Moment, dra_name
from gpu_triage.read.gpu.identity import read_minor_number
from gpu_triage.read.gpu.mig import read_mig_uuids
from gpu_triage.read.metrics.contract import GpuRound, HostCollector
from gpu_triage.read.metrics.metric import Tier
from gpu_triage.read.processes.allocation import AllocationCache, names_of, refreshing
from gpu_triage.read.processes.facts import ProcessFacts
from gpu_triage.read.processes.listing import ListedProcess

SERVICE: Final = "/v1.PodResourcesLister/List"
"""https://github.com/kubernetes/kubelet/blob/master/pkg/apis/podresources/v1/api.proto"""

DEADLINE_SECONDS: Final = 2.0  # shorter than the medium interval: a hung kubelet only delays the host's next round
_MOST_BYTES: Final = 16 << 20  # the kubelet's own message size limit

# Field numbers of the response messages; other fields are skipped.
_POD_RESOURCES: Final = 1
_POD_NAME, _POD_NAMESPACE, _POD_CONTAINERS = 1, 2, 3
_CONTAINER_NAME, _CONTAINER_DEVICES, _CONTAINER_DYNAMIC_RESOURCES = 1, 2, 5
_DEVICE_IDS: Final = 2
_CLAIM_RESOURCES: Final = 4
_CLAIM_DRIVER, _CLAIM_DEVICE = 2, 4

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES: Final = {_FIXED64: 8, _FIXED32: 4}
_LONGEST_VARINT: Final = 10
_NVIDIA_DEVICE: Final = re.compile(r"(?P<uuid>(?:GPU|MIG)-[0-9A-Za-z/-]{1,100})(?:::[0-9]{1,6})?")
_DRA_DRIVER: Final = "gpu.nvidia.com"
_DRA_DEVICE: Final = re.compile(r"gpu-(?P<minor>[0-9]{1,3})(?:-mig-[0-9A-Za-z.+-]{1,60})?")
"""NVIDIA's DRA driver names a GPU by minor number, a MIG device by its GPU's minor number, profile and placement."""


class PodDirectory(AllocationCache):
    def __init__(self, ask: Callable[[], bytes], fresh_for_seconds: float) -> None:
        super().__init__(fresh_for_seconds)
        self._ask = ask

    def refresh(self, at: Moment) -> tuple[str, ...]:
        try:
            self.keep(parse_holders(self._ask()), at)
        except ValueError as error:
            raise HostReadFailed("malformed", SERVICE, str(error)) from error
        return ()


def kubelet(socket: Path, deadline_seconds: float = DEADLINE_SECONDS) -> Callable[[], bytes]:
    """Return a function that queries the kubelet behind a socket with a deadline; ConfigError without optional gRPC.

    The function raises HostReadFailed with the gRPC status as reason (``unavailable``, ``deadline_exceeded``, …).
    """
    try:
        import grpc  # noqa: PLC0415 - an optional extra: imported only if used, to save memory otherwise
    except ImportError as error:
        raise ConfigError(
            f"--kubernetes.pod-resources-socket needs gRPC ({error}); "
            "run pip install gpu-triage-exporter[kubernetes], or leave the option out"
        ) from error
    options = (
        ("grpc.max_receive_message_length", _MOST_BYTES),
        # The default authority is the socket's path, which the kubelet's server rejects.
        ("grpc.default_authority", "localhost"),
        ("grpc.enable_http_proxy", 0),
        # Do not share connection backoff between rounds: a kubelet that is back is found in the next round.
        ("grpc.use_local_subchannel_pool", 1),
    )

    def ask() -> bytes:
        try:
            with grpc.insecure_channel(f"unix:{socket}", options) as channel:
                answer: bytes = channel.unary_unary(SERVICE)(b"", timeout=deadline_seconds)
                return answer
        except grpc.RpcError as error:
            raise HostReadFailed(error.code().name.lower(), socket, str(error.details())) from error

    return ask


def parse_holders(response: bytes) -> Iterator[tuple[str, Holder]]:
    """Parse a serialized ListPodResourcesResponse into NVIDIA devices and the containers that hold them.

    A device is a UUID, or DRA's `dra_name`. A replica of a time-sliced GPU (``GPU-…::3``) counts as the GPU.
    """
    for pod in _messages(response, _POD_RESOURCES):
        name, namespace = _text(pod, _POD_NAME), _text(pod, _POD_NAMESPACE)
        for container in _messages(pod, _POD_CONTAINERS):
            holder = Holder(name, namespace, _text(container, _CONTAINER_NAME))
            yield from ((device, holder) for device in (*_plugin_devices(container), *_claimed_devices(container)))


def _plugin_devices(container: bytes) -> Iterator[str]:
    for devices in _messages(container, _CONTAINER_DEVICES):
        for device in _messages(devices, _DEVICE_IDS):
            match = _NVIDIA_DEVICE.fullmatch(device.decode())
            if match is not None:
                yield match["uuid"]


def _claimed_devices(container: bytes) -> Iterator[str]:
    """Devices a container holds through resource claims (DRA), as `dra_name` formats them."""
    for resource in _messages(container, _CONTAINER_DYNAMIC_RESOURCES):
        for claim in _messages(resource, _CLAIM_RESOURCES):
            device = _DRA_DEVICE.fullmatch(_text(claim, _CLAIM_DEVICE))
            if device is not None and _text(claim, _CLAIM_DRIVER) == _DRA_DRIVER:
                yield dra_name(int(device["minor"]))


def wire_fields(message: bytes) -> Iterator[tuple[int, bytes | None]]:
    """Yield fields of a protobuf message (protobuf.dev/programming-guides/encoding): number, and content or None."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind, content = tag & 7, None
        if kind == _VARINT:
            _, position = _varint(message, position)
        elif kind == _LENGTH_DELIMITED:
            length, start = _varint(message, position)
            position = start + length
            content = message[start:position]
        elif kind in _FIXED_BYTES:
            position += _FIXED_BYTES[kind]
        else:
            raise ValueError(f"wire type {kind} at byte {position}")
        if position > len(message):
            raise ValueError(f"a field ends at byte {position} of {len(message)}")
        yield tag >> 3, content


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(message[position : position + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value, position + count + 1
    raise ValueError(f"no end of the number at byte {position}")


def _messages(message: bytes, number: int) -> list[bytes]:
    return [content for field, content in wire_fields(message) if field == number and content is not None]


def _text(message: bytes, number: int) -> str:
    # If a field occurs twice, the last one wins. UnicodeDecodeError is a ValueError.
    texts = _messages(message, number)
    return texts[-1].decode() if texts else ""


POD_NAMES = HostCollector(
    about="names of the pods and containers that hold GPUs",
    tier=Tier.MEDIUM,
    reader=lambda _config: refreshing(lambda machine: machine.pods),
    needs="kubernetes_pod_resources_socket",
)

MAX_CONTAINERS: Final = 8192  # a node runs a few hundred pods at most, and keeps a few dead containers of each

# Pod, namespace and container names contain no underscores. A name too long for the file system is truncated at the
# end, so it lacks a complete ID and does not match.
_LINK: Final = re.compile(
    r"(?P<pod>[a-z0-9.-]{1,253})_(?P<namespace>[a-z0-9-]{1,63})_(?P<container>[a-z0-9-]{1,63})-(?P<id>[0-9a-f]{64})\.log"
)


class ContainerLinks(AllocationCache):
    """Containers by ID, from the names of log symlinks.

    The kubelet keeps a symlink ``POD_NAMESPACE_CONTAINER-ID.log`` for each container in /var/log/containers, and any
    user may list that folder. Link targets and log contents are not read. With the container ID in a process's cgroup,
    this identifies the pod even if several pods share the GPU, and without the kubelet's socket. Container IDs are
    never reused, so a stale entry is never wrong.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(math.inf)
        self._directory = directory

    def refresh(self, at: Moment) -> tuple[str, ...]:
        names = read_names(self._directory)
        if names is None:
            raise HostReadFailed("missing", self._directory, "no such folder; is this a node of a cluster?")
        self.keep(parse_links(names[:MAX_CONTAINERS]), at)
        return ("too_many_containers",) if len(names) > MAX_CONTAINERS else ()


def parse_links(names: Iterable[str]) -> Iterator[tuple[str, Holder]]:
    """Parse names in /var/log/containers into container IDs and containers; other names are ignored."""
    for match in map(_LINK.fullmatch, names):
        if match is not None:
            yield match["id"], Holder(match["pod"], match["namespace"], match["container"])


CONTAINER_NAMES = HostCollector(
    about="names of the pods and containers of processes",
    tier=Tier.MEDIUM,
    reader=lambda _config: refreshing(lambda machine: machine.containers),
    needs="kubernetes_container_logs",
    own_lane=True,
)

NO_WORKLOAD: Final = Holder()  # for a process outside any pod, or in a pod with unknown name


class WorkloadFinder:
    def __init__(self, gpu: GpuRound) -> None:
        self._gpu = gpu

    def workload(self, process: ListedProcess, facts: ProcessFacts | None) -> Holder:
        """Find a process's pod and container; names that are not certain are empty.

        The process's cgroup contains its container ID, which the log symlinks map to names. Without these links, the
        kubelet only provides pod names and the cgroup only UIDs, with no mapping between them; then the result is what
        all allocations of the device have in common.
        """
        pods, containers, at = self._gpu.machine.pods, self._gpu.machine.containers, self._gpu.at
        if facts is None or not facts.owner.pod_uid:
            return NO_WORKLOAD
        found = frozenset[Holder]() if containers is None else containers.holders({facts.owner.container_id}, at)
        if not found and pods is not None:
            instances = {self._mig_uuids.get(each, "") for each in process.instances}
            # DRA names a GPU by its number, and its MIG instances not at all.
            found = pods.holders(instances or {self._gpu.inquiry.device.uuid}, at) or pods.holders(self._whole_gpu, at)
        return in_common(found)

    @cached_property
    def _whole_gpu(self) -> frozenset[str]:
        return names_of(self._gpu.inquiry.device, read_minor_number(self._gpu.inquiry))

    @cached_property
    def _mig_uuids(self) -> Mapping[tuple[int, int], str]:
        return read_mig_uuids(self._gpu.inquiry)


def in_common(holders: Collection[Holder]) -> Holder:
    """What all holders have in common: the container, else the pod, else nothing."""
    pods = {(each.pod, each.namespace) for each in holders}
    containers = {each.container for each in holders}
    return Holder(*pods.pop(), containers.pop() if len(containers) == 1 else "") if len(pods) == 1 else NO_WORKLOAD
