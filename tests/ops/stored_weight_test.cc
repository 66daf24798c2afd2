// Stored weights are the weights; what is none is refused or at least harmless.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "ops/cpu/weight.h"
#include "ops/cuda/device.h"
#include "ops/cuda/staged_copies.h"
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
      quantize_row(type, values.data() + size_t{cols} * r, bytes.data() + bytes.size() / rows * r,
                   cols);
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

// x times the weight.
std::vector<float> product_of(Ops& ops, const Weight& weight, const std::vector<float>& x) {
  const int rows = static_cast<int>(x.size()) / weight.cols();
  ops.begin_step(nullptr);
  const Tensor out = ops.new_tensor(rows, weight.rows());
  const LinearTarget target{&weight, nullptr, out};
  ops.linear(tensor_of(ops, x, rows, weight.cols()), {&target, 1});
  return read(ops, out).all;
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
    EXPECT_EQ(product_of(*ops, **restored, x), product_of(*ops, *packed.weight, x)) << packed.name;
  }
}

// What lies on a device comes back, and there again gives the same.
TEST(StoredWeight, RoundTripOfADevice) {
  const auto ops = make_ops("cuda_emulated", {.n_threads = 2});
  if (!ops) GTEST_SKIP() << ops.error().message;
  EXPECT_NE((*ops)->stored_form(), "");
  for (const Packed& packed : packed_weights(**ops)) {
    const OwnedBytes bytes = (*ops)->store(*packed.weight);
    const StoredWeight stored{(*ops)->describe(*packed.weight), bytes.bytes};
    ASSERT_EQ(static_cast<int64_t>(stored.bytes.size()), packed.weight->packed_bytes())
        << packed.name;
    const auto restored = (*ops)->restore(stored, bytes.owner);
    ASSERT_TRUE(restored) << packed.name << ": " << restored.error().message;
    const OwnedBytes again = (*ops)->store(**restored);
    EXPECT_TRUE(std::ranges::equal(again.bytes, bytes.bytes)) << packed.name;
    EXPECT_EQ((*ops)->describe(**restored), stored.description) << packed.name;
    const std::vector<float> x = random_floats(static_cast<size_t>(packed.weight->cols()), 9);
    EXPECT_EQ(product_of(**ops, **restored, x), product_of(**ops, *packed.weight, x))
        << packed.name;
  }
}

TEST(StoredWeight, WhatIsNoneIsRefusedByADevice) {
  const auto ops = make_ops("cuda_emulated", {.n_threads = 1});
  if (!ops) GTEST_SKIP() << ops.error().message;
  for (const Packed& packed : packed_weights(**ops)) {
    const OwnedBytes bytes = (*ops)->store(*packed.weight);
    const StoredWeight stored{(*ops)->describe(*packed.weight), bytes.bytes};
    for (size_t n = 0; n < stored.description.size(); ++n)
      EXPECT_FALSE((*ops)->restore({stored.description.substr(0, n), stored.bytes}, nullptr));
    for (const size_t n : {size_t{0}, size_t{64}, stored.bytes.size() - 1})
      EXPECT_FALSE((*ops)->restore({stored.description, stored.bytes.first(n)}, nullptr))
          << packed.name;
    int refused = 0;
    for (size_t bit = 0; bit < 8 * stored.description.size(); ++bit) {
      StoredWeight changed = stored;
      changed.description[bit / 8] =
          static_cast<char>(changed.description[bit / 8] ^ (1 << bit % 8));
      refused += (*ops)->restore(changed, nullptr) ? 0 : 1;
    }
    EXPECT_GT(refused, 80) << packed.name;  // of shape and type
    if (packed.name != "grouped") continue;
    // The order of its columns is at the end: one of them twice.
    std::vector<std::byte> twice(stored.bytes.begin(), stored.bytes.end());
    std::copy_n(twice.end() - 8, 4, twice.end() - 4);
    EXPECT_FALSE((*ops)->restore({stored.description, twice}, nullptr));
  }
}

#ifdef PENSTOCK_CUDA_EMULATION
// The emulated device takes what is on its way as late as it may: a buffer that is filled too early
// would show.
TEST(StagedCopies, ABufferIsFilledAgainWhenItIsOnTheDevice) {
  const auto device = cuda::make_emulated_device();
  constexpr size_t kBytes = 1000, kPieces = 7;
  cuda::Memory memory = cuda::Memory::make(*device, kBytes * kPieces).value();
  cuda::StagedCopies copies(*device);
  for (size_t i = 0; i < kPieces; ++i) {
    const std::span<std::byte> to = copies.next(kBytes).value();
    std::ranges::fill(to, static_cast<std::byte>(i));
    copies.send(memory.as<std::byte>() + i * kBytes);
  }
  EXPECT_EQ(copies.next(cuda::StagedCopies::kPieceBytes + 1)->size(),
            cuda::StagedCopies::kPieceBytes + 1);
  std::vector<std::byte> got(kBytes * kPieces);
  device->copy_out(got.data(), memory.data(), got.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i], static_cast<std::byte>(i / kBytes)) << i;
  // That it would: what is changed before it was waited for arrives changed.
  void* const pinned = device->allocate_host(1).value();
  std::memset(pinned, 1, 1);
  device->copy_in_behind(memory.data(), pinned, 1);
  std::memset(pinned, 2, 1);
  device->copy_out(got.data(), memory.data(), 1);
  EXPECT_EQ(got[0], std::byte{2});
  device->release_host(pinned);
}
#endif

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
      changed.description[bit / 8] =
          static_cast<char>(changed.description[bit / 8] ^ (1 << bit % 8));
      refused += try_it(changed) ? 0 : 1;
    }
    EXPECT_GT(refused, 100) << packed.name;  // shape and type are 17 bytes
  }
}

}  // namespace
}  // namespace penstock
