"""nvidia-smi dmon and pmon, whatever columns their options and drivers give."""

from pathlib import Path

import pytest
from tests.offline_files import codes, report_on_text, smi, smi_gpu, summary

from gpu_triage.judge.findings.table import Area
from gpu_triage.judge.report.report import GpuVerdict


def padded(text: str) -> str:
    """With the spaces at the end of each line that newer drivers print."""
    return "".join(f"{line}   \n" if line else "\n" for line in text.splitlines())


OLD = """# gpu   pwr  temp    sm   mem   enc   dec  mclk  pclk
# Idx     W     C     %     %     %     %   MHz   MHz
    0    43    48    12     1     0     0  3505   936
    0   143    58    99    41     0     0  3505  1936
"""
NEW = padded("""# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk
# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz
    0    143     58     62     99     41      0      0      0      0   3505   1936
""")
TIMED = padded("""#Date       Time        gpu    pwr  gtemp     fb   bar1     sm    mem  rxpci  txpci   mclk   pclk
#YYYYMMDD   HH:MM:SS    Idx      W      C     MB     MB      %      %   MB/s   MB/s    MHz    MHz
 20260314   09:59:59      0     20     30    239      3      6      1      5     10   6250   1695

 20260314   10:00:00      0    143     58    239      3     99     41    217    677   3505   1936
""")
EVERYTHING = """[root@gpu-7 ~]# nvidia-smi dmon -i 0 -s pucvmet -c 1
# gpu   pwr  temp    sm   mem   enc   dec  mclk  pclk pviol tviol    fb  bar1 sbecc dbecc   pci rxpci txpci
# Idx     W     C     %     %     %     %   MHz   MHz     %  bool    MB    MB  errs  errs  errs  MB/s  MB/s
    0   143    58    99    41     0     0  3505  1936    35     0   442     2     -     -     0   577    95

[root@gpu-7 ~]# nvidia-smi dmon help
"""
HEADED_AGAIN = OLD.replace("    0   143", "# gpu   pwr  temp    sm   mem   enc   dec  mclk  pclk\n    0   143")


def readings(gpu: GpuVerdict) -> tuple[float | None, ...]:
    return gpu.readings.busy_ratio, gpu.readings.power_watts, gpu.readings.temperature_celsius


@pytest.mark.parametrize(
    "text",
    [
        OLD,
        NEW,
        TIMED,
        EVERYTHING,
        HEADED_AGAIN,
        "".join(f"> {line}\n" for line in OLD.splitlines()),
        "".join(f"> \\{line}\n" if line[0] == "#" else f"> {line}\n" for line in OLD.splitlines()),
        "".join(f"{' '.join(line.split())}\n" for line in NEW.splitlines()),
    ],
    ids=["old", "new", "timed", "everything", "headed again", "quoted", "quoted Markdown", "spaces lost"],
)
def test_the_last_sample_of_a_gpu_is_read_by_the_headings(tmp_path: Path, text: str) -> None:
    (gpu,) = report_on_text(tmp_path, text).gpus
    assert (gpu.gpu, *readings(gpu)) == ("0", 0.99, 143, 58)


def test_a_date_in_the_lines_is_that_of_the_file(tmp_path: Path) -> None:
    (file,) = report_on_text(tmp_path, TIMED).files
    assert (file.kinds, file.written) == (("nvidia-smi dmon",), "2026-03-14 10:00:00")


def test_a_violation_is_what_holds_the_gpu_back(tmp_path: Path) -> None:
    assert "GPU 0 held by sw_power_cap at that moment" in str(
        summary(report_on_text(tmp_path, EVERYTHING), Area.CLOCKS)
    )
    # It has no column for a slowdown by the hardware: that nothing holds the GPU back, it does not tell.
    for text in (OLD, EVERYTHING.replace("    35     0", "     0     0")):
        assert "throttle reason" not in str(summary(report_on_text(tmp_path, text), Area.CLOCKS))


def test_what_is_not_measured_is_not_zero(tmp_path: Path) -> None:
    text = NEW.replace("    0    143     58     62     99", "    3      -      -      -      -")
    (gpu,) = report_on_text(tmp_path, text).gpus
    assert (gpu.gpu, *readings(gpu)) == ("3", None, None, None)


def test_gpus_by_index_are_those_of_the_other_output(tmp_path: Path) -> None:
    idle = {"busy": "0 %"}
    text = smi(smi_gpu(facts=idle), smi_gpu(1, facts=idle)) + "\n$ nvidia-smi dmon -c 1\n" + NEW
    report = report_on_text(tmp_path, text)
    assert [(gpu.gpu, gpu.pci_bus_id) for gpu in report.gpus] == [("0", "0000:41:00.0"), ("1", "0000:42:00.0")]


PMON = padded("""# gpu         pid   type     sm    mem    enc    dec    jpg    ofa    command
# Idx           #    C/G      %      %      %      %      %      %    name
    0       1696     G      -      -      -      -      -      -    gnome-shell
    0       5267     C      7      3     99      -      -      -    ffmpeg
    1          -     -      -      -      -      -      -      -    -
    0       1696     G      -      -      -      -      -      -    gnome-shell
    0       5267     C      8      3     99      -      -      -    ffmpeg
    0       5268     C      -      -      -      -      -      -    python3 train
    1          -     -      -      -      -      -      -      -    -
""")


def test_the_last_sample_of_pmon_lists_the_processes(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, PMON)
    assert [(gpu.gpu, gpu.readings.compute_processes) for gpu in report.gpus] == [("0", 2), ("1", 0)]
    assert report.files[0].kinds == ("nvidia-smi pmon",)
    assert codes(report) == ["work.imbalance"]


def test_the_columns_of_pmon_may_be_few(tmp_path: Path) -> None:
    text = "# gpu        pid  type    fb   command\n# Idx          #   C/G    MB   name\n"
    text += "    0      4242     C  9000   a b\n"
    (gpu,) = report_on_text(tmp_path, text).gpus
    assert gpu.readings.compute_processes == 1
