// Progress of loading.
#pragma once
#include <cstdint>
#include <functional>

namespace penstock {

using LoadProgress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

}  // namespace penstock
