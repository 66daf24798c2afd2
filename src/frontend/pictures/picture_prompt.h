// Puts pictures into the prompt of a chat: the placeholders that its template writes become the
// tokens of each picture, and placeholders that a user has typed stay text.
#pragma once
#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "frontend/pictures/picture.h"
#include "text/tokenizer.h"

namespace penstock {

// How a model's prompts show one kind of input.
struct PromptMark {
  std::string placeholder;  // what its chat template writes
  std::string soft_token;   // the token in whose places rows stand
  // The token stands elsewhere in prompts, too.
  bool soft_is_text = false;
};

class PicturePrompt {
 public:
  // Marks of pictures, of sounds and of videos; nothing: the model takes none. A video's soft token may be
  // that of pictures.
  PicturePrompt(std::optional<PromptMark> pictures, std::optional<PromptMark> sounds,
                std::optional<PromptMark> videos = std::nullopt);

  // "" of a kind that the model does not take.
  const std::string& placeholder(bool sounds) const { return kinds_[sounds ? 1 : 0].placeholder; }
  // type: "image", "audio" or "video".
  const std::string& placeholder_of(std::string_view type) const {
    return kinds_[type == "audio" ? 1 : type == "video" ? 2 : 0].placeholder;
  }

  // Hides placeholders and soft tokens in all strings of a conversation.
  void hide(nlohmann::ordered_json& value) const;
  // Shows in a text what hide() has hidden, and soft tokens that filled() has marked.
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
  struct Kind : PromptMark {
    const char* what = "";  // "picture", "sound" or "video"
    // Stand-in texts for a typed placeholder, a typed soft token, and soft tokens of filled().
    std::string typed_placeholder, typed_soft_token, run;
  };
  struct Place {
    size_t at;
    size_t kind;
  };
  // The next place of each kind in a text; npos: there is none.
  using NextPlaces = std::array<size_t, 3>;
  Status check_soft_tokens(std::string_view text, const std::vector<PlannedPicture>& pictures,
                           std::string_view where) const;
  // places: as it was left by the last call for this text; of zeros at first.
  std::optional<Place> next_place(std::string_view text, size_t from, NextPlaces& places) const;
  Status check_numbers(std::string_view where, std::span<const size_t> n_places,
                       const std::vector<PlannedPicture>& pictures) const;
  // The meaning of a stand-in at the beginning of a text: a kind of picture, and the text or run that replaces
  // it. REQUIRES: the text begins with a stand-in.
  struct Meaning {
    size_t kind;
    std::string_view text;
    bool is_run;
  };
  Meaning meaning_of(std::string_view text) const;
  std::string hidden(std::string text) const;

  // Begins all stand-in texts, which are equally long. It is random, so that clients cannot write them.
  const std::string mark_;
  std::array<Kind, 3> kinds_;  // of pictures, sounds and videos
};

}  // namespace penstock
