from typing import Any

import pytest

from gpu_triage.errors import DocumentError
from gpu_triage_simulator.model import MODELS, known_models, load_model, read_model
from gpu_triage_simulator.schema import read_toml


def changed(name: str, **changes: Any) -> dict[str, Any]:
    """The file of a model with other values; ``thermal__slowdown`` is a key of the table ``thermal``."""
    table = read_toml(MODELS / f"{name}.toml")
    for key, value in changes.items():
        *path, last = key.split("__")
        inner = table
        for part in path:
            inner = inner[part]
        inner[last] = value
    return table


@pytest.mark.parametrize("name", known_models())
def test_every_model_says_where_its_facts_are_from(name: str) -> None:
    source = load_model(name).source
    assert source.kind in {"capture", "documentation"}
    assert len(source.facts) > 20


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory_mibs": 1}, "memory_mibs: unknown key; did you mean memory_mib?"),
        ({"features": ["ecc", "nvjpeg"]}, "features[1]: "),
        ({"source": {"kind": "hearsay", "facts": "a rumour"}}, "source.kind: "),
        ({"memory_reserved_mib": 0}, "memory_reserved_mib: is 0; write what the driver reserves"),
        ({"row_remap_banks": 0}, "row_remap_banks: goes with the feature remapped_rows"),
        ({"thermal__slowdown": 99}, "thermal: needs gpu_max below slowdown below shutdown"),
        ({"power__default_limit": 1200}, "power: needs min_limit, default_limit and max_limit in this order"),
        ({"power__idle": 700}, "power.idle: needs to be below default_limit"),
        ({"clocks__sm_default": 2000}, "clocks.sm_default: is 2000, which is above the highest, 1980"),
        ({"clocks__memory_load": 2700}, "clocks.memory_load: is 2700, which is above the highest, 2619"),
        ({"nvlink_version": 0}, "nvlink_version: goes with nvlinks"),
        ({"fan_percent": 0}, "fan_percent: needs fans"),
        ({"memory_without_ecc_mib": 100}, "memory_without_ecc_mib: needs ECC that is on and takes memory"),
        ({"features": []}, "clocks.sm_default: goes with"),
        ({"idle_state": 16}, "idle_state: is 16; write "),
    ],
)
def test_a_wrong_model_says_which_key_and_what_would_be_right(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DocumentError) as error:
        read_model(changed("h100-sxm5-80gb", **changes), "h100.toml")
    assert "h100.toml" in str(error.value)
    assert message in str(error.value)


def test_a_model_without_its_source_is_refused() -> None:
    table = changed("t4")
    del table["source"]
    with pytest.raises(DocumentError, match="source: is missing"):
        read_model(table, "t4.toml")
