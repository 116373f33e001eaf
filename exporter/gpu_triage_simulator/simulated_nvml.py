"""The simulated libnvidia-ml.so.1: takes the place of pynvml's CDLL."""

from ctypes import byref, c_uint, c_void_p
from typing import Any, Final

from gpu_triage.errors import ProbeFailed
from gpu_triage.machine import ProbeReport
from gpu_triage_simulator import (
    nvml_events,
    nvml_fields,
    nvml_gpm,
    nvml_identity,
    nvml_load,
    nvml_mig,
    nvml_nvlink,
    nvml_pcie,
    nvml_processes,
)
from gpu_triage_simulator.host import SimulatedHost
from gpu_triage_simulator.nvml_calls import ErrorString, Function, NvmlFunction
from gpu_triage_simulator.nvml_library import CODES
from gpu_triage_simulator.nvml_session import CallFaults, Device, NvmlSession

FUNCTIONS: Final[dict[str, Function]] = {
    function.name: function
    for module in (
        nvml_identity,
        nvml_load,
        nvml_processes,
        nvml_pcie,
        nvml_nvlink,
        nvml_fields,
        nvml_gpm,
        nvml_mig,
        nvml_events,
    )
    for function in module.FUNCTIONS
}
"""Every device and system function of the simulated library, by name."""


class LoadedLibrary:
    """The library as loaded by dlopen: an attribute for each function that this driver exports.

    Attributes:
        session: its state, for code that controls the simulation.
    """

    def __init__(self, host: SimulatedHost) -> None:
        session = self.session = NvmlSession(host)
        self._gate = CallFaults(session)
        branch = host.scenario.driver.branch
        self._functions: dict[str, Any] = {
            name: NvmlFunction(function, session, self._gate)
            for name, function in FUNCTIONS.items()
            if branch >= function.since
        }
        self._functions["nvmlErrorString"] = ErrorString(
            {0: "Success"} | {code: name.replace("_", " ").title() for name, code in CODES.items()}
        )

    def __getattr__(self, name: str) -> Any:
        """The function of this name.

        Raises:
            AttributeError: this driver does not export it; the message is that of a real CDLL.
        """
        if name.startswith("_") or name not in self._functions or self._gate.missing(name):
            raise AttributeError(f"libnvidia-ml.so.1: undefined symbol: {name}")
        return self._functions[name]


class SimulatedProbe:
    """The Probe of a simulated machine: loads the library again, like another process."""

    def __init__(self, host: SimulatedHost) -> None:
        self._host = host

    def look(self) -> ProbeReport:
        """As Probe. Raises Blocked: on a virtual clock, where a real process would wait."""
        began = self._host.seconds()
        library = LoadedLibrary(self._host)
        code = library.nvmlInitWithFlags(0)
        if code:
            raise ProbeFailed(f"NVML return code {code}")
        devices = library.session.devices
        found = {device.uuid: device.index for device in devices if _answers(library, device)}
        return ProbeReport(len(devices), found, self._host.seconds() - began)


def _answers(library: LoadedLibrary, device: Device) -> bool:
    handle, temperature = c_void_p(), c_uint()
    return not (
        library.nvmlDeviceGetHandleByIndex_v2(c_uint(device.index), byref(handle))
        or library.nvmlDeviceGetTemperature(handle, c_uint(0), byref(temperature))
    )


class SimulatedNvml:
    """The NvmlLibrary of a simulated machine.

    Attributes:
        session: the library's state, for code that controls the simulation.
    """

    def __init__(self, host: SimulatedHost) -> None:
        self._library = LoadedLibrary(host)
        self.session = self._library.session

    def load(self) -> object:
        """The only instance of the library in this process, as with repeated dlopen calls."""
        return self._library
