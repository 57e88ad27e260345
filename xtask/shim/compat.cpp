// The one Darwin symbol that mlx-rs calls (`random::RandomState::new` seeds its default key from it).
// Linked into libmlxc.so on Linux.
#include <chrono>
#include <cstdint>

extern "C" uint64_t mach_approximate_time(void) {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}
