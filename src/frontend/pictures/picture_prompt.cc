#include "frontend/pictures/picture_prompt.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/work.h"
#include "frontend/random_id.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  size_t at = text.find(from);
  if (at == std::string::npos) return;
  std::string result;
  size_t done = 0;
  for (; at != std::string::npos; at = text.find(from, done)) {
    result.append(text, done, at - done).append(to);
    done = at + from.size();
  }
  text = result.append(text, done);
}

size_t count_of(std::string_view text, std::string_view part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size()))
    ++n;
  return n;
}

constexpr size_t kPartsBetweenPauses = 256;

}  // namespace

std::vector<PromptEmbeddings> embeddings_of(const PromptPictures& pictures, const PictureRows& rows,
                                            int unit) {
  std::vector<PromptEmbeddings> result;
  result.reserve(pictures.runs.size());
  for (const PictureRun& run : pictures.runs) {
    const auto picture = static_cast<size_t>(run.picture);
    PromptEmbeddings& given = result.emplace_back();
    given.first = run.first, given.count = run.count;
    given.rows = rows[picture], given.first_row = run.first_row;
    const std::vector<ImageView>& views = pictures.pictures[picture].plan.views;
    if (unit > 0 && !views.empty()) given.grid_cols = views[0].grid_w / unit;
  }
  return result;
}

PicturePrompt::PicturePrompt(std::string placeholder, std::string soft_token, bool sounds)
    : placeholder_(std::move(placeholder)),
      soft_token_(std::move(soft_token)),
      what_(sounds ? "sound" : "picture"),
      mark_(random_id("\xEE\x80\x80typed-")),
      typed_placeholder_(mark_ + "p"),
      typed_soft_token_(mark_ + "s") {}

std::string PicturePrompt::hidden(std::string text) const {
  replace_all(text, placeholder_, typed_placeholder_);
  if (soft_token_ != placeholder_) replace_all(text, soft_token_, typed_soft_token_);
  return text;
}

std::string PicturePrompt::shown(std::string text) const {
  replace_all(text, typed_placeholder_, placeholder_);
  replace_all(text, typed_soft_token_, soft_token_);
  return text;
}

void PicturePrompt::hide(Json& value) const {
  if (value.is_string()) {
    auto& text = value.get_ref<std::string&>();
    text = hidden(std::move(text));
  } else if (value.is_structured()) {
    for (Json& each : value) hide(each);
  }
}

Result<std::string> PicturePrompt::filled(std::string_view text,
                                          const std::vector<PlannedPicture>& pictures,
                                          std::vector<PictureRun>& runs,
                                          std::string_view where) const {
  const size_t n_soft = count_of(text, soft_token_),
               n_of_places = pictures.size() * count_of(placeholder_, soft_token_);
  if (n_soft > n_of_places) {
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: {} comes {} times in the rendered prompt, {} times for {}s: it cannot be "
                  "written in parts or as a name",
                  where, soft_token_, n_soft, n_of_places, what_);
  }
  std::string result;
  size_t done = 0, n = 0;
  runs.clear();
  for (size_t at = text.find(placeholder_); at != std::string_view::npos;
       at = text.find(placeholder_, done), ++n) {
    result.append(text, done, at - done);
    done = at + placeholder_.size();
    if (n >= pictures.size()) continue;
    int row = 0;
    for (const PromptPiece& piece : pictures[n].plan.prompt) {
      result += piece.text;
      if (piece.n_soft == 0) continue;
      runs.push_back({.count = piece.n_soft, .picture = static_cast<int>(n), .first_row = row});
      row += piece.n_soft;
    }
  }
  result.append(text, done);
  if (n == pictures.size()) return result;
  return wrong_number(where, n, pictures.size());
}

tl::unexpected<Error> PicturePrompt::wrong_number(std::string_view where, size_t n_places,
                                                  size_t n_pictures) const {
  if (where != "messages") {
    return errorf(ErrorCode::kInvalidArgument, "{}: expected {} {} times, once for each {}, got {}",
                  where, placeholder_, n_pictures, what_, n_places);
  }
  return errorf(ErrorCode::kInvalidArgument,
                "messages: the model's chat template has places for {} of the {} {}s; it may know "
                "none in messages of this role",
                n_places, n_pictures, what_);
}

Result<std::vector<TokenId>> PicturePrompt::expanded(const Tokenizer& tokenizer,
                                                     std::span<const TokenId> ids,
                                                     PromptPictures& pictures,
                                                     int max_tokens) const {
  const std::vector<TokenId> place =
      tokenizer.encode(placeholder_, {.add_special = false, .parse_special = true});
  std::vector<TokenId> result;
  size_t n = 0;
  pictures.runs.clear();
  while (!ids.empty()) {
    if (place.empty() || ids.size() < place.size() ||
        !std::ranges::equal(ids.first(place.size()), place)) {
      result.push_back(ids[0]);
      ids = ids.subspan(1);
      continue;
    }
    ids = ids.subspan(place.size());
    if (n++ >= pictures.pictures.size()) continue;
    std::vector<PictureRun> runs;
    ASSIGN_OR_RETURN(const std::string text,
                     filled(placeholder_, {pictures.pictures[n - 1]}, runs, "prompt_token_ids"));
    for (PictureRun& run : runs) run.picture = static_cast<int>(n - 1);
    const int first = static_cast<int>(result.size());
    ASSIGN_OR_RETURN(const std::vector<TokenId> own,
                     tokens(tokenizer, text, false, runs, std::max(max_tokens - first, 0)));
    result.insert(result.end(), own.begin(), own.end());
    for (PictureRun& run : runs) {
      run.first += first;
      pictures.runs.push_back(run);
    }
  }
  if (n == pictures.pictures.size()) return result;
  return wrong_number("prompt_token_ids", n, pictures.pictures.size());
}

// Placeholders that a client typed as text are tokenized as text, never as special tokens.
Result<std::vector<TokenId>> PicturePrompt::tokens(const Tokenizer& tokenizer,
                                                   std::string_view text, bool add_special,
                                                   std::vector<PictureRun>& runs,
                                                   int max_tokens) const {
  const std::optional<TokenId> soft = tokenizer.find(soft_token_);
  if (!runs.empty() && !soft) {
    return errorf(ErrorCode::kInvalidArgument, "the tokenizer has no token {} for features of {}s",
                  soft_token_, what_);
  }
  std::vector<TokenId> result;
  size_t n_runs = 0;
  const auto add = [&](std::string_view part, bool typed) -> Status {
    if (part.empty() && !result.empty()) return {};
    const std::vector<TokenId> ids = tokenizer.encode(
        part, {.add_special = add_special && result.empty(), .parse_special = !typed});
    for (const TokenId id : ids) {
      if (typed || id != soft || n_runs == runs.size()) {
        result.push_back(id);
        continue;
      }
      PictureRun& run = runs[n_runs++];
      run.first = static_cast<int>(result.size());
      if (run.count > max_tokens - run.first) {
        return errorf(ErrorCode::kContextOverflow,
                      "This model's maximum context length is {} tokens. However, the prompt has "
                      "at least {} tokens with {} {} of the request.",
                      max_tokens, int64_t{run.first} + run.count, what_, run.picture + 1);
      }
      result.insert(result.end(), static_cast<size_t>(run.count), id);
    }
    return {};
  };
  for (size_t n_parts = 0;; ++n_parts) {
    if (n_parts % kPartsBetweenPauses == 0) give_way();
    const size_t at = text.find(mark_);
    RETURN_IF_ERROR(add(text.substr(0, at), false));
    if (at == std::string_view::npos) break;
    const size_t end = at + typed_placeholder_.size();
    RETURN_IF_ERROR(add(text.substr(0, end).ends_with('p') ? placeholder_ : soft_token_, true));
    text.remove_prefix(std::min(end, text.size()));
    if (text.empty()) break;
  }
  if (n_runs == runs.size()) return result;
  return errorf(ErrorCode::kInvalidArgument,
                "the tokenizer reads {} as something else than a special token", soft_token_);
}

}  // namespace penstock
