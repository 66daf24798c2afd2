#include "frontend/chat/turn_ends.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "frontend/chat/chat_prompt.h"

namespace penstock {
namespace probes {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kQuestion = "aquestion", kAnswer = "ananswer", kThought = "athought",
                           kValue = "avalue";

Json user() { return {{"role", "user"}, {"content", kQuestion}}; }
Json answer() { return {{"role", "assistant"}, {"content", kAnswer}}; }
Json thoughtful_answer() {
  return {{"role", "assistant"},
          {"content", kAnswer},
          {"reasoning_content", kThought},
          {"thinking", kThought}};
}
Json call(const char* id) {
  const Json function = {{"name", "look"}, {"arguments", Json{{"at", kValue}}}};
  return {{"id", id}, {"type", "function"}, {"function", function}};
}
Json calls(int n) {
  Json list = Json::array({call("call00001")});
  if (n > 1) list.push_back(call("call00002"));
  return {{"role", "assistant"}, {"content", ""}, {"tool_calls", std::move(list)}};
}
Json result() {
  return {{"role", "tool"}, {"tool_call_id", "call00001"}, {"name", "look"}, {"content", kAnswer}};
}
Json tools() {
  const Json at = {{"type", "string"}, {"description", "where"}};
  const Json parameters = {
      {"type", "object"}, {"properties", {{"at", at}}}, {"required", Json::array({"at"})}};
  return Json::array(
      {{{"type", "function"},
        {"function", {{"name", "look"}, {"description", "looks"}, {"parameters", parameters}}}}});
}

class TurnEnds {
 public:
  TurnEnds(const Tokenizer& tokenizer, const ChatPrompter& prompter)
      : tokenizer_(tokenizer), prompter_(prompter) {}

  std::vector<TokenId> find() const {
    std::vector<TokenId> ends;
    const std::vector<TokenId> behind_answer = specials_behind(answer(), user());
    if (!behind_answer.empty() && stands_alone(behind_answer.front()))
      ends.push_back(behind_answer.front());
    const std::vector<TokenId> behind_calls = specials_behind(calls(1), result());
    const bool known =
        !ends.empty() && std::ranges::find(behind_calls, ends[0]) != behind_calls.end();
    if (!known && !behind_calls.empty() && stands_alone(behind_calls.back()) &&
        !opens(behind_calls.back()))
      ends.push_back(behind_calls.back());
    return ends;
  }

 private:
  // Returns the tokens after the last `marker`; nullopt: the template fails or does not show it.
  std::optional<std::vector<TokenId>> behind(Json messages, std::string_view marker) const {
    const auto text =
        prompter_.render(std::move(messages), tools(), nullptr, {.add_generation_prompt = false});
    const size_t at = text ? text->rfind(marker) : std::string::npos;
    if (at == std::string::npos) return std::nullopt;
    return tokenizer_.encode(std::string_view(*text).substr(at + marker.size()),
                             {.add_special = false, .parse_special = true});
  }

  // Returns the special tokens after the turn that do not depend on whether the conversation
  // continues; if there are none, those after the last turn, or else those after an earlier turn.
  std::vector<TokenId> specials_behind(const Json& turn, const Json& next) const {
    const bool calling = turn.contains("tool_calls");
    const std::string_view marker = calling ? kValue : kAnswer;
    const auto last = behind(Json::array({user(), turn}), marker);
    Json longer = Json::array({user(), turn, next});
    // the marker must not occur in the following turn
    if (calling) longer[2]["content"] = "found";
    const auto inner = behind(std::move(longer), marker);
    if (!last || !inner) return last ? specials(*last, calling) : std::vector<TokenId>();
    const auto differ = std::ranges::mismatch(*last, *inner);
    auto found = specials({last->begin(), differ.in1}, calling);
    if (found.empty()) found = specials(last->empty() ? *inner : *last, calling);
    return found;
  }

  // Returns the leading run of special tokens, ignoring white space before it; from_end: the
  // trailing run.
  std::vector<TokenId> specials(std::vector<TokenId> tokens, bool from_end) const {
    if (from_end) std::ranges::reverse(tokens);
    std::vector<TokenId> row;
    for (const TokenId id : tokens) {
      if (tokenizer_.is_special(id)) {
        row.push_back(id);
      } else if (tokenizer_.token_bytes(id).find_first_not_of(" \n\r\t") !=
                 std::string_view::npos) {
        break;
      }
    }
    if (from_end) std::ranges::reverse(row);
    return row;
  }

  // Whether the token precedes the first question, as tokens that open messages do.
  bool opens(TokenId token) const {
    const auto text =
        prompter_.render(Json::array({user()}), tools(), nullptr, {.add_generation_prompt = false});
    if (!text) return false;
    const auto tokens = tokenizer_.encode(std::string_view(*text).substr(0, text->find(kQuestion)),
                                          {.add_special = false, .parse_special = true});
    return std::ranges::find(tokens, token) != tokens.end();
  }

  // Whether the token occurs at most once in a turn, also with reasoning and with two calls.
  bool stands_alone(TokenId end) const {
    const auto count = [&](const Json& messages) {
      const auto tokens = behind(messages, kQuestion);
      return tokens ? std::ranges::count(*tokens, end) : 0;
    };
    const auto before = count(Json::array({user()}));
    return std::ranges::all_of(
        std::array{answer(), thoughtful_answer(), calls(1), calls(2)},
        [&](const Json& turn) { return count(Json::array({user(), turn})) <= before + 1; });
  }

  const Tokenizer& tokenizer_;
  const ChatPrompter& prompter_;
};

}  // namespace
}  // namespace probes

std::vector<TokenId> turn_ends(const Tokenizer& tokenizer) {
  const auto prompter = ChatPrompter::open(tokenizer);
  return prompter ? probes::TurnEnds(tokenizer, *prompter).find() : std::vector<TokenId>();
}

}  // namespace penstock
