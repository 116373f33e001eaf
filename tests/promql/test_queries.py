"""A faulty query is found; the sound ones are the rules and the dashboards."""

import pytest
from tests.promql.queries import faults
from tests.promql.vocabulary import series_labels
from tests.rules.rulefile import Rule

BUSY = Rule(
    group="g",
    interval="",
    name="instance_gpu:gpu_busy:ratio5m",
    alert=False,
    expr="sum by (instance, gpu) (rate(gpu_busy_seconds_total[5m]))",
    hold="",
    keep="",
    labels={},
    annotations={},
)
LABELS = series_labels((BUSY,))


@pytest.mark.parametrize(
    ("expr", "fault"),
    [
        ("gpu_ups", "nothing makes gpu_ups"),
        ("instance:gpu_busy:sum", "nothing makes instance:gpu_busy:sum"),
        ("gpu_up ==", "invalid promql query"),
        ("gpu_energy_joules_total > 5", "gpu_energy_joules_total is a counter under nothing"),
        ("sum(gpu_energy_joules_total)", "is a counter under sum"),
        ("delta(gpu_energy_joules_total[5m])", "is a counter under delta"),
        ("avg_over_time(gpu_energy_joules_total[5m])", "is a counter under avg_over_time"),
        ("rate(gpu_power_watts[5m])", "gpu_power_watts is a gauge under rate"),
        ("increase(instance_gpu:gpu_busy:ratio5m[1h])", "is a gauge under increase"),
        ("rate(gpu_power_watts[5m:15s])", "is a gauge under subquery"),
        ("last_over_time(gpu_energy_joules_total[5m]) > 5 or gpu_energy_joules_total", "is a counter under nothing"),
        ("topk(3, gpu_power_watts)", "is under topk"),
        ('gpu_throttle_active{reason="thermal"}', "gpu_throttle_active{reason} is never 'thermal'; it is one of"),
        ('gpu_throttle_active{reason=~"hw_thermal|hot"}', "is never 'hot'"),
        ('gpu_throttle_active{reason!="gpu_idle"}', "is never 'gpu_idle'"),
        ('gpu_ecc_volatile_errors_total{severity="correctable"}', "is never 'correctable'"),
        ('gpu_xid_last_timestamp_seconds{xid="Xid 79"}', "is never 'Xid 79'"),
        ('gpu_up{link="0"}', "gpu_up is selected by link"),
        ("sum by (xid) (gpu_up)", "sum groups by xid"),
    ],
)
def test_a_faulty_query_is_told(expr: str, fault: str) -> None:
    assert any(fault in line for line in faults(expr, LABELS)), faults(expr, LABELS)
