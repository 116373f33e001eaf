"""A real Prometheus with the chart's limits keeps scraping, whatever the files of jobs hold."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.e2e.processes import exporter, prometheus, wait_for
from tests.listening import serving
from tests.scrape_limits import config_of, scrape_of_the_chart

GOOD = '# TYPE gpu_job_steps_total counter\ngpu_job_steps_total{job_name="bert"} 1200\n'

HOSTILE = {
    "labels": "gpu_job_x{" + ",".join(f'l{number}="v"' for number in range(40)) + "} 1\n",
    "value": f'gpu_job_x{{a="{"v" * 2048}"}} 1\n',
    "label-name": f'gpu_job_x{{{"n" * 250}="v"}} 1\n',
    "metric-name": f"gpu_job_{'n' * 2000} 1\n",
    "mute": 'instance_gpu:gpu_busy:ratio5m{gpu="0"} 0\n',
    "up": "up 0\n",
    "alerts": 'ALERTS{alertname="GpuLost",alertstate="firing",severity="critical"} 1\n',
    "scrape": "scrape_samples_scraped 0\n",
    "node": "node_load1 0\n",
    "dcgm": 'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 0\n',
    "target": 'gpu_job_x{instance="other",job="other"} 1\n',
    "timestamp": "gpu_job_x 1 1000\n",
    "end": "gpu_job_end 1\n# EOF\ngpu_job_end_after 1\n",
    "type": "# TYPE gpu_job_steps_total histogram\ngpu_job_steps_total_sum 1\n",
    "type-of-suffix": "# TYPE gpu_job_steps gauge\ngpu_job_steps 1\n",
    "histogram": '# TYPE gpu_job_h histogram\ngpu_job_h_bucket{le="x"} 1\ngpu_job_h_sum NaN\n',
    "summary": '# TYPE gpu_job_s summary\ngpu_job_s{quantile="x"} 1\ngpu_job_s_count -1\n',
    "quote-in-help": '# HELP gpu_job_help " \\\\ \\n # EOF\ngpu_job_help 1\n',
    "series": "".join(f'gpu_job_many{{n="{number}"}} 1\n' for number in range(5000)),
    "more-series": "".join(f'gpu_job_more{{n="{number}"}} 1\n' for number in range(5000)),
    "counts": "".join(f"# TYPE gpu_job_c{number} histogram\ngpu_job_c{number}_count 1\n" for number in range(5000)),
    **{
        f"character-{ord(character):x}": f'# HELP gpu_job_x a{character}b\ngpu_job_x{{a="{character}"}} 1\n'
        for character in (*map(chr, range(32)), "\x7f", "\x85", "\u2028", "\ufeff", "\uffff", "\U0010ffff")
        if character != "\n"
    },
    "not-utf-8": "gpu_job_x{a='\udcff'} 1\n",
}


@pytest.mark.timeout(300)
def test_prometheus_takes_whatever_a_job_writes(tmp_path: Path, repository: Path, requires_tool: RequiresTool) -> None:
    program = requires_tool("prometheus")
    jobs = tmp_path / "jobs"
    jobs.mkdir(mode=0o755)
    for name, text in {"victim": GOOD, **HOSTILE}.items():
        (jobs / name).mkdir()
        (jobs / name / "job.prom").write_bytes(text.encode("utf-8", "surrogateescape"))
    flags = ("--simulate", "dual-a10", "--collector.textfile.directory", str(jobs))
    with ExitStack() as stack:
        running = stack.enter_context(exporter(tmp_path, *flags))

        def in_text(path: str, _: bytes) -> tuple[int, bytes, str]:
            status, headers, body = running.get(path)
            return status, body, headers["content-type"]

        older = stack.enter_context(serving(in_text))
        config = config_of(
            scrape_of_the_chart(repository), openmetrics=(running.address, "/metrics"), text=(older, "/metrics")
        )
        with prometheus(program, tmp_path, config) as query:
            wait_for(lambda: len(query('count_over_time(up{job!=""}[1m]) >= 5')) == 2)
            assert query.last_errors() == {"openmetrics": "", "text": ""}
            assert len(query("min_over_time(up[1m]) == 1")) == 2
            assert len(query('gpu_job_steps_total{job_name="bert",owner="victim"} == 1200')) == 2
            assert len(query('count by (job) ({__name__=~"gpu_job_.*"}) > 5000')) == 2
            foreign = '{__name__=~".+",__name__!~"gpu_.*|process_.*|python_.*|up|scrape_.*"}'
            assert query(foreign) == []
            assert query("scrape_samples_scraped == 0") == []
            assert query('{__name__=~".+",instance="other"}') == []
