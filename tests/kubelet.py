"""A kubelet's pod-resources service: a real gRPC server on a Unix socket, its messages made by protobuf itself."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "v1"

# As k8s.io/kubelet/pkg/apis/podresources/v1 numbers them; a name in the third place is a message's.
_MESSAGES: dict[str, tuple[tuple[str, int, str], ...]] = {
    "ListPodResourcesRequest": (),
    "ListPodResourcesResponse": (("pod_resources", 1, "PodResources"),),
    "PodResources": (("name", 1, ""), ("namespace", 2, ""), ("containers", 3, "ContainerResources")),
    "ContainerResources": (
        ("name", 1, ""),
        ("devices", 2, "ContainerDevices"),
        ("cpu_ids", 3, "int64"),
        ("dynamic_resources", 5, "DynamicResource"),
    ),
    "DynamicResource": (("claim_name", 2, ""), ("claim_namespace", 3, ""), ("claim_resources", 4, "ClaimResource")),
    "ClaimResource": (
        ("cdi_devices", 1, "CDIDevice"),
        ("driver_name", 2, ""),
        ("pool_name", 3, ""),
        ("device_name", 4, ""),
    ),
    "CDIDevice": (("name", 1, ""),),
    "ContainerDevices": (("resource_name", 1, ""), ("device_ids", 2, "strings"), ("topology", 3, "TopologyInfo")),
    "TopologyInfo": (("nodes", 1, "NUMANode"),),
    "NUMANode": (("ID", 1, "int64"),),
}


class Claim(NamedTuple):
    driver: str
    device: str


class Held(NamedTuple):
    pod: str
    namespace: str
    container: str
    devices: tuple[str, ...]
    resource: str = "nvidia.com/gpu"
    claims: tuple[Claim, ...] = ()


def response(*held: Held) -> bytes:
    kinds = _message_classes()
    listed = kinds["ListPodResourcesResponse"]()
    pods: dict[tuple[str, str], Any] = {}
    for entry in held:
        key = (entry.pod, entry.namespace)
        if key not in pods:
            pods[key] = listed.pod_resources.add(name=entry.pod, namespace=entry.namespace)
        container = pods[key].containers.add(name=entry.container, cpu_ids=[0, 1, 500])
        devices = container.devices.add(resource_name=entry.resource, device_ids=entry.devices)
        devices.topology.nodes.add(ID=1)
        for claim in entry.claims:
            claimed = container.dynamic_resources.add(claim_name="gpus", claim_namespace=entry.namespace)
            resource = claimed.claim_resources.add(
                driver_name=claim.driver, pool_name="node-7", device_name=claim.device
            )
            resource.cdi_devices.add(name=f"k8s.{claim.driver}/device={claim.device}")
    encoded: bytes = listed.SerializeToString()
    return encoded


@contextmanager
def kubelet(socket: Path, answer: Callable[[], bytes]) -> Iterator[None]:
    """A kubelet on a socket, for the length of a ``with`` block."""
    requests = _message_classes()["ListPodResourcesRequest"]
    # Bytes are returned as they are: the messages are made by `response`, or broken on purpose.
    handler = grpc.unary_unary_rpc_method_handler(lambda _request, _context: answer(), requests.FromString)
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(f"{_PACKAGE}.PodResourcesLister", {"List": handler})]
    )
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()


def _message_classes() -> dict[str, Any]:
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="podresources.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind in fields:
            repeated = kind not in ("", "TopologyInfo") and (name, field_name) != ("NUMANode", "ID")
            message.field.add(
                name=field_name,
                number=number,
                label=field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL,
                type={"": field.TYPE_STRING, "strings": field.TYPE_STRING, "int64": field.TYPE_INT64}.get(
                    kind, field.TYPE_MESSAGE
                ),
                type_name=f".{_PACKAGE}.{kind}" if kind in _MESSAGES else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }
