"""docs/names/VERSION.txt: every name that users build on; and which names of the last release a version breaks.

A line has a kind and a name, or a kind, the name that it belongs to, and its own: ``metric gpu_power_watts``,
``label gpu_power_watts uuid``.
"""

import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from dashboards.build import dashboards
from deploy.generate import REPOSITORY
from deploy.generate.man_pages import commands
from deploy.release import files as release
from packaging.version import Version

from gpu_triage import __version__
from gpu_triage.alerting.files import rule_files
from gpu_triage.alerting.rule_source import Alert
from gpu_triage.alerting.settings import Settings
from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.cli import baseline_command, judge_command, run
from gpu_triage.cli.advise import command as advise
from gpu_triage.cli.advise.recommendation import Job
from gpu_triage.cli.fleet import fleet_text, review, review_page
from gpu_triage.cli.fleet.fleet_view import HostKey
from gpu_triage.cli.fleet.job_pace import Awaited, JobName
from gpu_triage.cli.job import job_command, job_report
from gpu_triage.cli.job.advice import Readings
from gpu_triage.judge.evidence.owners import GpuOwner
from gpu_triage.judge.findings.settings import settable
from gpu_triage.judge.findings.table import CHECKS
from gpu_triage.judge.report import machine_readable
from gpu_triage.judge.report.report import GpuReadings, PlannedWork
from gpu_triage.options.option import Option
from gpu_triage.options.option_table import all_options
from gpu_triage.read.registry import COLLECTOR_SWITCHES, METRICS

FOLDER: Final = Path("docs/names")
CHANGELOG: Final = REPOSITORY / "CHANGELOG.md"

_DOCUMENTS: Final[tuple[tuple[str, Callable[..., str | None]], ...]] = (
    ("check", machine_readable.render_json),
    ("judge", judge_command.render_json),
    ("job", job_report.render_json),
    ("job", job_command._list),  # noqa: SLF001 - the only place where its keys are
    ("fleet", fleet_text.render_json),
    ("advise", advise.as_json),
    ("baseline-diff", baseline_command._as_json),  # noqa: SLF001 - the same
)
"""What writes the JSON of a command; /api/v1/verdict is that of `check`."""
_OF_HOSTS: Final = ("host.key", "each.key", "each.host", "gpu.host", "finding.host", "standing.host", "self.host")
_RECORDS: Final[Mapping[str, Any]] = {
    **{f"{each}._asdict()": HostKey._fields for each in _OF_HOSTS},
    **{f"standing.{each}._asdict()": Readings._fields for each in ("own", "others")},
    **dict.fromkeys(("owner._asdict()", "_known(owner)", "_known(each)"), GpuOwner._fields),
    "_known(each.name)": JobName._fields,
    **dict.fromkeys(("report.maintenance._asdict()", "host.maintenance._asdict()"), PlannedWork._fields),
    "asdict(gpu.readings)": tuple(GpuReadings.__dataclass_fields__),
    "asdict(answer.job)": tuple(Job.__dataclass_fields__),
    "asdict(each)": tuple(judge_command.Period.__dataclass_fields__),
}
"""The keys of what these functions write as a whole, by the expression."""
_CODE: Final = re.compile(r"(?:code:? |[:;,.] )(\d+)\b(?=:? )")
_BACKTICKS: Final = re.compile(r"`([^`\n]+)`")
_BREAKS: Final = re.compile(r"^### (?:Removed|Changed)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)


def files() -> dict[Path, str]:
    return {FOLDER / f"{__version__}.txt": "".join(f"{line}\n" for line in sorted(set(names())))}


def names() -> Iterator[str]:
    for spec in METRICS:
        yield from (f"metric {spec.name}", f"type {spec.name} {spec.kind.value}")
        yield from (f"label {spec.name} {label}" for label in spec.labels)
        yield from (f"value {spec.name} {key}={each}" for key, known in spec.label_values.items() for each in known)
        yield from (f"state {spec.name} {value}={state}" for value, state in spec.states.items())
    for rule in (rule for source in shipped_sources() for each in source.groups for rule in each.rules):
        if isinstance(rule, Alert):
            yield f"alert {rule.name}"
            yield from (f"threshold {rule.key} {name}" for name in rule.thresholds)
        else:
            yield f"record {rule.name}"
    groups = (each for text in rule_files().values() for each in yaml.safe_load(text)["groups"])
    for each in (rule for part in groups for rule in part["rules"]):
        yield from (f"label {each.get('alert') or each['record']} {label}" for label in each.get("labels", ()))
    yield from (f"rules-setting {name}" for name in Settings.__dataclass_fields__)
    for check in CHECKS:
        yield f"finding {check.code}"
        yield from (f"judge-setting {check.code} {name}" for name in settable(check))
    for option in all_options(COLLECTOR_SWITCHES):
        yield from (f"option {option.flag}", f"variable {option.variable}")
        yield from (f"key {option.key}",) if option.field is not None else ()
    yield from _of_commands()
    for command, function in _DOCUMENTS:
        yield from (f"json {command} {path}" for path in _keys(function))
    yield from _of_reports()
    yield from (f"dashboard {json.loads(text)['uid']}" for text in dashboards().values())
    values = yaml.safe_load((REPOSITORY / "helm/gpu-triage-exporter/values.yaml").read_bytes())
    yield from (f"value-of-chart {path}" for path in _leaves(values))


def _of_commands() -> Iterator[str]:
    yield from (f"exit gpu-triage {code}" for name, code in vars(run).items() if name.startswith("EXIT_"))
    for context in commands():
        command = "-".join(context.command_path.split()[1:]) or "gpu-triage"
        yield f"command {command}"
        own = [each for each in context.command.params if not isinstance(each, Option)]
        yield from (f"flag {command} {flag}" for each in own for flag in (*each.opts, *each.secondary_opts))
        yield from (f"exit {command} {code}" for code in _CODE.findall(_exits(context.command.help or "")))


def _of_reports() -> Iterator[str]:
    """What the report's writers write of a day, with a row in each table."""
    tables = {
        section: {("a",) * len(review.SECTIONS[section][0].split(", ")): dict.fromkeys(columns, 0.0)}
        for section, columns in review.table_queries("", "1d").items()
    }
    totals = dict.fromkeys(review.total_queries("", ""), (0.0,))
    decision = review.Decision("", "", 0, "", "")
    made = review.Review("", "", 0, (0,), totals, {}, {"a": (0,)}, tables, (), (decision,), ())
    document = json.loads(review_page.render_json(made))
    document["decisions"] = document["decisions"][0]
    document |= {section: {"*": next(iter(document[section].values()))} for section in ("day", "class", *tables)}
    yield from (f"json report {path}" for path in _leaves(document))
    yield from (f"column report {name}" for name in review_page.render_csv(made).partition("\n")[0].split(","))


def _exits(text: str) -> str:
    return " ".join(text[at:].split()) if (at := text.lower().find("exit code")) >= 0 else ""


def _leaves(node: object, path: str = "") -> Iterator[str]:
    if isinstance(node, dict) and node:
        for key, below in node.items():
            yield from _leaves(below, f"{path}.{key}".lstrip("."))
    else:
        yield path


def _keys(function: Callable[..., Any], prefix: str = "") -> Iterator[str]:
    """The paths of the keys of all dictionaries that a function writes, or a function that it calls in their values."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for statement in ast.iter_child_nodes(tree.body[0]):
        yield from _keys_below(statement, prefix, sys.modules[function.__module__])


def _keys_below(node: ast.AST, prefix: str, module: object) -> Iterator[str]:
    """Raises ValueError: a record is written as a whole, and its class is unknown here."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                yield (path := f"{prefix}{ast.literal_eval(key)}")
                yield from _keys_below(value, f"{path}.", module)
            else:
                yield from _keys_below(value, prefix, module)
        return
    if isinstance(node, ast.Call):
        expression = ast.unparse(node)
        yield from (f"{prefix}{name}" for name in _RECORDS.get(expression, ()))
        if expression in _RECORDS:
            return
        name = ast.unparse(node.func)
        if name.rpartition(".")[2] in {"asdict", "_asdict"}:
            raise ValueError(f"{module}: add the class of {expression} to deploy/generate/names.py")
        called = Awaited.document if name.endswith(".document") else getattr(module, name, None)
        if inspect.isfunction(called) and "dict" in str(inspect.signature(called).return_annotation):
            yield from _keys(called, prefix)
    for below in ast.iter_child_nodes(node):
        yield from _keys_below(below, prefix, module)


def broken(version: str, lists: Mapping[str, str], changelog: str) -> list[str]:
    """What a version lacks that the last release had, and must not lack.

    A version that may break something announces it: the changelog has the name in backticks, below *Removed* or
    *Changed*, above the heading of the last release. With a name goes what belongs to it.

    Args:
        lists: the list of this version and those of releases, by version.
    """
    last = max((each for each in lists if Version(each) < Version(version)), key=Version, default=None)
    if last is None:
        return []
    lost = [line.split(" ") for line in sorted({*lists[last].splitlines()} - {*lists[version].splitlines()})]
    announced: set[str] = set()
    if may_break(Version(last), Version(version)):
        since = changelog.partition(f"\n## [{last}]")[0]
        announced = {name for part in _BREAKS.findall(since) for name in _BACKTICKS.findall(part)}
    gone = {name for _, name, *own in lost if not own}
    return [
        " ".join((kind, name, *own))
        for kind, name, *own in lost
        if not {" ".join((name, *own)), *((name,) if name in gone else ())} & announced
    ]


def released(repository: Path, version: str) -> list[str]:
    """What a checkout has changed of the lists of released versions, and whether its own version is one of them."""
    wrong = []
    for path in sorted((repository / FOLDER).glob("*.txt")):
        commit, name = release.tagged(repository, path.stem), f"{FOLDER / path.name}"
        if commit and release.git(repository, "show", f"{commit}:{name}") != path.read_text(encoding="utf-8").strip():
            wrong.append(f"{name} is not as released; `git checkout v{path.stem} {name}`")
    if release.tagged(repository, version) not in {"", release.git(repository, "rev-parse", "HEAD")}:
        wrong.append(f"{version} is released; raise __version__, then `make regenerate`")
    return wrong


def may_break(last: Version, version: Version) -> bool:
    """Whether names may go: in a new major version, before 1.0 in a new minor one."""
    return version.major > last.major or (version.major == 0 and version.minor > last.minor)
