"""Values that the chart is rendered with: each turns on what belongs together, `everything` all that goes together."""

from typing import Any

WEB = {"configSecret": "gpu-triage-web", "tls": True, "clientAuth": True}
MONITOR = {
    "scrape": {
        "labels": {"release": "stack"},
        "annotations": {"note": "a: b"},
        "targetLimit": 100,
        "metricRelabelings": [{"sourceLabels": ["__name__"], "regex": "gpu_process_.*", "action": "drop"}],
        "tlsConfig": {"ca": {"secret": {"name": "gpu-triage-web", "key": "ca.crt"}}, "serverName": "gpu"},
        "basicAuth": {"username": {"name": "gpu", "key": "user"}, "password": {"name": "gpu", "key": "password"}},
    }
}
FEATURES = {
    name: {"enabled": True}
    for name in ("hostPID", "podResources", "containerNames", "kernelLog", "processMemoryLocality")
}

MATRIX: dict[str, dict[str, Any]] = {
    "defaults": {},
    "service monitor": {"serviceMonitor": {"enabled": True}, **MONITOR, "web": WEB},
    "pod monitor": {"podMonitor": {"enabled": True}, **MONITOR, "service": {"enabled": False}},
    "plain monitor": {"serviceMonitor": {"enabled": True}, "scrape": {"relabelings": [], "sampleLimit": 0}},
    "host PID": {"features": {"hostPID": {"enabled": True}}},
    "pods": {"features": {"hostPID": {"enabled": True}, "podResources": {"enabled": True}}},
    "names of containers": {"features": {"hostPID": {"enabled": True}, "containerNames": {"enabled": True}}},
    "kernel log": {"features": {"kernelLog": {"enabled": True}}},
    "simulated": {
        "simulate": "dual-a10",
        "runtimeClassName": "",
        "affinity": None,
        "tolerations": [],
        "nodeSelector": {},
    },
    "everything": {
        "nameOverride": "gpus",
        "fullnameOverride": "gpu-triage",
        "commonLabels": {"team": "ml"},
        "image": {
            "repository": "registry.example.org:5000/gpu-triage-exporter",
            "digest": "sha256:" + "0123456789abcdef" * 4,
            "pullPolicy": "Always",
            "pullSecrets": [{"name": "registry"}],
        },
        "expected": {"gpuCount": 8, "pcieGeneration": 5, "pcieWidth": 16, "p2p": False},
        "judge": {"thermal.hw": {"wait": "5m", "share": 0.2}, "memory.swapping": {"rate": "1MiB"}},
        "baseline": {"configMap": "gpu-baselines"},
        "features": FEATURES,
        "textfile": {"hostPath": "/var/lib/gpu-triage/textfile"},
        "state": {"hostPath": "/var/lib/gpu-triage/state"},
        "log": {"level": "debug", "format": "logfmt"},
        "extraArgs": ["--sample.fast=2s", "--no-collector.host_nfs"],
        "extraEnv": [
            {"name": "GPU_TRIAGE_PROCESS_MAX", "value": "8"},
            {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
        ],
        "extraVolumes": [{"name": "scratch", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "scratch", "mountPath": "/scratch", "readOnly": True}],
        "web": {"port": 9999, "telemetryPath": "/gpu/metrics", "allowedHosts": [".example.com"], **WEB},
        "priorityClassName": "system-node-critical",
        "hostNetwork": True,
        "podAnnotations": {"example.org/a": "1"},
        "podLabels": {"example.org/b": "2"},
        "podSecurityContext": {"supplementalGroups": [44]},
        "securityContext": {"seLinuxOptions": {"type": "spc_t"}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
        "serviceAccount": {"name": "gpus", "annotations": {"a": "b"}},
        "rbac": {"openshift": {"securityContextConstraints": "hostaccess"}, "prometheus": {"create": True}},
        "service": {"annotations": {"a": "b"}},
        "serviceMonitor": {"enabled": True},
        "scrape": {**MONITOR["scrape"], "namespace": "watch"},
        "prometheusRule": {
            "enabled": True,
            "namespace": "watch",
            "labels": {"release": "stack"},
            "annotations": {"a": "b"},
        },
        "rules": {
            "overrides": {
                "job": "gpu-.*",
                "cluster_label": "region",
                "replica_labels": ["replica"],
                "runbook_base_url": "https://wiki.example.org/runbooks",
                "grafana_base_url": "https://grafana.example.org",
                "labels": {"team": "ml"},
                "annotations": {"channel": "gpu-oncall"},
                "alerts": {"GpuLost": {"enabled": True, "severity": "warning", "labels": {"tier": "1"}}},
            }
        },
        "dashboards": {"enabled": True, "folder": "GPUs", "annotations": {"a": "b"}},
        "networkPolicy": {
            "enabled": True,
            "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "watch"}}}],
        },
    },
}
