#include "base/error_kind.hpp"

#include "base/error.hpp"

namespace strata {

ErrorKind kind_of(const std::exception& error) {
  const auto is = [&]<typename T>() { return dynamic_cast<const T*>(&error) != nullptr; };
  if (is.operator()<LaunchMismatch>()) return ErrorKind::launch_mismatch;  // before the type that it is derived from
  if (is.operator()<UserError>()) return ErrorKind::user_error;
  if (is.operator()<Unsupported>()) return ErrorKind::unsupported;
  if (is.operator()<OutOfMemory>()) return ErrorKind::out_of_memory;
  if (is.operator()<CommunicationError>()) return ErrorKind::communication_error;
  return ErrorKind::internal_error;
}

void throw_error(ErrorKind kind, const std::string& message) {
  switch (kind) {
    case ErrorKind::user_error: throw UserError(message);
    case ErrorKind::launch_mismatch: throw LaunchMismatch(message);
    case ErrorKind::unsupported: throw Unsupported(message);
    case ErrorKind::out_of_memory: throw OutOfMemory(message);
    case ErrorKind::communication_error: throw CommunicationError(message);
    case ErrorKind::internal_error: break;
  }
  throw InternalError(message);
}

}  // namespace strata
