#include "frontend/params_json.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

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
      out = static_cast<uint64_t>(number);  // negative seeds are permitted
      return {};
    } else if (number >= std::numeric_limits<T>::min() && number <= std::numeric_limits<T>::max()) {
      out = static_cast<T>(number);
      return {};
    }
  } else if (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()) &&
             std::abs(value.get<double>()) < 1e9) {
    out = static_cast<T>(static_cast<int64_t>(value.get<double>()));
    return {};
  }
  return wrong(field, "an integer", value);
}

Status read_value(const char* field, const json& value, int& out) {
  return read_integer(field, value, out);
}

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
  if (value.is_boolean()) {  // chat API: true: the sampled token only, false: none
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

Status read_value(const char* field, const json& value,
                  std::vector<std::pair<TokenId, float>>& out) {
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

Status read_value(const char* field, const json& value, std::string& out) {
  if (!value.is_string()) return wrong(field, "a string", value);
  out = value.get<std::string>();
  return {};
}

Status read_value(const char* field, const json& value, std::optional<std::string>& out) {
  return read_value(field, value, out.emplace());
}

// Reads JSON as text: objects and booleans are serialized, a string is taken as JSON text.
Status read_json_text(const char* field, const json& value, std::string& out) {
  if (value.is_number() || value.is_array()) return wrong(field, "an object or its text", value);
  out = value.is_string() ? value.get<std::string>()
                          : value.dump(-1, ' ', false, json::error_handler_t::replace);
  return {};
}

}  // namespace

Result<StructuredOutputs> structured_outputs_from_json(const json& object) {
  if (!object.is_object()) return wrong("structured_outputs", "an object", object);
  StructuredOutputs outputs;
  Status status;
  json unknown = object;
  StructuredOutputs::visit(
      outputs, [&](const char* name, auto& out, const char*, StructuredOutputs::As as) {
        const auto found = object.find(name);
        if (found == object.end()) return;
        unknown.erase(name);
        if (!status || found->is_null()) return;
        const std::string field = fmt::format("structured_outputs.{}", name);
        if constexpr (std::is_same_v<std::decay_t<decltype(out)>, std::string>) {
          if (as == StructuredOutputs::As::kJson) {
            status = read_json_text(field.c_str(), *found, out);
            return;
          }
        }
        status = read_value(field.c_str(), *found, out);
      });
  RETURN_IF_ERROR(status);
  if (!unknown.empty()) {
    return errorf(ErrorCode::kInvalidArgument, "structured_outputs.{}: there is no such field",
                  unknown.begin().key());
  }
  return outputs;
}

json structured_outputs_to_json(const StructuredOutputs& outputs) {
  json object = json::object();
  StructuredOutputs::visit(outputs, [&](const char* name, const auto& value, const char*, auto) {
    if constexpr (requires { value.has_value(); }) {
      if (value) object[name] = *value;
    } else {
      if (value != std::decay_t<decltype(value)>()) object[name] = value;
    }
  });
  return object;
}

Status params_from_json(const json& object, SamplingParams& params) {
  Status status;
  SamplingParams::visit(params, [&](const char* field, auto& out, const char*, const auto&) {
    if (!status) return;
    const auto found = object.find(field);
    if (found != object.end() && !found->is_null()) status = read_value(field, *found, out);
  });
  // An empty list would allow all tokens, since it means "no restriction" in SamplingParams.
  const auto allowed = object.find("allowed_token_ids");
  if (status && allowed != object.end() && allowed->is_array() && allowed->empty())
    return wrong("allowed_token_ids", "at least one token id", *allowed);
  const auto held = object.find("structured_outputs");
  if (status && held != object.end() && !held->is_null()) {
    ASSIGN_OR_RETURN(params.structured_outputs, structured_outputs_from_json(*held));
  }
  return status;
}

json params_to_json(const SamplingParams& params) {
  json object = json::object();
  SamplingParams::visit(
      params, [&](const char* field, const auto& value, const char*, const auto&) {
        using Field = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Field, std::vector<std::pair<TokenId, float>>>) {
          // Writes into the underlying vector: operator[] searches linearly for an equal name,
          // which would take quadratic time.
          std::vector<json::object_t::value_type>& members =
              (object[field] = json::object()).template get_ref<json::object_t&>();
          std::unordered_map<TokenId, size_t> places;
          for (const auto& [id, bias] : value) {
            const auto [place, is_new] = places.emplace(id, members.size());
            if (is_new) members.emplace_back(std::to_string(id), bias);
            members[place->second].second = bias;
          }
        } else if constexpr (requires { value.has_value(); }) {
          object[field] = value.has_value() ? json(*value) : json(nullptr);
        } else {
          object[field] = value;
        }
      });
  if (params.allowed_token_ids.empty()) object["allowed_token_ids"] = nullptr;
  object["structured_outputs"] = params.structured_outputs
                                     ? structured_outputs_to_json(*params.structured_outputs)
                                     : json(nullptr);
  return object;
}

}  // namespace penstock
