#pragma once

/// @file
/// The words a plan may hold where the field is text: one list each, read by verify and by the parser.

#include <string_view>

#include "ir/plan/schedule_kind.hpp"

namespace strata::plan_words {

constexpr std::string_view axes = "data | tensor | stage | micro_batch | p0 | p1 | p2 | tmp";
constexpr std::string_view placement = "block | leaf-first | zero-ring | pyramid";
#define STRATA_WORD_BEHIND(name, word) " | " word
constexpr std::string_view schedule_kind =
    std::string_view(STRATA_SCHEDULES(STRATA_WORD_BEHIND) STRATA_SCHEDULES_OF_PLANS(STRATA_WORD_BEHIND)).substr(3);
#undef STRATA_WORD_BEHIND
constexpr std::string_view fresh = "none | v2";  // or a table
constexpr std::string_view gradient_sum = "inside | after";
constexpr std::string_view parameter_spread = "relay | direct";
constexpr std::string_view ring_shift = "free | paced | begun";
constexpr std::string_view ring_updater = "last | first_user";
constexpr std::string_view cut_by = "flops | flops_paper | operators | parameters";
constexpr std::string_view cut_at = "block | operator";
constexpr std::string_view slice_state = "dp | sdp | zdp";
constexpr std::string_view algorithm = "local | summa | ring";
constexpr std::string_view sum = "scatter | all_reduce";
constexpr std::string_view recompute = "none | block | after_communication | whole_block";
constexpr std::string_view all_reduce = "none | backward";
constexpr std::string_view gather = "none | next_layer";
constexpr std::string_view gather_backward = "none | next_module";
constexpr std::string_view reduce_scatter = "none | grad_input";
constexpr std::string_view broadcast = "none | next_forward";
constexpr std::string_view update = "none | backward";
constexpr std::string_view overlapped_layout = "none | weight_gradient";
constexpr std::string_view overlapped_panels = "none | next_product";
constexpr std::string_view replica_stream = "shared | own";
constexpr std::string_view optimizer_kind = "sgd | adam | adamw";
constexpr std::string_view optimizer_sharding = "intra_tensor | inter_tensor";
constexpr std::string_view optimizer_spread = "all_gather | broadcast";
constexpr std::string_view optimizer_gradients = "all_reduce | reduce_scatter";
constexpr std::string_view gathered_after_recompute = "keep | regather";
constexpr std::string_view compute_dtype = "f32 | bf16";
constexpr std::string_view quantized_weights = "none | int8";
constexpr std::string_view quantized_gradients = "none | int8 | int4";

}  // namespace strata::plan_words
