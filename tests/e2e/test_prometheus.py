"""A real Prometheus scrapes the real daemon and answers for every family."""

from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.e2e.processes import exporter, prometheus, wait_for

CONFIG = """
global:
  scrape_interval: 1s
  scrape_timeout: 1s
scrape_configs:
  - job_name: gpu
    static_configs:
      - targets: ["{address}"]
"""

# ruff: noqa: E501 - a query stays on one line
FAMILIES = {
    "identity and presence": "count(gpu_info) == 8 and on() sum(gpu_up) == 8 and on() gpu_devices{source='nvml'} == 8",
    "the driver": "gpu_driver_up == 1 and on() gpu_driver_info{driver_version=~'580.*'}",
    "is it doing work": "count(gpu_sm_utilization_ratio > 0.5) == 8",
    "busy time grows": "count(rate(gpu_busy_seconds_total[10s]) > 0.5) == 8",
    "clocks": "count(gpu_clock_hertz{clock='sm'} > 1e9) == 8",
    "power against its cap": "count(gpu_power_watts / gpu_power_limit_watts > 0.3) == 8",
    "energy grows": "count(rate(gpu_energy_joules_total[10s]) > 100) == 8",
    "throttle reasons": "count(gpu_throttle_seconds_total{reason='hw_thermal'} >= 0) == 8",
    "throttle time": "count(rate(gpu_throttle_seconds_total{reason='sw_power_cap'}[10s])) == 8",
    "heat": "count(gpu_temperature_celsius{sensor='gpu'} > 30) == 8",
    "PCIe link against expectation": "count(gpu_pcie_link_width == gpu_pcie_link_expected_width) == 8",
    "PCIe generation": "count(gpu_pcie_link_generation == gpu_pcie_link_expected_generation) == 8",
    "P2P": "sum(gpu_p2p_peers{capability='read', status='ok'}) == 56",
    "topology": "count(gpu_topology_info) == 28",
    "ECC": "count(gpu_ecc_volatile_errors_total{severity='uncorrected'} == 0) == 8",
    "row remapping": "count(gpu_row_remap_failure == 0) == 8",
    "processes": "sum(gpu_processes{type='compute'}) == 64",
    "NUMA locality": "count(gpu_process_numa_local == 1) == 64 and on() sum(gpu_numa_mismatched_processes) == 0",
    "process joined to its owner": "count(gpu_process_memory_bytes * on (gpu, uuid, pid) group_left (user) gpu_process_info) == 64",
    "host CPU per node": "count(rate(gpu_host_cpu_seconds_total{mode='iowait'}[10s])) == 2",
    "pressure": "gpu_host_pressure_seconds_total{resource='io', kind='some'}",
    "memory and swap": "gpu_host_memory_total_bytes > gpu_host_memory_available_bytes and on() gpu_host_swap_in_bytes_total",
    "disks": "count(gpu_host_disk_busy_seconds_total) > 0",
    "network": "count(gpu_host_network_receive_bytes_total) > 0",
    "the exporter itself": "gpu_exporter_simulated == 1 and on() count(gpu_exporter_collector_success == 1) > 15",
    "its process": "process_resident_memory_bytes > 1e7",
}


@pytest.mark.timeout(300)
def test_prometheus_answers_for_every_family(tmp_path: Path, requires_tool: RequiresTool) -> None:
    program = requires_tool("prometheus")
    with (
        exporter(tmp_path, "--simulate", "h100-8") as running,
        prometheus(program, tmp_path, CONFIG.format(address=running.address)) as query,
    ):
        # The slowest tier's first round and two scrapes for every rate.
        wait_for(lambda: query("count_over_time(up[1m]) > 12"))
        assert query("up")[0]["value"][1] == "1"
        unanswered = [family for family, expression in FAMILIES.items() if not query(expression)]
        assert unanswered == []
        assert query("max_over_time(scrape_samples_scraped[1m]) > 1500")
