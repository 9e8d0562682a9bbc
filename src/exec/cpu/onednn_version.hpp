#pragma once

/// @file
/// The oneDNN library that runs, for the record.

#include <string>

namespace strata::cpu {

std::string onednn_version();

}  // namespace strata::cpu
