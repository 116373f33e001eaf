"""The kinds of effect, by their names in scenario files."""

from typing import Annotated, Any, Final

from gpu_triage.documents import Tagged
from gpu_triage_simulator import effects, host_effects, load, observer_effects, readings

GPU_EFFECTS: Final[dict[str, type[Any]]] = {
    "load": load.Load,
    "readings": readings.Readings,
    "thermal_throttle": effects.ThermalThrottle,
    "ambient": effects.Ambient,
    "power_limit": effects.PowerLimit,
    "miscounted_power_cap": effects.MiscountedPowerCap,
    "frozen_throttle_counter": effects.FrozenThrottleCounter,
    "power_brake": effects.PowerBrake,
    "application_clock": effects.ApplicationClock,
    "link": effects.Link,
    "slot": effects.SlotChange,
    "vbios": effects.Vbios,
    "persistence_mode": effects.PersistenceMode,
    "ecc_mode": effects.EccMode,
    "pcie_errors": effects.PcieErrors,
    "ecc": effects.EccErrors,
    "row_remap": effects.RowRemap,
    "repair": effects.Repair,
    "retired_pages": effects.RetiredPages,
    "p2p": effects.PeerToPeer,
    "lost": effects.Lost,
    "reset_required": effects.ResetRequired,
    "hang": effects.Hang,
    "slow": effects.Slow,
    "error": effects.CallError,
    "denied": effects.Denied,
    "removed": effects.Removed,
    "replace_gpu": effects.ReplaceGpu,
    "gpu_reset": effects.GpuReset,
    "recovery_action": effects.RecoveryAction,
    "nvlink_down": effects.NvlinkDown,
    "nvlink_slow": effects.NvlinkSlow,
    "nvlink_errors": effects.NvlinkErrors,
    "fabric": effects.Fabric,
    "vgpu_license": effects.VgpuLicense,
    "power_profiles": effects.PowerProfiles,
    "pulses": effects.Pulses,
    "mig": effects.Mig,
    "xid": effects.Xid,
}
"""Effects on the GPUs listed in the event, or on all of them."""

HOST_EFFECTS: Final[dict[str, type[Any]]] = {
    "start": host_effects.Start,
    "kill": host_effects.Kill,
    "blocked": host_effects.BlockedThreads,
    "cgroup": host_effects.Cgroup,
    "writes": host_effects.Writes,
    "clock": host_effects.WrongClock,
    "missing_function": host_effects.MissingFunction,
    "driver_not_loaded": host_effects.DriverNotLoaded,
    "library_missing": host_effects.LibraryMissing,
    "driver_version": host_effects.DriverVersion,
    "version_mismatch": host_effects.VersionMismatch,
    "kernel_messages": host_effects.KernelMessages,
    "memory_errors": host_effects.MemoryErrors,
    "cpu_settings": host_effects.CpuSettings,
    "cpu": host_effects.Cpu,
    "pressure": host_effects.Pressure,
    "swap": host_effects.Swap,
    "disk": host_effects.Disk,
    "network": host_effects.Network,
    "nfs": host_effects.Nfs,
    "file_system": host_effects.FileSystem,
    "uplink": host_effects.Uplink,
    "service_stopped": host_effects.ServiceStopped,
    "sxid": host_effects.Sxid,
}
"""Effects on the host; their events list no GPUs."""

OBSERVER_EFFECTS: Final[dict[str, type[Any]]] = {
    "exporter_restart": observer_effects.ExporterRestart,
    "exporter_down": observer_effects.ExporterDown,
    "scrape_gap": observer_effects.ScrapeGap,
    "release": observer_effects.Release,
    "maintenance": observer_effects.Maintenance,
    "reboot": observer_effects.Reboot,
    "accept": observer_effects.Accept,
    "repaired": observer_effects.Repaired,
}
"""Effects on the exporter and its scraper; their events list no GPUs, and only a history applies them."""


Effect = Annotated[Any, Tagged("kind", GPU_EFFECTS | HOST_EFFECTS | OBSERVER_EFFECTS)]
"""A table ``{ kind = …, … }``: an instance of one of those classes."""
