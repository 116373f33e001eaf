from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse

import pytest
from tests.guarded_server import port_of
from tests.web_sources import LINES, OPENMETRICS, PAGE, VERDICT, Gate, Host

from gpu_triage.errors import ConfigError
from gpu_triage.serve.app import WebApp
from gpu_triage.serve.messages import RETRY, Answer

BODY = b"gpu_up 1\n" * 100


@pytest.fixture
def host() -> Host:
    return Host(BODY)


@pytest.fixture
def client(host: Host) -> Iterator[HTTPConnection]:
    with port_of(host, wall=lambda: 0.0) as port:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        yield connection
        connection.close()


def ask(client: HTTPConnection, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    client.request(method, path, headers={key.replace("_", "-"): value for key, value in headers.items()})
    response = client.getresponse()
    return response, response.read()


def test_a_scrape_gets_the_page_of_the_source_and_is_counted_once(client: HTTPConnection, host: Host) -> None:
    response, body = ask(client, "/metrics", Accept=OPENMETRICS)
    assert (response.status, body) == (200, BODY)
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


@pytest.mark.parametrize(
    "path",
    [
        *("/metrics", "/", "/api/v1/verdict", "/-/healthy", "/-/ready", "/nowhere"),
        *("/runbooks/GpuLost", "/runbooks/", "/runbooks", "/runbooks/nothing"),
    ],
)
def test_head_answers_as_get_but_for_the_body(client: HTTPConnection, path: str) -> None:
    got, body = ask(client, path)
    headed, nothing = ask(client, path, "HEAD")
    again, same = ask(client, path)
    assert (nothing, same) == (b"", body)
    assert again.status == got.status
    assert headed.status == got.status
    assert headed.getheaders() == got.getheaders()
    assert int(headed.headers["Content-Length"]) == len(body) > 0


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/metrics", "/", "/api/v1/verdict", "/-/healthy", "/runbooks/GpuLost"])
def test_other_methods_are_told_what_is_allowed(client: HTTPConnection, path: str, method: str) -> None:
    response, _ = ask(client, path, method)
    assert response.status == 405
    assert response.headers["Allow"] == "GET, HEAD"


def test_the_probes_tell_what_is_wrong(client: HTTPConnection, host: Host) -> None:
    assert [ask(client, path)[1] for path in ("/-/healthy", "/-/ready")] == [b"healthy\n", b"ready\n"]
    host.dead, host.unready = "the sampler stands still", "first samples of GPU 3"
    healthy, why_dead = ask(client, "/-/healthy")
    ready, why_unready = ask(client, "/-/ready")
    assert (healthy.status, why_dead) == (503, b"the sampler stands still\n")
    assert (ready.status, why_unready) == (503, b"first samples of GPU 3\n")


PRIVATE = {"Content-Security-Policy": "default-src 'none'", "Referrer-Policy": "no-referrer"}
NOT_YET = Answer(503, b'{"error": "waiting for the driver"}', "application/json", (RETRY,))
ANSWERS = {
    "page": ("/", "*/*", PAGE, {"Content-Type": "text/html; charset=utf-8", **PRIVATE}),
    "verdict": ("/api/v1/verdict", "*/*", VERDICT, {"Content-Type": "application/json", "Vary": "accept"}),
    "for a script": ("/api/v1/verdict", "text/plain", LINES, {"Content-Type": LINES.content_type, "Vary": "accept"}),
    "not yet": ("/api/v1/verdict", "*/*", NOT_YET, {"Content-Type": "application/json", "Retry-After": "1"}),
}


@pytest.mark.parametrize(("path", "accept", "answer", "headers"), ANSWERS.values(), ids=ANSWERS)
def test_what_is_judged_is_answered_as_it_is_wanted_and_never_kept(
    client: HTTPConnection, host: Host, path: str, *, accept: str, answer: Answer, headers: dict[str, str]
) -> None:
    host.given = NOT_YET if answer is NOT_YET else VERDICT
    response, body = ask(client, path, Accept=accept)
    assert (response.status, body) == (answer.status, answer.body)
    wanted = {"Cache-Control": "no-store", **headers}
    assert {name: response.headers[name] for name in wanted} == wanted


def test_those_who_ask_while_the_host_is_judged_share_one_verdict_and_probes_are_answered() -> None:
    gate = Gate()
    host = Host(hold=gate)
    with port_of(host) as port:
        waiting = [HTTPConnection("127.0.0.1", port, timeout=5) for _ in range(5)]
        for each in waiting:
            each.request("GET", "/api/v1/verdict")
        assert gate.reached.wait(5)
        probe = HTTPConnection("127.0.0.1", port, timeout=5)
        assert ask(probe, "/-/healthy")[0].status == 200
        gate.opened.set()
        assert {each.getresponse().read() for each in waiting} == {host.given.body}
        for each in (*waiting, probe):
            each.close()
    assert host.judged == ["verdict"]


def test_an_error_inside_is_logged_once(client: HTTPConnection, host: Host, caplog: pytest.LogCaptureFixture) -> None:
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
    assert ask(client, "/")[1] == b"internal error\n"


def test_scrapes_beyond_the_limit_are_told_to_come_back_and_probes_are_still_answered() -> None:
    gate = Gate()
    host = Host(BODY, gate)
    with port_of(host, max_requests=1) as port:
        slow, quick = (HTTPConnection("127.0.0.1", port, timeout=5) for _ in range(2))
        slow.request("GET", "/metrics?name[]=gpu_up")
        assert gate.reached.wait(5)
        busy, _ = ask(quick, "/metrics")
        healthy, _ = ask(quick, "/-/healthy")
        gate.opened.set()
        assert slow.getresponse().read() == BODY
        again, _ = ask(quick, "/metrics")
        slow.close()
        quick.close()
    assert (busy.status, busy.headers["Retry-After"]) == (503, "1")
    assert (healthy.status, again.status) == (200, 200)
    assert host.scrapes == 2


@pytest.mark.parametrize(
    "path", ["/", "metrics", "", "/-/ready", "/api/v1/verdict", "/runbooks", "/runbooks/", "/runbooks/metrics"]
)
def test_a_telemetry_path_that_is_taken_is_a_startup_error(host: Host, path: str) -> None:
    with pytest.raises(ConfigError, match=r"--web\.telemetry-path"):
        WebApp(host, telemetry_path=path)
