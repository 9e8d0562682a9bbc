"""A small run, and a cluster on which every part of the closed form is negligible until a test makes it count."""

import dataclasses

import pandas as pd
from strata_analysis.fitted_cluster import COSTS, FittedCluster

SMALL = {
    "num_gpus": 1,
    "global_batch": 64,
    "micro_batch": 4,
    "hidden_size": 256,
    "attention_heads": 8,
    "layers": 12,
    "sequence_length": 128,
    "tensor_parallelism": 1,
    "data_parallelism": 1,
    "pipeline_parallelism": 1,
    "vocabulary_size": 512,
    "virtual_stages": 1,
    "recomputation": "none",
    "sequence_parallel": "no",
}


def runs(*changes):
    """A row each: the small run with these changes."""
    return pd.DataFrame([SMALL | change for change in changes])


def negligible(name):
    if name.endswith("_share"):
        return 1.0
    return 1e30 if name.endswith("bandwidth_bytes_per_second") else 1e-30


def weightless(costs=None, **changes):
    """Rates of 1e30 and times of 1e-30: whatever a test sets is all there is."""
    ones = {"full_node_launch_factor": 1.0, "launch_overlap_exponent": 2.0}
    cluster = FittedCluster(
        costs={name: negligible(name) for name in COSTS} | ones | (costs or {}),
        devices_per_node=8,
        memory_bandwidth_bytes_per_second=1e30,
        peak_flops_per_second=1e30,
        multiprocessors=1,
        vocabulary_size=512,
    )
    return dataclasses.replace(cluster, **changes)
