// Puts pictures into the prompt of a chat: the placeholders that its template writes become the
// tokens of each picture, and placeholders that a user has typed stay text.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "frontend/pictures/picture.h"
#include "text/tokenizer.h"

namespace penstock {

class PicturePrompt {
 public:
  // placeholder: ImageProcessor::placeholder(); soft_token: ImageProcessor::soft_token().
  // sounds: errors speak of sounds.
  PicturePrompt(std::string placeholder, std::string soft_token, bool sounds = false);

  const std::string& placeholder() const { return placeholder_; }

  // Hides placeholders and soft tokens in all strings of a conversation.
  void hide(nlohmann::ordered_json& value) const;
  // Shows in a text what hide() has hidden.
  std::string shown(std::string text) const;

  // Writes the text of each picture in place of the placeholders of a rendered template, with one
  // soft token for a run of them. Error: kInvalidArgument, unless there are as many placeholders as
  // pictures, and no other soft tokens (parts of a message and names in tools can make some). where:
  // what the text is made of, for messages.
  Result<std::string> filled(std::string_view text, const std::vector<PlannedPicture>& pictures,
                             std::vector<PictureRun>& runs,
                             std::string_view where = "messages") const;
  // Returns the tokens of such a text, each run with all its soft tokens, and sets the runs' places.
  // Errors: kInvalidArgument (the soft token is none of the tokenizer's), kContextOverflow (more
  // than max_tokens).
  Result<std::vector<TokenId>> tokens(const Tokenizer& tokenizer, std::string_view text,
                                      bool add_special, std::vector<PictureRun>& runs,
                                      int max_tokens) const;
  // Returns the tokens of a prompt with those of each picture in place of the placeholders' tokens,
  // and sets the pictures' runs. Errors: those of filled() and tokens().
  Result<std::vector<TokenId>> expanded(const Tokenizer& tokenizer, std::span<const TokenId> ids,
                                        PromptPictures& pictures, int max_tokens) const;

 private:
  tl::unexpected<Error> wrong_number(std::string_view where, size_t n_places,
                                     size_t n_pictures) const;
  std::string hidden(std::string text) const;

  const std::string placeholder_, soft_token_;
  const char* const what_;  // "picture" or "sound"
  // Stand-in texts for a typed placeholder and a typed soft token. Both begin with mark_, which is
  // random, so that clients cannot write them.
  const std::string mark_, typed_placeholder_, typed_soft_token_;
};

}  // namespace penstock
