"""What other tools read: traces and schedules of all ranks, as `strata program` writes them.

Chakra traces are decoded by protobuf's own Python package through a descriptor that is built here from the published
field numbers (mlcommons/chakra, schema/protobuf/et_def.proto): nothing of the writer takes part.
"""

import json
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import h5py
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.unknown_fields import UnknownFieldSet

COMP_NODE, COMM_SEND_NODE, COMM_RECV_NODE, COMM_COLL_NODE = 4, 5, 6, 7
ALL_REDUCE = 0

# message -> field -> (number, type); the values of an attribute are one of which one is given
SCHEMA = {
    "AttributeProto": {
        "name": (1, "string"),
        "int32_val": (7, "int32"),
        "int64_val": (9, "int64"),
        "uint64_val": (13, "uint64"),
        "bool_val": (27, "bool"),
        "string_val": (29, "string"),
    },
    "GlobalMetadata": {"version": (1, "string"), "attr": (2, "repeated AttributeProto")},
    "Node": {
        "id": (1, "uint64"),
        "name": (2, "string"),
        "type": (3, "int32"),  # an enum on the wire
        "ctrl_deps": (4, "repeated uint64"),
        "data_deps": (5, "repeated uint64"),
        "duration_micros": (7, "uint64"),
        "attr": (10, "repeated AttributeProto"),
    },
}

# Readers look at the field that they expect of a name, and take another one for 0 or refuse it.
VALUES = {
    "is_cpu_op": "bool_val",
    "num_ops": "int64_val",
    "tensor_size": "uint64_val",
    "comm_type": "int64_val",
    "comm_size": "int64_val",
    "pg_name": "string_val",
    "comm_src": "int32_val",
    "comm_dst": "int32_val",
    "comm_tag": "int32_val",
}
ENDS = {"comm_size", "comm_src", "comm_dst", "comm_tag"}
ATTRIBUTES = {  # what each type of node needs, beside is_cpu_op
    COMP_NODE: {"num_ops", "tensor_size"},
    COMM_SEND_NODE: ENDS,
    COMM_RECV_NODE: ENDS,
    COMM_COLL_NODE: {"comm_type", "comm_size", "pg_name"},
}
LAST_TAG = 499_999_999  # ASTRA-sim takes tags modulo 500,000,000: above are its own


def message_classes():
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    field_type = descriptor_pb2.FieldDescriptorProto
    for message, fields in SCHEMA.items():
        described = file.message_type.add(name=message)
        values = described.oneof_decl.add(name="value") if message == "AttributeProto" else None
        for name, (number, kind) in fields.items():
            *repeated, kind = kind.split()
            label = field_type.LABEL_REPEATED if repeated else field_type.LABEL_OPTIONAL
            added = described.field.add(name=name, number=number, label=label)
            if kind in SCHEMA:
                added.type, added.type_name = field_type.TYPE_MESSAGE, f".ChakraProtoMsg.{kind}"
            else:
                added.type = getattr(field_type, f"TYPE_{kind.upper()}")
            if values is not None and name.endswith("_val"):
                added.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {m: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{m}")) for m in SCHEMA}


CLASSES = message_classes()


@dataclass
class Node:
    id: int
    name: str
    type: int
    data_deps: list[int]
    ctrl_deps: list[int]
    duration_micros: int
    attributes: dict[str, int | bool | str]

    def is_free(self, done):
        return self.id not in done and done.issuperset(self.data_deps) and done.issuperset(self.ctrl_deps)


def decoded(buffer, position, message):
    """A message with its length before it: seven bits a byte, least first, the eighth set on all bytes but the last."""
    size = shift = 0
    more = True
    while more:
        size |= (buffer[position] & 0x7F) << shift
        more = buffer[position] & 0x80
        position, shift = position + 1, shift + 7
    assert size > 0, "readers stop at an empty message"
    read = CLASSES[message]()
    read.ParseFromString(buffer[position : position + size])
    assert len(buffer) >= position + size
    assert not len(UnknownFieldSet(read))
    return read, position + size


def read_trace(path):
    buffer = path.read_bytes()
    assert not buffer.startswith(b"\x1f\x8b"), "readers take it for gzip"
    metadata, position = decoded(buffer, 0, "GlobalMetadata")
    assert metadata.version
    nodes = []
    while position < len(buffer):
        read, position = decoded(buffer, position, "Node")
        attributes = {}
        for attribute in read.attr:
            assert not len(UnknownFieldSet(attribute))
            assert attribute.name not in attributes
            assert attribute.WhichOneof("value") == VALUES[attribute.name]
            attributes[attribute.name] = getattr(attribute, attribute.WhichOneof("value"))
        dependencies = list(read.data_deps), list(read.ctrl_deps)
        nodes.append(Node(read.id, read.name, read.type, *dependencies, read.duration_micros, attributes))
    return nodes


def sent_in_all_reduce(elements, num_ranks, index):
    """As a ring cuts it: chunks of ceil(n/p), every one but the own reduced away, the own gathered by all others."""
    chunk = -(-elements // num_ranks)
    own = max(0, min(elements, chunk * (index + 1)) - chunk * index)
    return elements - own + own * (num_ranks - 1)


@pytest.fixture(autouse=True)
def cluster_files(tmp_path):
    """Descriptions are found above the experiment's folder, as in a checkout."""
    from conftest import ROOT

    (tmp_path / "clusters").symlink_to(ROOT / "experiments" / "clusters")


ON_FOUR = ("--set", "cluster=a800-ib", "--set", "resources.ranks_per_node=4")
MODES = {
    "ddp": (),
    "gpipe": ("strategy.stages=4", "model.name=gpt-micro", "train.micro_batches=3"),
    "1f1b": ("strategy.stages=2", "train.micro_batches=3"),
}
NUM_MESSAGES = {"ddp": 0, "gpipe": 3 * 2 * 3, "1f1b": 2 * 2 * 3}  # pairs of ranks, directions, micro-batches
GROUP_SIZES = {"ddp": {4}, "gpipe": {2}, "1f1b": {2}}  # both tied ends of gpt-micro; replicas and ends of 1f1b


@pytest.fixture(params=MODES)
def chakra(request, strata, experiment, tmp_path):
    """The traces of four ranks, their groups, and the bytes that the Programs themselves count."""
    keys = (f'strategy.name="{request.param}"', *MODES[request.param])
    words = (*ON_FOUR, *(word for key in keys for word in ("--set", key)))
    ended = strata(None, "program", experiment(), *words, "--format", "chakra", "--output", tmp_path / "traces")
    assert ended.code == 0, ended.error
    assert strata(None, "simulate", experiment(), *words).code == 0
    (results,) = tmp_path.glob("results/e2e/*/*.h5")
    with h5py.File(results) as file:
        folds = {name: column[0] for name, column in file["steps"].items() if name.endswith("_sent_bytes")}
    names = {path.name for path in (tmp_path / "traces").iterdir()}
    assert names == {f"e2e.{rank}.et" for rank in range(4)} | {"e2e.comm_groups.json"}
    groups = json.loads((tmp_path / "traces" / "e2e.comm_groups.json").read_text())
    return request.param, [read_trace(tmp_path / "traces" / f"e2e.{rank}.et") for rank in range(4)], groups, folds


def test_chakra_keeps_what_readers_rely_on(chakra):
    _, traces, groups, _ = chakra
    assert all(str(int(name)) == name and int(name) > 0 for name in groups), "0 stands for all ranks"
    for members in groups.values():
        assert len(members) == len(set(members)) > 1
        assert set(members) <= set(range(len(traces)))
    for rank, nodes in enumerate(traces):
        assert [node.id for node in nodes] == list(range(len(nodes)))
        for node in nodes:
            a = node.attributes
            assert a.keys() == ATTRIBUTES[node.type] | {"is_cpu_op"}
            for dependencies in (node.data_deps, node.ctrl_deps):
                # Readers strike out one of equal dependencies, and read ahead only so far.
                assert len(dependencies) == len(set(dependencies))
                assert all(dependency < node.id for dependency in dependencies)
            if node.type == COMP_NODE:
                assert min(a["num_ops"], a["tensor_size"]) >= 1, "a roofline divides by their ratio"
            else:
                assert a["comm_size"] > 0
            if node.type in (COMM_SEND_NODE, COMM_RECV_NODE):
                assert 0 <= a["comm_tag"] <= LAST_TAG
                assert {a["comm_src"], a["comm_dst"]} <= set(range(len(traces)))
                assert a["comm_src"] != a["comm_dst"]
            if node.type == COMM_COLL_NODE:
                assert rank in groups[a["pg_name"]]


def test_chakra_graphs_are_whole_and_acyclic(chakra):
    _, traces, _, _ = chakra
    for nodes in traces:
        by_id = {node.id: node for node in nodes}
        assert len(by_id) == len(nodes) > 50
        assert {node.type for node in nodes} <= {COMP_NODE, COMM_SEND_NODE, COMM_RECV_NODE, COMM_COLL_NODE}
        assert all(dependency in by_id for node in nodes for dependency in node.data_deps + node.ctrl_deps)
        done = set()
        while free := [n for n in nodes if n.is_free(done)]:
            done.update(n.id for n in free)
        assert len(done) == len(nodes), "a cycle"
        # Work of one stream is a chain: at no moment are two kernels free at once.
        kernels = [node for node in nodes if node.type == COMP_NODE]
        assert all(a.id in b.data_deps for a, b in pairwise(kernels))
        assert sum(node.duration_micros for node in kernels) > 100
        assert sum(node.attributes["num_ops"] for node in kernels) > 1e6
        assert not any(node.attributes["is_cpu_op"] for node in nodes)


def test_chakra_sends_match_receives(chakra):
    mode, traces, _, folds = chakra

    def messages(kind):
        found = Counter()
        for rank, nodes in enumerate(traces):
            for a in (node.attributes for node in nodes if node.type == kind):
                assert rank == (a["comm_src"] if kind == COMM_SEND_NODE else a["comm_dst"])
                found[a["comm_src"], a["comm_dst"], a["comm_tag"], a["comm_size"]] += 1
        return found

    sends = messages(COMM_SEND_NODE)
    assert sends == messages(COMM_RECV_NODE)
    assert set(sends.values()) <= {1}, "ends and tag name one message"
    assert len(sends) == NUM_MESSAGES[mode]
    by_rank = Counter()
    for source, _, _, size in sends:
        by_rank[source] += size
    assert max(by_rank.values(), default=0) == folds["send_sent_bytes"]


def test_chakra_collectives_meet_and_carry_the_bytes_of_the_program(chakra):
    mode, traces, groups, folds = chakra
    sequences = {}  # group -> what each member issues, in order
    sent = Counter()
    for rank, nodes in enumerate(traces):
        for a in (node.attributes for node in nodes if node.type == COMM_COLL_NODE):
            assert a["comm_type"] == ALL_REDUCE
            members = groups[a["pg_name"]]
            sent[rank] += 4 * sent_in_all_reduce(a["comm_size"] // 4, len(members), members.index(rank))
            sequences.setdefault(a["pg_name"], {}).setdefault(rank, []).append(a["comm_size"])
    for name, by_rank in sequences.items():
        assert sorted(by_rank) == sorted(groups[name])
        assert len({tuple(sizes) for sizes in by_rank.values()}) == 1, "all members issue the same"
    assert max(sent.values()) == folds["all_reduce_sent_bytes"] > 0
    assert all(folds[f"{name}_sent_bytes"] == 0 for name in ("all_gather", "reduce_scatter", "broadcast", "all_to_all"))
    assert {len(groups[name]) for name in sequences} == GROUP_SIZES[mode]


def test_chakra_runs_where_a_rank_has_one_transfer_under_way(chakra):
    """As ASTRA-sim does: the free node of the least number is taken and keeps the rank's one place for a send or a
    collective until that is over; sends are buffered, receives wait anywhere."""
    _, traces, groups, _ = chakra
    done = [set() for _ in traces]
    under_way = [None for _ in traces]
    sent = set()
    moved = True
    while moved:
        moved = False
        for rank, nodes in enumerate(traces):
            for node in [node for node in nodes if node.is_free(done[rank])]:
                a = node.attributes
                if node.type == COMM_COLL_NODE and under_way[rank] is None:
                    under_way[rank] = node
                    moved = True
                over = node.type == COMP_NODE
                over |= node.type == COMM_SEND_NODE and under_way[rank] is None
                over |= node.type == COMM_RECV_NODE and (a["comm_src"], rank, a["comm_tag"]) in sent
                if over:
                    if node.type == COMM_SEND_NODE:
                        sent.add((rank, a["comm_dst"], a["comm_tag"]))
                    done[rank].add(node.id)
                    moved = True
        for name, members in groups.items():
            nodes = [under_way[rank] for rank in members]
            if all(node is not None and node.attributes["pg_name"] == name for node in nodes):
                for rank in members:
                    done[rank].add(under_way[rank].id)
                    under_way[rank] = None
                moved = True
    assert [len(each) for each in done] == [len(nodes) for nodes in traces]


def test_chakra_is_written_once_and_only_where_asked(strata, experiment, tmp_path):
    words = ("program", experiment(), *ON_FOUR, "--format", "chakra")
    assert strata(None, *words, "--output", tmp_path / "new" / "traces").code == 0
    for output in (tmp_path / "new" / "traces", tmp_path / "e2e.toml"):
        ended = strata(None, *words, "--output", output)
        assert ended.code == 2
        assert "must be an empty folder" in ended.error
    for ended in (strata(None, *words), strata(None, *words[:-1], "goal", "--output", tmp_path / "x")):
        assert ended.code == 2
        assert "--output is for chakra" in ended.error
    assert not (tmp_path / "x").exists()


def test_a_goal_schedule_of_all_ranks(strata, experiment):
    ended = strata(None, "program", experiment(), *ON_FOUR, "--format", "goal")
    assert ended.code == 0, ended.error
    lines = ended.output.splitlines()
    assert lines[0] == "num_ranks 4"
    assert [line for line in lines if line.startswith("rank ")] == [f"rank {r} {{" for r in range(4)]
    kinds = {kind: sum(f": {kind} " in line for line in lines) for kind in ("calc", "send", "recv")}
    assert kinds["send"] == kinds["recv"] > 0
    assert kinds["calc"] > 100
