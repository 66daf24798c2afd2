#include "engine/requests/prefix_salt.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/requests/adapter_pool.h"

namespace penstock {
namespace {

// K and V depend on the adapter. What is added is there without one too, so that no cache_salt, which
// may be any text, says what an adapter says.
std::string with_adapter(std::string salt, const Adapter* adapter) {
  salt += "\nadapter ";
  return salt += adapter == nullptr ? "none" : fmt::format("{:016x}", adapter->fingerprint());
}

// K and V depend on the RoPE frequencies.
std::string with_kind(std::string salt, bool is_long) {
  return salt += is_long ? "\nrope long" : "\nrope short";
}

}  // namespace

int reach_of(size_t n_prompt, int max_tokens, const EngineInfo& info) {
  return static_cast<int>(
      std::min<int64_t>(static_cast<int64_t>(n_prompt) + max_tokens, info.max_model_len));
}

bool takes_long_rope(int reach, const EngineInfo& info) {
  return info.short_rope_len > 0 && reach > info.short_rope_len;
}

std::string prefix_salt(const Request& request, int reach, const EngineInfo& info) {
  std::string salt = with_adapter(request.cache_salt, request.adapter.get());
  return info.short_rope_len > 0 ? with_kind(std::move(salt), takes_long_rope(reach, info)) : salt;
}

std::vector<std::string> prefix_salts(const std::string& cache_salt, const EngineInfo& info) {
  const std::string salt = with_adapter(cache_salt, nullptr);
  if (info.short_rope_len == 0) return {salt};
  return {with_kind(salt, false), with_kind(salt, true)};
}

}  // namespace penstock
