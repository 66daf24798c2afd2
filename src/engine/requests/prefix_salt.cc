#include "engine/requests/prefix_salt.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "engine/requests/adapter_pool.h"

namespace penstock {
namespace {

// K and V depend on the RoPE frequencies.
std::string with_kind(std::string salt, bool is_long) {
  salt += std::string_view("\n\0rope ", 7);
  return salt += is_long ? "long" : "short";
}

}  // namespace

int reach_of(size_t n_prompt, int max_tokens, const EngineInfo& info) {
  return static_cast<int>(
      std::min<int64_t>(static_cast<int64_t>(n_prompt) + max_tokens, info.max_model_len));
}

bool takes_long_rope(int reach, const EngineInfo& info) {
  return info.short_rope_len > 0 && reach > info.short_rope_len;
}

// K and V depend on the adapter.
std::string prefix_salt(const Request& request, int reach, const EngineInfo& info) {
  std::string salt = request.cache_salt;
  if (request.adapter != nullptr) {
    salt += fmt::format("\n{}{:016x}", std::string_view("\0adapter ", 9),
                        request.adapter->fingerprint());
  }
  return info.short_rope_len > 0 ? with_kind(std::move(salt), takes_long_rope(reach, info)) : salt;
}

std::vector<std::string> prefix_salts(const std::string& cache_salt, const EngineInfo& info) {
  if (info.short_rope_len == 0) return {cache_salt};
  return {with_kind(cache_salt, false), with_kind(cache_salt, true)};
}

}  // namespace penstock
