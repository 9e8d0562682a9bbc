"""The machine at hand: measured before a plan is made, kept with the results, asked by every mode."""

import tomllib

import h5py
import pytest

# Modes that have to compare plans, and so to know what the machine takes, and a pipeline that fills itself.
MODES = ["megatron", "summa", "autoddl", "amsp", "3d", "1f1b"]
BYTES_PER_SECOND = 5e8  # of each rank's emulated link


@pytest.fixture
def run(strata, experiment, tmp_path):
    modes = ", ".join(f'"{mode}"' for mode in MODES)
    file = experiment(
        replace=[('name = "ddp"\n', ""), ("steps = 8", "steps = 4")],
        append=f"\n[communication]\nemulated_link = {{ alpha_us = 20, gbit_per_s = {8e-9 * BYTES_PER_SECOND} }}\n"
        f'\n[[sweep.zip]]\n"strategy.name" = [{modes}]\n',
    )

    def launch():
        ended = strata(2, "run", file)
        attempts = sorted(tmp_path.glob("results/e2e/*/*.h5"))
        costs = sorted(tmp_path.glob("results/e2e/machine/*"))
        return ended, attempts, costs

    return launch


def test_every_mode_plans_on_the_machine_at_hand_and_all_with_the_same_costs(run):
    ended, attempts, (costs,) = run()
    assert ended.code == 0, ended.error
    assert len(attempts) == len(MODES)
    text = costs.read_text()
    for attempt in attempts:
        with h5py.File(attempt) as file:
            assert file.attrs["cluster_text"] == text
            rows = file["predictions"]
            metrics = [name.decode() for name in rows["metric"]]
            assert rows["predicted"][metrics.index("step_seconds_max")] > 0
    machine = tomllib.loads(text)
    assert "measured 20" in machine["description"]
    assert machine["peak_flops_per_second"]["f32"] > 1e8
    assert machine["memory_bandwidth_bytes_per_second"] > 1e7
    # The machine is shared: transfers may take longer than the emulated wire says, but never less.
    assert 0.02 * BYTES_PER_SECOND < machine["intra_node"]["bandwidth_bytes_per_second"] < 1.3 * BYTES_PER_SECOND
    assert machine["intra_node"]["latency_seconds"] > 15e-6

    ended, attempts, kept = run()
    assert ended.code == 0, ended.error
    assert len(attempts) == 2 * len(MODES)
    assert [file.read_text() for file in kept] == [text], "the second launch measured again"


def test_a_damaged_file_is_named(run):
    _, _, (costs,) = run()
    costs.write_text(costs.read_text().replace("devices_per_node = 2", 'devices_per_node = "many"'))
    ended, _, _ = run()
    assert ended.code == 2, ended.error
    (message,) = ended.messages()
    assert f"{costs.name}:" in message and "devices_per_node" in message
