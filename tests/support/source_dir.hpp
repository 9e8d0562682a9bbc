#pragma once

/// @file
/// Where the sources lie, for tests that read what ships with them: experiments, goldens, the schema of results.

#include <string>

namespace strata::test {

/// The folder of the repository, absolute, without a slash behind it.
std::string source_dir();

}  // namespace strata::test
