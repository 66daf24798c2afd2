// Reads the objects of a JSON configuration. Unknown fields are errors; errors name the place of
// the field.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/options/flags.h"

namespace penstock {

using SectionJson = nlohmann::ordered_json;

// Reads the fields of one object. Each known field must be read, so that check() can report unknown
// ones.
class Section {
 public:
  Section(const SectionJson& fields, std::string place)
      : fields_(fields), place_(std::move(place)) {
    if (!fields.is_object())
      failure_ = {ErrorCode::kInvalidArgument, fmt::format("{}: expected an object", place_)};
  }

  // Reads a field; leaves `value` unchanged if the field is absent or null.
  template <class T>
  void read(const char* name, T& value) {
    known_.emplace_back(name);
    const auto field = fields_.find(name);
    if (field == fields_.end() || field->is_null() || failure_) return;
    if (!take(*field, value)) fail(name, what<T>(), *field);
  }
  void read_bytes(const char* name, int64_t& value) {
    known_.emplace_back(name);
    const auto field = fields_.find(name);
    if (field == fields_.end() || field->is_null() || failure_) return;
    const bool is_text = field->is_string();
    if (is_text ? !parse_bytes(field->get<std::string>(), value).empty()
                : !take(*field, value) || value < 0)
      fail(name, "a size such as 512MiB", *field);
  }
  const SectionJson* find(const char* name) {
    known_.emplace_back(name);
    const auto field = fields_.find(name);
    return field == fields_.end() || field->is_null() ? nullptr : &*field;
  }
  void fail(const char* name, std::string_view expected, const SectionJson& got) {
    if (!failure_) {
      failure_ = {ErrorCode::kInvalidArgument,
                  fmt::format("{}.{}: expected {}, got {}", place_, name, expected, text_of(got))};
    }
  }
  // Returns the first error, or an error for a field that was not read.
  Status check() const {
    if (failure_) return tl::unexpected(*failure_);
    for (const auto& [name, value] : fields_.items()) {
      if (std::ranges::find(known_, name) == known_.end())
        return errorf(ErrorCode::kInvalidArgument, "{}.{}: there is no such field", place_, name);
    }
    return {};
  }

 private:
  static std::string text_of(const SectionJson& value) {
    std::string text = value.dump(-1, ' ', false, SectionJson::error_handler_t::replace);
    constexpr size_t kMost = 80;
    return text.size() > kMost ? text.substr(0, kMost) + "..." : text;
  }
  template <class T>
  static const char* what() {
    if constexpr (std::is_same_v<T, bool>) return "true or false";
    if constexpr (std::is_integral_v<T>) return "a whole number";
    if constexpr (std::is_floating_point_v<T>) return "a number";
    if constexpr (std::is_same_v<T, std::string>) return "a text";
    return "a list of texts";
  }
  template <class T>
  static bool take(const SectionJson& field, T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      if (!field.is_boolean()) return false;
    } else if constexpr (std::is_integral_v<T>) {
      if (!field.is_number_integer()) return false;
      if (field.is_number_unsigned() ? !std::in_range<T>(field.get<uint64_t>())
                                     : !std::in_range<T>(field.get<int64_t>()))
        return false;
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!field.is_number()) return false;
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!field.is_string()) return false;
    } else {
      if (!field.is_array() ||
          !std::ranges::all_of(field, [](const SectionJson& one) { return one.is_string(); }))
        return false;
    }
    value = field.get<T>();
    return true;
  }

  const SectionJson& fields_;
  const std::string place_;
  std::vector<std::string> known_;
  std::optional<Error> failure_;
};

}  // namespace penstock
