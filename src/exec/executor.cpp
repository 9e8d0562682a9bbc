#include "exec/executor.hpp"

namespace strata {

StepMeasurement run_step(Executor& executor, const StepContext& context) {
  executor.submit({&context, 1});
  executor.drain();
  return executor.complete(context.step);
}

}  // namespace strata
