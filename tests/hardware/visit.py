"""Collects what the exporter, nvidia-smi and NVML report of a host with GPUs, masked, as the files of a bundle.

Nothing here changes a setting, and everything ends in time, even beside a driver that hangs.
"""

import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil
import pynvml
from tests.hardware.table import rows

from gpu_triage import __version__
from gpu_triage.cli.machines import live_host
from gpu_triage.cli.record_command import record_host
from gpu_triage.driver.nvml.session import Session
from gpu_triage.options.config import Config
from gpu_triage.record.bundle import write_recording
from gpu_triage.record.masking import local_masker

FILES: Final = ("calls.json", "fields.json")
"""Calls of NVML's functions and their time, the most expensive first; and fields of each GPU as NVML has them."""
HANGS: Final = "no answer in"
_APART: Final[Mapping[str, Any]] = {"stdin": subprocess.DEVNULL, "start_new_session": True}
_START_SECONDS: Final = 30.0  # the most that the exporter, and the recording, may take to start
_MOST_BYTES: Final = 16 << 20  # of what a command prints
QUERY: Final = "--query-gpu=uuid,index,compute_cap,pcie.link.gen.gpumax,enforced.power.limit --format=csv"
_ONCE: Final = {"topo.txt": "topo -m", "nvlink.txt": "nvlink -s", "nvlink-errors.txt": "nvlink -e"}
_TORCH: Final = """import torch
a = [torch.ones(8192, 8192, device=f"cuda:{i}", dtype=torch.half) for i in range(torch.cuda.device_count())]
while a:
    b = [each @ each for each in a]
    [torch.cuda.synchronize(each.device) for each in b]"""
_PROGRAMS: Final = ("gpu_burn", "matrixMul", "/usr/local/cuda/extras/demo_suite/nbody")
_RECORD: Final = "import sys; from tests.hardware.visit import record; record(*sys.argv[1:])"
_KEY: Final = "HARDWARE_MASKING_KEY"  # one for all: a board has the same pseudonym everywhere in a bundle
_FIELDS: Final = (74, 75, 76, 77, 79, 138, 139, 193, 194, 195, 196, 197, 198, 202, 204)
_MEMBERS: Final = {0: "dVal", 1: "uiVal", 3: "ullVal", 4: "sllVal", 5: "siVal"}  # by nvmlValueType_t
_URL: Final = re.compile(r"http://[0-9.:]+/metrics")
_SERIAL: Final = re.compile(r'(?<=<serial>)\d+|(?<=serial=")\d+')
_PRIVATE: Final = re.compile(
    r"(<(?:process_name|pid|hostname|vm_\w+|gpu_pdi|chassis_serial_number|host_id|gpu_fabric_guid|cluster_?uuid)>)[^<]*",
    re.IGNORECASE,
)
_KEPT: Final = (
    *(row.metric for row in rows()),
    *("gpu_up{", "gpu_error_info{", "gpu_energy_", "gpu_sm_active_", "gpu_pcie_", "gpu_nvlink_"),
    *("gpu_topology_info{", "gpu_driver_", "gpu_exporter_"),
)
"""How the series begin that a bundle keeps: none names a process, user, job, file or network."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long the parts of a visit take, in seconds."""

    looks: int = 4  # how often nvidia-smi is asked in each phase
    pause: float = 6.0  # between looks: longer than the exporter's medium interval, so that it reads everything
    command: float = 25.0  # the most that one command may take
    record: float = 20.0  # the recording; the load ends halfway
    total: float = 240.0


def record(folder: str, simulate: str, seconds: str) -> None:
    """Record this host, time the driver's functions and read fields: in a process of its own, because it may hang."""
    masker = local_masker(bytes.fromhex(os.environ[_KEY]))
    took: dict[str, list[float]] = defaultdict(list)
    pointer = pynvml._nvmlGetFunctionPointer

    def timed(name: str) -> Callable[..., int]:
        function: Callable[..., int] = pointer(name)

        def call(*arguments: object) -> int:
            began = time.perf_counter()
            code = function(*arguments)
            took[name].append((time.perf_counter() - began) * 1e3)
            return code

        return function if name == "nvmlErrorString" else call

    pynvml._nvmlGetFunctionPointer = timed
    with ExitStack() as stack:
        config = Config(simulate=simulate or None)
        machine = live_host(config, stack).machine
        Session(machine.nvml).open()
        fields = [_fields(index) for index in range(pynvml.nvmlDeviceGetCount())]
        write_recording(record_host(machine, config, float(seconds), masker), Path(folder, "recording.tar.gz"))
    calls = [
        {"function": name, "calls": len(ms), "median_ms": round(median(ms), 3), "longest_ms": round(max(ms), 3)}
        for name, ms in sorted(took.items(), key=lambda item: -sum(item[1]))
    ]
    for name, content in zip(FILES, (calls, fields), strict=True):
        Path(folder, name).write_bytes(masker.data(json.dumps(content).encode()))


def _fields(index: int) -> dict[str, Any]:
    """Fields of one GPU that docs/hardware-checks.md asks about, and how many utilization samples the driver keeps."""
    gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
    values: dict[str, Any] = {"uuid": pynvml.nvmlDeviceGetUUID(gpu)}
    for each in pynvml.nvmlDeviceGetFieldValues(gpu, list(_FIELDS)):
        if each.nvmlReturn == pynvml.NVML_SUCCESS:
            values[str(each.fieldId)] = getattr(each.value, _MEMBERS.get(each.valueType, "uiVal"))
    with suppress(pynvml.NVMLError, ValueError):
        times = [each.timeStamp for each in pynvml.nvmlDeviceGetSamples(gpu, pynvml.NVML_GPU_UTILIZATION_SAMPLES, 0)[1]]
        values["utilization samples"] = f"{len(times)} in {(max(times) - min(times)) / 1e6:.1f} s"
    return values


def answer(command: Sequence[str], seconds: float) -> tuple[str, str]:
    """What a command printed, and how it failed, if it did; one that hangs in the kernel is left behind."""
    with tempfile.TemporaryFile() as out:
        try:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, **_APART)
            code = process.wait(seconds)
            outcome = f"exit code {code}" if code else ""
        except OSError as error:
            return "", error.strerror or str(error)
        except subprocess.TimeoutExpired:
            end(process)
            outcome = f"{HANGS} {seconds:.0f} s"
        out.seek(0)
        return out.read(_MOST_BYTES).decode("utf-8", "replace"), outcome


def end(process: "subprocess.Popen[bytes] | psutil.Popen") -> None:
    """End a process and its children; returns after four seconds even if the kernel holds them."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired, psutil.TimeoutExpired):
            process.wait(2)


class Visit:
    """One visit to a host, as files in an empty folder."""

    def __init__(self, folder: Path, plan: Plan, simulate: str | None, load: str | None) -> None:
        self.about: dict[str, Any] = {"steps": [], "load": None, "gpu_triage": __version__, "root": os.geteuid() == 0}
        self.about |= {"kernel": platform.release(), "python": platform.python_version()}
        self._folder, self._plan, self._simulate, self._given = folder, plan, simulate or "", load
        self._key = os.urandom(32)
        self._masker = local_masker(self._key)
        # When nvidia-smi is no longer asked, so that there is time for the recording.
        self._ends_at = time.monotonic() + plan.total - plan.record - _START_SECONDS

    def refusal(self) -> str | None:
        """Why this host cannot be compared; None if it can, or if nvidia-smi hangs, which is a result."""
        text, outcome = self._ask("gpus.txt", "-L")
        return None if outcome.startswith(HANGS) or "GPU 0" in text else f"nvidia-smi -L: {outcome} {text}".strip()

    def run(self) -> None:
        with ExitStack() as loads:
            with self._exporter() as (url, process):
                for name, arguments in _ONCE.items():
                    self._ask(name, arguments)
                self._look_on("idle", url, process)
                if self._loaded(loads):
                    self._look_on("load", url, process)
                self._ask("dmon.txt", "dmon -s pucvmet -c 3")
            command = (sys.executable, "-c", _RECORD, str(self._folder), self._simulate, str(self._plan.record))
            recorder = subprocess.Popen(command, env={**os.environ, _KEY: self._key.hex()}, **_APART)
            with suppress(subprocess.TimeoutExpired):
                recorder.wait(self._plan.record / 2)
        with suppress(subprocess.TimeoutExpired):
            recorder.wait(self._plan.record / 2 + _START_SECONDS)
        self._note("gpu-triage record", "" if recorder.poll() == 0 else f"exit code {recorder.poll() or 'unknown'}")
        end(recorder)
        (self._folder / "about.json").write_text(json.dumps(self.about, indent=1), encoding="utf-8")

    def _note(self, command: str, outcome: str, seconds: float = 0.0) -> None:
        self.about["steps"].append({"command": command, "outcome": outcome, "seconds": round(seconds, 2)})

    def _ask(self, name: str, arguments: str) -> tuple[str, str]:
        """Keep what nvidia-smi prints; returns it, and how it failed. What once hung is not asked again."""
        line, began, text = f"nvidia-smi {arguments}", time.monotonic(), ""
        hung = [step["outcome"] for step in self.about["steps"] if step["command"] == line and HANGS in step["outcome"]]
        outcome = hung[0] if hung else "no time left"
        if not hung and began < self._ends_at:
            text, outcome = answer(line.split(), min(self._plan.command, self._ends_at - began))
        self._note(line, outcome, time.monotonic() - began)
        self._keep(name, text)
        return text, outcome

    def _keep(self, name: str, text: str) -> None:
        """Write a file of the bundle, without serial numbers, UUIDs, and names of processes, users and hosts."""
        text = _SERIAL.sub(lambda match: self._masker.digits(match[0].encode()).decode(), text)
        (self._folder / name).parent.mkdir(exist_ok=True)
        (self._folder / name).write_text(self._masker.text(_PRIVATE.sub(r"\1", text)), encoding="utf-8")

    @contextmanager
    def _exporter(self) -> Iterator[tuple[str, psutil.Popen]]:
        """The exporter's URL and process, once it publishes GPUs, or should have."""
        command = [sys.executable, "-m", "gpu_triage", "serve", "--web.listen-address", "127.0.0.1:0"]
        command += ["--metrics.profile", "full", *(["--simulate", self._simulate] if self._simulate else [])]
        with tempfile.NamedTemporaryFile() as log:
            process = psutil.Popen(command, stderr=log, **_APART)
            until, url = time.monotonic() + _START_SECONDS, ""
            try:
                while "gpu_info{" not in _scraped(url) and time.monotonic() < until and process.poll() is None:
                    time.sleep(0.5)
                    url = (_URL.search(Path(log.name).read_text(encoding="utf-8")) or [""])[0]
                self._note("gpu-triage serve", "" if "gpu_info{" in _scraped(url) else "publishes no GPU")
                yield url, process
            finally:
                end(process)
                self._keep("exporter.log", Path(log.name).read_text(encoding="utf-8"))

    def _look_on(self, phase: str, url: str, process: psutil.Popen) -> None:
        """Look at nvidia-smi several times, and scrape every second in between."""
        began, (used, most), slowest = time.monotonic(), _usage(process), 0.0
        for number in range(self._plan.looks):
            self._ask(f"{phase}/{number}.xml", "-q -x")
            self._ask(f"{phase}/{number}.csv", QUERY)
            page, until = "", min(time.monotonic() + self._plan.pause, self._ends_at)
            while number < self._plan.looks - 1 and time.monotonic() < until:
                time.sleep(1)
                asked = time.monotonic()
                page, slowest = _scraped(url), max(slowest, time.monotonic() - asked)
                most = max(most, _usage(process)[1])
            if number < self._plan.looks - 1:
                self._keep(f"{phase}/{number}.prom", page)
        share = (_usage(process)[0] - used) / (time.monotonic() - began)
        figures = {"cpus": round(share, 4), "memory_mib": most >> 20, "slowest_scrape_ms": round(slowest * 1e3)}
        self.about[f"exporter {phase}"] = figures

    def _loaded(self, loads: ExitStack) -> bool:
        """Begin the first load that is still there after a pause; whether there is one."""
        commands = {Path(each).name: ("sh", "-c", f"while {each} 60; do :; done") for each in _PROGRAMS}
        commands = {"torch": (sys.executable, "-c", _TORCH), **commands}
        quiet = subprocess.DEVNULL
        for name, command in {"given": ("sh", "-c", self._given)}.items() if self._given else commands.items():
            process = subprocess.Popen(command, stdout=quiet, stderr=quiet, **_APART)
            with suppress(subprocess.TimeoutExpired):
                process.wait(self._plan.pause)
                continue
            loads.callback(end, process)
            self.about["load"] = name
            return True
        return False


def _usage(process: psutil.Popen) -> tuple[float, int]:
    """CPU seconds and resident bytes."""
    with suppress(psutil.Error):
        return sum(process.cpu_times()[:4]), process.memory_info().rss
    return 0.0, 0


def _scraped(url: str) -> str:
    """The page without series that may name a person or a job; "" if it does not answer."""
    with suppress(OSError, ValueError), urllib.request.urlopen(url, timeout=5) as response:
        lines = response.read().decode().splitlines()
        return "".join(f"{line}\n" for line in lines if line.startswith(_KEPT))
    return ""
