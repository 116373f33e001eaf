"""Annotations on every time axis: alerts, Xids, driver changes and exporter restarts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import AnnotationQuery, DataSourceRef

from dashboards.palette import BAD, BETWEEN, CLASS_COLORS, INFO
from dashboards.selectors import TARGET, age, alerts, gpu, host, short


@dataclass(frozen=True, slots=True)
class Annotation(Builder[AnnotationQuery]):
    """A query with series shown as annotations, while nonzero; `title` may have ``{{label}}`` placeholders."""

    name: str
    color: str
    expr: str
    title: str
    tags: str

    def build(self) -> AnnotationQuery:
        """The annotation, with the Prometheus fields that the library's own class lacks."""
        return _PrometheusAnnotation(
            name=self.name,
            datasource=DataSourceRef(type_val="prometheus", uid="${datasource}"),
            enable=True,
            icon_color=self.color,
            expr=short(self.expr),
            more={"step": "60s", "titleFormat": self.title, "tagKeys": self.tags, "textFormat": ""},
        )


class _PrometheusAnnotation(AnnotationQuery):
    def __init__(
        self, *, name: str, datasource: DataSourceRef, enable: bool, icon_color: str, expr: str, more: Mapping[str, str]
    ) -> None:
        super().__init__(name=name, datasource=datasource, enable=enable, icon_color=icon_color, expr=expr)
        self._more = more

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), **self._more}


_FIRING = 'alertstate="firing", severity=~"critical|warning"'

ALERTS: Final = Annotation(
    "Alerts", BAD, alerts(_FIRING), "{{alertname}} {{cluster}} {{host}} GPU {{gpu}}", "severity,action"
)
XIDS: Final = Annotation(
    "Xids",
    CLASS_COLORS["hung"],
    f"0 * ({age(gpu('gpu_xid_last_timestamp_seconds'))} < 60) + 1",
    "Xid {{xid}} {{cluster}} {{host}} GPU {{gpu}}",
    "xid",
)
DRIVER: Final = Annotation(
    "Driver changes",
    INFO,
    (
        f"{host('gpu_driver_info')}\n"
        f"unless on ({TARGET}, driver_version) {host('gpu_driver_info')} offset 3m\n"
        f"and on ({TARGET}) {host('gpu_driver_info')} offset 3m"
    ),
    "Driver {{driver_version}} on {{cluster}} {{host}}",
    "driver_version",
)
RESTARTS: Final = Annotation(
    "Exporter restarts",
    BETWEEN,
    f"resets({host('gpu_exporter_scrapes_total')}[5m]) > 0",
    "Exporter restarted on {{cluster}} {{host}}",
    "instance",
)
ANNOTATIONS: Final = (ALERTS, XIDS, DRIVER, RESTARTS)
