#include "model/arch/config_reader.h"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

namespace penstock {

using nlohmann::json;

namespace {

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

std::string gguf_key(std::string_view prefix, std::string_view key) {
  return key.starts_with(':') ? std::string(key.substr(1)) : fmt::format("{}.{}", prefix, key);
}

}  // namespace

std::string ConfigReader::name(Key key) const {
  return gguf() ? gguf_key(prefix_, key.gguf) : std::string(key.hf);
}

const json* ConfigReader::find(Key key) const {
  if ((gguf() ? key.gguf : key.hf).empty() || !object_.is_object()) return nullptr;
  asked_.emplace(gguf() ? key.gguf : key.hf);
  const auto found = object_.find(name(key));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void ConfigReader::fail(ErrorCode code, std::string message) {
  if (!error_) error_ = Error{code, fmt::format("{}: {}", where_, message)};
}

void ConfigReader::merge(const ConfigReader& other) {
  if (!error_) error_ = other.error_;
}

int ConfigReader::integer(Key key, int low, int high, std::optional<int> fallback) {
  const json* value = find(key);
  if (value == nullptr) {
    if (!fallback) fail(ErrorCode::kCorruptFile, fmt::format("{} is missing", name(key)));
    return fallback.value_or(low);
  }
  // An integral double is accepted (some configs say 1e6); unsigned values beyond int64 are out of
  // any range.
  const bool integral =
      value->is_number_integer() ||
      (value->is_number_float() && std::trunc(value->get<double>()) == value->get<double>());
  const double number = integral ? value->get<double>() : 0.0;
  if (!integral || !(number >= low && number <= high)) {
    fail(ErrorCode::kCorruptFile, fmt::format("{}: expected an integer in {}..{}, got {}",
                                              name(key), low, high, shown(*value)));
    return fallback.value_or(low);
  }
  return static_cast<int>(number);
}

float ConfigReader::number(Key key, float low, float high, std::optional<float> fallback) {
  const json* value = find(key);
  if (value == nullptr) {
    if (!fallback) fail(ErrorCode::kCorruptFile, fmt::format("{} is missing", name(key)));
    return fallback.value_or(low);
  }
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= low && number <= high)) {
    fail(ErrorCode::kCorruptFile, fmt::format("{}: expected a number in {}..{}, got {}", name(key),
                                              low, high, shown(*value)));
    return fallback.value_or(low);
  }
  return static_cast<float>(number);
}

std::vector<int64_t> ConfigReader::tensor_integers(std::string_view ending, int count) {
  const auto tensors = source_ != nullptr ? source_->tensors() : std::span<const TensorInfo>();
  if (tensors.empty()) return {};
  const auto found = std::ranges::find_if(
      tensors, [&](const TensorInfo& tensor) { return tensor.name.ends_with(ending); });
  std::vector<int64_t> values(static_cast<size_t>(count));
  if (found == tensors.end() || found->type != QuantType::kI64 ||
      found->shape != std::vector<int64_t>{count} ||
      found->bytes.size() != values.size() * sizeof(int64_t)) {
    fail(ErrorCode::kCorruptFile, fmt::format("tensor {}: expected {} integers of 64 bits, got {}",
                                              found == tensors.end() ? ending : found->name, count,
                                              found == tensors.end() ? "none" : "others"));
    return {};
  }
  std::memcpy(values.data(), found->bytes.data(), found->bytes.size());
  return values;
}

bool ConfigReader::flag(Key key, bool fallback) {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  fail(ErrorCode::kCorruptFile,
       fmt::format("{}: expected true or false, got {}", name(key), shown(*value)));
  return fallback;
}

std::string ConfigReader::text(Key key, std::string fallback) {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_string()) return value->get<std::string>();
  fail(ErrorCode::kCorruptFile,
       fmt::format("{}: expected a string, got {}", name(key), shown(*value)));
  return fallback;
}

void ConfigReader::expect_text(std::string_view key, std::string_view wanted) {
  const std::string found = text({"", key}, std::string(wanted));
  if (found != wanted)
    fail(ErrorCode::kUnsupported, fmt::format("{}: expected {}, got '{}'", key, wanted, found));
}

void ConfigReader::expect_flag(std::string_view key, bool wanted) {
  if (flag({"", key}, wanted) != wanted)
    fail(ErrorCode::kUnsupported, fmt::format("{}: expected {}, got {}", key, wanted, !wanted));
}

std::vector<float> ConfigReader::numbers(Key key, size_t max_count) {
  const json* value = find(key);
  std::vector<float> result;
  if (value == nullptr) return result;
  if (!value->is_array() || value->size() > max_count) {
    fail(ErrorCode::kCorruptFile, fmt::format("{}: expected a list of at most {} numbers, got {}",
                                              name(key), max_count, shown(*value)));
    return result;
  }
  for (const json& item : *value) {
    const double number = item.is_number() ? item.get<double>() : std::nan("");
    if (!(std::abs(number) <= 1e30)) {
      fail(ErrorCode::kCorruptFile,
           fmt::format("{}: expected numbers, got {}", name(key), shown(item)));
      return {};
    }
    result.push_back(static_cast<float>(number));
  }
  return result;
}

std::vector<int> ConfigReader::integers(Key key, int low, int high) {
  const json* value = find(key);
  if (value == nullptr) return {};
  std::vector<int> result;
  for (const json& item : value->is_array() ? *value : json::array({*value})) {
    const int64_t number = item.is_number_integer() ? item.get<int64_t>() : int64_t{low} - 1;
    if (number < low || number > high || result.size() >= 4096) {
      fail(ErrorCode::kCorruptFile, fmt::format("{}: expected integers in {}..{}, got {}",
                                                name(key), low, high, shown(item)));
      return {};
    }
    result.push_back(static_cast<int>(number));
  }
  return result;
}

std::string ConfigWriter::name(Key key) const {
  return gguf() ? gguf_key(prefix_, key.gguf) : std::string(key.hf);
}

void ConfigWriter::set_inside(Key key, std::string_view inner, json value) {
  if ((gguf() ? key.gguf : key.hf).empty()) return;
  const auto found = object_.find(name(key));
  if (found != object_.end() && found->is_object()) (*found)[std::string(inner)] = std::move(value);
}

void ConfigWriter::nest(Key key, std::string_view inner, json around) {
  if ((gguf() ? key.gguf : key.hf).empty()) return;
  const auto found = object_.find(name(key));
  if (found != object_.end()) around[std::string(inner)] = *found;
  object_[name(key)] = std::move(around);
}

void ConfigWriter::set(Key key, json value) {
  if ((gguf() ? key.gguf : key.hf).empty()) return;
  // Counts are unsigned in GGUF: llama.cpp refuses others.
  if (gguf() && value.is_number_integer() && value.get<int64_t>() >= 0)
    value = value.get<uint64_t>();
  object_[name(key)] = std::move(value);
}

void ConfigWriter::erase(Key key) {
  if (!(gguf() ? key.gguf : key.hf).empty()) object_.erase(name(key));
}

}  // namespace penstock
