"""Choosing by owner: a Slurm job, a namespace, a pod or a user, and the hosts and GPUs that it had in the time range.

A hidden variable holds the hosts as one pattern, so that no query reads the rest of the fleet. While all owners are
selected, the pattern matches everything, hosts without owners included.
"""

import re
from typing import Final

from grafana_foundation_sdk.builders import dashboard as sdk
from grafana_foundation_sdk.models import dashboard as model

from dashboards.panels import datasource
from dashboards.selectors import CLUSTER, HOST, OWNER, TARGET, gpu
from gpu_triage.alerting.macros import macros

OWNER_LABELS: Final = {
    "slurm_job": ("Slurm job", "slurm_job_id"),
    "namespace": ("Namespace", "workload_namespace"),
    "pod": ("Pod", "workload_pod"),
    "user": ("User", "user"),
}
"""Title and label of the variables used by `selectors.OWNER`."""
METRICS: Final = ("gpu_allocated", "gpu_process_owner_info")

EVERY_OWNER: Final = ".*"
"""Includes processes without a pod or job, and hosts without owners."""

_HOSTS, _GPUS = "hosts", "gpus"
OWNED_HOSTS: Final = f"instance=~`${{{_HOSTS}:pipe}}`"
OWNED_GPUS: Final = f"gpu=~`${{{_GPUS}:pipe}}`"


def owned() -> str:
    """The selected GPUs while the chosen owner has them."""
    given, processes = (gpu(metric, OWNER) for metric in METRICS)
    return f"group by ({TARGET}, gpu) ({given} > 0 or {processes})"


def narrowed(expr: str) -> str:
    """A query that reads the hosts and GPUs of the chosen owner only.

    Series with owners are selected by the owner, so that the hosts need not be repeated: some servers limit the length
    of a query. Their GPUs are: where an owner is required, the list is empty until one is chosen. What is selected by
    another list is narrow already.
    """

    def narrow(found: re.Match[str]) -> str:
        listed = ":pipe}" in found[0] or "${worst}" in found[0]
        return found[0] if listed and found[1] not in METRICS else _narrowed(found[0], hosts=found[1] not in METRICS)

    return _SELECTOR.sub(narrow, expr)


_SELECTOR: Final = re.compile(r"(\w+)\{[^}]*\}")


def _narrowed(selector: str, *, hosts: bool) -> str:
    if hosts:
        selector = selector.replace('instance=~"$instance"', f'{OWNED_HOSTS}, instance=~"$instance"')
    return re.sub(r'(?<!peer_)gpu=~"\$gpu(\|?)"', rf'gpu=~`${{{_GPUS}:pipe}}\1`, gpu=~"$gpu\1"', selector)


def owned_variables(*, required: bool) -> tuple[sdk.QueryVariable, sdk.QueryVariable]:
    """Hidden variables with the hosts and the GPU indices.

    Args:
        required: whether nothing at all is selected until an owner is chosen.
    """
    hosts = without_brackets(_had("instance", f"{CLUSTER}, {_JOB}"))
    gpus = _had("gpu", f"{CLUSTER}, {_JOB}, {OWNED_HOSTS}")
    return _hidden(_HOSTS, "instance", ".+", hosts, required=required), _hidden(
        _GPUS, "gpu", ".*", gpus, required=required
    )


def without_brackets(hosts: str) -> str:
    """Hosts as patterns: a colon-separated address is in brackets, which mean something else there."""
    return f'label_replace({hosts}, "instance", ".$1.$2", "instance", "{_IPV6}")'


_JOB: Final = 'job=~"$job"'
_IPV6: Final = "[[](.+)[]](.*)"


def _had(label: str, matchers: str) -> str:
    """Values of a label of what the chosen owner had in the time range; nothing while all are selected.

    `.*` written twice still matches every name, but no name written twice matches itself: with all owners selected, the
    selectors match nothing, and the range of a large fleet is not read.
    """
    chosen = (f'{of}!~"${name}${name}"' for name, (_, of) in OWNER_LABELS.items())
    selected = [f'{{__name__=~"{"|".join(METRICS)}", {matchers}, {OWNER}, {each}}}' for each in chosen]
    return f"group by ({label}) ({' or '.join(f'last_over_time({each}[$__range])' for each in selected)})"


def had_jobs() -> str:
    """The jobs of the chosen owner in the time range, in the label `owner`, named as the rules name them."""
    labels = [of for _, of in OWNER_LABELS.values()]
    had = _had(", ".join(labels), f"{CLUSTER}, {_JOB}, {OWNED_HOSTS}")
    named = ", ".join(f'"{each}"' for each in ("slurm_job_id", *labels[1:]))
    pattern = f"([^;]+);.*|;([^;]+);{macros()['pod']};.*"
    return f'label_replace(label_join({had}, "owner", ";", {named}), "owner", "$1$2/$3", "owner", "{pattern}")'


def _hidden(name: str, label: str, everything: str, had: str, *, required: bool) -> sdk.QueryVariable:
    names = "".join(f"${owner}" for owner in OWNER_LABELS)
    every = f'label_replace(vector(1), "owners", "{names}", "", "")'
    every = f'label_replace({every}, "{label}", "{everything}", "owners", "([.][*]){{{len(OWNER_LABELS)}}}")'
    return all_of(hidden_variable(name, label, had if required else f"{had} or {every}"))


def all_of(variable: sdk.QueryVariable) -> sdk.QueryVariable:
    """The variable with all of its values chosen."""
    every = model.VariableOption(selected=True, text=["All"], value=["$__all"])
    return variable.multi(multi=True).include_all(include_all=True).current(every)


def hidden_variable(name: str, label: str, query: str, values: str = r'[^"]+') -> sdk.QueryVariable:
    """A variable that is not shown, with the values of a label, by a pattern, in the answer to a query."""
    return (
        sdk.QueryVariable(name)
        .hide(model.VariableHide.HIDE_VARIABLE)
        .datasource(datasource())
        .query({"qryType": 3, "query": f"query_result({query})", "refId": f"variable-{name}"})
        .regex(f'/{label}="({values})"/')
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
    )


def choices_of_owners(name: str) -> str:
    """The query for the choices of an owner's variable: those with what is chosen in the variables before it."""
    before = list(OWNER_LABELS)[: list(OWNER_LABELS).index(name)]
    chosen = "".join(f', {OWNER_LABELS[each][1]}=~"${each}"' for each in before)
    return f'label_values({{__name__=~"{"|".join(METRICS)}", {CLUSTER}, {_JOB}{chosen}}}, {OWNER_LABELS[name][1]})'


def owned_instances() -> str:
    """The query for the choices of hosts."""
    return f"label_values(gpu_exporter_build_info{{{CLUSTER}, {_JOB}, {OWNED_HOSTS}}}, instance)"


def owned_indices() -> str:
    """The query for the choices of GPUs."""
    return f"label_values(gpu_up{{{OWNED_GPUS}, {OWNED_HOSTS}, {HOST}}}, gpu)"
