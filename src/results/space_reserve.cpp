/// @file
/// Space is reserved with fallocate(2) beyond the end of a file, whose length stays.

#include "results/space_reserve.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace strata::results {

void SpaceReserve::claim(std::int64_t end, std::int64_t bytes) {
  if (step_bytes_ == 0) {
    return;
  }
  for (const std::int64_t length : {std::max(bytes, step_bytes_), bytes}) {  // a small rest of a disk will do
    if (::fallocate(file_.get(), FALLOC_FL_KEEP_SIZE, end, length) == 0) {
      return;
    }
    if (errno == EOPNOTSUPP || errno == ENOSYS) {
      step_bytes_ = 0;
      return;
    }
  }
  throw_file_error(file_.path(), errno, "claiming space for");
}

bool SpaceReserve::release() const noexcept {
  const off_t size = ::lseek(file_.get(), 0, SEEK_END);
  return size >= 0 && ::ftruncate(file_.get(), size) == 0;
}

}  // namespace strata::results
