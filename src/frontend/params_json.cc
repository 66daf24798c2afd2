#include "frontend/params_json.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace penstock {

using json = nlohmann::ordered_json;

namespace {

tl::unexpected<Error> wrong(const char* field, const char* expected, const json& got) {
  std::string text = got.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return errorf(ErrorCode::kInvalidArgument, "{}: expected {}, got {}", field, expected, text);
}

template <class T>
Status read_integer(const char* field, const json& value, T& out) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number <= static_cast<uint64_t>(std::numeric_limits<T>::max())) {
      out = static_cast<T>(number);
      return {};
    }
  } else if (value.is_number_integer()) {
    const int64_t number = value.get<int64_t>();
    if constexpr (std::is_same_v<T, uint64_t>) {
      out = static_cast<uint64_t>(number);  // a negative seed is as good as any
      return {};
    } else if (number >= std::numeric_limits<T>::min() && number <= std::numeric_limits<T>::max()) {
      out = static_cast<T>(number);
      return {};
    }
  } else if (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()) &&
             std::abs(value.get<double>()) < 1e9) {
    out = static_cast<T>(value.get<double>());
    return {};
  }
  return wrong(field, "an integer", value);
}

Status read_value(const char* field, const json& value, int& out) { return read_integer(field, value, out); }

Status read_value(const char* field, const json& value, float& out) {
  if (!value.is_number()) return wrong(field, "a number", value);
  out = value.get<float>();
  return {};
}

Status read_value(const char* field, const json& value, bool& out) {
  if (!value.is_boolean()) return wrong(field, "true or false", value);
  out = value.get<bool>();
  return {};
}

Status read_value(const char* field, const json& value, std::optional<uint64_t>& out) {
  return read_integer(field, value, out.emplace());
}

Status read_value(const char* field, const json& value, std::optional<int>& out) {
  if (value.is_boolean()) {  // chat completions: true is "of the chosen token", false is none
    out = value.get<bool>() ? std::optional<int>(0) : std::nullopt;
    return {};
  }
  return read_integer(field, value, out.emplace());
}

Status read_value(const char* field, const json& value, std::vector<std::string>& out) {
  out.clear();
  if (value.is_string()) {
    out.push_back(value.get<std::string>());
    return {};
  }
  if (!value.is_array()) return wrong(field, "a string or a list of strings", value);
  for (const json& item : value) {
    if (!item.is_string()) return wrong(field, "a list of strings", item);
    out.push_back(item.get<std::string>());
  }
  return {};
}

Status read_value(const char* field, const json& value, std::vector<TokenId>& out) {
  out.clear();
  if (!value.is_array()) return wrong(field, "a list of token ids", value);
  for (const json& item : value) RETURN_IF_ERROR(read_integer(field, item, out.emplace_back()));
  return {};
}

Status read_value(const char* field, const json& value, std::vector<std::pair<TokenId, float>>& out) {
  out.clear();
  if (!value.is_object()) return wrong(field, "an object of token id to bias", value);
  for (const auto& [key, bias] : value.items()) {
    TokenId id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size())
      return wrong(field, "a token id as key", json(key));
    if (!bias.is_number()) return wrong(field, "a number as bias", bias);
    out.emplace_back(id, bias.get<float>());
  }
  return {};
}

}  // namespace

Status params_from_json(const json& object, SamplingParams& params) {
  Status status;
  SamplingParams::visit(params, [&](const char* field, auto& out, const char*, const auto&) {
    if (!status) return;
    const auto found = object.find(field);
    if (found != object.end() && !found->is_null()) status = read_value(field, *found, out);
  });
  return status;
}

json params_to_json(const SamplingParams& params) {
  json object = json::object();
  SamplingParams::visit(params, [&](const char* field, const auto& value, const char*, const auto&) {
    using Field = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Field, std::vector<std::pair<TokenId, float>>>) {
      object[field] = json::object();
      for (const auto& [id, bias] : value) object[field][std::to_string(id)] = bias;
    } else if constexpr (requires { value.has_value(); }) {
      object[field] = value.has_value() ? json(*value) : json(nullptr);
    } else {
      object[field] = value;
    }
  });
  return object;
}

}  // namespace penstock
