/// @file
/// The engine's public calls check what they are given and hand it to the driver.

#include "comm/engine.hpp"

#include "comm/driver.hpp"

namespace strata::comm {

Engine::Engine(const World& world, const EngineOptions& options) : driver_(std::make_unique<Driver>(world, options)) {}
Engine::~Engine() = default;
int Engine::create_group(const std::vector<int>& world_ranks) { return driver_->create_group(world_ranks); }
Ticket Engine::post(const Request& request) { return driver_->post({&request, 1}); }
Ticket Engine::post(std::span<const Request> requests) { return driver_->post(requests); }
bool Engine::done(Ticket ticket) { return driver_->done(ticket); }
void Engine::wait(Ticket ticket) { driver_->wait(ticket); }
void Engine::wait_all() { driver_->wait_all(); }
void Engine::progress() { driver_->progress(); }
CompletedTimes Engine::times(Ticket ticket) const { return driver_->times(ticket); }
std::string Engine::transport_name(int group) const { return driver_->group(group).transport_name; }
bool Engine::has_thread() const { return driver_->has_thread(); }
std::int64_t Engine::memory_bytes() const { return driver_->memory_bytes(); }

}  // namespace strata::comm
