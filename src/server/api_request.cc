#include "server/api_request.h"

#include <random>

#include "frontend/params_json.h"

namespace penstock {
namespace {

constexpr int kMaxDepth = 64;

// Nesting is bounded before parsing: the parser would recurse (or grow) with it.
bool too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

tl::unexpected<Error> wrong(const char* field, const char* expected, const json& got) {
  std::string text = dump(got);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return errorf(ErrorCode::kInvalidArgument, "{}: expected {}, got {}", field, expected, text);
}

const json* present(const json& body, const char* field) {
  const auto found = body.find(field);
  return found == body.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace

Result<json> parse_body(const HttpRequest& request) {
  if (too_deep(request.body)) {
    return errorf(ErrorCode::kInvalidArgument, "body: nested more than {} levels deep", kMaxDepth);
  }
  json body = json::parse(request.body, nullptr, false);
  if (body.is_discarded()) return errorf(ErrorCode::kInvalidArgument, "body: not valid JSON");
  if (!body.is_object()) return errorf(ErrorCode::kInvalidArgument, "body: expected a JSON object");
  return body;
}

Result<bool> get_bool(const json& body, const char* field, bool fallback) {
  const json* value = present(body, field);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return wrong(field, "true or false", *value);
  return value->get<bool>();
}

Result<std::string> get_string(const json& body, const char* field, std::string fallback) {
  const json* value = present(body, field);
  if (value == nullptr) return fallback;
  if (!value->is_string()) return wrong(field, "a string", *value);
  return value->get<std::string>();
}

Result<int64_t> get_int(const json& body, const char* field, int64_t fallback, int64_t min, int64_t max) {
  const json* value = present(body, field);
  if (value == nullptr) return fallback;
  if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX)) {
    return wrong(field, "an integer", *value);
  }
  const int64_t number = value->get<int64_t>();
  if (number < min || number > max) {
    return errorf(ErrorCode::kInvalidArgument, "{}: expected {} to {}, got {}", field, min, max, number);
  }
  return number;
}

Result<SamplingParams> read_sampling(const Session& session, const json& body, int default_max_tokens) {
  SamplingParams params = session.default_sampling_params();
  params.max_tokens = default_max_tokens;
  params.logprobs.reset();
  RETURN_IF_ERROR(params_from_json(body, params));
  return params;
}

Result<Priority> read_priority(const json& body) {
  ASSIGN_OR_RETURN(const int64_t value, get_int(body, "priority", 1, 0, 2));
  return static_cast<Priority>(value);
}

Status check_model(const json& body, const std::string& served) {
  ASSIGN_OR_RETURN(const std::string name, get_string(body, "model", ""));
  if (!name.empty() && name != served) {
    return errorf(ErrorCode::kNotFound, "model: expected {}, got {}", served, name);
  }
  return {};
}

Status refuse_fields(const json& body, std::initializer_list<const char*> fields) {
  for (const char* field : fields) {
    const json* value = present(body, field);
    if (value == nullptr || (value->is_boolean() && !value->get<bool>()) || (value->is_array() && value->empty())) continue;
    return errorf(ErrorCode::kInvalidArgument, "{}: not supported by this server", field);
  }
  return {};
}

std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string sse(const json& value) { return "data: " + dump(value) + "\n\n"; }

HttpReply json_reply(const json& body) {
  HttpReply reply;
  reply.body = dump(body);
  return reply;
}

std::string random_id(const char* prefix) {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{}-{:016x}{:08x}", prefix, random(), static_cast<uint32_t>(random()));
}

}  // namespace penstock
