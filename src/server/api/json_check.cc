#include "server/api/json_check.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/ordered_json.h"
#include "server/api/field_names.h"

namespace penstock {
namespace {

using Schema = nlohmann::json;
using Value = nlohmann::ordered_json;

// The unlisted fields of a value that otherwise fits its schema.
struct Unlisted {
  struct Holder {
    const Value* object;
    const Schema* listed;  // the schema's properties
  };
  std::vector<Holder> holders;  // inner objects before outer ones
  std::vector<std::string> paths;
};

// The path of a value, from the innermost step outwards; formatted only for messages.
struct Path {
  const Path* outer = nullptr;
  std::string_view name;  // name of a member; empty: an element
  size_t index = 0;
  // of the whole value; null: unlisted fields are refused
  Unlisted* unlisted = nullptr;

  Path member(std::string_view field) const { return {this, field, 0, unlisted}; }
  Path element(size_t i) const { return {this, {}, i, unlisted}; }
  std::string text() const {
    const std::string before = outer == nullptr ? std::string() : outer->text();
    if (name.empty()) return outer == nullptr ? before : fmt::format("{}[{}]", before, index);
    return before.empty() ? std::string(name) : fmt::format("{}.{}", before, name);
  }
  std::string or_body() const {
    std::string result = text();
    return result.empty() ? "body" : result;
  }
};

Status check(const Schema& schema, const Value& value, const Path& path);

// No more of it than a message shows: a large value would be written down whole.
Value beginning(const Value& value) {
  constexpr size_t kMost = 60;
  if (value.is_string() && value.get_ref<const std::string&>().size() > kMost)
    return value.get_ref<const std::string&>().substr(0, kMost);
  if (!value.is_structured() || value.size() <= kMost) return value;
  Value first = value.is_array() ? Value::array() : Value::object();
  for (auto item = value.begin(); first.size() < kMost; ++item) {
    if (value.is_array()) {
      first.push_back(beginning(*item));
    } else {
      first[item.key()] = beginning(item.value());
    }
  }
  return first;
}

std::string shown(const Value& value) {
  std::string text = beginning(value).dump(-1, ' ', false, Value::error_handler_t::replace);
  constexpr size_t kLongest = 60;
  if (text.size() <= kLongest) return text;
  size_t end = kLongest - 3;
  // cut at a character boundary
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

bool is_whole(const Value& value) {
  if (value.is_number_integer()) return true;
  return value.is_number_float() && std::isfinite(value.get<double>()) &&
         std::floor(value.get<double>()) == value.get<double>();
}

bool has_type(const std::string& type, const Value& value) {
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

bool type_fits(const Schema& schema, const Value& value) {
  const auto type = schema.find("type");
  if (type == schema.end()) return true;
  if (type->is_string()) return has_type(type->get_ref<const std::string&>(), value);
  for (const Schema& one : *type) {
    if (has_type(one.get_ref<const std::string&>(), value)) return true;
  }
  return false;
}

bool only_null(const Schema& schema) {
  const auto type = schema.find("type");
  return type != schema.end() && *type == "null";
}

// Describes what was expected: "a string or a list". null is not mentioned.
std::string expectation(const Schema& schema) {
  if (schema.contains("title")) return schema["title"];
  std::string text;
  const auto add = [&](const std::string& one) {
    if (text.find(one) == std::string::npos) text += (text.empty() ? "" : " or ") + one;
  };
  if (schema.contains("enum")) {
    for (const Schema& one : schema["enum"]) {
      if (!one.is_null()) add(one.dump());
    }
  } else if (schema.contains("anyOf")) {
    for (const Schema& one : schema["anyOf"]) {
      if (!only_null(one)) add(expectation(one));
    }
  } else if (schema.contains("type")) {
    const Schema types =
        schema["type"].is_array() ? schema["type"] : Schema::array({schema["type"]});
    for (const Schema& one : types) {
      if (one != "null") add(type_name(one));
    }
  }
  return text.empty() ? "null" : text;
}

tl::unexpected<Error> wrong(const Path& path, const std::string& expected, const Value& got) {
  return errorf(ErrorCode::kInvalidArgument, "{}: expected {}, got {}", path.or_body(), expected,
                shown(got));
}

// Compares scalars as JSON Schema does: 1 equals 1.0.
bool equal(const Schema& listed, const Value& value) {
  if (listed.is_number() && value.is_number()) return listed.get<double>() == value.get<double>();
  if (listed.is_string() && value.is_string())
    return listed.get_ref<const std::string&>() == value.get_ref<const std::string&>();
  if (listed.is_boolean() && value.is_boolean()) return listed.get<bool>() == value.get<bool>();
  return listed.is_null() && value.is_null();
}

Status check_number(const Schema& schema, const Value& value, const Path& path) {
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

Status check_string(const Schema& schema, const std::string& text, const Path& path) {
  if (schema.value("minLength", size_t{0}) > text.size())
    return wrong(path, "a string that is not empty", text);
  const size_t most = schema.value("maxLength", SIZE_MAX);
  if (text.size() <= most) return {};
  const auto n = static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
  if (n <= most) return {};
  return errorf(ErrorCode::kInvalidArgument, "{}: expected at most {} characters, got {}",
                path.or_body(), most, n);
}

Status check_array(const Schema& schema, const Value& value, const Path& path) {
  const size_t most = schema.value("maxItems", SIZE_MAX),
               least = schema.value("minItems", size_t{0});
  if (value.size() < least) {
    return errorf(ErrorCode::kInvalidArgument, "{}: expected at least {} items, got {}",
                  path.or_body(), least, value.size());
  }
  if (value.size() > most) {
    return errorf(ErrorCode::kInvalidArgument, "{}: expected at most {} items, got {}",
                  path.or_body(), most, value.size());
  }
  const auto items = schema.find("items");
  if (items == schema.end()) return {};
  for (size_t i = 0; i < value.size(); ++i) {
    RETURN_IF_ERROR(check(*items, value[i], path.element(i)));
  }
  return {};
}

// Records or refuses an unlisted field.
Status note_unlisted(const Schema& listed, const Path& where) {
  if (const std::string_view meant = meant_name(listed, where.name); !meant.empty()) {
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: this server knows no such field; did you mean {}?", where.text(), meant);
  }
  if (where.unlisted == nullptr) {
    return errorf(ErrorCode::kInvalidArgument, "{}: this server knows no such field", where.text());
  }
  if (where.unlisted->paths.size() == kMostUnlisted) {
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: this server knows no such field, nor {} others of this request",
                  where.text(), kMostUnlisted);
  }
  where.unlisted->paths.push_back(where.text());
  return {};
}

Status check_object(const Schema& schema, const Value& value, const Path& path) {
  const auto properties = schema.find("properties");
  // Checks `type` first: with an unknown type, errors in other fields would mislead.
  if (properties != schema.end() && properties->contains("type") && value.contains("type")) {
    RETURN_IF_ERROR(check((*properties)["type"], value["type"], path.member("type")));
  }
  if (const auto required = schema.find("required"); required != schema.end()) {
    for (const Schema& one : *required) {
      const auto& name = one.get_ref<const std::string&>();
      if (!value.contains(name)) {
        return errorf(ErrorCode::kInvalidArgument, "{}: missing", path.member(name).text());
      }
    }
  }
  if (const size_t most = schema.value("maxProperties", SIZE_MAX); value.size() > most) {
    return errorf(ErrorCode::kInvalidArgument, "{}: expected at most {} fields, got {}",
                  path.or_body(), most, value.size());
  }
  if (const auto names = schema.find("propertyNames"); names != schema.end()) {
    for (auto field = value.begin(); field != value.end(); ++field)
      RETURN_IF_ERROR(check_string(*names, field.key(), path));
  }
  const auto others = schema.find("additionalProperties");
  bool lists_all = true;
  for (auto field = value.begin(); field != value.end(); ++field) {
    const Path where = path.member(field.key());
    if (properties != schema.end() && properties->contains(field.key())) {
      RETURN_IF_ERROR(check((*properties)[field.key()], field.value(), where));
    } else if (others != schema.end() && *others == false) {
      RETURN_IF_ERROR(note_unlisted(*properties, where));
      lists_all = false;
    } else if (others != schema.end() && others->is_object()) {
      RETURN_IF_ERROR(check(*others, field.value(), where));
    }
  }
  if (!lists_all && path.unlisted != nullptr)
    path.unlisted->holders.push_back({&value, &*properties});
  return {};
}

// Returns the schema of an alternative's field `type`; null: none.
const Schema* type_field(const Schema& one) {
  const auto properties = one.find("properties");
  if (properties == one.end()) return nullptr;
  const auto type = properties->find("type");
  return type == properties->end() ? nullptr : &*type;
}

bool knows_all_fields(const Schema& one, const Value& value) {
  if (one.value("additionalProperties", Schema(true)) != false) return true;
  return std::ranges::all_of(
      value.items(), [&](const auto& field) { return one["properties"].contains(field.key()); });
}

// Checks an object against alternatives that are distinguished by their field `type`. The error
// says that the type is unknown, or is the first error of the alternatives with this type,
// preferring those that list all fields. Ok if the alternatives cannot be distinguished so.
Status check_kind(const Schema& schema, const Value& value, const Path& path) {
  Schema types = Schema::array();
  const Schema* meant = nullptr;
  bool knows = false, all_listed = true;
  for (const Schema& one : schema["anyOf"]) {
    if (!type_fits(one, value)) continue;
    const Schema* type = type_field(one);
    if (type == nullptr) return {};
    const auto names = type->find("enum");
    all_listed = all_listed && names != type->end();
    if (names != type->end()) {
      for (const Schema& name : *names) types.push_back(name);
    }
    if (!value.contains("type") || !check(*type, value["type"], {})) continue;
    if (meant == nullptr || (!knows && knows_all_fields(one, value)))
      meant = &one, knows = knows_all_fields(one, value);
  }
  if (meant != nullptr) return check(*meant, value, path);
  if (types.empty() || !all_listed) return {};
  return check_object({{"required", {"type"}}, {"properties", {{"type", {{"enum", types}}}}}},
                      value, path);
}

// The error comes from the only alternative of the value's type, or from the one that an object's
// `type` selects.
Status check_any(const Schema& schema, const Value& value, const Path& path) {
  Path place = path;
  if (path.unlisted != nullptr) {  // prefer an alternative that lists all fields
    place.unlisted = nullptr;
    for (const Schema& one : schema["anyOf"]) {
      if (check(one, value, place)) return {};
    }
  }
  Status only;
  int n_close = 0;
  for (const Schema& one : schema["anyOf"]) {
    Unlisted tried;
    if (path.unlisted != nullptr) tried.paths = path.unlisted->paths;
    place.unlisted = path.unlisted == nullptr ? nullptr : &tried;
    Status status = check(one, value, place);
    if (status && path.unlisted != nullptr) {
      path.unlisted->paths = std::move(tried.paths);
      path.unlisted->holders.insert(path.unlisted->holders.end(), tried.holders.begin(),
                                    tried.holders.end());
    }
    if (status) return {};
    if (type_fits(one, value) && !one.contains("enum")) {
      ++n_close;
      only = std::move(status);
    }
  }
  if (n_close == 1) return only;
  if (value.is_object()) RETURN_IF_ERROR(check_kind(schema, value, path));
  return wrong(path, expectation(schema), value);
}

Status check(const Schema& schema, const Value& value, const Path& path) {
  if (!type_fits(schema, value)) {
    if (only_null(schema)) {
      return errorf(ErrorCode::kInvalidArgument, "{}: {}", path.text(),
                    schema.value("description", "not supported"));
    }
    return wrong(path, expectation(schema), value);
  }
  if (const auto values = schema.find("enum"); values != schema.end()) {
    const auto is_value = [&](const Schema& one) { return equal(one, value); };
    if (std::ranges::none_of(*values, is_value)) return wrong(path, expectation(schema), value);
  }
  if (const auto other = schema.find("not"); other != schema.end()) {
    const auto is_value = [&](const Schema& one) { return equal(one, value); };
    if (std::ranges::any_of((*other)["enum"], is_value)) return wrong(path, "another value", value);
  }
  if (schema.contains("anyOf")) RETURN_IF_ERROR(check_any(schema, value, path));
  if (value.is_number()) return check_number(schema, value, path);
  if (value.is_array()) return check_array(schema, value, path);
  if (value.is_object()) return check_object(schema, value, path);
  return value.is_string() ? check_string(schema, value.get_ref<const std::string&>(), path)
                           : Status();
}

// Linear time, unlike erasing fields one by one.
void keep_listed(const Schema& listed, Value& object) {
  Value known = Value::object();
  reserve_members(known, object.size());
  for (auto field = object.begin(); field != object.end(); ++field) {
    if (listed.contains(field.key())) known[field.key()] = std::move(field.value());
  }
  object = std::move(known);
}

}  // namespace

Status check_json(const Schema& schema, const Value& value) { return check(schema, value, {}); }

Status check_listed(const Schema& schema, Value& value, std::vector<std::string>& paths) {
  Unlisted unlisted;
  RETURN_IF_ERROR(check(schema, value, {.unlisted = &unlisted}));
  // All holders are parts of `value`, which is not const.
  for (const auto& [object, listed] : unlisted.holders)
    keep_listed(*listed, const_cast<Value&>(*object));
  paths = std::move(unlisted.paths);
  return {};
}

}  // namespace penstock
