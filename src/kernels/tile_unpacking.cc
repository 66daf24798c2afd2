#include "kernels/tile_unpacking.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "kernels/gemm_kernels.h"
#include "kernels/pack/panel_pack.h"

namespace penstock {
namespace {

constexpr int kRows = 256, kCols = 1024, kOutputs = 128, kRounds = 5;
constexpr PanelType kType = panel_type(QuantType::kQ4_0);

// Returns the product of SmallProduct with weights unpacked before the products of tiles, or
// between them; null if the tiles lack it.
TileKernels::TileGemm small_product(const TileKernels& tiles, bool between) {
  const GemmPlan* plan =
      find_plan(tiles.plans, panel_kind(kType, false), kRows, {.unpack_between = between});
  if (plan == nullptr || (between && plan->where != GemmWhere::kUnpackBetween)) return nullptr;
  return tiles.tiles[static_cast<size_t>(kType)][plan - tiles.plans.data()];
}

// A small product to be timed. Its weights' bytes are sensible both as codes and as FP16 scales;
// AMX is faster with zeros.
class SmallProduct {
 public:
  explicit SmallProduct(const TileKernels& tiles)
      : shape_(panel_shape(QuantType::kQ4_0, kCols)),
        weights_(shape_.panel_bytes * (kOutputs / kPanelRows) + kAhead),
        packed_(tiles.bf16_tile_bytes(kRows, kCols) + kAhead),
        scratch_(tiles.scratch_bytes),
        out_(size_t{kRows} * kOutputs * sizeof(float)) {
    uint32_t random = 1;
    const auto next = [&] { return (random = random * 1664525 + 1013904223) >> 24; };
    for (size_t i = 0; i < shape_.panel_bytes * (kOutputs / kPanelRows); ++i)
      weights_.data()[i] = static_cast<uint8_t>(0x20 | (next() & 15));
    std::vector<float> x(size_t{kRows} * kCols);
    for (float& v : x) v = static_cast<float>(next()) / 128.0f - 1.0f;
    tiles.pack_bf16({x.data(), kCols}, kRows, 0, kRows, kCols, kCols, packed_.data());
  }

  double seconds(TileKernels::TileGemm gemm) {
    PanelMatrix w;
    w.data = weights_.data();
    w.panel_bytes = shape_.panel_bytes;
    w.rows = kOutputs, w.cols = kCols, w.padded_cols = shape_.padded_cols;
    w.type = shape_.type;
    const GemmOutput out{reinterpret_cast<float*>(out_.data()), kOutputs, nullptr};
    const auto start = std::chrono::steady_clock::now();
    gemm(w, packed_.data(), kRows, 0, kOutputs / kPanelRows, out, scratch_.data());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  static constexpr size_t kAhead = 8192;  // prefetched by kernels, never loaded
  struct Bytes {
    explicit Bytes(size_t n) : memory(n + 64) {}
    uint8_t* data() {
      return reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) &
                                        ~uintptr_t{63});
    }
    std::vector<uint8_t> memory;
  };

  PanelShape shape_;
  Bytes weights_, packed_, scratch_, out_;
};

}  // namespace

bool has_both_unpackings(const KernelTable& kernels) {
  return kernels.tiles != nullptr && small_product(*kernels.tiles, true) != nullptr;
}

TileUnpacking measure_unpacking(const TileKernels& tiles) {
  SmallProduct product(tiles);
  double before = 1e9, between = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    before = std::min(before, product.seconds(small_product(tiles, false)));
    between = std::min(between, product.seconds(small_product(tiles, true)));
  }
  constexpr double kOperations = 2.0 * kRows * kCols * kOutputs;
  return {between < before ? UnpackTime::kBetween : UnpackTime::kBefore, true, kOperations / before,
          kOperations / between};
}

Result<TileUnpacking> tile_unpacking(const KernelTable& kernels) {
  const char* forced = std::getenv("PENSTOCK_UNPACK");
  const std::string_view name = forced == nullptr ? "auto" : forced;
  if (name != "auto" && name != "before" && name != "between")
    return errorf(ErrorCode::kInvalidArgument,
                  "PENSTOCK_UNPACK: expected before, between or auto, got '{}'", name);
  if (!has_both_unpackings(kernels)) return TileUnpacking{};
  if (name == "between") return TileUnpacking{UnpackTime::kBetween};
  if (name == "before" || kernels.emulated) return TileUnpacking{};
  // At most one table of a process has both ways and is not emulated, so one result suffices.
  static const TileUnpacking measured = measure_unpacking(*kernels.tiles);
  return measured;
}

}  // namespace penstock
