/// @file
/// The text of a Program reads back to the same Program, with every field set, and mistakes in it are named with their
/// line.

#include <fmt/core.h>
#include <gmock/gmock.h>

#include "handmade_program.hpp"

namespace strata::test_program_text {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Instruction& broadcast_of(Program& program) {
  return *std::ranges::find_if(
      program.body, [](const Instruction& in) { return in.is_collective() && in.collective == Collective::broadcast; });
}

/// Every kernel, every collective, every optional part of a line.
Program everything() {
  Handmade draft(2, 4);
  const int data = draft.group("data", {2, 0});
  const int all = draft.group("all.of-them", {0, 1, 2, 3});
  const int weight = draft.buffer("block[0].attn.qkv.weight", 100, true, DType::bf16, Category::parameter);
  Buffer& w = draft.program.buffers[static_cast<std::size_t>(weight)];
  w.parameter = "block[0].attn.qkv.weight";
  w.parameter_begin = 1 << 20;
  w.block = {.first = 20, .run = 10, .levels = {{3, 40}, {2, 400, 25}}};
  for (int c = 0; c < num_categories; ++c) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::i32, DType::u8}) {
      draft.buffer(fmt::format("b{}", c), 7 + c, c % 2 == 0, dtype, static_cast<Category>(c));
    }
  }
  for (int k = 1; k < num_kernels(); ++k) {
    Instruction& in = draft.kernel(k % 2, -1, 1, fmt::format("kernel {}", k));
    in.kernel = static_cast<Kernel>(k);
    in.phase = static_cast<Phase>(k % 7);
    in.micro_batch = k % 3;
    in.inputs = k % 4 == 0 ? std::vector<Operand>{} : std::vector<Operand>{{weight, 3, 5}, {2, 0, 7}, {3, 1, 6}};
    if (k % 5 == 0) in.outputs.clear();
    if (k % 2 == 0) in.attributes = {{"rows", std::int64_t{k}}, {"epsilon", 1e-5}, {"whole", 2.0}, {"tiny", 1e-300}};
    if (k % 3 == 0) in.workspace = 4;
    if (k % 4 == 1) in.allocs = {5, 6};
    if (k % 4 != 2) in.frees = {7};
    if (k % 6 == 0) in.waits = {{0, 0}, {k + 3, 1}, {2, 12}};
  }
  for (int kind = 0; kind < num_collectives; ++kind) {
    for (const Reduction reduction : {Reduction::sum, Reduction::max}) {
      const auto collective = static_cast<Collective>(kind);
      if (reduction == Reduction::max && !is_reduction(collective)) continue;
      const bool rooted = kind >= static_cast<int>(Collective::broadcast);
      draft.collective(collective, kind % 2 == 0 ? data : all, 1, "bucket[3]", rooted ? 1 : 0).reduction = reduction;
    }
  }
  Instruction& together = broadcast_of(draft.program);
  together.root = 0;
  together.roots = {3, 1};
  together.inputs = together.outputs = {{1, 0, 7}, {5, 2, 3}};
  draft.program.body.back().pieces = {.input = {0, 3, 7}, .output = {0, 0, 9}, .longest = 9};
  draft.program.body[draft.program.body.size() - 2].pieces = {.input = {}, .output = {0, 5}, .longest = 5};
  draft.program.prologue = {draft.program.body[3], draft.program.body[4]};
  draft.program.body[6].step = -2;
  draft.program.join = false;
  draft.program.steps_per_body = 3;
  draft.program.loss_buffer = 5;
  draft.program.norm_buffer = 6;
  draft.program.arena_bytes = std::int64_t{1} << 40;
  return draft.program;
}

TEST(ProgramText, EveryFieldReadsBack) {
  const Program program = everything();
  EXPECT_EQ(parse_program(to_text(program)), program);
  EXPECT_EQ(to_text(parse_program(to_text(program))), to_text(program));
}

TEST(ProgramText, EveryFieldIsInTheText) {
  // Two Programs that differ in one field only must not print alike.
  const Program program = everything();
  const std::string text = to_text(program);
  const auto differs = [&](const char* field, const auto& change) {
    Program other = program;
    change(other);
    EXPECT_NE(to_text(other), text) << field;
    EXPECT_EQ(parse_program(to_text(other)), other) << field;
  };
  differs("rank", [](Program& p) { p.rank = 3; });
  differs("num_ranks", [](Program& p) { p.num_ranks = 5; });
  differs("loss_buffer", [](Program& p) { p.loss_buffer = 0; });
  differs("norm_buffer", [](Program& p) { p.norm_buffer = -1; });
  differs("arena_bytes", [](Program& p) { ++p.arena_bytes; });
  differs("stream name", [](Program& p) { p.streams[1] = "wire"; });
  differs("group name", [](Program& p) { p.groups[0].name = "tensor"; });
  differs("group ranks", [](Program& p) { std::swap(p.groups[0].ranks[0], p.groups[0].ranks[1]); });
  differs("buffer name", [](Program& p) { p.buffers[1].name = "x"; });
  differs("num_elements", [](Program& p) { ++p.buffers[20].num_elements; });
  differs("dtype", [](Program& p) { p.buffers[1].dtype = DType::u8; });
  differs("category", [](Program& p) { p.buffers[1].category = Category::workspace; });
  differs("persistent", [](Program& p) { p.buffers[1].persistent = !p.buffers[1].persistent; });
  differs("join", [](Program& p) { p.join = true; });
  differs("steps_per_body", [](Program& p) { p.steps_per_body = 1; });
  differs("step", [](Program& p) { p.body[6].step = 1; });
  differs("offset_bytes", [](Program& p) { p.buffers[1].offset_bytes = 640; });
  differs("parameter", [](Program& p) { p.buffers[1].parameter = "w"; });
  differs("parameter_begin", [](Program& p) { p.buffers[0].parameter_begin = 0; });
  differs("first element of a block", [](Program& p) { p.buffers[0].block.first = 0; });
  differs("block", [](Program& p) { p.buffers[0].block = {}; });
  differs("block of a weight that is no master", [](Program& p) { p.buffers[1].block = {1, 2, {{1, 3}}}; });
  differs("kernel", [](Program& p) { p.body[0].kernel = Kernel::copy; });
  differs("stream", [](Program& p) { p.body[0].stream = 1 - p.body[0].stream; });
  differs("phase", [](Program& p) { p.body[0].phase = Phase::metrics; });
  differs("micro_batch", [](Program& p) { p.body[0].micro_batch = 9; });
  differs("name", [](Program& p) { p.body[0].name = "another"; });
  differs("input", [](Program& p) { ++p.body[0].inputs[0].buffer; });
  differs("input range", [](Program& p) { ++p.body[0].inputs[0].begin; });
  differs("output", [](Program& p) { p.body[0].outputs[0] = {2, 0, 7}; });
  differs("workspace", [](Program& p) { p.body[0].workspace = 2; });
  differs("attributes", [](Program& p) { p.body[0].attributes.set("k", 1); });
  differs("integer and real", [](Program& p) { p.body[1].attributes.set("whole", 2); });
  differs("waits", [](Program& p) { p.body[5].waits[1].lag = 2; });
  differs("allocs", [](Program& p) { p.body[0].allocs = {6, 5}; });
  differs("frees", [](Program& p) { p.body[0].frees = {}; });
  const std::size_t first = program.body.size() - 11;  // the collectives: all_reduce sum and max first
  differs("collective", [&](Program& p) { p.body[first].collective = Collective::reduce_scatter; });
  differs("reduction", [&](Program& p) { p.body[first].reduction = Reduction::max; });
  differs("group", [&](Program& p) { p.body[first].group = 1; });
  differs("roots", [&](Program& p) { broadcast_of(p).roots[1] = 2; });
  differs("peer", [&](Program& p) { p.body.back().root = 0; });
  differs("pieces of an input", [&](Program& p) { p.body.back().pieces.input[1] = 4; });
  differs("pieces of an output", [&](Program& p) { p.body.back().pieces.output = {}; });
  differs("the longest piece", [&](Program& p) { p.body.back().pieces.longest = 10; });
  differs("a period of a block", [](Program& p) { p.buffers[0].block.levels[1].period = 26; });
}

TEST(ProgramText, LinesAreAsDocumented) {
  Handmade draft(0, 2);
  const int data = draft.group("data", {0, 1});
  const int x = draft.buffer("x", 8);
  const int y = draft.buffer("y", 8, true);
  draft.kernel(compute, x, y, "block[0].mlp.fc1").allocs = {x};
  Instruction& reduce = draft.collective(Collective::all_reduce, data, x, "gradients[0]");
  reduce.phase = Phase::reduce;
  reduce.waits = {{0, 0}};
  reduce.frees = {x};
  assign_addresses(draft.program);
  EXPECT_EQ(to_text(draft.program), R"(program rank 0 of 2 arena=288 loss=-1 norm=-1
stream compute
stream communication
group data 0 1
buffer %0 x 8 f32 activation at=256
buffer %1 y 8 f32 activation at=0 persistent
join
prologue
body
#0 compute copy %0 -> %1 | | forward mb0 block[0].mlp.fc1 | alloc %0
#1 communication all_reduce sum group=data %0 -> %0 | | reduce mb0 gradients[0] | free %0 | wait #0
)");
}

TEST(ProgramText, NothingButTheHead) {
  Program program;
  EXPECT_EQ(parse_program(to_text(program)), program);
}

TEST(ProgramText, ErrorsNameTheLineAndWhatIsAccepted) {
  // The text below ends with line 6; each case is line 7.
  const std::string head =
      "program rank 0 of 1 arena=0 loss=-1 norm=-1\nstream compute\ngroup data 0 1\nbuffer %0 x 4 f32 activation at=0\n"
      "buffer %1 y 4 f32 activation at=64\nbody\n";
  const auto message = [&](const std::string& line) -> std::string {
    try {
      parse_program(head + line);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message("#0 compute copy %0 -> %1 | elements=4 | forward mb0 x"), "no error");
  const std::pair<const char*, const char*> cases[] = {
      {"nonsense",
       "unknown word `nonsense`; accepted: program, stream, group, buffer, join, steps_per_body, prologue, body, "
       "#n"},
      {"buffer %2 z 4 f33 activation at=0", "unknown dtype `f33`; accepted: f32, bf16, i32, u8"},
      {"buffer %2 z 4 f32 activations at=0", "unknown category `activations`; accepted: parameter, gradient"},
      {"buffer %3 z 4 f32 activation at=0", "expected buffer %2"},
      {"buffer %2 z four f32 activation at=0", "`four` is not an integer"},
      {"buffer %2 z 4 f32 activation", "the line ends too early"},
      {"buffer %2 z 4 f32 activation at=0 of=w", "expected `of=parameter+first_element`"},
      {"#1 compute copy %0 -> %1 | | forward mb0 x", "expected instruction #0"},
      {"#0 computer copy %0 -> %1 | | forward mb0 x", "unknown stream `computer`"},
      {"#0 compute copies %0 -> %1 | | forward mb0 x", "unknown kernel or collective `copies`; accepted: all_reduce"},
      {"#0 compute all_reduce sum %0 -> %0 | | reduce mb0 x", "expected `group=…`, found `%0`"},
      {"#0 compute broadcast group=data roots=0,1 %0 -> %0 | | reduce mb0 x", "2 roots of 1 tensors"},
      {"#0 compute all_reduce sum group=dat %0 -> %0 | | reduce mb0 x", "unknown group `dat`"},
      {"#0 compute copy %0, %1 | | forward mb0 x", "expected `inputs -> outputs`"},
      {"#0 compute copy %7 -> %1 | | forward mb0 x", "no buffer %7"},
      {"#0 compute copy %0[1-3] -> %1 | | forward mb0 x", "`[1-3]` is not [begin:end]"},
      {"#0 compute copy %0 -> %1 | elements | forward mb0 x", "malformed attribute `elements`"},
      {"#0 compute copy %0 -> %1 | | forwards mb0 x", "unknown phase `forwards`; accepted: setup, forward, recompute"},
      {"#0 compute copy %0 -> %1 | | forward 0 x", "expected `mb…`, found `0`"},
      {"#0 compute copy %0 -> %1 | | forward mb0 x | waits #0",
       "unknown field `waits`; accepted: pieces, step, workspace, alloc"},
      {"#0 compute copy %0 -> %1 | | forward mb0 x | workspace", "the line ends too early"},
      {"#0 compute copy %0 -> %1 | | forward mb0 x | wait 0", "expected `#…`, found `0`"},
      {"#0 compute copy %0 -> %1 | | forward mb0 x | alloc #0", "expected `%…`, found `#0`"},
      {"#0 compute copy %0 -> %1 | | forward mb0 x | step 65", "`65` where a training step of -64 to 64 is accepted"},
      {"#0 compute copy %0 -> %1 | | forward mb0 x | wait #0@-65", "a lag of 65; accepted: 1 to 64"},
      {"steps_per_body 0", "a body of 0 training steps; accepted: 1 to 64"},
  };
  for (const auto& [line, expected] : cases) {
    EXPECT_THAT(message(line), AllOf(HasSubstr("program text, line 7: "), HasSubstr(expected))) << line;
  }
  try {
    parse_program("program rank 0 of 1 arena=0 loss=-1 norm=-1\nstream compute\n#0 compute fill -> %0 | | setup mb0 x");
    FAIL() << "an instruction must stand in a section";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("line 3: an instruction before `prologue` or `body`"));
  }
}

/// Of what adds and multiplies these numbers none leaves 64 bits, and none becomes another on its way into 32.
TEST(ProgramText, NumbersOutOfRangeAreNamedWithTheirLine) {
  const std::string head = "program rank 0 of 1 arena=0 loss=-1 norm=-1\nstream s\ngroup g 0 1\n";
  const std::string buffer = "buffer %0 b 8 f32 activation at=0\n";
  const auto refusal = [](const std::string& text) {
    try {
      parse_program(text);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refusal("program rank 4294967296 of 1 arena=0 loss=-1 norm=-1\n"),
              AllOf(HasSubstr("line 1"), HasSubstr("-1 to 2^30")));
  EXPECT_THAT(refusal(head + "buffer %0 b 9223372036854775807 f32 activation at=0\n"),
              AllOf(HasSubstr("line 4"), HasSubstr("-1 to 2^48")));
  std::string many = head;
  for (int i = 0; i <= 1024; ++i) {
    many += fmt::format("buffer %{} b{} 281474976710656 f32 parameter at=0 persistent\n", i, i);
  }
  EXPECT_THAT(refusal(many), AllOf(HasSubstr("line 1028"), HasSubstr("more than 2^60 bytes")));
  EXPECT_THAT(refusal(head + "buffer %0 b 8 f32 activation at=0 of=w+0 block=0+1,0*4,1*4\n"),
              AllOf(HasSubstr("line 4"), HasSubstr("a block")));
  EXPECT_THAT(refusal(head + buffer + "body\n#0 s fill -> %0[0:85 | | forward mb0 f\n"),
              AllOf(HasSubstr("line 6"), HasSubstr("[begin:end]")));
  EXPECT_THAT(refusal(head + buffer + "body\n#0 s all_reduce sum group=g root=1 %0 -> %0 | | reduce mb0 f\n"),
              HasSubstr("line 6"));
}

}  // namespace
}  // namespace strata::test_program_text
