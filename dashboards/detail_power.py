"""GPU detail: power, clocks and temperatures."""

from dashboards.board import Row
from dashboards.panels import HALF, SMALL, PanelBuilder, Query, lines, shares
from dashboards.selectors import gpu, legend, rate


def power_and_limits() -> PanelBuilder:
    return lines(
        "Power and its limits",
        "The enforced limit is the one that counts; below the default: somebody lowered it. Asked for: shown "
        "where another limit applies, for example one set by the BMC. Module: the GPU with its CPU, on GH200, "
        "GB200 and GB300. No data: this card reports no power.",
        Query(gpu("gpu_power_watts"), legend("draws")),
        Query(gpu("gpu_power_limit_watts"), legend("limit"), limit=True),
        Query(gpu("gpu_power_default_limit_watts"), legend("default limit"), limit=True),
        Query(gpu("gpu_power_min_limit_watts"), legend("lowest limit"), limit=True),
        Query(gpu("gpu_power_max_limit_watts"), legend("highest limit"), limit=True),
        Query(gpu("gpu_power_requested_limit_watts"), legend("limit asked for"), limit=True),
        Query(rate(gpu("gpu_energy_joules_total")), legend("mean, from energy")),
        Query(gpu("gpu_module_power_watts"), legend("module draws")),
        Query(gpu("gpu_module_power_limit_watts"), legend("module's limit"), limit=True),
        unit="watt",
        size=SMALL,
    )


def temperatures() -> PanelBuilder:
    return lines(
        "Temperatures and limits",
        "Near slowdown the clocks drop; at shutdown the GPU turns itself off. Compare with its neighbors. "
        "Newer cards report how much is left instead, and at how much left they slow down or shut down. No data: "
        "this card reports no temperature.",
        Query(gpu("gpu_temperature_celsius"), legend("{{sensor}}")),
        Query(gpu("gpu_temperature_threshold_celsius"), legend("limit: {{threshold}}"), limit=True),
        Query(gpu("gpu_temperature_margin_celsius"), legend("left until slowdown")),
        Query(gpu("gpu_temperature_margin_threshold_celsius"), legend("left at {{threshold}}"), limit=True),
        unit="celsius",
        floor=None,
        size=SMALL,
    )


def power() -> Row:
    return Row(
        "Power, clocks and heat",
        shares(
            "Fans",
            "Share of full speed. Full speed and still hot: dust, a dead fan next to it, or hot air. No data: this "
            "board has no fans of its own.",
            Query(gpu("gpu_fan_speed_ratio"), legend("fan {{fan}}")),
            size=HALF,
        ),
        shares(
            "Throttling time by reason",
            "Share of time in which each reason lowered the clocks. Idle is normal, and so is the power cap at "
            "full load. No data: the driver gives no reasons.",
            Query(f"clamp_max({rate(gpu('gpu_throttle_seconds_total'))}, 1)", legend("{{reason}}")),
            size=HALF,
        ),
        lines(
            "Throttle reasons, sampled",
            "1 while a reason is active. Samples may miss short ones; the shares in the panel before do not, "
            "unless a line says that the driver's counter of a reason is not used: then that share is sampled too. "
            "A workload power profile (Blackwell and later) may hold clocks or power below the board's defaults. No "
            "data: the driver gives no reasons.",
            Query(gpu("gpu_throttle_active"), legend("{{reason}}")),
            Query(gpu("gpu_throttle_counter_rejected_info"), legend("{{reason}} counter not used: {{cause}}")),
            Query(gpu("gpu_power_profile_info"), legend("power profile {{profile}} {{state}}")),
            unit="none",
            top=1,
            size=HALF,
        ),
        lines(
            "Clocks",
            "Actual clocks, the highest, and where the driver reports them the application clocks that are set, and "
            "their defaults. Below the maximum under load: see the reasons before. No data: the driver reports no "
            "clocks.",
            Query(gpu("gpu_clock_hertz"), legend("{{clock}}")),
            Query(gpu("gpu_clock_max_hertz"), legend("{{clock}} highest"), limit=True),
            Query(gpu("gpu_clock_target_hertz"), legend("{{clock}} set"), limit=True),
            Query(gpu("gpu_clock_default_hertz"), legend("{{clock}} default"), limit=True),
            unit="hertz",
            size=HALF,
        ),
        folded=True,
    )
