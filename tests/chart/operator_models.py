"""The objects of the Prometheus operator as its own models know them."""

from typing import Any

from pydantic import BaseModel

KINDS = ("ServiceMonitor", "PodMonitor", "PrometheusRule")


def kept_by_the_operator(each: dict[str, Any]) -> dict[str, Any]:
    """What the operator's own model keeps of an object of these kinds: names that it does not know are gone."""
    # Importing the models takes seconds of a CPU, which every worker that collects the tests would spend.
    from cloudcoil.models.prometheus_operator import v1  # noqa: PLC0415

    model: type[BaseModel] = getattr(v1, each["kind"])
    return model.model_validate(each).model_dump(mode="json", by_alias=True, exclude_unset=True)
