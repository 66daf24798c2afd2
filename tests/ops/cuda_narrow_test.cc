// Keys and values of 4 bits in a device's cache: codes, factors and scales are those of the CPU's
// kernels, to the bit, and are moved with their tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kernels/attention_kernels.h"
#include "kernels/kernel_table.h"
#include "ops/ops_under_test.h"

#ifdef PENSTOCK_CUDA_EMULATION
#include "ops/cuda/cuda_cache.h"
#include "ops/cuda/kernels/narrow.h"

namespace penstock::cuda {
namespace {

struct NarrowHeads {
  int n_kv_heads, head_dim, values_in_keys = 0, value_dim = 0;
};

// A key or a value: codes times factors, and the scale.
struct StoredRow {
  std::vector<float> numbers;
  float scale;
  bool operator==(const StoredRow&) const = default;
};

class StoredOnDevice {
 public:
  static constexpr int kTokens = 40, kBlocks = 5;

  explicit StoredOnDevice(const NarrowHeads& heads) : heads_(heads) {
    spec_.layers.assign(1, {.n_kv_heads = heads.n_kv_heads,
                            .head_dim = heads.head_dim,
                            .values_in_keys = heads.values_in_keys,
                            .stored_value_dim = heads.value_dim});
    spec_.dtype = KvDType::kI4;
    const int n_blocks[] = {kBlocks};
    cache_ = ops_->make_cache(spec_, n_blocks).value();
    for (int i = 0; i < kTokens; ++i) slots_.push_back(i / 16 * 2 % 3 * 16 + i % 16);
    k_ = some_rows(spec_.layers[0].head_dim, 1);
    if (heads.values_in_keys == 0) v_ = some_rows(spec_.layers[0].value_dim(), 2);
    store();
  }

  // Of a token and head.
  StoredRow expected(int token, int head, bool of_key) const {
    const KvUnitLayout layout = layout_on_cpu(), wide = layout.widened();
    std::vector<std::byte> unit(static_cast<size_t>(layout.bytes)),
        widened(static_cast<size_t>(wide.bytes));
    const KernelTable& scalar = available_kernels()[0];
    const auto row = static_cast<size_t>(token * heads_.n_kv_heads + head);
    const auto* const v = v_.empty() ? nullptr : &v_[row * static_cast<size_t>(layout.value_dim)];
    scalar.attention->store[static_cast<int>(KvFormat::kI4)](
        layout, &k_[row * static_cast<size_t>(layout.head_dim)], v, unit.data(), 3);
    scalar.attention->widen(layout, wide, unit.data(), widened.data());
    StoredRow found{{}, 0.0f};
    std::copy_n(widened.data() + (of_key ? wide.k_scales : wide.v_scales) + 3 * sizeof(float),
                sizeof(float), reinterpret_cast<std::byte*>(&found.scale));
    for (int d = 0; d < (of_key ? layout.head_dim : layout.value_dim); ++d) {
      const int64_t at = of_key ? d / 4 * 64 + 3 * 4 + d % 4 : wide.v_offset + int64_t{d} * 4 + 3;
      found.numbers.push_back(static_cast<int8_t>(widened[static_cast<size_t>(at)]));
    }
    return found;
  }

  // Of a slot and head.
  StoredRow stored(int slot, int head, bool of_key) const {
    KvLayerOnDevice layer = static_cast<const CudaKvCache&>(*cache_).layer(0);
    std::vector<std::byte> bytes;
    const auto of_block = static_cast<size_t>(cache_->block_bytes(0));
    bytes.resize(of_block * kBlocks);
    for (uint32_t b = 0; b < kBlocks; ++b)
      cache_->read_block(0, BlockId(b), std::span(bytes).subspan(b * of_block, of_block));
    layer.data = bytes.data();
    StoredRow found{{}, of_key ? *layer.key_scale(slot, head) : *layer.value_scale(slot, head)};
    for (int d = 0; d < (of_key ? layer.head_dim : layer.value_dim); ++d)
      found.numbers.push_back(
          of_key ? narrow_number(layer.key(slot, head), layer.key_factors(slot, head), d)
                 : narrow_number(layer.value(slot, head), layer.value_factors(slot, head), d));
    return found;
  }

  bool has_values() const { return !v_.empty(); }
  int slot_of(int token) const { return slots_[static_cast<size_t>(token)]; }
  const CacheSpec& spec() const { return spec_; }
  KvCache& cache() { return *cache_; }
  Ops& ops() { return *ops_; }

 private:
  KvUnitLayout layout_on_cpu() const {
    return KvUnitLayout::make(KvFormat::kI4, heads_.head_dim, heads_.values_in_keys,
                              heads_.value_dim);
  }
  // Of every token and head; with features that stand out, with zeros, and next to nothing.
  std::vector<float> some_rows(int n, unsigned seed) const {
    std::vector<float> rows;
    for (int i = 0; i < kTokens * heads_.n_kv_heads; ++i) {
      const float size = i % 7 == 3 ? 0.0f : i % 7 == 4 ? 1e-32f : i % 7 == 5 ? 1e4f : 1.0f;
      std::vector<float> row = random_floats(static_cast<size_t>(n), seed * 1000 + i, size);
      if (i % 3 == 0) row[static_cast<size_t>(i % n)] *= 30.0f;
      rows.insert(rows.end(), row.begin(), row.end());
    }
    return rows;
  }
  void store() {
    std::vector<int32_t> positions(kTokens);
    std::iota(positions.begin(), positions.end(), 0);
    const std::vector<TokenId> tokens(kTokens);
    const std::vector<int32_t> offsets = {0, kTokens}, lens = {kTokens}, table_offsets = {0, 3};
    const std::vector<BlockId> table = {BlockId{0}, BlockId{2}, BlockId{1}};
    const KvView view = {slots_, table, table_offsets, {}};
    const Batch batch = {tokens, positions, offsets, lens, {&view, 1}, {}, {}};
    const int rows = ops_->begin_step(&batch).tokens;
    const auto tensor = [&](const std::vector<float>& values) {
      const int cols = static_cast<int>(values.size()) / kTokens;
      const Tensor made = ops_->new_tensor(rows, cols);
      ops_->write_rows(values, made.row_range(0, kTokens));
      return made;
    };
    const Tensor k = tensor(k_), v = v_.empty() ? Tensor() : tensor(v_);
    ops_->rope_and_store(ops_->new_tensor(rows, heads_.head_dim), k, v, nullptr, *cache_, 0);
  }

  NarrowHeads heads_;
  std::unique_ptr<Ops> ops_ = make_ops("cuda_emulated", {.n_threads = 1}).value();
  CacheSpec spec_;
  std::unique_ptr<KvCache> cache_;
  std::vector<int32_t> slots_;
  std::vector<float> k_, v_;
};

constexpr NarrowHeads kNarrowHeads[] = {{2, 64},        {1, 128},        {3, 8},
                                        {2, 33, 0, 17}, {1, 80, 0, 16},  {2, 20, 0, 12},
                                        {1, 256},       {1, 1088, 1024}, {2, 40, 32}};

TEST(CudaNarrow, CodesAreThoseOfTheCpu) {
  for (const NarrowHeads& heads : kNarrowHeads) {
    const StoredOnDevice on_device(heads);
    for (int token = 0; token < StoredOnDevice::kTokens; token += 3) {
      for (int head = 0; head < heads.n_kv_heads; ++head) {
        for (const bool of_key : {true, false}) {
          if (!of_key && !on_device.has_values()) continue;
          const StoredRow found = on_device.stored(on_device.slot_of(token), head, of_key);
          EXPECT_EQ(found, on_device.expected(token, head, of_key))
              << heads.head_dim << " features, token " << token << (of_key ? ", key" : ", value");
        }
      }
    }
  }
}

TEST(CudaNarrow, MovedTokensTakeTheirFactorsAlong) {
  for (const NarrowHeads& heads : {NarrowHeads{2, 64}, NarrowHeads{2, 33, 0, 17}}) {
    StoredOnDevice on_device(heads);
    std::vector<int32_t> from, to;
    for (int i = 0; i < 16; ++i) from.push_back(on_device.slot_of(i)), to.push_back(79 - i);
    on_device.ops().move_kv(on_device.cache(), 0, from, to);
    for (int i = 0; i < 16; ++i) {
      for (const bool of_key : {true, false})
        EXPECT_EQ(on_device.stored(79 - i, 1, of_key), on_device.expected(i, 1, of_key)) << i;
    }
  }
}

TEST(CudaNarrow, BlocksAreNoLargerThanPlanned) {
  for (const NarrowHeads& heads : kNarrowHeads) {
    StoredOnDevice on_device(heads);
    EXPECT_LE(on_device.cache().block_bytes(0), on_device.spec().block_bytes(0));
  }
}

TEST(CudaNarrow, WhatCachesOf4BitsAreNotThereForIsRefused) {
  for (const char* const backend : {"cpu", "cuda_emulated"}) {
    const auto ops = make_ops(backend, {.n_threads = 1}).value();
    CacheSpec spec;
    spec.dtype = KvDType::kI4;
    spec.layers.assign(2, {.n_kv_heads = 1, .head_dim = 64});
    const int n_blocks[] = {1};
    EXPECT_TRUE(ops->make_cache(spec, n_blocks));
    spec.first_index_layer = 1;
    const auto sparse = ops->make_cache(spec, n_blocks);
    ASSERT_FALSE(sparse);
    EXPECT_THAT(sparse.error().message, testing::HasSubstr("INT4 is not there for sparse"));
    spec.first_index_layer = 0, spec.layers[1].head_dim = 4096;
    const auto wide = ops->make_cache(spec, n_blocks);
    ASSERT_FALSE(wide);
    EXPECT_THAT(wide.error().message, testing::HasSubstr("at most 2048 features, got 4096"));
  }
}

}  // namespace
}  // namespace penstock::cuda
#endif
