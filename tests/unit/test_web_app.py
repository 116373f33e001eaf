from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from typing import TYPE_CHECKING, NamedTuple

import pytest

from gpu_triage.errors import ConfigError
from gpu_triage.web.app import WebApp
from gpu_triage.web.landing import LandingFacts
from gpu_triage.web.server import WebServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
FACTS = LandingFacts(
    version="1.2.3",
    simulated=False,
    scenario=None,
    driver="580.65.06",
    gpus=((0, "NVIDIA H200", "up"), (1, "<script>alert('gpu')</script>", "lost & gone")),
)


class Encoded(NamedTuple):
    body: bytes
    content_type: str
    gzipped: bool


@dataclass
class Host:
    """All three sources, with what they were asked."""

    asked: list[tuple[str, tuple[str, ...], bool]] = field(default_factory=list)
    scrapes: int = 0
    dead: str | None = None
    unready: str | None = None
    facts: LandingFacts = FACTS
    broken: bool = False
    hold: Callable[[], object] = lambda: None

    def page(self, accept: str, names: tuple[str, ...], gzip: bool) -> Encoded:  # noqa: FBT001 - the contract's
        self.asked.append((accept, names, gzip))
        if self.broken:
            raise RuntimeError("secret of the encoder")
        if names:
            self.hold()
        return Encoded(b"gpu_up 1\n" * 100, OPENMETRICS, gzip)

    def scraped(self) -> None:
        self.scrapes += 1

    def alive(self) -> str | None:
        return self.dead

    def ready(self) -> str | None:
        return self.unready

    def landing(self) -> LandingFacts:
        return self.facts


@contextmanager
def serving(host: Host, max_requests: int = 40) -> Iterator[int]:
    app = WebApp(host, host, host, max_requests=max_requests)
    server = WebServer(app, ["127.0.0.1:0"], wall=lambda: 0.0)
    port = int(server.bind()[0].rpartition(":")[2])
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield port
    finally:
        server.stop()
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def client(host: Host) -> Iterator[HTTPConnection]:
    with serving(host) as port:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        yield connection
        connection.close()


def ask(client: HTTPConnection, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    client.request(method, path, headers={key.replace("_", "-"): value for key, value in headers.items()})
    response = client.getresponse()
    return response, response.read()


def test_a_scrape_gets_the_page_of_the_source_and_is_counted_once(client: HTTPConnection, host: Host) -> None:
    response, body = ask(client, "/metrics", Accept=OPENMETRICS)
    assert (response.status, body) == (200, b"gpu_up 1\n" * 100)
    assert response.headers["Content-Type"] == OPENMETRICS
    assert response.headers["Vary"] == "accept, accept-encoding"
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Date"] == "Thu, 01 Jan 1970 00:00:00 GMT"
    assert "Server" not in response.headers
    assert host.asked == [(OPENMETRICS, (), False)]
    assert host.scrapes == 1


def test_gzip_is_sent_only_to_those_who_take_it(client: HTTPConnection, host: Host) -> None:
    plain, _ = ask(client, "/metrics", Accept_Encoding="gzip;q=0, *")
    zipped, _ = ask(client, "/metrics", Accept_Encoding="br, gzip;q=0.5")
    assert plain.headers["Content-Encoding"] is None
    assert zipped.headers["Content-Encoding"] == "gzip"
    assert [gzip for _, _, gzip in host.asked] == [False, True]


def test_names_select_families(client: HTTPConnection, host: Host) -> None:
    response, _ = ask(client, "/metrics?name[]=gpu_up&name%5B%5D=gpu_info&name[]=gpu_up&other=1")
    assert response.status == 200
    assert host.asked == [("", ("gpu_up", "gpu_info"), False)]


@pytest.mark.parametrize("query", ["name[]=" + "a" * 257, "&".join(["name[]=a"] * 257)])
def test_an_immoderate_selection_is_refused_and_not_counted(client: HTTPConnection, host: Host, query: str) -> None:
    response, body = ask(client, f"/metrics?{query}")
    assert response.status == 400
    assert len(body) < 80
    assert (host.asked, host.scrapes) == ([], 0)


@pytest.mark.parametrize("path", ["/metrics", "/", "/-/healthy", "/-/ready", "/nowhere"])
def test_head_answers_as_get_but_for_the_body(client: HTTPConnection, path: str) -> None:
    got, body = ask(client, path)
    headed, nothing = ask(client, path, "HEAD")
    assert nothing == b""
    assert headed.status == got.status
    assert headed.getheaders() == got.getheaders()
    assert int(headed.headers["Content-Length"]) == len(body) > 0


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/metrics", "/", "/-/healthy"])
def test_other_methods_are_told_what_is_allowed(client: HTTPConnection, path: str, method: str) -> None:
    response, _ = ask(client, path, method)
    assert response.status == 405
    assert response.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/favicon.ico", "/metrics/", "/<script>", "//metrics", "/-/", "/%2e%2e"])
def test_an_unknown_path_is_not_reflected(client: HTTPConnection, path: str) -> None:
    response, body = ask(client, path)
    assert (response.status, body) == (404, b"not found\n")


def test_the_probes_tell_what_is_wrong(client: HTTPConnection, host: Host) -> None:
    assert [ask(client, path)[1] for path in ("/-/healthy", "/-/ready")] == [b"healthy\n", b"ready\n"]
    host.dead, host.unready = "the sampler stands still", "first samples of GPU 3"
    healthy, why_dead = ask(client, "/-/healthy")
    ready, why_unready = ask(client, "/-/ready")
    assert (healthy.status, why_dead) == (503, b"the sampler stands still\n")
    assert (ready.status, why_unready) == (503, b"first samples of GPU 3\n")


def test_the_landing_page_escapes_what_the_driver_says(client: HTTPConnection) -> None:
    response, body = ask(client, "/")
    page = body.decode()
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "<script" not in page
    assert "&lt;script&gt;alert(&#x27;gpu&#x27;)&lt;/script&gt;" in page
    assert "lost &amp; gone" in page
    assert 'href="/metrics"' in page
    assert "imulated" not in page.partition("</style>")[2]


def test_the_landing_page_may_load_nothing_but_its_own_style(client: HTTPConnection) -> None:
    policy = ask(client, "/")[0].headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe-inline" not in policy


def test_the_landing_page_says_that_data_is_simulated(client: HTTPConnection, host: Host) -> None:
    host.facts = LandingFacts("1.2.3", simulated=True, scenario="<b>hot</b>", driver="580", gpus=())
    page = ask(client, "/")[1].decode()
    assert "Simulated data." in page
    assert "&lt;b&gt;hot&lt;/b&gt;" in page
    assert "No GPU is known." in page


def test_an_error_inside_is_logged_once_until_it_works_again(
    client: HTTPConnection, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    def scrape() -> tuple[int, bytes]:
        response, body = ask(client, "/metrics")
        return response.status, body

    host.broken = True
    assert [scrape(), scrape()] == [(500, b"internal error\n")] * 2
    assert [record.getMessage() for record in caplog.records] == ["cannot answer /metrics"]
    host.broken = False
    assert scrape()[0] == 200
    host.broken = True
    scrape()
    assert len(caplog.records) == 2
    assert host.scrapes == 1


def test_scrapes_beyond_the_limit_are_told_to_come_back_and_probes_are_still_answered() -> None:
    encoding, done = threading.Event(), threading.Event()

    def hold() -> None:
        encoding.set()
        done.wait(10)

    host = Host(hold=hold)
    with serving(host, max_requests=1) as port:
        slow, quick = (HTTPConnection("127.0.0.1", port, timeout=5) for _ in range(2))
        slow.request("GET", "/metrics?name[]=gpu_up")
        assert encoding.wait(5)
        busy, _ = ask(quick, "/metrics")
        healthy, _ = ask(quick, "/-/healthy")
        done.set()
        assert slow.getresponse().read() == b"gpu_up 1\n" * 100
        again, _ = ask(quick, "/metrics")
        slow.close()
        quick.close()
    assert (busy.status, busy.headers["Retry-After"]) == (503, "1")
    assert (healthy.status, again.status) == (200, 200)
    assert host.scrapes == 2


@pytest.mark.parametrize("path", ["/", "metrics", "", "/-/ready"])
def test_a_telemetry_path_that_is_taken_is_a_startup_error(host: Host, path: str) -> None:
    with pytest.raises(ConfigError, match=r"--web\.telemetry-path"):
        WebApp(host, host, host, telemetry_path=path)
