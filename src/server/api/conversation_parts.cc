#include "server/api/conversation_parts.h"

#include <algorithm>

#include "base/ordered_json.h"
#include "frontend/json_fields.h"
#include "frontend/pictures/message_pictures.h"
#include "server/api/api_request.h"

namespace penstock {

std::string take_string(json& object, const char* name) {
  json value = take_field(object, name);
  return value.is_string() ? std::move(value.get_ref<std::string&>()) : std::string();
}

tl::unexpected<Error> cannot(const std::string& where, const std::string& type) {
  return errorf(ErrorCode::kInvalidArgument, "{}: parts of type {} are not supported", where,
                type.empty() ? "(none)" : type);
}

json text_part(std::string text) {
  json result = {{"type", "text"}};
  result["text"] = std::move(text);
  return result;
}

json text_part_of(json& part) {
  json result = {{"type", "text"}};
  result["text"] = take_field(part, "text");
  return result;
}

json image_part(std::string url, std::string where) {
  json of_url = json::object();
  of_url["url"] = std::move(url);
  json result = {{"type", "image_url"}};
  result["image_url"] = std::move(of_url);
  result[kPicturePlace] = json::binary({where.begin(), where.end()});
  return result;
}

std::string data_url(std::string_view media_type, std::string_view base64) {
  return fmt::format("data:{};base64,{}", media_type.empty() ? "image" : media_type, base64);
}

json message_of(const std::string& role, json content) {
  json result = {{"role", role}};
  reserve_members(result, 4);
  result["content"] = std::move(content);
  return result;
}

json tool_message(std::string call_id, json content) {
  json result = {{"role", "tool"}, {"tool_call_id", std::move(call_id)}};
  result["content"] = std::move(content);
  return result;
}

json tool_call(std::string id, std::string name, json arguments) {
  json function = {{"name", std::move(name)}};
  function["arguments"] = std::move(arguments);
  json result = {{"id", std::move(id)}, {"type", "function"}};
  result["function"] = std::move(function);
  return result;
}

Result<json> text_parts(json content, std::initializer_list<std::string_view> types,
                        const std::string& where) {
  if (content.is_string() || content.is_null()) return content;
  if (!content.is_array())
    return errorf(ErrorCode::kInvalidArgument, "{}: expected a string or a list of parts", where);
  json parts = json::array();
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string type = get_string(content[i], "type");
    const bool known = std::ranges::find(types, type) != types.end();
    if (known && type == "input_image") {
      if (!get_field(content[i], "image_url").is_string()) {
        return errorf(ErrorCode::kInvalidArgument,
                      "{}[{}].image_url: expected a data URL (files are not read by their id)",
                      where, i);
      }
      parts.push_back(
          image_part(take_string(content[i], "image_url"), fmt::format("{}[{}]", where, i)));
      continue;
    }
    if (!known || !get_field(content[i], "text").is_string())
      return cannot(fmt::format("{}[{}]", where, i), type);
    parts.push_back(text_part_of(content[i]));
  }
  return parts;
}

}  // namespace penstock
