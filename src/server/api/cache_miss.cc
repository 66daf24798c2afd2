#include "server/api/cache_miss.h"

#include <string.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "frontend/json_fields.h"
#include "server/api/generation.h"

namespace penstock {
namespace {

using json = nlohmann::ordered_json;

// Templates often remove spaces around texts.
std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") + 1 - first);
}

void add_text(const json& of, std::vector<std::string>& texts) {
  if (!of.is_string()) return;
  const std::string_view text = trimmed(of.get_ref<const std::string&>());
  if (!text.empty()) texts.emplace_back(text);
}

// Returns the place of `part` behind `from`, or npos. memmem() is linear for every text, which
// std::string::find() is not.
size_t find_in(std::string_view text, std::string_view part, size_t from) {
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

const RequestStats& stats_of(const RequestOutput& output) { return output.outputs[0].stats; }

int n_computed(const RequestOutput& output) {
  return static_cast<int>(output.prompt_token_ids.size()) - stats_of(output).cached_tokens;
}

std::string text_of(const Tokenizer& tokenizer, std::span<const TokenId> tokens) {
  return tokenizer.decode_bytes(tokens, false);
}

// known: leading tokens that were known and of which blocks could have been used.
const char* reason_of(const PrefixUse& use, int n_cached, int n_prompt, int known) {
  if (n_cached < known) return "not_kept";
  if (use.known_tokens >= n_prompt) return "none";
  if (use.n_had > 0) return "differs";
  return use.known_tokens > 0 ? "longer" : "new";
}

json tiers_of(const RequestStats& stats, int n_prompt) {
  const PrefixUse& use = stats.prefix;
  return {{"memory", {{"tokens", use.memory_tokens}}},
          {"store", {{"tokens", use.store_tokens}, {"ms", use.load_seconds * 1e3}}},
          {"computed",
           {{"tokens", n_prompt - stats.cached_tokens}, {"ms", stats.prefill_seconds * 1e3}}}};
}

void add_message(const MessagePlaces& of, int token, json& miss) {
  const auto place =
      std::ranges::find_if(of.places, [&](const auto& each) { return token < each.end; });
  if (place == of.places.end()) return;
  miss["message"] = of.indices[static_cast<size_t>(place - of.places.begin())];
  miss["role"] = place->role;
}

}  // namespace

MessageTexts MessageTexts::of(const json& messages) {
  MessageTexts texts;
  for (const json& message : messages) {
    Message& one =
        texts.messages.emplace_back(get_string(message, "role"), std::vector<std::string>());
    const json& content = get_field(message, "content");
    add_text(content, one.texts);
    if (!content.is_array()) continue;
    for (const json& part : content) add_text(get_field(part, "text"), one.texts);
  }
  return texts;
}

MessagePlaces MessageTexts::places_in(const Tokenizer& tokenizer,
                                      const std::vector<TokenId>& prompt) const {
  constexpr int kMostMissing = 32;  // each is searched for to the end of the prompt
  std::string text;
  std::vector<size_t> ends;  // of the tokens, in `text`
  for (const TokenId token : prompt) ends.push_back((text += tokenizer.token_bytes(token)).size());
  MessagePlaces found{static_cast<int>(prompt.size()), {}, {}};
  size_t at = 0;
  int n_missing = 0;
  for (size_t i = 0; i < messages.size() && n_missing < kMostMissing; ++i) {
    bool any = false;
    for (const std::string& part : messages[i].texts) {
      if (n_missing == kMostMissing) break;
      const size_t begin = find_in(text, part, at);
      n_missing += begin == std::string::npos;
      if (begin == std::string::npos) continue;
      at = begin + part.size();
      any = true;
    }
    if (!any) continue;
    const auto last = std::ranges::lower_bound(ends, at) - ends.begin();
    found.places.push_back({messages[i].role, static_cast<int>(last) + 1});
    found.indices.push_back(static_cast<int>(i));
  }
  return found;
}

void add_cache_miss(const Generation& generation, json& details) {
  const std::vector<RequestOutput>& outputs = generation.outputs();
  if (generation.call().kept != nullptr) return;
  const auto is_told = [](const RequestOutput& output) {
    return !output.outputs.empty() && stats_of(output).prefix.known_tokens >= 0;
  };
  if (outputs.empty() || !std::ranges::all_of(outputs, is_told)) return;
  const RequestOutput& output = *std::ranges::max_element(outputs, {}, n_computed);
  const size_t prompt = static_cast<size_t>(&output - outputs.data());
  const RequestStats& stats = stats_of(output);
  const PrefixUse& use = stats.prefix;
  const int n_prompt = static_cast<int>(output.prompt_token_ids.size());
  Session& session = generation.call().model->session();
  const int block_size = session.engine_info().block_size;
  const int known = std::min(use.known_tokens, n_prompt - 1) / block_size * block_size;

  json miss = {{"reason", reason_of(use, stats.cached_tokens, n_prompt, known)},
               {"token", use.known_tokens}};
  if (outputs.size() > 1) miss["prompt"] = prompt;
  const std::vector<MessagePlaces>& places = generation.call().messages;
  if (prompt < places.size() && places[prompt].n_tokens == n_prompt)
    add_message(places[prompt], use.known_tokens, miss);
  const auto rest = std::span(output.prompt_token_ids)
                        .subspan(static_cast<size_t>(std::min(use.known_tokens, n_prompt)));
  miss["had"] =
      text_of(session.tokenizer(), std::span(use.had).first(static_cast<size_t>(use.n_had)));
  miss["has"] = text_of(session.tokenizer(), rest.first(std::min(rest.size(), use.had.size())));
  miss["tiers"] = tiers_of(stats, n_prompt);
  details["cache_miss"] = std::move(miss);
}

}  // namespace penstock
