#include "server/routes/route_request.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/ascii.h"
#include "base/json_text.h"
#include "base/locale_free.h"
#include "server/api/api_request.h"
#include "server/api/json_reader.h"
#include "server/services/config.h"
#include "server/services/request_record.h"
#include "server/services/services.h"

namespace penstock {
namespace {

constexpr size_t kAllowance = size_t{64} << 20;  // bytes of values

std::string text_of_parts(const json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (!content.is_array()) return text;
  for (const json& part : content) {
    if (part.is_object()) text += get_string(part, "text");
  }
  return text;
}

// Whether one of the parts of a message, or of a tool's result in it, is a picture.
bool has_picture(const json& parts) {
  if (!parts.is_array()) return false;
  return std::ranges::any_of(parts, [](const json& part) {
    if (!part.is_object()) return false;
    const json& type = get_field(part, "type");
    return type == "image_url" || type == "input_image" || type == "image" || type == "video_url" ||
           type == "video" || has_picture(get_field(part, "content")) ||
           has_picture(get_field(part, "output"));
  });
}

// Whether a field has a list of pictures, as Ollama's messages and prompts do.
bool has_images(const json& value) {
  const json& images = get_field(value, "images");
  return images.is_array() && !images.empty();
}

void read_messages(const json& messages, RouteFeatures& features) {
  if (!messages.is_array()) return;
  for (const json& message : messages) {
    if (!message.is_object()) continue;
    std::string text = text_of_parts(get_field(message, "content"));
    features.characters += static_cast<int64_t>(text.size());
    if (get_field(message, "role") == "user") features.question = std::move(text);
    features.pictures |= has_images(message);
  }
}

void read_text(const json& value, RouteFeatures& features) {
  if (value.is_string()) {
    features.question = value.get<std::string>();
    features.characters += static_cast<int64_t>(features.question.size());
  } else if (value.is_array() && !value.empty() && value.front().is_string()) {
    for (const json& one : value) {
      if (one.is_string()) read_text(one, features);
    }
  }
}

// Whether the reply has a required form.
bool has_form(const json& body) {
  for (const char* name : {"structured_outputs", "json_schema", "json_object", "regex", "grammar",
                           "choice", "structural_tag", "guided_json", "guided_regex",
                           "guided_choice", "guided_grammar", "output_format", "format"}) {
    if (const json& value = get_field(body, name); !value.is_null() && value != false) return true;
  }
  const json& text = get_field(body, "text");
  for (const json* format : {&get_field(body, "response_format"),
                             text.is_object() ? &get_field(text, "format") : nullptr}) {
    if (format != nullptr && format->is_object() && get_field(*format, "type") != "text")
      return true;
  }
  return false;
}

}  // namespace

RouteFeatures features_of(const Services& services, const HttpRequest& request) {
  RouteFeatures features;
  features.key = record_of(request).key;
  features.header = [&request](const std::string& name) { return request.header(name); };
  const std::string timeout(request.header("x-request-timeout"));
  features.seconds = std::max(locale_free_strtod(timeout.c_str(), nullptr), 0.0);
  if (!std::isfinite(features.seconds)) features.seconds = 0;
  const std::chrono::duration<double> limit = services.config.request_timeout;
  if (features.seconds == 0) features.seconds = limit.count();
  const auto read = read_json(request.body, kAllowance);
  if (!read || !read->is_object()) return features;
  const json& body = *read;
  for (const char* name : {"system", "instructions"})
    features.characters += static_cast<int64_t>(text_of_parts(get_field(body, name)).size());
  for (const char* name : {"messages", "input"}) {
    read_messages(get_field(body, name), features);
    features.pictures |= has_picture(get_field(body, name));  // messages are parts with contents
  }
  features.pictures |= has_images(body);
  for (const char* name : {"suffix", "input_suffix", "input_prefix", "prompt", "input"})
    read_text(get_field(body, name), features);  // the last field present has the question
  const json& tools = get_field(body, "tools");
  features.tools = tools.is_array() && !tools.empty();
  features.json = has_form(body);
  look_at_question(features);
  return features;
}

std::string check_prompt(std::string_view check, std::string_view question,
                         std::string_view answer) {
  constexpr std::string_view kQuestion = "{question}", kAnswer = "{answer}";
  std::string text;
  while (true) {
    const size_t of_question = check.find(kQuestion), of_answer = check.find(kAnswer);
    const size_t at = std::min({of_question, of_answer, check.size()});
    text += check.substr(0, at);
    if (at == check.size()) return text;
    text += at == of_question ? question : answer;
    check.remove_prefix(at + (at == of_question ? kQuestion.size() : kAnswer.size()));
  }
}

CheckRequest check_request(const std::string& model, bool chats, const std::string& prompt) {
  json body = {{"model", model}, {"max_tokens", 1}, {"temperature", 0}};
  if (!chats) {
    body["prompt"] = prompt;
    body["logprobs"] = 20;
    return {"/v1/completions", dump(body)};
  }
  body["messages"] = json::array({{{"role", "user"}, {"content", prompt}}});
  body["logprobs"] = true;
  body["top_logprobs"] = 20;
  return {"/v1/chat/completions", dump(body)};
}

double probability_of(const std::string& word, const std::string& reply) {
  const auto plain = [](std::string text) {
    std::erase_if(text, [](char c) { return c == ' ' || c == '\n' || c == '"'; });
    return ascii_lower(text);
  };
  const std::string wanted = plain(word);
  const json body = bounded_json<json>(reply);
  const auto at = [&](const char* pointer) {
    const json::json_pointer place(pointer);
    return body.is_object() && body.contains(place) ? body[place] : json();
  };
  double sum = 0;
  const json of_chat = at("/choices/0/logprobs/content/0/top_logprobs"),
             of_text = at("/choices/0/logprobs/top_logprobs/0");
  for (const json& one : of_chat) {
    if (plain(one["token"]) == wanted) sum += std::exp(one["logprob"].get<double>());
  }
  for (const auto& [token, logprob] : of_text.items()) {
    if (plain(token) == wanted) sum += std::exp(logprob.get<double>());
  }
  return sum;
}

}  // namespace penstock
