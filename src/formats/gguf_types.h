// Constants of the GGUF format.
#pragma once
#include <cstdint>

namespace penstock {

// Value types of metadata, as numbered in the file.
enum class GgufValueType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

inline constexpr uint32_t kGgufMagic = 0x46554747;  // "GGUF"
// version that is written; version 2 is read too
inline constexpr uint32_t kGgufVersion = 3;
inline constexpr uint32_t kGgufDefaultAlignment = 32;

}  // namespace penstock
