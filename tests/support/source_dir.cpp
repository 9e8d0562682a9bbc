#include "support/source_dir.hpp"

namespace strata::test {

std::string source_dir() { return STRATA_SOURCE_DIR; }

}  // namespace strata::test
