// Why a prompt was not taken from the prefix cache, for "usage".
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "frontend/session.h"

namespace penstock {

class Generation;

// Which tokens of a prompt belong to which message.
struct MessagePlaces {
  struct Place {
    std::string role;
    int end;  // behind the message's last token
  };
  int n_tokens = 0;           // of the prompt; 0: not known
  std::vector<Place> places;  // of the messages whose texts were found, ascending
  std::vector<int> indices;   // [places] of the messages
};

// The texts of messages, by which their places are found.
struct MessageTexts {
  struct Message {
    std::string role;
    std::vector<std::string> texts;  // not empty
  };
  std::vector<Message> messages;

  // messages: those of chat completions.
  static MessageTexts of(const nlohmann::ordered_json& messages);
  // Looks the texts up in the prompt, in their order; its time is linear in the prompt's length. A
  // message that the template writes in another way, or not at all, has no place.
  MessagePlaces places_in(const Tokenizer& tokenizer, const std::vector<TokenId>& prompt) const;
};

// Adds "cache_miss" to the details of prompt tokens, for the prompt of which most tokens were
// computed. Nothing when the engine compares no prompts (EngineConfig::prefix_history), the reply
// was a cached one, or no prompt has started. REQUIRES: all choices have ended.
void add_cache_miss(const Generation& generation, nlohmann::ordered_json& details);

}  // namespace penstock
