/// @file
/// Every rule of verify(Program), broken on purpose in a Program that is otherwise right: the message names the
/// instruction and what is wrong with it.

#include <gmock/gmock.h>

#include <functional>

#include "handmade_program.hpp"

namespace strata::test_program_rules {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Both streams, a wait in each direction, a persistent buffer, and a workspace.
Program good() {
  Handmade draft(0, 2);
  const int data = draft.group("data", {0, 1});
  const int weight = draft.buffer("weight", 16, true);
  const int gradient = draft.buffer("gradient", 16);
  const int other = draft.buffer("other", 96);
  const int scratch = draft.buffer("scratch", 100, false, DType::u8, Category::workspace);
  draft.kernel(compute, -1, gradient, "backward").allocs = {gradient};
  draft.collective(Collective::all_reduce, data, gradient, "bucket").waits = {{0, 0}};
  Instruction& beside = draft.kernel(compute, -1, other, "beside");
  beside.workspace = scratch;
  beside.allocs = {scratch, other};
  beside.frees = {scratch, other};
  Instruction& update = draft.kernel(compute, gradient, weight, "update");
  update.waits = {{1, 0}};
  update.frees = {gradient};
  assign_addresses(draft.program);
  return draft.program;
}

TEST(ProgramOrder, AcceptsWhatIsRight) { EXPECT_EQ(complaint(good()), ""); }

struct BrokenRule {
  std::string name;
  std::function<void(Program&)> breaks;
  std::string where;  ///< of the message: the instruction
  std::string what;
};

void PrintTo(const BrokenRule& rule, std::ostream* out) { *out << rule.name; }

class ProgramRules : public testing::TestWithParam<BrokenRule> {};

TEST_P(ProgramRules, NamesTheBrokenRule) {
  Program program = good();
  GetParam().breaks(program);
  EXPECT_THAT(complaint(program),
              AllOf(HasSubstr("program of rank 0: "), HasSubstr(GetParam().where), HasSubstr(GetParam().what)));
}

const std::vector<BrokenRule> broken_rules = {
    {"stream", [](Program& p) { p.body[2].stream = 2; }, "body #2 fill of beside", "no such stream"},
    {"input_buffer", [](Program& p) { p.body[3].inputs[0].buffer = 4; }, "body #3 copy of update", "no such buffer"},
    {"output_buffer", [](Program& p) { p.body[3].outputs[0].buffer = -1; }, "body #3 copy of update", "no such buffer"},
    {"elements", [](Program& p) { p.body[3].inputs[0].begin = 1; }, "body #3 copy of update",
     "elements [1, 17) of gradient, which has 16"},
    {"elements_before", [](Program& p) { p.body[3].inputs[0].begin = -1; }, "body #3", "elements [-1, 15)"},
    {"step_behind_the_body", [](Program& p) { p.body[3].step = 1; }, "body #3 copy of update",
     "training step 1 in a body of 1"},
    {"collective_in_the_prologue", [](Program& p) { p.prologue = {p.body[1]}; }, "prologue #0 all_reduce of bucket",
     "a collective in the prologue"},
    {"workspace", [](Program& p) { p.body[2].workspace = 9; }, "body #2 fill of beside", "no such workspace"},
    {"allocated_buffer", [](Program& p) { p.body[2].allocs.push_back(4); }, "body #2 fill of beside",
     "allocates a buffer that does not exist"},
    {"freed_buffer", [](Program& p) { p.body[2].frees.push_back(-1); }, "body #2 fill of beside",
     "frees a buffer that does not exist"},
    {"wait_for_itself",
     [](Program& p) {
       p.body[3].waits = {{3, 0}};
     },
     "body #3", "dangling wait for #3"},
    {"wait_for_later",
     [](Program& p) {
       p.body[1].waits = {{2, 0}};
     },
     "body #1 all_reduce of bucket", "dangling wait for #2"},
    {"wait_before_the_first",
     [](Program& p) {
       p.body[3].waits = {{-1, 0}};
     },
     "body #3", "dangling wait for #-1"},
    {"wait_behind_the_last",
     [](Program& p) {
       p.body[3].waits.push_back({4, 1});
     },
     "body #3", "dangling wait for #4@-1"},
    {"wait_before_the_first_of_an_earlier_body",
     [](Program& p) {
       p.body[3].waits.push_back({-1, 1});
     },
     "body #3", "dangling wait for #-1@-1"},
    {"wait_for_a_coming_body",
     [](Program& p) {
       p.body[3].waits.push_back({0, -1});
     },
     "body #3", "dangling wait for #0"},
    {"lag_where_nothing_repeats",
     [](Program& p) {
       p.prologue = {{.kernel = Kernel::fill, .name = "start", .outputs = {{0, 0, 16}}, .waits = {{0, 1}}}};
     },
     "prologue #0 fill of start", "dangling wait for #0@-1"},
    {"group", [](Program& p) { p.body[1].group = 1; }, "body #1 all_reduce of bucket", "no such group"},
    {"no_group", [](Program& p) { p.body[1].group = -1; }, "body #1 all_reduce of bucket", "no such group"},
    {"member",
     [](Program& p) {
       p.groups[0].ranks = {1, 2};
     },
     "body #1", "this rank is not a member of the group"},
    {"twice_a_member",
     [](Program& p) {
       p.groups[0].ranks = {0, 0};
     },
     "body #1", "not a member"},
    {"two_tensors_reduced",
     [](Program& p) {
       p.body[1].inputs.push_back(p.body[1].inputs[0]);
       p.body[1].outputs.push_back(p.body[1].outputs[0]);
     },
     "body #1 all_reduce of bucket", "several tensors in a collective that takes one"},
    {"an_output_too_few",
     [](Program& p) {
       p.body[1].collective = Collective::broadcast;
       p.body[1].inputs.push_back(p.body[1].inputs[0]);
     },
     "body #1 broadcast of bucket", "several tensors, not each with an input and an output"},
    {"a_root_too_few",
     [](Program& p) {
       p.body[1].collective = Collective::broadcast;
       p.body[1].inputs.push_back(p.body[1].inputs[0]);
       p.body[1].outputs.push_back(p.body[1].outputs[0]);
       p.body[1].roots = {0};
     },
     "body #1 broadcast of bucket", "not as many roots as tensors"},
    {"one_of_the_roots",
     [](Program& p) {
       p.body[1].collective = Collective::broadcast;
       p.body[1].roots = {2};
     },
     "body #1 broadcast of bucket", "a root outside of the group"},
    {"roots_of_a_gather",
     [](Program& p) {
       p.body[1].collective = Collective::all_gather;
       p.body[1].roots = {0};
     },
     "body #1 all_gather of bucket", "roots of a collective that has none"},
    {"root", [](Program& p) { p.body[1].root = 2; }, "body #1", "root or peer outside of the group"},
    {"itself_as_peer",
     [](Program& p) {
       p.body[1].collective = Collective::send;
       p.body[1].root = 0;
     },
     "body #1 send of bucket", "its peer is itself"},
    {"collective_of_nothing",
     [](Program& p) {
       p.body[1].inputs.clear();
       p.body[1].outputs.clear();
     },
     "body #1", "a collective without operands"},
    {"too_few_inputs", [](Program& p) { p.body[3].inputs.clear(); }, "body #3 copy of update",
     "0 inputs where (x) are expected"},
    {"too_many_outputs", [](Program& p) { p.body[3].outputs.push_back(p.body[3].outputs[0]); }, "body #3",
     "2 outputs where (y) are expected"},
    {"too_many_optional_inputs",
     [](Program& p) {
       p.body[3].kernel = Kernel::linear_forward;
       p.body[3].inputs.assign(4, p.body[3].inputs[0]);
     },
     "body #3 linear_forward of update", "4 inputs where (x,weight,bias?) are expected"},
    {"allocated_twice", [](Program& p) { p.body[3].allocs = {1}; }, "body #3",
     "gradient is allocated twice or is persistent"},
    {"persistent_allocated", [](Program& p) { p.body[3].allocs = {0}; }, "body #3",
     "weight is allocated twice or is persistent"},
    {"persistent_freed", [](Program& p) { p.body[3].frees.push_back(0); }, "body #3",
     "weight is persistent and is freed"},
    {"used_before_alloc",
     [](Program& p) {
       p.body[0].allocs.clear();
       p.body[1].allocs = {1};
     },
     "body #0 fill of backward", "gradient is used before it is allocated or after it is freed"},
    {"used_after_free",
     [](Program& p) {
       p.body[3].frees.clear();
       p.body[1].frees = {1};
     },
     "body #3 copy of update", "gradient is used before it is allocated or after it is freed"},
    {"workspace_after_free", [](Program& p) { p.body[3].workspace = 3; }, "body #3", "scratch is used before"},
    {"freed_twice",
     [](Program& p) {
       p.body[3].frees = {1, 1};
     },
     "body #3", "gradient is used before"},
    {"never_freed", [](Program& p) { p.body[3].frees.clear(); }, "body", "never frees gradient"},
    {"race_read", [](Program& p) { p.body[3].waits.clear(); }, "body #3 copy of update",
     "not ordered after #1, which touches the same bytes (gradient and gradient)"},
    {"race_write", [](Program& p) { p.body[1].waits.clear(); }, "body #1 all_reduce of bucket",
     "not ordered after #0, which touches the same bytes (gradient and gradient)"},
    {"alive_at_one_address", [](Program& p) { p.buffers[2].offset_bytes = p.buffers[1].offset_bytes; },
     "body #2 fill of beside", "other and gradient are alive at one address"},
    {"overlap_from_below",
     [](Program& p) {
       p.arena_bytes = 2048;
       p.buffers[1].offset_bytes = 1536;
       p.buffers[2].offset_bytes = 1280;
     },
     "body #2 fill of beside", "other and gradient are alive at one address"},
    {"workspace_over_its_output", [](Program& p) { p.buffers[3].offset_bytes = p.buffers[2].offset_bytes; },
     "body #2 fill of beside", "other and scratch are alive at one address"},
    {"over_a_persistent", [](Program& p) { p.buffers[1].offset_bytes = 0; }, "body #0 fill of backward",
     "gradient and weight are alive at one address"},
    {"persistent_over_persistent", [](Program& p) { p.buffers[1] = p.buffers[0]; }, "",
     "persistent buffers weight and weight share an address"},
    {"reused_by_another_stream_too_early",
     [](Program& p) {
       // `other` dies on compute in #2; a collective that nothing orders behind it takes its place.
       Handmade late(0, 2);
       late.program = p;
       const int quick = late.buffer("quick", 32);
       Instruction& in = late.collective(Collective::recv, 0, quick, "quick", 1);
       in.allocs = {quick};
       in.frees = {quick};
       p = late.program;
       p.buffers[4].offset_bytes = p.buffers[2].offset_bytes;
     },
     "body #4 recv of quick", "not ordered after #2, which touches the same bytes (quick and other)"},
    {"read_before_written", [](Program& p) { p.body[0].outputs[0].num_elements = 15; }, "body #1 all_reduce of bucket",
     "gradient is read before it is written"},
    {"added_to_before_written", [](Program& p) { p.body[2].attributes.set("accumulate", 1); }, "body #2 fill of beside",
     "other is read before it is written"},
    {"unaligned", [](Program& p) { p.buffers[1].offset_bytes += 4; }, "buffer gradient", "has no place in the arena"},
    {"without_address", [](Program& p) { p.buffers[1].offset_bytes = -1; }, "gradient", "has no place in the arena"},
    {"behind_the_arena", [](Program& p) { p.arena_bytes -= 4; }, "buffer ", "has no place in the arena"},
    {"stream_names", [](Program& p) { p.streams[1] = "compute"; }, "", "two streams are named compute"},
    {"group_names", [](Program& p) { p.groups.push_back(p.groups[0]); }, "", "two groups are named data"},
};

INSTANTIATE_TEST_SUITE_P(, ProgramRules, testing::ValuesIn(broken_rules),
                         [](const auto& instance) { return instance.param.name; });

TEST(ProgramOrder, AWaitThroughAThirdInstructionOrdersToo) {
  Handmade draft(0, 2);
  const int data = draft.group("data", {0, 1});
  const int a = draft.buffer("a", 16);
  const int b = draft.buffer("b", 16);
  draft.kernel(compute, -1, a, "first").allocs = {a};
  Instruction& receive = draft.collective(Collective::recv, data, b, "between", 1);
  receive.allocs = {b};
  receive.waits = {{0, 0}};
  draft.collective(Collective::all_reduce, data, a, "last").frees = {a, b};
  assign_addresses(draft.program);
  EXPECT_EQ(complaint(draft.program), "");
  draft.program.body[1].waits.clear();
  EXPECT_THAT(complaint(draft.program), HasSubstr("body #2 all_reduce of last: not ordered after #0"));
}

TEST(ProgramOrder, ReadersOfOneBufferNeedNoOrder) {
  Handmade draft(0, 2);
  const int data = draft.group("data", {0, 1});
  const int weight = draft.buffer("weight", 16, true);
  draft.initialize(weight);
  const int result = draft.buffer("result", 16);
  Instruction& read = draft.kernel(compute, weight, result, "read");
  read.allocs = {result};
  read.frees = {result};
  Instruction& send = draft.collective(Collective::send, data, weight, "send", 1);
  assign_addresses(draft.program);
  EXPECT_EQ(complaint(draft.program), "");
  send.collective = Collective::recv;
  send.outputs = send.inputs;
  send.inputs.clear();
  EXPECT_THAT(complaint(draft.program), HasSubstr("body #1 recv of send: not ordered after #0"));
}

TEST(ProgramOrder, PartsOfOneBufferThatDoNotMeetNeedNoOrder) {
  Handmade draft(0, 2);
  const int data = draft.group("data", {0, 1});
  const int both = draft.buffer("both", 16, true);
  draft.initialize(both);
  draft.kernel(compute, -1, both, "front").outputs[0] = {both, 0, 8};
  Instruction& back = draft.collective(Collective::all_reduce, data, both, "back");
  back.inputs[0] = back.outputs[0] = {both, 8, 8};
  assign_addresses(draft.program);
  EXPECT_EQ(complaint(draft.program), "");
  back.inputs[0] = back.outputs[0] = {both, 7, 9};
  EXPECT_THAT(complaint(draft.program), HasSubstr("body #1 all_reduce of back: not ordered after #0"));
}

}  // namespace
}  // namespace strata::test_program_rules
