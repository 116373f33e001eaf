"""The receivers for PagerDuty, Slack and a webhook: what a real Alertmanager sends them, as a person reads it."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.generate.alertmanager import ROUTE
from tests.conftest import RequiresTool
from tests.e2e.processes import alertmanager, fire, wait_for
from tests.listening import PAGE_TYPE, serving
from tests.program_output import output_of
from tests.rules.notifications import every_exhibit, read_notifications

RECEIVERS = Path("deploy/alertmanager/receivers.yml")
TEMPLATES = Path("deploy/alertmanager/gpu-triage.tmpl")
KEY = "0123456789abcdef0123456789abcdef"
OWNER = "Slurm job 4711 of alice"
AMLINT = Path(sys.executable).with_name("amlint")
LABEL = re.compile(r'(\w+)=("[^"]*"|\S+)')

Received = tuple[str, dict[str, Any]]
"""The path of a request and its JSON body."""


def _merged(repository: Path) -> dict[str, Any]:
    """The route with these receivers, as somebody merges them."""
    route, receivers = (yaml.safe_load((repository / path).read_bytes()) for path in (ROUTE, RECEIVERS))
    assert [each["name"] for each in receivers["receivers"]] == [each["name"] for each in route["receivers"]]
    whole: dict[str, Any] = {**route, **receivers}
    return whole | {
        "global": {"resolve_timeout": "5m"},
        "route": {"receiver": "gpu-tickets", **route["route"]},
        "templates": [str(repository / TEMPLATES)],
    }


def test_alertmanager_takes_the_receivers(repository: Path, tmp_path: Path, requires_tool: RequiresTool) -> None:
    config = tmp_path / "alertmanager.yml"
    config.write_text(yaml.safe_dump(_merged(repository)), encoding="utf-8")
    # The file as it is, too, of which the real one below gets the values: anchors and merge keys are read in many ways.
    copy = tmp_path / RECEIVERS.name
    text = (repository / RECEIVERS).read_text(encoding="utf-8")
    copy.write_text(f"{text}\nroute: {{receiver: gpu-tickets}}\n", encoding="utf-8")
    (tmp_path / TEMPLATES.name).write_bytes((repository / TEMPLATES).read_bytes())
    taken = output_of(requires_tool("amtool"), "check-config", copy)
    assert ("6 receivers" in taken, "1 templates" in taken) == (True, True)
    result = subprocess.run([AMLINT, "check", "--strict", config], check=False, capture_output=True, text=True)
    # The receiver of the alert that nobody should receive.
    assert "[empty-receiver]" in result.stdout, result.stdout + result.stderr
    assert "1 info" in result.stdout, result.stdout + result.stderr
    assert "warning" not in result.stdout, result.stdout + result.stderr


def test_no_secret_is_inline(repository: Path) -> None:
    text = (repository / RECEIVERS).read_text(encoding="utf-8")
    assert set(re.findall(r"routing_key\w*|service_key\w*|api_url\w*|credentials\w*|password\w*", text)) == {
        "routing_key_file",
        "api_url_file",
        "credentials_file",
    }


def test_the_job_is_in_every_text_that_names_one(repository: Path, tmp_path: Path, requires_tool: RequiresTool) -> None:
    texts = read_notifications()
    exhibits = [each for each in every_exhibit() if each.name in texts]
    data = {"alerts": [{"annotations": texts[each.name], "labels": {}, "status": "firing"} for each in exhibits]}
    (tmp_path / "data.json").write_text(json.dumps(data), encoding="utf-8")
    jobs = output_of(
        requires_tool("amtool"),
        *("template", "render", "--template.glob", repository / TEMPLATES, "--template.data", tmp_path / "data.json"),
        *("--template.text", '{{ range .Alerts }}{{ template "gpu.job" . }}\n{{ end }}'),
    ).splitlines()
    named = 0
    for exhibit, job in zip(exhibits, jobs, strict=True):
        description = texts[exhibit.name]["description"]
        if ", used by " not in description:
            assert job == "not known", exhibit.name
            continue
        named += 1
        assert all(owner in job for owner in exhibit.owners), f"{exhibit.name}: {job!r}"
        rest = description.partition(f", used by {job}")[2]
        assert re.match(r"[.:] | [a-z]|, since ", rest), (
            f"{exhibit.name}: {job!r} is not the whole of it: {rest[:40]!r}"
        )
    assert named > 40


@contextmanager
def _services() -> Iterator[tuple[str, list[Received]]]:
    """PagerDuty, Slack and the webhooks: the URL of a server that takes everything, and what it got so far."""
    got: list[Received] = []

    def take(path: str, body: bytes) -> tuple[int, bytes, str]:
        got.append((path, json.loads(body)))
        return 202 if path == "/pagerduty" else 200, b"ok", PAGE_TYPE

    with serving(take) as address:
        yield f"http://{address}", got


def _hurried(route: dict[str, Any]) -> dict[str, Any]:
    """The route with waits of a second, and the same groups."""
    waits = dict.fromkeys(("group_wait", "group_interval"), "1s")
    return {**route, **waits, "routes": [_hurried(each) for each in route.get("routes", ())]}


def _config(repository: Path, directory: Path, services: str) -> Path:
    """The configuration with the route and the receivers, whose addresses are `services`."""
    config = _merged(repository)
    config["route"] = _hurried(config["route"])
    for receiver in config["receivers"]:
        for pagerduty in receiver.get("pagerduty_configs", ()):
            pagerduty["url"] = f"{services}/pagerduty"
            pagerduty["routing_key_file"] = str(directory / "key")
        for slack in receiver.get("slack_configs", ()):
            slack["api_url_file"] = str(directory / "slack")
        for webhook in receiver.get("webhook_configs", ()):
            webhook["url"] = f"{services}/webhook"
            webhook["http_config"]["authorization"]["credentials_file"] = str(directory / "key")
    (directory / "key").write_text(KEY, encoding="utf-8")
    (directory / "slack").write_text(f"{services}/slack", encoding="utf-8")
    path = directory / "alertmanager.yml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


def _alert(name: str, instance: str = "", **changed: str) -> dict[str, Any]:
    """An alert with the texts that Prometheus gives it, of another instance or GPU where that is named."""
    found = read_notifications()[name]
    labels = {key: value.strip('"') for key, value in LABEL.findall(found["labels"])}
    annotations = {key: found[key] for key in ("summary", "description", "runbook_url", "dashboard_uid")}
    gpu = changed.pop("gpu", "3")
    for key, text in annotations.items():
        annotations[key] = text.replace("gpu-07:9836", instance or "gpu-07:9836").replace("GPU 3", f"GPU {gpu}")
    labels |= {"cluster": "east", "job": "gpu-triage"} | ({"instance": instance} if instance else {})
    if "uuid" in labels:
        labels["uuid"] = f"GPU-{gpu}"
    annotations |= changed
    return {"labels": labels, "annotations": annotations}


ONE = [_alert("GpuXidCritical", "gpu-07:9836")]
EIGHT = [_alert("GpuHwThermalThrottling", "gpu-08:9836", gpu=str(number)) for number in range(8)]
COMMAND = "gpu-triage explain GpuExportersDown"
FLEET = [_alert("GpuExportersDown", runbook_url=COMMAND)]
TICKET = [_alert("GpuRowRemapPending", "gpu-09:9836")]
TITLES = (
    f"{ONE[0]['annotations']['summary']} (used by {OWNER}) [drain]",
    f"{EIGHT[0]['annotations']['summary']} (used by {OWNER}) [inspect hardware] and 7 more",
    f"{FLEET[0]['annotations']['summary']} [fix host]",
)
LINES = [f"{each['annotations']['summary']} (used by {OWNER})" for each in EIGHT]
RUNBOOK = "http://gpu-07:9836/runbooks/GpuXidCritical"
ACTION = ONE[0]["labels"]["action"].replace("_", " ")


@dataclass(frozen=True, slots=True)
class Sent:
    """What the services got while the alerts fired, and after they ended."""

    firing: tuple[Received, ...]
    ended: tuple[Received, ...]

    def page(self, title: str) -> dict[str, Any]:
        (found,) = (body for path, body in self.firing if path == "/pagerduty" and body["payload"]["summary"] == title)
        return found

    def post(self, title: str) -> dict[str, Any]:
        """The attachment in Slack."""
        return next(each for each in _attachments(self.firing) if each["title"] == title)


def _attachments(got: Iterable[Received]) -> list[dict[str, Any]]:
    return [body["attachments"][0] for path, body in got if path == "/slack"]


@pytest.fixture(scope="module")
def sent(repository: Path, tmp_path_factory: pytest.TempPathFactory, requires_tool: RequiresTool) -> Sent:
    """What Alertmanager sends of one GPU, of eight of a host, of a fleet, and of a ticket."""
    program, directory = requires_tool("prometheus-alertmanager"), tmp_path_factory.mktemp("receivers")
    with (
        _services() as (services, got),
        alertmanager(program, directory, _config(repository, directory, services)) as url,
    ):
        fire(url, [*ONE, *EIGHT, *FLEET, *TICKET])
        # Three pages at two services, and the ticket.
        wait_for(lambda: len(got) >= 2 * len(TITLES) + 1)
        firing = tuple(got)
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 1))
        fire(url, [each | {"endsAt": moment} for each in (*ONE, *EIGHT, *FLEET)])
        wait_for(lambda: len(got) >= len(firing) + 2 * len(TITLES))
        return Sent(firing, tuple(got[len(firing) :]))


def test_an_incident_of_pagerduty_is_a_group_and_ends_with_it(sent: Sent) -> None:
    triggered = [body for path, body in sent.firing if path == "/pagerduty"]
    ended = [body for path, body in sent.ended if path == "/pagerduty"]
    assert sorted(body["payload"]["summary"] for body in triggered) == sorted(TITLES)
    assert {body["event_action"] for body in triggered} == {"trigger"}
    assert {body["event_action"] for body in ended} == {"resolve"}
    keys = [body["dedup_key"] for body in triggered]
    assert len(set(keys)) == len(keys)
    assert sorted(body["dedup_key"] for body in ended) == sorted(keys)


def test_a_page_says_first_what_a_person_needs(sent: Sent) -> None:
    page = sent.page(TITLES[0])
    payload = page["payload"]
    assert page["routing_key"] == KEY
    assert (payload["severity"], payload["class"], payload["component"], payload["group"]) == (
        "critical",
        "GpuXidCritical",
        "gpu-07:9836",
        "east",
    )
    assert page["client_url"] == RUNBOOK
    assert page["links"] == [{"href": RUNBOOK, "text": "Runbook"}]
    details = payload["custom_details"]
    assert list(details.items())[:5] == [
        ("1 job", OWNER),
        ("2 action", ACTION),
        ("3 runbook", RUNBOOK),
        ("4 description", ONE[0]["annotations"]["description"]),
        ("firing", f"{ONE[0]['annotations']['summary']} (used by {OWNER})"),
    ]


def test_a_page_without_host_or_link_has_the_command(sent: Sent) -> None:
    page = sent.page(TITLES[2])
    # PagerDuty rejects what is no URL.
    assert page.get("client_url", "") == ""
    assert "links" not in page
    details = page["payload"]["custom_details"]
    assert (details["1 job"], details["3 runbook"]) == ("not known", COMMAND)
    assert sent.post(TITLES[2])["fields"][2]["value"] == f"`{COMMAND}`"


def test_a_post_in_slack_has_title_fields_text_and_a_color(sent: Sent) -> None:
    one, eight = sent.post(TITLES[0]), sent.post(TITLES[1])
    assert (one["color"], one["title_link"]) == ("danger", RUNBOOK)
    assert [(each["title"], each["value"]) for each in one["fields"]] == [
        ("Job", OWNER),
        ("Action", ACTION),
        ("Runbook", f"<{RUNBOOK}|GpuXidCritical>"),
    ]
    assert one["text"] == ONE[0]["annotations"]["description"]
    assert eight["text"].split("\n") == [EIGHT[0]["annotations"]["description"], *LINES]
    ended = _attachments(sent.ended)
    assert sorted(each["title"] for each in ended) == sorted(f"Resolved: {title}" for title in TITLES)
    assert {each["color"] for each in ended} == {"good"}


def test_a_webhook_gets_what_a_ticket_is_made_of(sent: Sent) -> None:
    (ticket,) = (body for path, body in sent.firing if path == "/webhook")
    (alert,) = ticket["alerts"]
    assert ticket["groupKey"]
    assert alert["annotations"] == TICKET[0]["annotations"]
    assert alert["labels"]["action"] == TICKET[0]["labels"]["action"]
