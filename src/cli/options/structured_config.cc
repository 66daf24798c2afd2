#include "cli/options/structured_config.h"

#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace penstock {
namespace {

using OrderedJson = nlohmann::ordered_json;
constexpr const char* kFlag = "--structured-outputs-config";

tl::unexpected<Error> wrong(const std::string& name, const char* expected, const OrderedJson& got) {
  return errorf(ErrorCode::kInvalidArgument, "{}: {}: expected {}, got {}", kFlag, name, expected,
                got.dump(-1, ' ', true, OrderedJson::error_handler_t::replace));
}

Status read_one(const std::string& name, const OrderedJson& value, StructuredDefaults& defaults,
                ChatConfig& chat) {
  bool* const flag = name == "disable_any_whitespace" ? &defaults.disable_any_whitespace
                     : name == "disable_additional_properties"
                         ? &defaults.disable_additional_properties
                     : name == "additional_properties" ? &defaults.additional_properties
                                                       : nullptr;
  if (flag != nullptr || name == "disable_fallback") {  // disable_fallback: no other backend exists
    if (!value.is_boolean()) return wrong(name, "true or false", value);
    if (flag != nullptr) *flag = value.get<bool>();
    return {};
  }
  if (name == "reasoning_parser") {
    if (!value.is_string()) return wrong(name, "a parser's name", value);
    if (!value.get_ref<const std::string&>().empty()) chat.reasoning_parser = value;
    return {};
  }
  if (name == "backend")
    return value == "auto" ? Status()
                           : wrong(name, "\"auto\": there is one backend, Penstock's own", value);
  if (name == "enable_in_reasoning")
    return value == false ? Status()
                          : wrong(name, "false: reasoning is free, the answer is held", value);
  return errorf(ErrorCode::kInvalidArgument, "{}: {}: there is no such field here", kFlag, name);
}

}  // namespace

Status read_structured_config(const std::string& text, StructuredDefaults& defaults,
                              ChatConfig& chat) {
  const OrderedJson fields = bounded_json<OrderedJson>(text);
  if (!fields.is_object())
    return errorf(ErrorCode::kInvalidArgument, "{}: expected a JSON object, got {}", kFlag, text);
  for (const auto& [name, value] : fields.items()) {
    if (!value.is_null()) RETURN_IF_ERROR(read_one(name, value, defaults, chat));
  }
  if (defaults.additional_properties && defaults.disable_additional_properties) {
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: additional_properties: cannot be true beside disable_additional_properties",
                  kFlag);
  }
  return {};
}

}  // namespace penstock
