#include "ops/cuda/cuda_cache.h"

#include "kernels/attention_kernels.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/kernels/cache.h"
#include "ops/narrow_cache.h"

namespace penstock::cuda {
namespace {

static_assert(static_cast<int>(KvDType::kF32) == static_cast<int>(KvCode::kF32));
static_assert(static_cast<int>(KvDType::kF16) == static_cast<int>(KvCode::kF16));
static_assert(static_cast<int>(KvDType::kBF16) == static_cast<int>(KvCode::kBF16));
static_assert(static_cast<int>(KvDType::kI8) == static_cast<int>(KvCode::kI8));
static_assert(static_cast<int>(KvDType::kF8) == static_cast<int>(KvCode::kF8));
static_assert(static_cast<int>(KvDType::kI4) == static_cast<int>(KvCode::kI4));
static_assert(KvLayerOnDevice::kFactorFeatures == kFactorFeatures);

constexpr int kSpareBlocks = 1;  // receives writes of padding rows
constexpr int64_t kLayerAlign = 256;

// Bytes of a key's, or a value's, numbers.
int row_bytes_of(KvDType dtype, int n) {
  constexpr int kSizes[] = {4, 2, 2, 1, 1};
  return dtype == KvDType::kI4 ? (n + 15) / 16 * 8 : n * kSizes[static_cast<int>(dtype)];
}

// Adds the factors of 4-bit codes behind the scales.
void place_factors(const KvLayerSpec& layer, KvLayerOnDevice& made) {
  const KvUnitLayout on_cpu = KvUnitLayout::make(KvFormat::kI4, layer.head_dim,
                                                 layer.values_in_keys, layer.stored_value_dim);
  made.rotated = on_cpu.rotated, made.rotated_values = on_cpu.rotated_values;
  const bool stores_values = layer.values_in_keys == 0;
  const auto groups_of = [](int n) { return (n + kFactorFeatures - 1) / kFactorFeatures; };
  made.key_groups = groups_of(made.head_dim);
  made.value_groups = stores_values ? groups_of(made.value_dim) : made.key_groups;
  const int64_t rows = int64_t{layer.n_kv_heads} * made.unit_tokens;
  made.factors_at = made.unit_bytes;
  made.value_factors_at = made.factors_at + (stores_values ? rows * made.key_groups : 0);
  made.unit_bytes = (made.value_factors_at + rows * made.value_groups + 15) / 16 * 16;
}

KvLayerOnDevice layer_of(const CacheSpec& spec, const KvLayerSpec& layer, int n_blocks) {
  const int n_parts = layer.values_in_keys > 0 ? 1 : 2;
  KvLayerOnDevice made{};
  made.code = static_cast<KvCode>(spec.dtype);
  made.n_kv_heads = layer.n_kv_heads, made.head_dim = layer.head_dim,
  made.value_dim = layer.value_dim();
  made.row_bytes = row_bytes_of(spec.dtype, layer.head_dim);
  made.value_row_bytes = n_parts == 2 ? row_bytes_of(spec.dtype, made.value_dim) : made.row_bytes;
  made.every = layer.every;
  made.unit_tokens = layer.every > 1 ? spec.block_size / layer.every : KvLayerOnDevice::kUnitTokens;
  const int64_t rows = int64_t{layer.n_kv_heads} * made.unit_tokens;
  made.values_at = n_parts == 2 ? rows * made.row_bytes : 0;
  made.scales_at = rows * made.row_bytes + (n_parts == 2 ? rows * made.value_row_bytes : 0);
  const int64_t scales = made.has_scales() ? rows * int64_t{sizeof(float)} : 0;
  made.value_scales_at = made.scales_at + (n_parts == 2 ? scales : 0);
  made.unit_bytes = (made.scales_at + n_parts * scales + 15) / 16 * 16;
  if (made.is_narrow()) place_factors(layer, made);
  made.block_size = spec.block_size;
  made.spare_slot = n_blocks * spec.block_size;
  return made;
}

// Bytes of a block in a layer.
int64_t block_bytes_of(const CacheSpec& spec, const KvLayerOnDevice& layer) {
  return layer.unit_bytes * (layer.every > 1 ? 1 : spec.block_size / KvLayerOnDevice::kUnitTokens);
}

}  // namespace

Result<std::unique_ptr<CudaKvCache>> CudaKvCache::make(Device& device, const CacheSpec& spec,
                                                       std::span<const int> n_blocks) {
  constexpr int kUnit = KvLayerOnDevice::kUnitTokens;
  if (spec.block_size < kUnit || spec.block_size % kUnit != 0) {
    return errorf(ErrorCode::kInvalidArgument, "KV cache: block size {}: expected a multiple of {}",
                  spec.block_size, kUnit);
  }
  RETURN_IF_ERROR(check_narrow(spec));
  std::unique_ptr<CudaKvCache> cache(new CudaKvCache(device));
  cache->spec_ = spec;
  cache->n_blocks_.assign(n_blocks.begin(), n_blocks.end());
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
  const auto place = [&](int64_t size) {
    offsets.push_back(bytes);
    bytes += (size + kLayerAlign - 1) / kLayerAlign * kLayerAlign;
  };
  for (const KvLayerSpec& layer : spec.layers) {
    const int n = n_blocks[static_cast<size_t>(layer.group)];
    cache->layers_.push_back(layer_of(spec, layer, n));
    place((int64_t{n} + kSpareBlocks) * block_bytes_of(spec, cache->layers_.back()));
  }
  for (size_t i = 0; i < spec.state_values.size(); ++i)
    place(n_blocks[static_cast<size_t>(spec.state_group())] * spec.state_bytes(i));
  ASSIGN_OR_RETURN(cache->memory_, Memory::make(device, static_cast<size_t>(bytes)));
  auto* const memory = cache->memory_.as<std::byte>();
  for (size_t i = 0; i < spec.layers.size(); ++i) cache->layers_[i].data = memory + offsets[i];
  for (size_t i = spec.layers.size(); i < offsets.size(); ++i)
    cache->states_.push_back(memory + offsets[i]);
  return cache;
}

std::vector<CudaKvCache::Part> CudaKvCache::parts_of(int group, BlockId block) const {
  std::vector<Part> parts;
  const auto index = static_cast<int64_t>(block);
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (spec_.layers[i].group != group || spec_.layers[i].n_kv_heads == 0) continue;
    const int64_t bytes = block_bytes_of(spec_, layers_[i]);
    parts.push_back({layers_[i].data + index * bytes, static_cast<size_t>(bytes)});
  }
  if (group != spec_.state_group()) return parts;
  for (size_t i = 0; i < states_.size(); ++i) {
    const int64_t bytes = spec_.state_bytes(i);
    parts.push_back({states_[i] + index * bytes, static_cast<size_t>(bytes)});
  }
  return parts;
}

int64_t CudaKvCache::block_bytes(int group) const {
  int64_t total = 0;
  for (const Part& part : parts_of(group, BlockId(0))) total += static_cast<int64_t>(part.bytes);
  return total;
}

void CudaKvCache::read_block(int group, BlockId block, std::span<std::byte> out) const {
  for (const Part& part : parts_of(group, block)) {
    device_.copy_out(out.data(), part.data, part.bytes);
    out = out.subspan(part.bytes);
  }
}

void CudaKvCache::write_block(int group, BlockId block, std::span<const std::byte> bytes) {
  for (const Part& part : parts_of(group, block)) {
    device_.copy_in(part.data, bytes.data(), part.bytes);
    bytes = bytes.subspan(part.bytes);
  }
}

void CudaKvCache::copy_states(std::span<const int32_t> from, std::span<const int32_t> to) const {
  for (size_t i = 0; i < states_.size(); ++i) {
    const int64_t bytes = spec_.state_bytes(i);
    for (size_t j = 0; j < from.size(); ++j) {
      if (from[j] == to[j]) continue;
      device_.copy_within(states_[i] + to[j] * bytes, states_[i] + from[j] * bytes,
                          static_cast<size_t>(bytes));
    }
  }
}

Result<std::unique_ptr<KvCache>> CudaOps::make_cache(const CacheSpec& spec,
                                                     std::span<const int> n_blocks) {
  return CudaKvCache::make(*device_, spec, n_blocks);
}

void CudaOps::move_kv(KvCache& cache, int group, std::span<const int32_t> from,
                      std::span<const int32_t> to) {
  PENSTOCK_CHECK(from.size() == to.size());
  const auto& own = static_cast<const CudaKvCache&>(cache);
  if (from.empty()) return;
  if (group == cache.spec().state_group()) return own.copy_states(from, to);
  auto* const slots = scratch<int32_t>(2 * from.size());
  if (slots == nullptr) return;
  device_->copy_in(slots, from.data(), from.size_bytes());
  device_->copy_in(slots + from.size(), to.data(), to.size_bytes());
  for (size_t i = 0; i < cache.spec().layers.size(); ++i) {
    const KvLayerSpec& layer = cache.spec().layers[i];
    if (layer.group != group || layer.n_kv_heads == 0) continue;
    const auto n = static_cast<int>(from.size());
    launch(MoveKv{own.layer(static_cast<int>(i)), slots, slots + n, n}, Grid{layer.n_kv_heads});
  }
}

}  // namespace penstock::cuda
