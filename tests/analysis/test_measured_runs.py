"""Tables of measured runs: columns by name in any order, and messages with file, line and column."""

import random
from pathlib import Path

import pytest
from runs_and_clusters import SMALL
from strata_analysis.load import LoadError
from strata_analysis.measured_runs import COUNTS, LARGEST_COUNT, parse_measured_runs, read_text

HEADER = ",".join((*COUNTS, "iteration_time_ms")) + "\n"


def error_of(text):
    with pytest.raises(LoadError) as caught:
        parse_measured_runs(text, "t.csv")
    return str(caught.value)


def test_rows_and_their_lines():
    text = f"# a remark\n\n{HEADER}16,32,1,64,4,8,128,2,2,4,12.5\r\n1,1,1,64,4,8,128,1,1,1,3e2\n"
    runs = parse_measured_runs(text, "t.csv")
    assert runs["quantity"].tolist() == ["iteration_time_ms"] * 2
    assert runs[list(COUNTS)].iloc[0].tolist() == [16, 32, 1, 64, 4, 8, 128, 2, 2, 4]
    assert runs["measured"].tolist() == [12.5, 300.0]
    assert runs["line"].tolist() == [4, 5]
    assert runs["virtual_stages"].tolist() == [1, 1]
    assert runs["sequence_parallel"].tolist() == ["no", "no"]
    assert not {"recomputation", "vocabulary_size"} & set(runs)


def test_columns_stand_in_any_order():
    text = (
        "activation_bytes,sequence_parallel,recomputation,virtual_stages,vocabulary_size,name,pipeline_parallelism,"
        "data_parallelism,tensor_parallelism,sequence_length,layers,attention_heads,hidden_size,micro_batch,"
        "global_batch,num_gpus\n1024,yes,full,2,512,a remark,4,2,2,128,8,4,64,1,32,16\n"
    )
    run = parse_measured_runs(text, "t.csv").iloc[0]
    assert run["quantity"] == "activation_bytes"
    assert run["measured"] == 1024
    assert run["sequence_parallel"] == "yes"
    assert run["recomputation"] == "full"
    assert run["virtual_stages"] == 2
    assert run["vocabulary_size"] == 512
    assert run["pipeline_parallelism"] == 4
    assert run["global_batch"] == 32


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            "8,32,1,64,4,8,128,2,2,4,12.5",
            "num_gpus: 8, but tensor_parallelism x data_parallelism x pipeline_parallelism = 2 x 2 x 4",
        ),
        ("1,1,1,64,4,8,128,1,1,1", "10 values under 11 columns"),
        ("1,1,one,64,4,8,128,1,1,1,3", 'micro_batch: "one" where an integer >= 1 is accepted'),
        ("1,1,1.5,64,4,8,128,1,1,1,3", 'micro_batch: "1.5"'),
        ("1,1,1_0,64,4,8,128,1,1,1,3", 'micro_batch: "1_0"'),
        ("1,1,,64,4,8,128,1,1,1,3", "micro_batch: empty; accepted: an integer >= 1"),
        ("1,1,0,64,4,8,128,1,1,1,3", "micro_batch: 0 is out of range; accepted: 1 to 2000000"),
        ("1,1,99999999,64,4,8,128,1,1,1,3", "micro_batch: 99999999 is out of range"),
        ("1,1,1,64,4,8,128,1,1,1,0", "iteration_time_ms: 0 is out of range; accepted: a finite number > 0"),
        ("1,1,1,64,4,8,128,1,1,1,nan", "iteration_time_ms: nan"),
        ("1,1,1,64,4,8,128,1,1,1,inf", "iteration_time_ms: inf"),
        ("1,1,1,64,4,8,128,1,1,1,1e999", "iteration_time_ms: 1e999"),
        ("1,1,1,64,4,8,128,1,1,1,1 s", 'iteration_time_ms: "1 s" where a number > 0 is accepted'),
    ],
)
def test_bad_rows_are_named(cells, message):
    assert error_of(f"{HEADER}{cells}\n").startswith(f"t.csv:2: {message}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 0}, "layers: 0"),
        ({"data_parallelism": LARGEST_COUNT + 1}, "data_parallelism: 2000001 is out of range"),
        (
            {"data_parallelism": 3, "num_gpus": 3},
            "global_batch: 64 is no multiple of micro_batch x data_parallelism = 4 x 3",
        ),
        ({"hidden_size": 257}, "hidden_size: 257 is no multiple of attention_heads = 8"),
        ({"tensor_parallelism": 3, "num_gpus": 3}, "attention_heads: 8 is no multiple of tensor_parallelism = 3"),
        (
            {"pipeline_parallelism": 5, "num_gpus": 5},
            "layers: 12 is no multiple of pipeline_parallelism x virtual_stages = 5 x 1",
        ),
        ({"virtual_stages": 2}, "virtual_stages: 2 with one stage"),
        ({"recomputation": "some"}, 'recomputation: "some" where none, selective or full is accepted'),
        ({"sequence_parallel": "1"}, 'sequence_parallel: "1" where yes or no is accepted'),
    ],
)
def test_contradictions_are_named(changes, message):
    def text(run):
        run = run | {"iteration_time_ms": 1}
        return "".join(",".join(map(str, line)) + "\n" for line in (run, run.values()))

    assert len(parse_measured_runs(text(SMALL), "t.csv")) == 1
    assert error_of(text(SMALL | changes)).startswith(f"t.csv:2: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.csv: no rows"),
        (HEADER, "t.csv: no rows"),
        ("ELF\0", "t.csv: not a text file"),
        ("num_gpuz,layers\n", 't.csv:1: num_gpuz: unknown column; did you mean "num_gpus"?; accepted: num_gpus, '),
        ("layers,layers\n", "t.csv:1: layers: a column of this name stands before it"),
        ("num_gpus,layers\n", "t.csv:1: global_batch: missing column"),
        (f"activation_bytes,{HEADER}", "t.csv:1: the measured quantity: 2 columns; accepted: one of"),
        (",".join(COUNTS), "t.csv:1: the measured quantity: 0 columns"),
    ],
)
def test_bad_headers_are_named(text, message):
    assert error_of(text).startswith(message)


def test_what_cannot_be_read_is_named(tmp_path):
    for path in (tmp_path, tmp_path / "absent.csv"):
        with pytest.raises(LoadError, match=rf"{path}: cannot be read: "):
            read_text(path)


TABLE = Path(__file__).parents[2] / "experiments" / "validation" / "korthikanti_2022_table_5.csv"


def test_whatever_the_bytes_a_table_is_read_or_refused_with_its_place(tmp_path):
    pieces = [
        b",",
        b"\n",
        b"#",
        b'"',
        b"-1",
        b"0",
        b"1e9",
        b"9" * 30,
        b"inf",
        b"\xff",
        b"\0",
        b"\xc2\xb2",
        b"hidden_size",
    ]
    drawn = random.Random(1)
    content, file, num_read = TABLE.read_bytes(), tmp_path / "t.csv", 0
    for _ in range(500):
        begin = drawn.randrange(len(content))
        file.write_bytes(content[:begin] + drawn.choice(pieces) + content[begin + drawn.randrange(3) :])
        try:
            runs = parse_measured_runs(read_text(file), "t.csv")
        except LoadError as error:
            assert str(error).startswith("t.csv:")
        else:
            assert (runs["measured"] > 0.0).all()
            num_read += 1
    assert 0 < num_read < 500
