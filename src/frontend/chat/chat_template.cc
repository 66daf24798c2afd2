#include "frontend/chat/chat_template.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "jinja/eval.h"
#include "jinja/parser.h"
#include "jinja/text.h"

namespace penstock {
namespace {

using jinja::Failure;
using jinja::Runtime;
using jinja::Value;
using Json = nlohmann::ordered_json;

tl::unexpected<Error> to_error(const Failure& failure, int line) {
  const std::string type = failure.type.empty() ? "" : failure.type + ": ";
  const std::string where = line > 0 ? fmt::format(", line {}", line) : "";
  return make_error(failure.code,
                    fmt::format("chat template{}: {}{}", where, type, failure.message));
}

[[noreturn]] void fail_context(const std::string& what) {
  throw Failure{ErrorCode::kInvalidArgument, "", "the context " + what, 0};
}

Value text_value(Runtime& rt, std::string text) {
  const size_t bad = jinja::find_invalid_utf8(text);
  if (bad != std::string::npos)
    fail_context(fmt::format("holds text that is not UTF-8 at its byte {}", bad));
  return rt.string(std::move(text));
}

// Moves the texts out of the JSON value.
Value to_value(Runtime& rt, Json& json, int depth) {
  if (depth > jinja::kMaxDepth - 2)
    fail_context(fmt::format("is nested deeper than {}", jinja::kMaxDepth - 2));
  switch (json.type()) {
    case Json::value_t::boolean: return Value::of(json.get<bool>());
    case Json::value_t::number_integer: return Value::of(json.get<int64_t>());
    case Json::value_t::number_unsigned: {
      const auto n = json.get<uint64_t>();
      if (n > INT64_MAX)
        fail_context(fmt::format("holds the integer {}, which does not fit in 64 bits", n));
      return Value::of(static_cast<int64_t>(n));
    }
    case Json::value_t::number_float: return Value::of(json.get<double>());
    case Json::value_t::string: return text_value(rt, std::move(json.get_ref<std::string&>()));
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (Json& item : json) items.push_back(to_value(rt, item, depth + 1));
      return rt.list(std::move(items));
    }
    case Json::value_t::object: {
      jinja::Pairs items;
      items.reserve(json.size());
      for (auto& [key, item] : json.get_ref<Json::object_t&>()) {
        Value name = text_value(rt, key);
        items.emplace_back(std::move(name), to_value(rt, item, depth + 1));
      }
      return rt.dict(std::move(items));
    }
    default: return Value::none();
  }
}

// Estimates the bytes of a context: its texts, and a constant for other values.
int64_t bytes_of(const Json& json, int depth) {
  constexpr int64_t kValue = 64;
  if (depth > jinja::kMaxDepth) return 0;  // such a context is refused
  if (json.is_string())
    return kValue + static_cast<int64_t>(json.get_ref<const std::string&>().size());
  int64_t bytes = kValue;
  if (json.is_object()) {
    for (const auto& [key, item] : json.get_ref<const Json::object_t&>())
      bytes += static_cast<int64_t>(key.size()) + bytes_of(item, depth + 1);
  } else if (json.is_array()) {
    for (const Json& item : json) bytes += bytes_of(item, depth + 1);
  }
  return bytes;
}

std::tm local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm out{};
  localtime_r(&now, &out);
  return out;
}

}  // namespace

RenderOptions render_options_for(const Json& context) {
  constexpr int64_t kForSteps = 1, kForOutput = 2, kForMemory = 4;
  const int64_t bytes = bytes_of(context, 0);
  RenderOptions options;
  options.max_steps += kForSteps * bytes;
  options.max_output += static_cast<size_t>(kForOutput * bytes);
  options.max_memory += kForMemory * bytes;
  return options;
}

ChatTemplate::ChatTemplate(std::unique_ptr<jinja::TemplateTree> tree) : tree_(std::move(tree)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string source) {
  if (source.size() > kMaxSource) {
    return errorf(ErrorCode::kInvalidArgument, "chat template: {} bytes, expected at most {}",
                  source.size(), kMaxSource);
  }
  const size_t bad = jinja::find_invalid_utf8(source);
  if (bad != std::string::npos) {
    return errorf(ErrorCode::kInvalidArgument, "chat template: not UTF-8 at byte {}", bad);
  }
  try {
    return ChatTemplate(std::make_unique<jinja::TemplateTree>(jinja::parse_template(source)));
  } catch (const Failure& failure) {
    return to_error(failure, failure.line);
  } catch (const std::bad_alloc&) {
    return errorf(ErrorCode::kResourceExhausted, "chat template: out of memory while parsing");
  }
}

Result<std::string> ChatTemplate::render(Json context, const RenderOptions& options) const {
  if (!context.is_object()) {
    return errorf(ErrorCode::kInvalidArgument,
                  "chat template: the context must be an object, got {}", context.type_name());
  }
  Runtime rt({options.max_steps, options.max_output, options.max_memory});
  rt.now = options.now ? *options.now : local_now();
  try {
    return jinja::Evaluator(*tree_, rt, to_value(rt, context, 0)).render();
  } catch (const Failure& failure) {
    return to_error(failure, failure.line > 0 ? failure.line : rt.line);
  } catch (const std::bad_alloc&) {
    return errorf(ErrorCode::kResourceExhausted, "chat template: out of memory while rendering");
  }
}

}  // namespace penstock
