"""The inference of labels and uses, on expressions whose answers a person can see."""

import pytest
from tests.promql.expressions import LabelError, Use, labels_of, recorded_labels, uses, windows_matched_as_one

SERIES = {
    "power": {"instance", "gpu"},
    "limit": {"instance", "gpu"},
    "throttle_total": {"instance", "gpu", "reason"},
    "info": {"instance", "gpu", "name"},
    "up": {"instance"},
    "buckets": {"instance", "le"},
}


def series(name: str) -> frozenset[str]:
    return frozenset(SERIES[name])


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        ("sum by (link) (power)", "sum groups by link; there is only gpu, instance"),
        ("sum without (link) (power)", "sum groups by link"),
        ('power{link="1"}', "power is selected by link"),
        ("power and on (gpu) up", "the right side of and is matched on gpu; there is only instance"),
        ("up and on (gpu) power", "the left side of and is matched on gpu"),
        ("power + ignoring (link) limit", r"\+ ignores link"),
        ("power * on (gpu, instance) group_left (serial) info", "a group copies serial"),
        ("power / throttle_total", "/ never matches: its sides differ in reason"),
        ("power and up", "and never matches: its sides differ in gpu"),
        ("power > sum by (gpu) (limit)", "> never matches: its sides differ in instance"),
        ('label_replace(power, "a", "$1", "link", "(.*)")', "label_replace reads link"),
        ("sum(sum by (link) (power))", "groups by link"),
    ],
)
def test_a_label_that_is_not_there_is_an_error(expr: str, message: str) -> None:
    with pytest.raises(LabelError, match=message):
        labels_of(expr, series)


@pytest.mark.parametrize(
    ("expr", "metrics"),
    [
        ("rate(throttle_total[5m]) / on (gpu) group_left () power", ()),
        ("power / on (gpu) group_left () max_over_time(limit[6h])", ("limit",)),
        ("3 * (power / on (gpu) group_left () (max without (name) (max_over_time(limit[6h])) > 1))", ("limit",)),
        ("max_over_time(limit[1h]) / on (gpu) group_right () power", ("limit",)),
        ("power / on (gpu) group_left () max by (gpu) (max_over_time(limit[6h]))", ()),
        ("power and on (gpu) max_over_time(limit[6h]) > 1", ()),
        ("max(power / on (gpu) group_left () avg_over_time(limit[1h:1m]))", ("limit",)),
    ],
)
def test_a_window_that_may_be_two_series_where_one_is_asked_for_is_found(expr: str, metrics: tuple[str, ...]) -> None:
    assert windows_matched_as_one(expr) == metrics


def test_recorded_series_have_the_labels_of_all_their_rules() -> None:
    records = {
        "gpu:verdict": (("sum by (gpu) (power)", {"class": "hot"}), ("power", {"class": "idle"})),
        "verdict:all": (("sum by (class) (gpu:verdict)", {}),),
        "gpu:hours": (("power or gpu:hours", {}),),
    }
    of = recorded_labels(records, series)
    assert of("verdict:all") == {"class"}
    assert of("gpu:verdict") == {"gpu", "instance", "class"}
    assert of("gpu:hours") == {"gpu", "instance"}
    assert of("up") == {"instance"}


def test_every_selector_is_found_with_what_is_around_it() -> None:
    expr = (
        'sum by (gpu) (rate(throttle_total{reason=~"a|b"}[5m])) > 2 unless absent(up) and max_over_time(power[1h:1m])'
    )
    assert uses(expr) == (
        Use("throttle_total", (("reason", "=~", "a|b"),), ("rate", "sum"), ranged=True),
        Use("up", (), ("absent",), ranged=False),
        Use("power", (), ("subquery", "max_over_time"), ranged=False),
    )


def test_a_selector_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="without a metric name"):
        uses('{__name__=~"gpu_.*"}')
