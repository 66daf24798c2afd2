// Reads one model's configuration by the names of either format and checks ranges. The first error
// is kept: read everything, then check status().
#pragma once
#include <algorithm>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/weight_source.h"

namespace penstock {

inline constexpr int kMaxContextLength = 1 << 30;  // largest accepted context length

// Names of one value in GGUF (without the architecture's prefix, or whole after a colon) and in
// config.json; "" for a format that does not have it.
struct Key {
  std::string_view gguf;
  std::string_view hf;
};

// A key whose value changes results unless it is neutral: a file that has it is refused if no code
// asked for it.
struct MeaningfulKey {
  Key key;
  // null and false are neutral too, of layer_types only full_attention
  double neutral;
};

class ConfigReader {
 public:
  // REQUIRES: `object` outlives the reader. gguf_prefix: the architecture's name. where: prefix of
  // every message.
  ConfigReader(const nlohmann::json& object, Naming naming, std::string gguf_prefix,
               std::string where)
      : object_(object),
        naming_(naming),
        prefix_(std::move(gguf_prefix)),
        where_(std::move(where)) {}
  // Sets the source whose configuration is read; without it, no tensor is found.
  void set_source(const WeightSource* source) { source_ = source; }
  bool has_tensor(std::string_view name) const {
    // from the list of tensors: find() may encode the tensor
    return source_ != nullptr && source_->WeightSource::find(name) != nullptr;
  }

  // Returns the rows of a matrix, 0 if there is no such matrix.
  int rows_of(std::string_view name) const {
    const TensorInfo* found = source_ == nullptr ? nullptr : source_->WeightSource::find(name);
    return found != nullptr && found->shape.size() == 2
               ? static_cast<int>(std::min<int64_t>(found->shape[0], 1 << 24))
               : 0;
  }

  // Returns the numbers of the tensor [count] of 64-bit integers whose name has this ending; none
  // if a configuration without tensors is read. Any other source must have it.
  std::vector<int64_t> tensor_integers(std::string_view ending, int count);

  bool gguf() const { return naming_ == Naming::kGguf; }
  const std::string& where() const { return where_; }

  // Returns null if the key is absent or its value is null.
  const nlohmann::json* find(Key key) const;
  bool has(Key key) const { return find(key) != nullptr; }
  std::string name(Key key) const;  // its name in the file

  // Reads a value. If it is missing without a fallback, has another type or is outside [low, high],
  // an error is recorded and a harmless value returned.
  int integer(Key key, int low, int high, std::optional<int> fallback = {});
  float number(Key key, float low, float high, std::optional<float> fallback = {});
  bool flag(Key key, bool fallback);
  std::string text(Key key, std::string fallback);
  // Record an error (kUnsupported) if config.json has another value; a missing key has the wanted one.
  void expect_text(std::string_view key, std::string_view wanted);
  void expect_flag(std::string_view key, bool wanted);
  std::vector<float> numbers(Key key, size_t max_count);  // empty when absent
  // a list, or a number alone; empty when absent
  std::vector<int> integers(Key key, int low, int high);

  void fail(ErrorCode code, std::string message);
  Status status() const { return error_ ? Status(tl::unexpected<Error>(*error_)) : Status(); }
  // takes over its error
  void merge(const ConfigReader& other);
  // key: name in the format
  bool was_asked_for(std::string_view key) const { return asked_.contains(key); }

 private:
  const nlohmann::json& object_;
  Naming naming_;
  std::string prefix_, where_;
  std::optional<Error> error_;
  const WeightSource* source_ = nullptr;
  mutable std::set<std::string, std::less<>> asked_;
};

// Writes keys of a configuration file.
class ConfigWriter {
 public:
  // source: the model that is converted.
  ConfigWriter(nlohmann::json& object, Naming naming, std::string gguf_prefix,
               const WeightSource* source)
      : object_(object), naming_(naming), prefix_(std::move(gguf_prefix)), source_(source) {}
  bool has_tensor(std::string_view name) const {
    return source_ != nullptr && source_->WeightSource::find(name) != nullptr;
  }
  bool gguf() const { return naming_ == Naming::kGguf; }
  // Does nothing if the format does not have the key.
  void set(Key key, nlohmann::json value);
  void erase(Key key);
  // Moves the value under `key` into the object `around` as its `inner`, and puts that object under
  // `key`.
  void nest(Key key, std::string_view inner, nlohmann::json around);
  // Sets a member of the object under `key`, if there is one.
  void set_inside(Key key, std::string_view inner, nlohmann::json value);

 private:
  std::string name(Key key) const;
  nlohmann::json& object_;
  Naming naming_;
  std::string prefix_;
  const WeightSource* source_;
};

}  // namespace penstock
