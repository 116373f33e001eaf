"""The C declarations of NVML that the simulated library needs: structs, constants and return codes.

They are pynvml's own, so that both sides of a call use the same layout. This is the only file of the simulator that
imports pynvml.
"""

from ctypes import Structure
from typing import Final

import pynvml

BAR1_MEMORY: Final[type[Structure]] = pynvml.c_nvmlBAR1Memory_t
ECC_SRAM: Final[type[Structure]] = pynvml.c_nvmlEccSramErrorStatus_v1_t
EVENT_DATA: Final[type[Structure]] = pynvml.c_nvmlEventData_t
FABRIC_INFO: Final[type[Structure]] = pynvml.c_nvmlGpuFabricInfo_v2_t
FABRIC_INFO_V3: Final[type[Structure]] = pynvml.c_nvmlGpuFabricInfo_v3_t
FIELD_VALUE: Final[type[Structure]] = type("FieldValue", (Structure,), {"_fields_": pynvml.c_nvmlFieldValue_t._fields_})
"""Same layout as pynvml's struct, but without its slow Python attribute access: a round touches thousands of them."""
GRID_FEATURES: Final[type[Structure]] = pynvml.c_nvmlGridLicensableFeatures_v4_t
GPM_METRICS_VERSION: Final[int] = pynvml.NVML_GPM_METRICS_GET_VERSION
GPM_METRICS: Final[type[Structure]] = pynvml.c_nvmlGpmMetricsGet_t
GPM_SUPPORT: Final[type[Structure]] = pynvml.c_nvmlGpmSupport_t
MARGIN_TEMPERATURE: Final[type[Structure]] = pynvml.c_nvmlMarginTemperature_v1_t
MEMORY: Final[type[Structure]] = pynvml.c_nvmlMemory_t
MEMORY_V2: Final[type[Structure]] = pynvml.c_nvmlMemory_v2_t
PCI_INFO: Final[type[Structure]] = pynvml.nvmlPciInfo_t
POWER_PROFILES: Final[type[Structure]] = pynvml.c_nvmlWorkloadPowerProfileCurrentProfiles_v1_t
PROCESS_INFO: Final[type[Structure]] = pynvml.c_nvmlProcessInfo_v3_t
PROCESS_SAMPLE: Final[type[Structure]] = pynvml.c_nvmlProcessUtilizationSample_t
REPAIR_STATUS: Final[type[Structure]] = pynvml.c_nvmlRepairStatus_t
ROW_HISTOGRAM: Final[type[Structure]] = pynvml.c_nvmlRowRemapperHistogramValues
TEMPERATURE: Final[type[Structure]] = pynvml.c_nvmlTemperature_v1_t
UTILIZATION: Final[type[Structure]] = pynvml.c_nvmlUtilization_t

MEMORY_V2_VERSION: Final[int] = pynvml.nvmlMemory_v2
TEMPERATURE_VERSION: Final[int] = pynvml.nvmlTemperature_v1
MARGIN_VERSION: Final[int] = pynvml.nvmlMarginTemperature_v1
POWER_PROFILES_VERSION: Final[int] = pynvml.nvmlWorkloadPowerProfileCurrentProfiles_v1
REPAIR_STATUS_VERSION: Final[int] = pynvml.nvmlRepairStatus_v1
ECC_SRAM_VERSION: Final[int] = pynvml.nvmlEccSramErrorStatus_v1
FABRIC_V2_VERSION: Final[int] = pynvml.nvmlGpuFabricInfo_v2
FABRIC_V3_VERSION: Final[int] = pynvml.nvmlGpuFabricInfo_v3

GRID_LICENSE_COMPUTE: Final[int] = pynvml.NVML_GRID_LICENSE_FEATURE_CODE_COMPUTE
NOT_VIRTUAL: Final[int] = pynvml.NVML_GPU_VIRTUALIZATION_MODE_NONE
PASSED_THROUGH: Final[int] = pynvml.NVML_GPU_VIRTUALIZATION_MODE_PASSTHROUGH
VGPU: Final[int] = pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU

EVENT_TYPE_XID: Final[int] = pynvml.nvmlEventTypeXidCriticalError
EVENT_TYPE_ECC: Final[int] = pynvml.nvmlEventTypeSingleBitEccError | pynvml.nvmlEventTypeDoubleBitEccError

SUCCESS: Final = 0
CODES: Final[dict[str, int]] = {
    name.removeprefix("NVML_ERROR_"): getattr(pynvml, name) for name in dir(pynvml) if name.startswith("NVML_ERROR_")
}
"""Return codes by the end of their C name: ``CODES["GPU_IS_LOST"]`` is 15."""


class Failure(Exception):
    """Ends a simulated NVML function with a return code.

    Attributes:
        code: NVML_ERROR_*.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.code = CODES[name]
