#include "quant/quant_type.h"

#include <array>
#include <cstring>

#include "base/check.h"
#include "quant/all.h"

namespace penstock {

namespace {

using DecodeRow = void (*)(const std::byte*, float*, int64_t);
using EncodeRow = void (*)(const float*, std::byte*, int64_t, const float*);

struct Entry {
  QuantTypeInfo info;
  DecodeRow decode;
  EncodeRow encode;  // null: no encoder
};

template <class Q>
void decode_row(const std::byte* in, float* out, int64_t n) {
  for (int64_t i = 0; i < n; i += Q::kBlockSize, in += sizeof(typename Q::Block)) {
    typename Q::Block block;
    std::memcpy(&block, in, sizeof(block));  // copied, since files align tensors, not blocks
    Q::decode(block, out + i);
  }
}

template <class Q>
void encode_row(const float* in, std::byte* out, int64_t n, const float* importance) {
  for (int64_t i = 0; i < n; i += Q::kBlockSize, out += sizeof(typename Q::Block)) {
    typename Q::Block block = {};
    Q::encode(in + i, importance != nullptr ? importance + i : nullptr, block);
    std::memcpy(out, &block, sizeof(block));
  }
}

template <class Q>
constexpr EncodeRow encoder() {
  if constexpr (quant::Encodable<Q>) {
    return encode_row<Q>;
  } else {
    return nullptr;
  }
}

template <class Q>
constexpr int ftype() {
  if constexpr (requires { Q::kFtype; }) {
    return Q::kFtype;
  } else {
    return -1;
  }
}

template <class... Q>
constexpr auto make_table(std::tuple<Q...>*) {
  return std::array<Entry, sizeof...(Q)>{
      Entry{QuantTypeInfo{Q::kType, Q::kName, Q::kBlockSize,
                          static_cast<int>(sizeof(typename Q::Block)), Q::kGgmlId, ftype<Q>()},
            decode_row<Q>, encoder<Q>()}...};
}

constexpr auto kTable = make_table(static_cast<quant::All*>(nullptr));

constexpr auto kInfos = [] {
  std::array<QuantTypeInfo, kTable.size()> infos = {};
  for (size_t i = 0; i < infos.size(); ++i) infos[i] = kTable[i].info;
  return infos;
}();

constexpr bool in_enum_order() {
  for (size_t i = 0; i < kInfos.size(); ++i) {
    if (static_cast<size_t>(kInfos[i].type) != i) return false;
  }
  return true;
}
static_assert(in_enum_order(), "quant/all.h and enum QuantType differ");

const Entry& entry(QuantType type) {
  const auto index = static_cast<size_t>(type);
  PENSTOCK_CHECK(index < kTable.size());
  return kTable[index];
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

std::span<const QuantTypeInfo> quant_types() { return kInfos; }

const QuantTypeInfo& quant_info(QuantType type) {
  const auto index = static_cast<size_t>(type);
  PENSTOCK_CHECK(index < kInfos.size());
  return kInfos[index];
}

const QuantTypeInfo* find_quant_type(std::string_view name) {
  for (const QuantTypeInfo& info : kInfos) {
    if (info.name.size() != name.size()) continue;
    bool equal = true;
    for (size_t i = 0; i < name.size(); ++i) equal &= lower(name[i]) == info.name[i];
    if (equal) return &info;
  }
  return nullptr;
}

const QuantTypeInfo* find_ggml_type(uint32_t ggml_id) {
  for (const QuantTypeInfo& info : kInfos) {
    if (info.ggml_id >= 0 && static_cast<uint32_t>(info.ggml_id) == ggml_id) return &info;
  }
  return nullptr;
}

void dequantize_row(QuantType type, const std::byte* in, float* out, int64_t n) {
  PENSTOCK_CHECK(n % quant_info(type).block_size == 0);
  entry(type).decode(in, out, n);
}

void quantize_row(QuantType type, const float* in, std::byte* out, int64_t n,
                  const float* importance) {
  PENSTOCK_CHECK(can_quantize(type) && n % quant_info(type).block_size == 0);
  entry(type).encode(in, out, n, importance);
}

bool can_quantize(QuantType type) { return entry(type).encode != nullptr; }

}  // namespace penstock
