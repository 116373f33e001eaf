"""The exporter's pods have the rights they need and no other, and what takes more is off."""

from typing import Any

import pytest
from tests.chart.rendering import MATRIX, Rendered, render
from tests.gathered import every

UNPRIVILEGED = 65534


def _with(*features: str) -> Rendered:
    return render({"features": {name: {"enabled": True} for name in features}})


def test_the_default_pod_has_no_right_to_spare() -> None:
    rendered = render()
    pod, container = rendered.pod, rendered.container
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": UNPRIVILEGED,
        "runAsGroup": UNPRIVILEGED,
        "fsGroup": UNPRIVILEGED,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["hostPID"] is False
    assert pod["hostNetwork"] is False
    assert pod["automountServiceAccountToken"] is False
    assert rendered.only("ServiceAccount")["automountServiceAccountToken"] is False
    assert rendered.of_kind("Role") == []
    assert [volume["hostPath"]["path"] for volume in pod["volumes"]] == ["/proc", "/sys", "/var/lib/gpu-triage"]


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX.keys())
def test_nothing_but_the_folder_of_the_state_is_written_and_a_container_that_ends_says_why(
    values: dict[str, Any],
) -> None:
    rendered = render(values)
    of_host = {volume["name"] for volume in rendered.pod["volumes"] if "hostPath" in volume}
    mounts = {mount["name"]: mount for mount in rendered.container["volumeMounts"]}
    assert of_host <= set(mounts)
    assert {name for name in of_host if mounts[name].get("readOnly") is not True} <= {"state"}
    own = [*rendered.pod.get("initContainers", ()), *rendered.pod["containers"]]
    assert {each["terminationMessagePolicy"] for each in own} == {"FallbackToLogsOnError"}
    pods = [pod["spec"] for pod in rendered.of_kind("Pod")]
    others = [each for pod in pods for each in (*pod.get("initContainers", ()), *pod["containers"])]
    assert all(each["securityContext"]["readOnlyRootFilesystem"] for each in every([*own, *others]))


@pytest.mark.parametrize("features", [("hostPID",), ("hostPID", "containerNames")])
def test_processes_and_names_of_containers_take_the_hosts_pid_namespace_and_no_more(features: tuple[str, ...]) -> None:
    rendered, default = _with(*features), render()
    assert rendered.pod["hostPID"] is True
    assert rendered.pod["securityContext"] == default.pod["securityContext"]
    assert rendered.container["securityContext"] == default.container["securityContext"]
    names = "--kubernetes.container-logs=/host/container-logs"
    assert (names in rendered.container["args"]) == ("containerNames" in features)


def test_the_kubelets_socket_takes_its_owner_without_capabilities_and_does_without_the_hosts_processes() -> None:
    rendered = _with("hostPID", "podResources")
    assert rendered.pod["securityContext"]["runAsUser"] == 0
    assert rendered.pod["securityContext"]["runAsNonRoot"] is False
    assert rendered.container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert rendered.container["securityContext"]["allowPrivilegeEscalation"] is False
    assert _with("podResources").pod["hostPID"] is False


def test_memory_maps_take_one_capability_and_the_kernel_log_a_privileged_container() -> None:
    security = _with("hostPID", "processMemoryLocality").container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["SYS_PTRACE"]}
    rendered = _with("kernelLog")
    assert rendered.container["securityContext"] == {"readOnlyRootFilesystem": True, "privileged": True}
    assert rendered.pod["securityContext"]["runAsUser"] == 0


def test_a_right_of_openshift_is_given_to_the_exporter_alone() -> None:
    rendered = render({"rbac": {"openshift": {"securityContextConstraints": "hostaccess"}}})
    assert rendered.only("Role")["rules"] == [
        {
            "apiGroups": ["security.openshift.io"],
            "resources": ["securitycontextconstraints"],
            "resourceNames": ["hostaccess"],
            "verbs": ["use"],
        }
    ]
    (subject,) = rendered.only("RoleBinding")["subjects"]
    assert subject["name"] == rendered.pod["serviceAccountName"]


def test_prometheus_may_only_look() -> None:
    role = render({"rbac": {"prometheus": {"create": True}}}).only("Role")
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert {resource for rule in role["rules"] for resource in rule["resources"]} == {
        "services",
        "endpoints",
        "pods",
        "endpointslices",
    }


def test_probes_ask_over_tls_or_only_connect_where_they_have_no_credentials() -> None:
    secret = {"configSecret": "web"}
    for values, expected in (
        ({}, {"path": "/-/healthy", "port": "metrics", "scheme": "HTTP"}),
        ({"web": {**secret, "tls": True}}, {"path": "/-/healthy", "port": "metrics", "scheme": "HTTPS"}),
    ):
        assert render(values).container["livenessProbe"]["httpGet"] == expected
    container = render({"web": {**secret, "tls": True, "clientAuth": True}}).container
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert "httpGet" not in container[name]
        assert container[name]["tcpSocket"] == {"port": "metrics"}


def test_a_secret_is_readable_by_the_exporters_group_only() -> None:
    rendered = render({"web": {"configSecret": "web"}})
    (volume,) = (each for each in rendered.pod["volumes"] if each["name"] == "web-config")
    assert volume["secret"] == {"secretName": "web", "defaultMode": 0o440}
    assert rendered.pod["securityContext"]["fsGroup"] == UNPRIVILEGED


def _owner_of_state(values: dict[str, Any]) -> dict[str, Any]:
    """The init container that gives the folder of the state to the exporter's user."""
    (found,) = render(values).pod["initContainers"]
    container: dict[str, Any] = found
    return container


def test_the_folder_of_the_state_is_given_to_whatever_user_the_pod_has() -> None:
    for values, user in (
        ({}, f"{UNPRIVILEGED}:{UNPRIVILEGED}"),
        ({"features": {"podResources": {"enabled": True}}}, "0:0"),
        ({"podSecurityContext": {"runAsUser": 1000, "runAsGroup": 2000}}, "1000:2000"),
    ):
        assert _owner_of_state(values)["command"][1] == user


def test_the_init_container_has_the_selinux_type_of_the_exporter_and_a_privileged_exporter_has_none() -> None:
    options = {"type": "spc_t"}
    assert (
        _owner_of_state({"securityContext": {"seLinuxOptions": options}})["securityContext"]["seLinuxOptions"]
        == options
    )
    kernel_log = {"features": {"kernelLog": {"enabled": True}}}
    assert "initContainers" not in render(kernel_log).pod
    assert _owner_of_state({**kernel_log, "podSecurityContext": {"runAsUser": 1000}})["command"][1].startswith("1000:")


def test_where_a_policy_forbids_root_the_state_does_without_the_init_container() -> None:
    rendered = render({"state": {"chown": False}})
    assert "initContainers" not in rendered.pod
    assert "--state.directory=/var/lib/gpu-triage" in rendered.container["args"]


@pytest.mark.parametrize("values", [{"state": {"hostPath": ""}}, {"simulate": "dual-a10"}])
def test_without_a_state_directory_nothing_of_the_node_is_written_and_the_notes_say_so(values: dict[str, Any]) -> None:
    rendered = render(values)
    assert "initContainers" not in rendered.pod
    assert "state" not in {volume["name"] for volume in rendered.pod["volumes"]}
    assert [argument for argument in rendered.container["args"] if "state" in argument] == []
    assert "No state directory: with each new pod, findings and their alerts start over" in rendered.notes


def test_with_a_state_directory_the_notes_say_nothing_of_it() -> None:
    rendered = render({"state": {"hostPath": "/srv/gpu-triage"}})
    (volume,) = (each for each in rendered.pod["volumes"] if each["name"] == "state")
    assert volume["hostPath"] == {"path": "/srv/gpu-triage", "type": "DirectoryOrCreate"}
    assert "state directory" not in rendered.notes
