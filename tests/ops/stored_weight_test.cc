// Stored weights are the weights; what is none is refused or at least harmless.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/cpu/weight.h"
#include "ops/ops_under_test.h"

namespace penstock {
namespace {

// 64-byte aligned copy, as a file's map gives it.
std::shared_ptr<std::vector<std::byte>> aligned_copy(std::span<const std::byte> bytes,
                                                     std::span<const std::byte>& view) {
  auto copy = std::make_shared<std::vector<std::byte>>(bytes.size() + 64);
  const size_t skip = (64 - reinterpret_cast<uintptr_t>(copy->data()) % 64) % 64;
  std::ranges::copy(bytes, copy->begin() + static_cast<ptrdiff_t>(skip));
  view = std::span(*copy).subspan(skip, bytes.size());
  return copy;
}

std::vector<float> rows_of(const Weight& weight) {
  const auto& cpu = static_cast<const CpuWeight&>(weight);
  std::vector<float> values(static_cast<size_t>(weight.rows()) * weight.cols());
  for (int r = 0; r < weight.rows(); ++r)
    cpu.decode_row(r, values.data() + static_cast<size_t>(r) * weight.cols());
  return values;
}

struct Packed {
  std::string name;
  std::unique_ptr<Weight> weight;
};

// Of every encoding, and one with an order of columns and a fixed scale of activations.
std::vector<Packed> packed_weights(Ops& ops) {
  std::vector<Packed> all;
  const int rows = 37, cols = 512;
  const std::vector<float> values = random_floats(size_t{rows} * cols, 5, 0.1f);
  for (const QuantTypeInfo& info : quant_types()) {
    const QuantType type = info.type;
    if (!can_quantize(type) || info.ggml_id < 0) continue;
    std::vector<std::byte> bytes(quant_bytes(type, int64_t{rows} * cols));
    for (int r = 0; r < rows; ++r)
      quantize_row(type, values.data() + size_t{cols} * r, bytes.data() + bytes.size() / rows * r, cols);
    all.push_back({std::string(info.name), ops.pack({type, rows, cols, bytes}).value()});
  }
  GroupedMatrix grouped;
  grouped.rows = rows, grouped.cols = cols, grouped.bits = 8, grouped.group_size = cols,
  grouped.uniform_zero = 128;
  grouped.layout = CodeLayout::kBytes;
  grouped.scales.assign(rows, 0.01f);
  std::vector<std::byte> codes(size_t{rows} * cols);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i * 7 + i / 512);
  grouped.packed = codes;
  for (int j = 0; j < cols; ++j) grouped.input_order.push_back((j * 5 + 3) % cols);
  grouped.activations = {.kind = ActivationCoding::Kind::kInt8Static, .static_scale = 0.03f};
  all.push_back({"grouped", ops.pack_grouped(grouped, 0, rows).value()});
  return all;
}

TEST(StoredWeight, RoundTrip) {
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  EXPECT_NE(ops->stored_form(), "");
  for (const Packed& packed : packed_weights(*ops)) {
    StoredWeight stored{ops->describe(*packed.weight), ops->store(*packed.weight).bytes};
    const auto owner = aligned_copy(stored.bytes, stored.bytes);
    const auto restored = ops->restore(stored, owner);
    ASSERT_TRUE(restored) << packed.name << ": " << restored.error().message;
    EXPECT_EQ((*restored)->packed_bytes(), packed.weight->packed_bytes()) << packed.name;
    EXPECT_EQ(rows_of(**restored), rows_of(*packed.weight)) << packed.name;
    EXPECT_EQ(owner.use_count(), 2);  // used in place
    const std::vector<float> x = random_floats(size_t{3} * packed.weight->cols(), 9);
    std::vector<float> products[2];
    for (const Weight* weight : {packed.weight.get(), restored->get()}) {
      ops->begin_step(nullptr);
      const Tensor out = ops->new_tensor(3, weight->rows());
      const LinearTarget target{weight, nullptr, out};
      ops->linear(tensor_of(*ops, x, 3, weight->cols()), {&target, 1});
      products[weight == packed.weight.get() ? 0 : 1] = read(*ops, out).all;
    }
    EXPECT_EQ(products[0], products[1]) << packed.name;
  }
}

TEST(StoredWeight, WhatIsNoneIsRefusedOrHarmless) {
  const auto ops = make_ops("cpu", {.n_threads = 1}).value();
  for (const Packed& packed : packed_weights(*ops)) {
    StoredWeight stored{ops->describe(*packed.weight), ops->store(*packed.weight).bytes};
    const auto owner = aligned_copy(stored.bytes, stored.bytes);
    const auto try_it = [&](const StoredWeight& changed) {
      const auto restored = ops->restore(changed, owner);
      if (!restored) return false;
      rows_of(**restored);  // the sanitizers see what it reads
      return true;
    };
    for (size_t n = 0; n < std::min<size_t>(stored.description.size(), 64); ++n)
      EXPECT_FALSE(try_it({stored.description.substr(0, n), stored.bytes}));
    for (const size_t n : {size_t{0}, size_t{64}, stored.bytes.size() - 1})
      EXPECT_FALSE(try_it({stored.description, stored.bytes.first(n)})) << packed.name;
    EXPECT_FALSE(try_it({stored.description, stored.bytes.subspan(32)}));
    int refused = 0;
    for (size_t bit = 0; bit < 8 * std::min<size_t>(stored.description.size(), 48); ++bit) {
      StoredWeight changed = stored;
      changed.description[bit / 8] = static_cast<char>(changed.description[bit / 8] ^ (1 << bit % 8));
      refused += try_it(changed) ? 0 : 1;
    }
    EXPECT_GT(refused, 100) << packed.name;  // shape and type are 17 bytes
  }
}

}  // namespace
}  // namespace penstock
