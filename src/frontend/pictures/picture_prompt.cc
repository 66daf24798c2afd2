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
    const ImagePlan& plan = pictures.pictures[picture].plan;
    if (unit == 0 || plan.views.empty()) continue;
    given.grid_cols = plan.views[0].grid_w / unit;
    if (plan.frames.empty()) continue;
    given.grid_frames = run.count / plan.views[0].n_tokens, given.frame_step = plan.frame_step;
  }
  return result;
}

PicturePrompt::PicturePrompt(std::optional<PromptMark> pictures, std::optional<PromptMark> sounds,
                             std::optional<PromptMark> videos)
    : mark_(random_id("\xEE\x80\x80typed-")) {
  kinds_[0].what = "picture", kinds_[1].what = "sound", kinds_[2].what = "video";
  if (pictures) static_cast<PromptMark&>(kinds_[0]) = *std::move(pictures);
  if (sounds) static_cast<PromptMark&>(kinds_[1]) = *std::move(sounds);
  if (videos) static_cast<PromptMark&>(kinds_[2]) = *std::move(videos);
  for (size_t k = 0; k < kinds_.size(); ++k) {
    const auto own = [&](int i) {
      return mark_ + static_cast<char>('a' + 3 * static_cast<int>(k) + i);
    };
    kinds_[k].typed_placeholder = own(0), kinds_[k].typed_soft_token = own(1);
    kinds_[k].run = own(2);
  }
}

std::string PicturePrompt::hidden(std::string text) const {
  for (const Kind& kind : kinds_) {
    if (kind.placeholder.empty()) continue;
    replace_all(text, kind.placeholder, kind.typed_placeholder);
    if (kind.soft_token != kind.placeholder && !kind.soft_is_text)
      replace_all(text, kind.soft_token, kind.typed_soft_token);
  }
  return text;
}

std::string PicturePrompt::shown(std::string text) const {
  for (const Kind& kind : kinds_) {
    replace_all(text, kind.typed_placeholder, kind.placeholder);
    replace_all(text, kind.typed_soft_token, kind.soft_token);
    replace_all(text, kind.run, kind.soft_token);
  }
  return text;
}

PicturePrompt::Meaning PicturePrompt::meaning_of(std::string_view text) const {
  const bool whole = text.size() > mark_.size();  // a template may have cut it
  const auto index = whole ? static_cast<size_t>(text[mark_.size()] - 'a') : size_t{9};
  if (index >= 9) return {0, "", false};
  const Kind& kind = kinds_[index / 3];
  return {index / 3, index % 3 == 0 ? kind.placeholder : kind.soft_token, index % 3 == 2};
}

void PicturePrompt::hide(Json& value) const {
  if (value.is_string()) {
    auto& text = value.get_ref<std::string&>();
    text = hidden(std::move(text));
  } else if (value.is_structured()) {
    for (Json& each : value) hide(each);
  }
}

namespace {

size_t kind_of(const PlannedPicture& planned) {
  return planned.picture.is_sound ? 1 : planned.picture.video != nullptr ? 2 : 0;
}

size_t n_of_kind(const std::vector<PlannedPicture>& pictures, size_t kind) {
  return static_cast<size_t>(std::ranges::count_if(
      pictures, [&](const PlannedPicture& planned) { return kind_of(planned) == kind; }));
}

}  // namespace

Status PicturePrompt::check_soft_tokens(std::string_view text,
                                        const std::vector<PlannedPicture>& pictures,
                                        std::string_view where) const {
  for (size_t k = 0; k < kinds_.size(); ++k) {
    const Kind& kind = kinds_[k];
    if (kind.placeholder.empty() || kind.soft_is_text) continue;
    const size_t n_soft = count_of(text, kind.soft_token);
    size_t n_of_places = 0;
    for (size_t other = 0; other < kinds_.size(); ++other)
      n_of_places +=
          n_of_kind(pictures, other) * count_of(kinds_[other].placeholder, kind.soft_token);
    if (n_soft <= n_of_places) continue;
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: {} comes {} times in the rendered prompt, {} times for {}s: it cannot be "
                  "written in parts or as a name",
                  where, kind.soft_token, n_soft, n_of_places, kind.what);
  }
  return {};
}

std::optional<PicturePrompt::Place> PicturePrompt::next_place(std::string_view text, size_t from,
                                                              NextPlaces& places) const {
  std::optional<Place> next;
  for (size_t k = 0; k < kinds_.size(); ++k) {
    if (kinds_[k].placeholder.empty()) continue;
    // A kind is searched again behind its place only, so that all texts are read once for each.
    if (places[k] < from || from == 0) places[k] = text.find(kinds_[k].placeholder, from);
    const size_t at = places[k];
    if (at != std::string_view::npos && (!next || at < next->at)) next = Place{at, k};
  }
  return next;
}

Result<std::string> PicturePrompt::filled(std::string_view text,
                                          const std::vector<PlannedPicture>& pictures,
                                          std::vector<PictureRun>& runs,
                                          std::string_view where) const {
  RETURN_IF_ERROR(check_soft_tokens(text, pictures, where));
  std::string result;
  size_t done = 0;
  std::array<size_t, 3> n_places{},
      next{};  // next: index of a kind's next picture, or one before it
  runs.clear();
  NextPlaces places{};
  for (auto place = next_place(text, 0, places); place; place = next_place(text, done, places)) {
    const Kind& kind = kinds_[place->kind];
    result.append(text, done, place->at - done);
    done = place->at + kind.placeholder.size();
    ++n_places[place->kind];
    size_t& n = next[place->kind];
    while (n < pictures.size() && kind_of(pictures[n]) != place->kind) ++n;
    if (n >= pictures.size()) continue;
    int row = 0;
    for (const PromptPiece& piece : pictures[n].plan.prompt) {
      if (piece.n_soft == 0 || !kind.soft_is_text) result += piece.text;
      if (piece.n_soft == 0) continue;
      if (kind.soft_is_text) result += kind.run;
      runs.push_back({.count = piece.n_soft,
                      .picture = static_cast<int>(n),
                      .first_row = row,
                      .kind = static_cast<int>(place->kind),
                      .token = piece.text == kind.soft_token ? "" : piece.text});
      row += piece.n_soft;
    }
    ++n;
  }
  result.append(text, done);
  RETURN_IF_ERROR(check_numbers(where, n_places, pictures));
  return result;
}

Status PicturePrompt::check_numbers(std::string_view where, std::span<const size_t> n_places,
                                    const std::vector<PlannedPicture>& pictures) const {
  for (size_t k = 0; k < kinds_.size(); ++k) {
    const size_t n = n_of_kind(pictures, k);
    if (n_places[k] == n) continue;
    const Kind& kind = kinds_[k];
    if (where != "messages") {
      return errorf(ErrorCode::kInvalidArgument,
                    "{}: expected {} {} times, once for each {}, got {}", where, kind.placeholder,
                    n, kind.what, n_places[k]);
    }
    return errorf(ErrorCode::kInvalidArgument,
                  "messages: the model's chat template has places for {} of the {} {}s; it may "
                  "know none in messages of this role",
                  n_places[k], n, kind.what);
  }
  return {};
}

Result<std::vector<TokenId>> PicturePrompt::expanded(const Tokenizer& tokenizer,
                                                     std::span<const TokenId> ids,
                                                     PromptPictures& pictures,
                                                     int max_tokens) const {
  std::array<std::vector<TokenId>, 3> places;
  for (size_t k = 0; k < places.size(); ++k)
    if (!kinds_[k].placeholder.empty())
      places[k] =
          tokenizer.encode(kinds_[k].placeholder, {.add_special = false, .parse_special = true});
  std::vector<TokenId> result;
  std::array<size_t, 3> n_places{}, next{};
  pictures.runs.clear();
  while (!ids.empty()) {
    const auto found = std::ranges::find_if(places, [&](const std::vector<TokenId>& place) {
      return !place.empty() && ids.size() >= place.size() &&
             std::ranges::equal(ids.first(place.size()), place);
    });
    if (found == places.end()) {
      result.push_back(ids[0]);
      ids = ids.subspan(1);
      continue;
    }
    ids = ids.subspan(found->size());
    const auto kind = static_cast<size_t>(found - places.begin());
    ++n_places[kind];
    size_t& n = next[kind];
    while (n < pictures.pictures.size() && kind_of(pictures.pictures[n]) != kind) ++n;
    if (n >= pictures.pictures.size()) continue;
    std::vector<PictureRun> runs;
    ASSIGN_OR_RETURN(
        const std::string text,
        filled(kinds_[kind].placeholder, {pictures.pictures[n]}, runs, "prompt_token_ids"));
    for (PictureRun& run : runs) run.picture = static_cast<int>(n);
    ++n;
    const int first = static_cast<int>(result.size());
    ASSIGN_OR_RETURN(const std::vector<TokenId> own,
                     tokens(tokenizer, text, false, runs, std::max(max_tokens - first, 0)));
    result.insert(result.end(), own.begin(), own.end());
    for (PictureRun& run : runs) {
      run.first += first;
      pictures.runs.push_back(run);
    }
  }
  RETURN_IF_ERROR(check_numbers("prompt_token_ids", n_places, pictures.pictures));
  return result;
}

// Placeholders that a client typed as text are tokenized as text, never as special tokens.
Result<std::vector<TokenId>> PicturePrompt::tokens(const Tokenizer& tokenizer,
                                                   std::string_view text, bool add_special,
                                                   std::vector<PictureRun>& runs,
                                                   int max_tokens) const {
  std::array<std::optional<TokenId>, 3> soft;
  for (size_t k = 0; k < soft.size(); ++k)
    if (!kinds_[k].placeholder.empty()) soft[k] = tokenizer.find(kinds_[k].soft_token);
  std::vector<TokenId> of_runs;
  for (const PictureRun& run : runs) {
    const auto kind = static_cast<size_t>(run.kind);
    const auto id = run.token.empty() ? soft[kind] : tokenizer.find(run.token);
    if (id) {
      of_runs.push_back(*id);
      continue;
    }
    return errorf(ErrorCode::kInvalidArgument, "the tokenizer has no token {} for features of {}s",
                  run.token.empty() ? kinds_[kind].soft_token : run.token, kinds_[kind].what);
  }
  std::vector<TokenId> result;
  size_t n_runs = 0;
  const auto add_run = [&](TokenId id) -> Status {
    PictureRun& run = runs[n_runs++];
    run.first = static_cast<int>(result.size());
    if (run.count > max_tokens - run.first) {
      return errorf(ErrorCode::kContextOverflow,
                    "This model's maximum context length is {} tokens. However, the prompt has "
                    "at least {} tokens with {} {} of the request.",
                    max_tokens, int64_t{run.first} + run.count,
                    kinds_[static_cast<size_t>(run.kind)].what, run.picture + 1);
    }
    result.insert(result.end(), static_cast<size_t>(run.count), id);
    return {};
  };
  const auto add = [&](std::string_view part, bool typed) -> Status {
    if (part.empty() && !result.empty()) return {};
    const std::vector<TokenId> ids = tokenizer.encode(
        part, {.add_special = add_special && result.empty(), .parse_special = !typed});
    for (const TokenId id : ids) {
      const auto kind = n_runs < runs.size() ? static_cast<size_t>(runs[n_runs].kind) : size_t{0};
      const bool ends = typed || n_runs == runs.size() || kinds_[kind].soft_is_text;
      if (ends || id != of_runs[n_runs]) {
        result.push_back(id);
      } else {
        RETURN_IF_ERROR(add_run(id));
      }
    }
    return {};
  };
  for (size_t n_parts = 0;; ++n_parts) {
    if (n_parts % kPartsBetweenPauses == 0) give_way();
    const size_t at = text.find(mark_);
    RETURN_IF_ERROR(add(text.substr(0, at), false));
    if (at == std::string_view::npos) break;
    const Meaning meaning = meaning_of(text.substr(at));
    if (!meaning.is_run) {
      RETURN_IF_ERROR(add(meaning.text, true));
    } else if (n_runs < runs.size()) {
      RETURN_IF_ERROR(add_run(of_runs[n_runs]));
    }
    text.remove_prefix(std::min(at + mark_.size() + 1, text.size()));
    if (text.empty()) break;
  }
  if (n_runs == runs.size()) return result;
  return errorf(
      ErrorCode::kInvalidArgument, "the tokenizer reads {} as something else than a special token",
      runs[n_runs].token.empty() ? kinds_[static_cast<size_t>(runs[n_runs].kind)].soft_token
                                 : runs[n_runs].token);
}

}  // namespace penstock
