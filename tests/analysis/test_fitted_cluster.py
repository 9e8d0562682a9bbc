"""The section [transformer_costs] of cluster files: every number is read and asked for, contradictions are named."""

from pathlib import Path

import pytest
from strata_analysis.fitted_cluster import COSTS, read_fitted_cluster
from strata_analysis.load import LoadError

SHIPPED = Path(__file__).parents[2] / "experiments" / "clusters" / "a100-vtrain.toml"
LAYER = "{{ hidden_size = 256, attention_heads = 8, sequence_length = 128, tensor_parallelism = {}, micro_batch = {}, "
LAYER += "ratio = {} }}"
FIRST, SECOND = LAYER.format(1, 2, 0.5), LAYER.format(2, 1, 1.25)
TEXT = f"""name = "made-up"
devices_per_node = 8
memory_bandwidth_bytes_per_second = 1e12
[peak_flops_per_second]
f16 = 3e14

# Fitted to nothing.
[transformer_costs]
{chr(10).join(f"{name} = {0.01 * i:.2f}" for i, name in enumerate(COSTS, start=2))}
vocabulary_size = 512
recomputation_on_one_node = "selective"
recomputation_on_many_nodes = "full"
dtype = "f16"
multiprocessors = 108
interval_on_one_node = {{ cell = 0.1, shape = 0.2, formula = 0.3 }}
interval_on_many_nodes = {{ cell = 0.4, shape = 0.5, formula = 0.6 }}
layers = [
  {FIRST},
  {SECOND},
]
"""
FIRST_LINE = 9  # of the section's keys


@pytest.fixture
def read(tmp_path):
    def read_text(text):
        file = tmp_path / "made-up.toml"
        file.write_text(text)
        return read_fitted_cluster(file)

    return read_text


@pytest.fixture
def error_of(read):
    def message(text):
        with pytest.raises(LoadError) as caught:
            read(text)
        return str(caught.value).rpartition("/")[2]

    return message


def test_everything_is_read(read):
    cluster = read(TEXT)
    assert cluster.costs == pytest.approx({name: 0.01 * i for i, name in enumerate(COSTS, start=2)})
    assert cluster.devices_per_node == 8
    assert cluster.memory_bandwidth_bytes_per_second == 1e12
    assert cluster.peak_flops_per_second == 3e14
    assert cluster.multiprocessors == 108
    assert cluster.vocabulary_size == 512
    assert cluster.recomputation_on_one_node == "selective"
    assert cluster.recomputation_on_many_nodes == "full"
    assert cluster.ratios == {(256, 8, 128, 1, 2): 0.5, (256, 8, 128, 2, 1): 1.25}
    assert cluster.intervals == (
        {"cell": 0.1, "shape": 0.2, "formula": 0.3},
        {"cell": 0.4, "shape": 0.5, "formula": 0.6},
    )
    without = "\n".join(line for line in TEXT.split("\n") if not line.startswith("interval"))
    assert read(without).intervals == ()
    assert read(TEXT.replace("devices_per_node = 8\n", "")).devices_per_node == 1
    assert read(TEXT[: TEXT.index("layers = [")]).ratios == {}
    assert len(read_fitted_cluster(SHIPPED).ratios) > 60


@pytest.mark.parametrize(
    "key",
    [*COSTS, "vocabulary_size", "recomputation_on_one_node", "recomputation_on_many_nodes", "dtype", "multiprocessors"],
)
def test_every_number_is_asked_for(error_of, key):
    lines = TEXT.split("\n")
    text = "\n".join(line for line in lines if not line.startswith(f"{key} = "))
    assert len(text) < len(TEXT)
    # By the line of the section's header.
    assert error_of(text) == f"made-up.toml:{FIRST_LINE - 1}: transformer_costs.{key}: missing"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "product_share = 0.02",
            "product_share = 1.5",
            f":{FIRST_LINE}: transformer_costs.product_share: 1.5 is out of range; accepted: > 0 and <= 1",
        ),
        (
            "launch_seconds = 0.05",
            "launch_seconds = 0",
            f":{FIRST_LINE + 3}: transformer_costs.launch_seconds: 0 is out of range; accepted: > 0",
        ),
        ("launch_seconds = 0.05", "launch_seconds = inf", "launch_seconds: inf is out of range"),
        ("launch_seconds = 0.05", "launch_seconds = true", "launch_seconds: True where a number > 0 is accepted"),
        (
            "launch_seconds =",
            "launch_second =",
            f':{FIRST_LINE + 3}: transformer_costs.launch_second: unknown key; did you mean "launch_seconds"?; accept',
        ),
        ("vocabulary_size = 512", "vocabulary_size = 0", "vocabulary_size: 0 is out of range; accepted: 1 to 2000000"),
        ("= 108", "= 1.5", "multiprocessors: 1.5 where an integer >= 1 is accepted"),
        (
            '"selective"',
            '"selectiv"',
            "unknown word 'selectiv'; did you mean \"selective\"?; accepted: none | selective",
        ),
        ("ratio = 1.25", "ratio = 0.0", "transformer_costs.layers[1].ratio: 0.0 is out of range; accepted: > 0"),
        ("ratio = 1.25", "ratoi = 1.25", "transformer_costs.layers[1].ratoi: unknown key"),
        (FIRST, LAYER.format(3, 2, 0.5), "layers[1]: not after the one before it; accepted: ascending by hidden_size"),
        (SECOND, FIRST, "layers[1]: not after the one before it"),
        (SECOND, "3", "layers: a list of tables is accepted"),
        ("f16 = 3e14", "f32 = 3e14", "transformer_costs.dtype: f16 is not in peak_flops_per_second"),
        (
            "memory_bandwidth_bytes_per_second = 1e12\n",
            "",
            ":1: memory_bandwidth_bytes_per_second: 0.0 is out of range; accepted: > 0",
        ),
        ("[transformer_costs]", "[costs]", ": no section [transformer_costs] to predict iterations with"),
        ("[transformer_costs]", "[transformer_costs", ": not TOML: "),
    ],
)
def test_contradictions_are_named(error_of, old, new, message):
    assert old in TEXT
    assert message in error_of(TEXT.replace(old, new))
