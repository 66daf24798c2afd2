// Reads one model's configuration by the names of either format, with ranges. The first problem sticks: read
// everything, then ask status().
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/weight_source.h"

namespace penstock {

inline constexpr int kMaxContextLength = 1 << 30;  // that a model may say it knows

// The same fact in GGUF (without the architecture's prefix) and in config.json; "" where a format does not
// have it.
struct Key {
  std::string_view gguf;
  std::string_view hf;
};

class ConfigReader {
 public:
  // `object` must outlive the reader; gguf_prefix is the architecture's name; `where` begins every message.
  ConfigReader(const nlohmann::json& object, Naming naming, std::string gguf_prefix, std::string where)
      : object_(object), naming_(naming), prefix_(std::move(gguf_prefix)), where_(std::move(where)) {}

  bool gguf() const { return naming_ == Naming::kGguf; }
  const std::string& where() const { return where_; }

  // nullptr when the key is absent or null.
  const nlohmann::json* find(Key key) const;
  bool has(Key key) const { return find(key) != nullptr; }

  // Missing without a fallback, of another type or outside [low, high]: an error, and a harmless value is
  // returned.
  int integer(Key key, int low, int high, std::optional<int> fallback = {});
  float number(Key key, float low, float high, std::optional<float> fallback = {});
  bool flag(Key key, bool fallback);
  std::string text(Key key, std::string fallback);
  std::vector<float> numbers(Key key, size_t max_count);  // empty when absent

  void fail(ErrorCode code, std::string message);
  Status status() const { return error_ ? Status(tl::unexpected<Error>(*error_)) : Status(); }
  void merge(const ConfigReader& other);  // takes over its error

 private:
  std::string name(Key key) const;
  const nlohmann::json& object_;
  Naming naming_;
  std::string prefix_, where_;
  std::optional<Error> error_;
};

}  // namespace penstock
