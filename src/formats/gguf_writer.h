// Writes GGUF version 3: describe the metadata and every tensor, then stream the tensors' bytes.
//
//   GgufWriter writer;
//   writer.set("general.architecture", "llama");
//   writer.add_tensor("output.weight", QuantType::kQ8_0, {vocab_size, model_dim});
//   ASSIGN_OR_RETURN(TensorFile file, writer.create(path));
//   RETURN_IF_ERROR(file.write("output.weight", bytes));   // as often as needed
//   RETURN_IF_ERROR(file.finish());
#pragma once
#include <concepts>
#include <nlohmann/json_fwd.hpp>

#include "formats/gguf_types.h"
#include "formats/tensor_file.h"

namespace penstock {

class GgufWriter {
 public:
  // The value's C++ type decides the type in the file: numbers of 8 to 64 bits, float, double,
  // bool.
  template <class T>
    requires std::integral<T> || std::floating_point<T>
  void set(std::string_view key, T value) {
    put_key(key, gguf_value_type<T>());
    put(value);
  }
  void set(std::string_view key, std::string_view value);
  void set(std::string_view key, const char* value) { set(key, std::string_view(value)); }
  template <class T>
    requires std::integral<T> || std::floating_point<T>
  void set_array(std::string_view key, std::span<const T> values) {
    put_key(key, GgufValueType::kArray);
    put(gguf_value_type<T>());
    put(static_cast<uint64_t>(values.size()));
    for (const T value : values) put(value);
  }
  void set_array(std::string_view key, std::span<const std::string> values);
  // Sets a value as WeightSource::config() gives it: unsigned and signed numbers in 32 bits when
  // they fit (else 64), floats in 32 bits. Errors: kInvalidArgument for null, objects, and arrays
  // of mixed types.
  Status set_json(std::string_view key, const nlohmann::json& value);

  // Adds a tensor. shape: outermost dimension first, one to four dimensions. Names must be unique
  // and rows whole blocks, which create() checks.
  void add_tensor(std::string name, QuantType type, std::vector<int64_t> shape);

  // Writes the header and returns the file, to which the tensors' bytes are then written. Errors:
  // kInvalidArgument, kUnsupported for a type without a GGUF number, kIo.
  Result<TensorFile> create(const std::filesystem::path& path) const;

 private:
  struct Tensor {
    std::string name;
    QuantType type;
    std::vector<int64_t> shape;
  };

  template <class T>
  static constexpr GgufValueType gguf_value_type() {
    if constexpr (std::same_as<T, bool>) return GgufValueType::kBool;
    if constexpr (std::floating_point<T>)
      return sizeof(T) == 4 ? GgufValueType::kFloat32 : GgufValueType::kFloat64;
    constexpr bool kSigned = std::signed_integral<T>;
    if constexpr (sizeof(T) == 1) return kSigned ? GgufValueType::kInt8 : GgufValueType::kUint8;
    if constexpr (sizeof(T) == 2) return kSigned ? GgufValueType::kInt16 : GgufValueType::kUint16;
    if constexpr (sizeof(T) == 4) return kSigned ? GgufValueType::kInt32 : GgufValueType::kUint32;
    return kSigned ? GgufValueType::kInt64 : GgufValueType::kUint64;
  }
  template <class T>
  void put(T value) {
    pairs_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void put_string(std::string_view value);
  void put_key(std::string_view key, GgufValueType type);
  void put_json(const nlohmann::json& value, GgufValueType type);

  std::string pairs_;  // the metadata as encoded in the file
  uint64_t n_pairs_ = 0;
  std::vector<Tensor> tensors_;
};

}  // namespace penstock
