#include "quant/grouped_encode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "quant/plain.h"

namespace penstock {

namespace {

// Quantiles of the normal distribution, with the values of bitsandbytes.
constexpr std::array<float, 16> kNf4 = {-1.0f,
                                        -0.6961928009986877f,
                                        -0.5250730514526367f,
                                        -0.39491748809814453f,
                                        -0.28444138169288635f,
                                        -0.18477343022823334f,
                                        -0.09105003625154495f,
                                        0.0f,
                                        0.07958029955625534f,
                                        0.16093020141124725f,
                                        0.24611230194568634f,
                                        0.33791524171829224f,
                                        0.44070982933044434f,
                                        0.5626170039176941f,
                                        0.7229568362236023f,
                                        1.0f};
// 0, 1/192, 2/3, 1, 1/3, 1/2, 1/6, 1/4, then the same negated.
constexpr std::array<float, 16> kFp4 = {
    0.0f, 0.0052083333f,  0.66666667f,  1.0f,  0.33333333f,  0.5f,  0.16666667f,  0.25f,
    0.0f, -0.0052083333f, -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f};

float rounded(QuantType type, float value) {
  constexpr float kMostHalf = 65504.0f;
  switch (type) {
    case QuantType::kF16: {
      // The least positive number instead of zero, which would make every code worthless.
      const float half = to_float(to_half(std::min(value, kMostHalf)));
      return half > 0 || value == 0 ? half : 5.9604645e-8f;
    }
    case QuantType::kBF16: return to_float(to_bfloat16(value));
    default: return value;
  }
}

float largest_level(const GroupCoding& coding) {
  float largest = 0;
  for (const float level : coding.codebook) {
    if (std::isfinite(level)) largest = std::max(largest, std::fabs(level));
  }
  return largest;
}

double group_error(const GroupCoding& coding, const GroupScale& scale, const float* x,
                   const float* weights, int n) {
  double error = 0;
  if (coding.codebook.empty()) {
    const float inverse = 1.0f / scale.scale;
    const auto low = static_cast<float>(-scale.zero),
               high = static_cast<float>(coding.top() - scale.zero);
    constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: adding it drops the fraction
    float sum = 0;
    for (int i = 0; i < n; ++i) {
      float level = x[i] * inverse;
      level = level > low ? level : low;
      level = level < high ? level : high;
      const float d = (level + kShift - kShift) * scale.scale - x[i];
      sum += (weights != nullptr ? weights[i] : 1.0f) * d * d;
    }
    return sum;
  }
  for (int i = 0; i < n; ++i) {
    const float d = x[i] - decode_level(coding, scale, nearest_code(coding, scale, x[i]));
    error += static_cast<double>(weights != nullptr ? weights[i] : 1.0f) * d * d;
  }
  return error;
}

GroupScale affine_scale(const GroupCoding& coding, float low, float high) {
  low = std::min(low, 0.0f);
  high = std::max(high, 0.0f);
  const auto top = static_cast<float>(coding.top());
  const int lowest = coding.lowest_zero;
  // Halves first, since high - low may overflow.
  GroupScale result{rounded(coding.scale_type, 2.0f * (0.5f * high / top - 0.5f * low / top)), 0};
  if (!(result.scale > 0)) return {1.0f, lowest};
  result.zero = static_cast<int>(std::clamp(std::nearbyint(-low / result.scale), 0.0f, top));
  if (result.zero < lowest) {
    result = {rounded(coding.scale_type, high / (top - static_cast<float>(lowest))), lowest};
    if (!(result.scale > 0)) result.scale = 1.0f;
  }
  return result;
}

}  // namespace

std::span<const float> nf4_levels() { return kNf4; }
std::span<const float> fp4_levels() { return kFp4; }
std::vector<float> f8e4m3_levels() {
  std::vector<float> levels(256);
  for (int code = 0; code < 256; ++code)
    levels[static_cast<size_t>(code)] = quant::decode_f8e4m3(static_cast<uint8_t>(code));
  return levels;
}

uint8_t nearest_code(const GroupCoding& coding, const GroupScale& scale, float value) {
  const float in_scales = value / scale.scale;
  if (coding.codebook.empty()) {
    const float code = std::nearbyint(in_scales) + static_cast<float>(scale.zero);
    return static_cast<uint8_t>(std::clamp(code, 0.0f, static_cast<float>(coding.top())));
  }
  // E4M3, the only codebook of 8 bits
  if (coding.bits == 8) return quant::encode_f8e4m3(in_scales);
  uint8_t best = 0;
  float best_distance = HUGE_VALF;
  for (size_t code = 0; code < coding.codebook.size(); ++code) {
    const float distance = std::fabs(coding.codebook[code] - in_scales);
    if (distance < best_distance) best_distance = distance, best = static_cast<uint8_t>(code);
  }
  return best;
}

GroupScale fit_group(const GroupCoding& coding, const float* x, const float* weights, int n,
                     bool search) {
  float low = x[0], high = x[0];
  for (int i = 1; i < n; ++i) low = std::min(low, x[i]), high = std::max(high, x[i]);
  const float most = std::max(-low, high);
  const bool affine = coding.codebook.empty() && !coding.symmetric;
  const int middle = coding.codebook.empty() ? 1 << (coding.bits - 1) : 0;
  if (!(most > 0)) return {1.0f, affine ? coding.lowest_zero : middle};

  GroupScale best;
  double least = HUGE_VAL;
  const auto attempt = [&](const GroupScale& candidate) {
    if (!(candidate.scale > 0)) return;
    const double error = group_error(coding, candidate, x, weights, n);
    if (error < least) least = error, best = candidate;
  };
  // Scales that map the extreme value to a code: 2^(bits - 1) - 1 above zero, 2^(bits - 1)
  // below.
  const auto attempt_extremes = [&](float shrink) {
    if (affine) return attempt(affine_scale(coding, low * shrink, high * shrink));
    if (!coding.codebook.empty())
      return attempt({rounded(coding.scale_type, most * shrink / largest_level(coding)), 0});
    for (const float levels : {static_cast<float>(middle - 1), static_cast<float>(middle) - 0.5f,
                               static_cast<float>(middle)}) {
      attempt({rounded(coding.scale_type, most * shrink / levels), middle});
    }
  };
  attempt_extremes(1.0f);
  for (int step = 1; search && step <= 25 && least > 0; ++step)
    attempt_extremes(1.0f - 0.02f * static_cast<float>(step));
  if (!(best.scale > 0) || least == HUGE_VAL) best = {rounded(coding.scale_type, most), middle};
  return best;
}

void encode_grouped_row(const GroupCoding& coding, const float* x, const float* importance,
                        int cols, bool search, uint8_t* codes, GroupScale* scales) {
  const int size = coding.group_of(cols);
  for (int first = 0; first < cols; first += size) {
    const float* weights = importance != nullptr ? importance + first : nullptr;
    const GroupScale scale = fit_group(coding, x + first, weights, size, search);
    scales[first / size] = scale;
    for (int j = first; j < first + size; ++j) codes[j] = nearest_code(coding, scale, x[j]);
  }
}

void GroupedCodes::dequantize_row(int row, float* out) const {
  const uint8_t* line = codes.data() + static_cast<size_t>(row) * static_cast<size_t>(cols);
  for (int j = 0; j < cols; ++j) out[j] = decode_level(coding, scale(row, j), line[j]);
}

namespace {

void put_bits(std::vector<uint32_t>& words, size_t word, size_t stride, int shift, uint32_t code) {
  words[word] |= code << shift;
  if (shift != 0 && code >> (32 - shift) != 0) words[word + stride] |= code >> (32 - shift);
}

std::vector<uint32_t> pack_words(CodeLayout layout, std::span<const uint8_t> codes, int rows,
                                 int cols, int bits) {
  std::vector<uint32_t> words(GroupedMatrix::packed_bytes(layout, rows, cols, bits) / 4);
  const auto n_rows = static_cast<size_t>(rows), n_cols = static_cast<size_t>(cols);
  for (size_t r = 0; r < n_rows; ++r) {
    for (size_t c = 0; c < n_cols; ++c) {
      const uint32_t code = codes[r * n_cols + c];
      if (layout == CodeLayout::kWordsByRow) {
        const size_t per_word = 32 / static_cast<size_t>(bits);
        words[r * ((n_cols + per_word - 1) / per_word) + c / per_word] |=
            code << (c % per_word * static_cast<size_t>(bits));
      } else if (layout == CodeLayout::kAwq) {
        words[c * (n_rows / 8) + r / 8] |= code << kAwqShift[r % 8];
      } else {
        const size_t bit = c * static_cast<size_t>(bits);
        put_bits(words, bit / 32 * n_rows + r, n_rows, static_cast<int>(bit % 32), code);
      }
    }
  }
  return words;
}

}  // namespace

std::vector<std::byte> pack_codes(CodeLayout layout, std::span<const uint8_t> codes, int rows,
                                  int cols, int bits) {
  std::vector<std::byte> out(GroupedMatrix::packed_bytes(layout, rows, cols, bits));
  const size_t n = codes.size();
  switch (layout) {
    case CodeLayout::kBytes:
    case CodeLayout::kSignedBytes:
      for (size_t i = 0; i < n; ++i)
        out[i] = static_cast<std::byte>(codes[i] ^ (layout == CodeLayout::kSignedBytes ? 0x80 : 0));
      break;
    case CodeLayout::kNibblesLowFirst:
    case CodeLayout::kNibblesHighFirst: {
      const int first = layout == CodeLayout::kNibblesLowFirst ? 0 : 4;
      for (size_t i = 0; i < n; ++i)
        out[i / 2] |= static_cast<std::byte>(codes[i] << (i % 2 == 0 ? first : 4 - first));
      break;
    }
    case CodeLayout::kCrumbsAcrossRows: {
      const size_t plane = n / 4;  // a quarter of the rows
      for (size_t i = 0; i < n; ++i)
        out[i % plane] |= static_cast<std::byte>(codes[i] << (i / plane * 2));
      break;
    }
    case CodeLayout::kNvfp4Blocks: break;  // NVFP4 is encoded in blocks with its scales
    case CodeLayout::kWordsByRow:
    case CodeLayout::kStreamByColumn:
    case CodeLayout::kAwq: {
      const std::vector<uint32_t> words = pack_words(layout, codes, rows, cols, bits);
      if (!words.empty()) std::memcpy(out.data(), words.data(), out.size());
      break;
    }
  }
  return out;
}

}  // namespace penstock
