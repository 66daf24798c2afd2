// THE list of encodings of panels: every encoding of files, then those that exist only as
// panels, for group-wise, per-channel and codebook weights of other quantizers
// (quant/grouped_matrix.h).
#pragma once
#include <tuple>

#include "quant/all.h"

namespace penstock {

// Indexes kernel tables. The first values are those of QuantType; the names below follow
// panel::Grouped.
enum class PanelType : uint8_t {
  kFirstGrouped = std::tuple_size_v<quant::All>,
  kI2Z32 = kFirstGrouped,
  kI2Z128,
  kI3Z32,
  kI3Z128,
  kI4Z32,
  kI4Z128,
  kI4G128,
  kI8Z32,
  kTernaryRow,
  kI8Row,
  kLevels16,
  kLevels64,
  kF8Row,
  kF8G64,
  kCount
};
inline constexpr int kPanelTypeCount = static_cast<int>(PanelType::kCount);

constexpr PanelType panel_type(QuantType type) { return static_cast<PanelType>(type); }

namespace panel {

// as a group size: the row's factor is the only scale
inline constexpr int kWholeRow = 0;

// value = scale * (code - bias) with a scale per group, or none.
template <int Bits, int Bias, int Group>
struct Scaled : quant::LinearCode<Bits, Bias, Group, false> {
  static constexpr bool kPanelOnly = true;
};

// value = scale * (code - bias - zero) with an integer zero in [-128, 127] per group.
template <int Bits, int Group>
struct WithZeros : quant::LinearCode<Bits, Bits == 8 ? 128 : 0, Group, true> {
  static constexpr bool kPanelOnly = true;
  static constexpr bool kIntegerZeros = true;
};

// value = scale * PanelMatrix::levels[code]
template <int Group>
struct Levels {
  static constexpr bool kPanelOnly = true;
  static constexpr int kBits = 4;
  static constexpr int kGroupSize = Group;
  static constexpr bool kHasOffset = false;
  static constexpr bool kIsCodebook = true;
  static constexpr bool kHasSuperScales = false;
  static constexpr bool kOwnLevels = true;
};

// [k][16 rows] F8 E4M3 times the row's factor, which includes 2^8 (see load_f8 in the kernels).
struct F8Row {};

// Units of 64 columns: [k][16 rows] F8 E4M3, then the 16 rows' scales in F32, which include 2^8.
struct F8Groups {
  static constexpr int kUnitK = 64, kScales = 64 * 16, kUnitBytes = kScales + 64;
};

// In the order of PanelType.
//
using Grouped = std::tuple<WithZeros<2, 32>, WithZeros<2, 128>, WithZeros<3, 32>, WithZeros<3, 128>,
                           //
                           WithZeros<4, 32>, WithZeros<4, 128>, Scaled<4, 8, 128>, WithZeros<8, 32>,
                           //
                           Scaled<2, 1, kWholeRow>, Scaled<8, 128, kWholeRow>, Levels<16>,
                           Levels<64>, F8Row, F8Groups>;
using All = decltype(std::tuple_cat(std::declval<quant::All>(), std::declval<Grouped>()));
static_assert(std::tuple_size_v<All> == kPanelTypeCount, "PanelType and panel::Grouped differ");

template <class Q>
concept IntegerZeros = requires { Q::kIntegerZeros; };
template <class Q>
concept OwnLevels = requires { Q::kOwnLevels; };
template <class Q>
concept F8Scales = requires { Q::kHasF8Scales; };
// Encodings whose panels are integer codes. TQ1_0 is packed as TQ2_0.
template <class Q>
concept Codes =
    !std::same_as<Q, quant::TQ1_0> && (quant::IntegerCoded<Q> || requires { Q::kPanelOnly; });

// Calls fn with a value of the encoding's struct, like quant::visit.
template <class F>
decltype(auto) visit(PanelType type, F&& fn) {
  using R = decltype(fn(quant::F32{}));
  using Call = R (*)(F&);
  static constexpr auto kCalls = []<class... Q>(std::tuple<Q...>*) {
    return std::array<Call, sizeof...(Q)>{[](F& f) -> R { return f(Q{}); }...};
  }(static_cast<All*>(nullptr));
  return kCalls[static_cast<size_t>(type)](fn);
}

}  // namespace panel
}  // namespace penstock
