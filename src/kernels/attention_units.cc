#include <cstring>
#include <initializer_list>

#include "kernels/attention_kernels.h"

namespace penstock {
namespace {

struct Element {
  int64_t offset;  // bytes from the start of the unit
  int bytes;
};

Element v_element(const KvUnitLayout& layout, int lane, int d) {
  const int64_t dim = layout.padded_value_dim, at = lane * dim + d;
  switch (layout.format) {
    case KvFormat::kF32: return {layout.v_offset + at * 4, 4};
    case KvFormat::kF16: return {layout.v_offset + at * 2, 2};
    case KvFormat::kBF16:
      return {layout.v_offset + ((lane / 2) * dim * 2 + int64_t{d} * 2 + lane % 2) * 2, 2};
    case KvFormat::kI8:
    case KvFormat::kI4: break;
  }
  return {layout.v_offset + (lane / 4) * dim * 4 + int64_t{d} * 4 + lane % 4, 1};
}

// Copies elements of one token's key; the elements of 16 tokens are neighbours.
template <int Bytes>
void copy_key(const std::byte* from, int from_lane, std::byte* to, int to_lane, int n) {
  from += int64_t{from_lane} * Bytes, to += int64_t{to_lane} * Bytes;
  for (int i = 0; i < n; ++i) {
    std::memcpy(to, from, Bytes);
    from += kUnitTokens * Bytes, to += kUnitTokens * Bytes;
  }
}

}  // namespace

namespace {

// Every byte of a unit of kI4 belongs to one token.
void copy_narrow_token(const KvUnitLayout& layout, const std::byte* from, int from_lane,
                       std::byte* to, int to_lane) {
  copy_key<4>(from, from_lane, to, to_lane, layout.padded_dim / 8);
  const auto copy_lane = [&](int64_t offset, int bytes) {
    std::memcpy(to + offset + int64_t{to_lane} * bytes, from + offset + int64_t{from_lane} * bytes,
                static_cast<size_t>(bytes));
  };
  copy_lane(layout.k_scales, 4);
  copy_lane(layout.v_scales, 4);
  for (int64_t at = layout.k_factors; at + kUnitTokens <= layout.bytes; at += kUnitTokens)
    copy_lane(at, 1);
  if (layout.values_in_keys) return;
  const int64_t four = int64_t{layout.value_groups()} * 64;
  for (int64_t i = 0; i < four; i += 4) {
    to[layout.v_offset + to_lane / 4 * four + i + to_lane % 4] =
        from[layout.v_offset + from_lane / 4 * four + i + from_lane % 4];
  }
}

}  // namespace

void copy_unit_token(const KvUnitLayout& layout, const std::byte* from, int from_lane,
                     std::byte* to, int to_lane) {
  if (layout.format == KvFormat::kI4)
    return copy_narrow_token(layout, from, from_lane, to, to_lane);
  const auto copy = [&](Element source, Element target) {
    std::memcpy(to + target.offset, from + source.offset, static_cast<size_t>(source.bytes));
  };
  const int dim = layout.padded_dim;  // of several features together in narrow formats
  switch (layout.format) {
    case KvFormat::kF32: copy_key<4>(from, from_lane, to, to_lane, dim); break;
    case KvFormat::kF16: copy_key<2>(from, from_lane, to, to_lane, dim); break;
    case KvFormat::kBF16: copy_key<4>(from, from_lane, to, to_lane, dim / 2); break;
    case KvFormat::kI8: copy_key<4>(from, from_lane, to, to_lane, dim / 4); break;
    case KvFormat::kI4: break;
  }
  const bool rows = layout.format == KvFormat::kF32 || layout.format == KvFormat::kF16;
  if (rows && !layout.values_in_keys) {
    const Element first = v_element(layout, from_lane, 0);
    copy({first.offset, first.bytes * layout.value_dim},
         {v_element(layout, to_lane, 0).offset, first.bytes * layout.value_dim});
  }
  for (int d = 0; d < layout.value_dim && !rows && !layout.values_in_keys; ++d)
    copy(v_element(layout, from_lane, d), v_element(layout, to_lane, d));
  if (layout.format != KvFormat::kI8) return;
  for (const int64_t scales : {layout.k_scales, layout.v_scales}) {
    std::memcpy(to + scales + int64_t{to_lane} * 4, from + scales + int64_t{from_lane} * 4, 4);
  }
}

}  // namespace penstock
