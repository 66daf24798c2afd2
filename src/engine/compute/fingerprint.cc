#include "engine/compute/fingerprint.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"
#include "draft/block_allocator.h"
#include "engine/compute/cache_types.h"

namespace penstock {
namespace {

// Version of a cache block's bytes. Increment it when they change.
constexpr int kBlockVersion = 2;

}  // namespace

uint64_t fingerprint_of(const WeightSource& source, const EngineConfig& config,
                        const char* backend) {
  std::string shape;
  for (const auto& [key, value] : source.config().items()) {
    if (!key.starts_with("tokenizer."))
      shape += key + value.dump();  // the tokenizer is large and does not affect K and V
  }
  BlockHash hash =
      root_hash(fmt::format("{} {} {} {} {} {}", kBlockVersion, backend, config.kv_cache_dtype,
                            config.block_size, config.batch_invariant, shape));
  // Two numbers, so that this differs from every chain of single numbers below.
  if (state_dtype(config.mamba_ssm_cache_dtype).value_or(StateDType::kF32) == StateDType::kBF16)
    hash = chain_hash(hash, std::array{TokenId{0}, TokenId{2}});
  if (!config.quantize.empty()) {
    const std::vector<TokenId> name(config.quantize.begin(), config.quantize.end());
    hash = chain_hash(chain_hash(hash, std::array{TokenId{0}, TokenId{3}}), name);
  }
  // A block's content is the concatenation of all ranks' parts.
  if (config.tensor_parallel_size > 1)
    hash = chain_hash(hash, std::array{TokenId{config.tensor_parallel_size}});
  if (config.tensor_parallel_size > 1 && config.rank_wire_dtype != "f32")
    hash = chain_hash(hash, std::array{TokenId{1}});
  if (config.pipeline_parallel_size > 1)
    hash = chain_hash(hash, std::array{TokenId{-config.pipeline_parallel_size}});
  constexpr size_t kEnd = 64;
  for (const TensorInfo& tensor : source.tensors()) {  // read ahead in the order of the file
    const size_t n = std::min(tensor.bytes.size(), kEnd);
    source.read_ahead({tensor.bytes.first(n)});
    source.read_ahead({tensor.bytes.last(n)});
  }
  for (const TensorInfo& tensor : source.tensors()) {
    const size_t n = std::min(tensor.bytes.size(), kEnd);
    const auto text = [&](size_t from) {
      return std::string_view(reinterpret_cast<const char*>(tensor.bytes.data()) + from, n);
    };
    for (const std::string_view part :
         {std::string_view(tensor.name), text(0), text(tensor.bytes.size() - n)}) {
      const BlockHash of_part = root_hash(part);
      const TokenId words[4] = {
          static_cast<TokenId>(of_part.low), static_cast<TokenId>(of_part.low >> 32),
          static_cast<TokenId>(of_part.high), static_cast<TokenId>(of_part.high >> 32)};
      hash = chain_hash(hash, words);
    }
  }
  return hash.low ^ hash.high;
}

}  // namespace penstock
