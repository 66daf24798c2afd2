#include "server/json_check.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace penstock {
namespace {

using nlohmann::json;

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  constexpr size_t kLongest = 60;
  if (text.size() <= kLongest) return text;
  size_t end = kLongest - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // whole characters
  return text.substr(0, end) + "...";
}

bool is_whole(const json& value) {
  if (value.is_number_integer()) return true;
  return value.is_number_float() && std::isfinite(value.get<double>()) &&
         std::floor(value.get<double>()) == value.get<double>();
}

bool has_type(const std::string& type, const json& value) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return is_whole(value);
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  return value.is_object();
}

const char* type_name(const std::string& type) {
  if (type == "boolean") return "true or false";
  if (type == "integer") return "an integer";
  if (type == "number") return "a number";
  if (type == "string") return "a string";
  if (type == "array") return "a list";
  return type == "null" ? "null" : "an object";
}

bool type_fits(const json& schema, const json& value) {
  const auto type = schema.find("type");
  if (type == schema.end()) return true;
  if (type->is_string()) return has_type(type->get_ref<const std::string&>(), value);
  for (const json& one : *type) {
    if (has_type(one.get_ref<const std::string&>(), value)) return true;
  }
  return false;
}

bool only_null(const json& schema) {
  const auto type = schema.find("type");
  return type != schema.end() && *type == "null";
}

// "a string or a list": what a message says was expected. That null is allowed goes without saying.
std::string expectation(const json& schema) {
  if (schema.contains("title")) return schema["title"];
  std::string text;
  const auto add = [&](const std::string& one) {
    if (text.find(one) == std::string::npos) text += (text.empty() ? "" : " or ") + one;
  };
  if (schema.contains("enum")) {
    for (const json& one : schema["enum"]) {
      if (!one.is_null()) add(one.dump());
    }
  } else if (schema.contains("anyOf")) {
    for (const json& one : schema["anyOf"]) {
      if (!only_null(one)) add(expectation(one));
    }
  } else if (schema.contains("type")) {
    const json types = schema["type"].is_array() ? schema["type"] : json::array({schema["type"]});
    for (const json& one : types) {
      if (one != "null") add(type_name(one));
    }
  }
  return text.empty() ? "null" : text;
}

tl::unexpected<Error> wrong(const std::string& path, const std::string& expected, const json& got) {
  return errorf(ErrorCode::kInvalidArgument, "{}: expected {}, got {}", path.empty() ? "body" : path,
                expected, shown(got));
}

std::string member(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

Status check_number(const json& schema, const json& value, const std::string& path) {
  const double number = value.get<double>();
  if (schema.contains("minimum") && !(number >= schema["minimum"].get<double>())) {
    return wrong(path, "a number >= " + schema["minimum"].dump(), value);
  }
  if (schema.contains("exclusiveMinimum") && !(number > schema["exclusiveMinimum"].get<double>())) {
    return wrong(path, "a number > " + schema["exclusiveMinimum"].dump(), value);
  }
  if (schema.contains("maximum") && !(number <= schema["maximum"].get<double>())) {
    return wrong(path, "a number <= " + schema["maximum"].dump(), value);
  }
  return {};
}

Status check_string(const json& schema, const json& value, const std::string& path) {
  const std::string& text = value.get_ref<const std::string&>();
  if (schema.value("minLength", size_t{0}) > text.size())
    return wrong(path, "a string that is not empty", value);
  const size_t most = schema.value("maxLength", SIZE_MAX);
  if (text.size() <= most) return {};
  const auto n = static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
  if (n <= most) return {};
  return errorf(ErrorCode::kInvalidArgument, "{}: expected at most {} characters, got {}",
                path.empty() ? "body" : path, most, n);
}

Status check_array(const json& schema, const json& value, const std::string& path) {
  const size_t most = schema.value("maxItems", SIZE_MAX), least = schema.value("minItems", size_t{0});
  if (value.size() < least) {
    return errorf(ErrorCode::kInvalidArgument, "{}: expected at least {} items, got {}", path, least,
                  value.size());
  }
  if (value.size() > most) {
    return errorf(ErrorCode::kInvalidArgument, "{}: expected at most {} items, got {}", path, most,
                  value.size());
  }
  const auto items = schema.find("items");
  if (items == schema.end()) return {};
  for (size_t i = 0; i < value.size(); ++i) {
    RETURN_IF_ERROR(check_json(*items, value[i], fmt::format("{}[{}]", path, i)));
  }
  return {};
}

Status check_object(const json& schema, const json& value, const std::string& path) {
  const auto properties = schema.find("properties");
  // What an object is comes first: the other fields of a type that is not known are not what is wrong.
  if (properties != schema.end() && properties->contains("type") && value.contains("type")) {
    RETURN_IF_ERROR(check_json((*properties)["type"], value["type"], member(path, "type")));
  }
  if (const auto required = schema.find("required"); required != schema.end()) {
    for (const json& name : *required) {
      if (!value.contains(name.get_ref<const std::string&>())) {
        return errorf(ErrorCode::kInvalidArgument, "{}: missing", member(path, name));
      }
    }
  }
  const auto others = schema.find("additionalProperties");
  for (auto field = value.begin(); field != value.end(); ++field) {
    const std::string where = member(path, field.key());
    if (properties != schema.end() && properties->contains(field.key())) {
      RETURN_IF_ERROR(check_json((*properties)[field.key()], field.value(), where));
    } else if (others != schema.end() && *others == false) {
      return errorf(ErrorCode::kInvalidArgument, "{}: this server knows no such field", where);
    } else if (others != schema.end() && others->is_object()) {
      RETURN_IF_ERROR(check_json(*others, field.value(), where));
    }
  }
  return {};
}

// The alternative of the value's type gives the message when there is just one.
Status check_any(const json& schema, const json& value, const std::string& path) {
  Status only;
  int n_close = 0;
  for (const json& one : schema["anyOf"]) {
    Status status = check_json(one, value, path);
    if (status) return {};
    if (type_fits(one, value) && !one.contains("enum")) {
      ++n_close;
      only = std::move(status);
    }
  }
  if (n_close == 1) return only;
  return wrong(path, expectation(schema), value);
}

}  // namespace

Status check_json(const json& schema, const json& value, const std::string& path) {
  if (!type_fits(schema, value)) {
    if (only_null(schema)) {
      return errorf(ErrorCode::kInvalidArgument, "{}: {}", path,
                    schema.value("description", "not supported"));
    }
    return wrong(path, expectation(schema), value);
  }
  if (const auto values = schema.find("enum"); values != schema.end()) {
    if (std::find(values->begin(), values->end(), value) == values->end())
      return wrong(path, expectation(schema), value);
  }
  if (schema.contains("anyOf")) RETURN_IF_ERROR(check_any(schema, value, path));
  if (value.is_number()) return check_number(schema, value, path);
  if (value.is_array()) return check_array(schema, value, path);
  if (value.is_object()) return check_object(schema, value, path);
  return value.is_string() ? check_string(schema, value, path) : Status();
}

}  // namespace penstock
