#include "frontend/session.h"

#include <spdlog/spdlog.h>
#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/work.h"
#include "engine/open/open.h"
#include "engine/open/tower_file.h"
#include "engine/requests/request_check.h"
#include "frontend/chat/turn_ends.h"
#include "frontend/speculation_inputs.h"

namespace penstock {
namespace {

// Sampling parameters for which makers of models give a default.
constexpr std::string_view kDefaults[] = {
    "temperature",        "top_k",          "top_p",           "min_p",         "typical_p",
    "repetition_penalty", "penalty_last_n", "xtc_probability", "xtc_threshold", "mirostat",
    "mirostat_tau",       "mirostat_eta",   "max_tokens"};

// Returns the sampling defaults of a model's generation_config.json, or of its GGUF file. What no
// request may ask for is told and left out.
SamplingParams defaults_of(const nlohmann::json& config) {
  SamplingParams params;
  SamplingParams::visit(params, [&](std::string_view name, auto& value, const char*,
                                    const SamplingParams::Range& range) {
    using Field = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Field, int> || std::is_same_v<Field, float>) {
      if (std::ranges::find(kDefaults, name) == std::end(kDefaults)) return;
      const auto found = config.find(name == "max_tokens" ? "max_new_tokens" : std::string(name));
      if (found == config.end() || !found->is_number()) return;
      if (range.contains(found->get<double>()))
        value = found->get<Field>();
      else
        log().warn("the model's files recommend {} {}, which is not possible and left out", name,
                   found->dump());
    }
  });
  return params;
}

// A model's tower before the engine is there. In this order the engine's KV cache, whose size goes by
// the memory that is free, leaves the tower its room.
struct OpenTower {
  std::unique_ptr<WeightSource> model;  // null: there is no tower
  std::unique_ptr<WeightSource> apart;  // an mmproj file, or a directory that has the tower
  Status opened;                        // `apart`
  Eyes::Towers encoders;
};

Result<OpenTower> open_tower(const WeightSource& source, const EngineConfig& config) {
  OpenTower tower;
  ASSIGN_OR_RETURN(const auto path, find_tower(source, config.mmproj));
  if (!path) return tower;
  ASSIGN_OR_RETURN(tower.model, open_weights(config.model));
  if (*path != source.path()) {
    auto apart = open_tower_file(*path);
    if (!apart) {
      tower.opened = tl::unexpected(std::move(apart).error());
      return tower;
    }
    tower.apart = *std::move(apart);
  }
  const WeightSource& own = tower.apart != nullptr ? *tower.apart : *tower.model;
  using Sense = PictureEncoder::Sense;
  tower.encoders.sight = PictureEncoder::open(own, config, Sense::kSight);
  tower.encoders.hearing = PictureEncoder::open(own, config, Sense::kHearing);
  return tower;
}

// Whether a model has an adapter beside its weights for requests with sounds (Granite Speech).
bool has_sound_adapter(const WeightSource& model) {
  const nlohmann::json& config = model.config();
  const auto wanted = config.is_object() ? config.find("has_lora_adapter") : config.end();
  return config.is_object() && wanted != config.end() && *wanted == true &&
         model.side_file("adapter_config.json").has_value();
}

}  // namespace

Result<std::unique_ptr<Session>> Session::open(const EngineConfig& config) {
  ASSIGN_OR_RETURN(auto source, open_weights(config.model));
  std::unique_ptr<Session> session(new Session);
  ASSIGN_OR_RETURN(session->tokenizer_, Tokenizer::load(*source));
  session->tokenizer_->add_ends(turn_ends(*session->tokenizer_));
  session->grammars_ = std::make_unique<GrammarCache>(*session->tokenizer_);
  session->defaults_ = defaults_of(source->generation_config());
  ASSIGN_OR_RETURN(OpenTower tower, open_tower(*source, config));
  ASSIGN_OR_RETURN(auto inputs, read_speculation_inputs(config, *session->tokenizer_));
  ASSIGN_OR_RETURN(session->engine_, open_engine(std::move(source), config, {}, std::move(inputs)));
  if (tower.model != nullptr) {
    auto eyes = [&]() -> Result<std::unique_ptr<Eyes>> {
      RETURN_IF_ERROR(tower.opened);
      const WeightSource& own = tower.apart != nullptr ? *tower.apart : *tower.model;
      return Eyes::open(std::move(tower.encoders), own, *tower.model, session->engine_info(), {});
    }();
    RETURN_IF_ERROR(session->take_eyes(std::move(eyes), !config.mmproj.empty()));
    const Eyes* const own = session->eyes_.get();
    if (own != nullptr && !own->sees() && has_sound_adapter(*tower.model)) {
      ASSIGN_OR_RETURN(session->sound_adapter_, session->engine_->open_adapter(config.model));
    }
    const bool hears = session->eyes_ != nullptr && session->eyes_->hears() &&
                       session->eyes_->ear().hears_windows();
    if (session->engine_info().encoder_rows > 0 && hears) {
      ASSIGN_OR_RETURN(session->whisper_, WhisperTokens::read(*tower.model, *session->tokenizer_));
      const int most = session->whisper_->max_tokens, room = session->engine_info().max_model_len;
      if (room < most) {
        return errorf(
            ErrorCode::kInvalidArgument,
            "max_model_len: a window of a sound is written with up to {} tokens: expected "
            "at least as many, got {}",
            most, room);
      }
    }
  }
  return session;
}

// A model whose tower cannot be used still serves text, unless the tower was asked for.
Status Session::take_eyes(Result<std::unique_ptr<Eyes>> eyes, bool wanted) {
  if (!eyes && wanted) {
    Error error = std::move(eyes).error();
    error.message = "mmproj: " + error.message;
    return tl::unexpected(std::move(error));
  }
  if (eyes) {
    eyes_ = *std::move(eyes);
    if (eyes_ != nullptr) {
      log().info("{}: the tower has {:.1f} MiB of weights", eyes_->kind(),
                 static_cast<double>(eyes_->weight_bytes()) / (1 << 20));
      for (const bool hearing : {false, true})
        if (const std::string& why = eyes_->why_not(hearing); !why.empty())
          log().warn("{} are refused: {}", hearing ? "sounds" : "pictures", why);
    }
  } else {
    blind_reason_ = eyes.error().message;
    log().warn("pictures and sounds are refused: {}", blind_reason_);
  }
  return {};
}

void Session::give(Request& request, std::vector<PromptEmbeddings> embeddings) const {
  if (!embeddings.empty() && request.adapter == nullptr) request.adapter = sound_adapter_;
  request.embeddings = std::move(embeddings);
}

Status Session::check_sense(const Picture& picture) const {
  if (eyes_ != nullptr && (picture.is_sound ? eyes_->hears() : eyes_->sees())) return {};
  const std::string& why = eyes_ == nullptr ? blind_reason_ : eyes_->why_not(picture.is_sound);
  return errorf(ErrorCode::kInvalidArgument, "{}: this model has no {}, it reads text {}{}{}",
                picture.where, picture.is_sound ? "ears" : "eyes",
                eyes_ == nullptr ? "only"
                : eyes_->hears() ? "and hears sounds"
                                 : "and sees pictures",
                why.empty() ? "" : ": ", why);
}

Result<PicturedPrompt> Session::place(const Prompt& prompt, std::vector<Picture> pictures,
                                      const PromptOptions& options,
                                      const nlohmann::json& settings) const {
  for (const Picture& picture : pictures) RETURN_IF_ERROR(check_sense(picture));
  if (pictures.size() > eyes_->limits().pictures) {
    return errorf(ErrorCode::kInvalidArgument, "{}: expected at most {} {}, got {}",
                  pictures.back().where, eyes_->limits().pictures, eyes_->kind(), pictures.size());
  }
  size_t n_frames = 0;
  for (const Picture& picture : pictures)
    n_frames += picture.video != nullptr ? picture.video->files.size() : 0;
  if (n_frames > eyes_->limits().frames) {
    return errorf(ErrorCode::kInvalidArgument, "{}: expected at most {} frames of videos, got {}",
                  pictures.back().where, eyes_->limits().frames, n_frames);
  }
  PicturedPrompt result;
  ASSIGN_OR_RETURN(result.pictures.pictures, eyes_->plan(std::move(pictures), settings));
  const int most = engine_->info().max_model_len;
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) {
    ASSIGN_OR_RETURN(result.tokens,
                     eyes_->prompt().expanded(*tokenizer_, *ids, result.pictures, most));
    return result;
  }
  ASSIGN_OR_RETURN(const std::string text,
                   eyes_->prompt().filled(std::get<std::string>(prompt), result.pictures.pictures,
                                          result.pictures.runs, "prompt"));
  ASSIGN_OR_RETURN(result.tokens, eyes_->prompt().tokens(*tokenizer_, text, options.add_bos,
                                                         result.pictures.runs, most));
  return result;
}

std::vector<TokenId> Session::encode(std::string_view text, const PromptOptions& options) const {
  return tokenizer_->encode(
      text, {.add_special = options.add_bos, .parse_special = options.parse_special});
}

Status Session::check_length(std::string_view text) const {
  const auto max_len = static_cast<size_t>(engine_->info().max_model_len);
  const size_t least = tokenizer_->count_at_least(text, max_len);
  if (least <= max_len) return {};
  return errorf(ErrorCode::kContextOverflow,
                "This model's maximum context length is {} tokens. However, the prompt has at "
                "least {} tokens.",
                max_len, least);
}

Metrics Session::metrics() const {
  Metrics metrics = engine_->metrics();
  grammars_->add_metrics(metrics);
  return metrics;
}

Metrics Session::metrics_of(int engine) const {
  Metrics metrics = engine_->engine_at(engine).metrics();
  if (engine == 0) grammars_->add_metrics(metrics);
  return metrics;
}

Result<std::shared_ptr<const TokenMatcher>> Session::matcher(const SamplingParams& params) const {
  if (!params.structured_outputs) return nullptr;
  ASSIGN_OR_RETURN(Constraint constraint, grammars_->compile(*params.structured_outputs));
  return std::move(constraint.matcher);
}

Result<StringTokens> Session::string_tokens(const SamplingParams& params) const {
  RETURN_IF_ERROR(check_lists(params, engine_->info()));
  StringTokens strings;
  if (!params.bad_words.empty()) strings.bad_words = word_tokens(params.bad_words);
  if (params.dry_multiplier > 0)
    strings.dry_breakers = breaker_tokens(params.dry_sequence_breakers);
  return strings;
}

Request Session::make_request(std::vector<TokenId> prompt, const SamplingParams& params,
                              const StringTokens& strings) const {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling = params;
  if (auto& outputs = request.sampling.structured_outputs) {  // the matcher replaces them
    StructuredOutputs rest;
    rest.complete_within_max_tokens = outputs->complete_within_max_tokens;
    outputs = std::move(rest);
  }
  const int vocab_size = engine_->info().vocab_size;
  for (const TokenId id : tokenizer_->end_of_generation_ids()) {
    if (id < vocab_size) request.eos_token_ids.push_back(id);
  }
  request.bad_words = strings.bad_words;
  request.dry_breakers = strings.dry_breakers;
  return request;
}

// Returns the token sequences of every word, with and without a leading space, sorted and unique.
// The name of a special token stands for the token, and for the text of its characters.
std::vector<std::vector<TokenId>> Session::word_tokens(
    const std::vector<std::string>& words) const {
  std::vector<std::vector<TokenId>> sequences;
  for (const std::string& word : words) {
    for (const std::string& form : {word, " " + word}) {
      for (const bool parse_special : {false, true}) {
        std::vector<TokenId> ids =
            tokenizer_->encode(form, {.add_special = false, .parse_special = parse_special});
        if (!ids.empty()) sequences.push_back(std::move(ids));
      }
    }
  }
  std::ranges::sort(sequences);
  const auto repeated = std::ranges::unique(sequences);
  sequences.erase(repeated.begin(), repeated.end());
  return sequences;
}

// Returns the tokens whose text contains a breaker. Caches the result for the last breakers.
std::vector<TokenId> Session::breaker_tokens(const std::vector<std::string>& breakers) const {
  {
    const std::lock_guard lock(breakers_mutex_);
    if (breakers == known_breakers_) return known_breaker_tokens_;
  }
  const StopStrings strings(breakers);
  const auto occurs_in = [&](std::string_view bytes) {
    uint32_t state = StopStrings::kStart;
    return std::ranges::any_of(bytes, [&](char c) {
      state = strings.step(state, static_cast<unsigned char>(c));
      return strings.match(state) >= 0;
    });
  };
  std::vector<TokenId> tokens;
  const int vocab_size = std::min(tokenizer_->vocab_size(), engine_->info().vocab_size);
  for (TokenId id = 0; id < vocab_size; ++id) {
    give_way();
    if (occurs_in(tokenizer_->token_bytes(id))) tokens.push_back(id);
  }
  const std::lock_guard lock(breakers_mutex_);
  known_breakers_ = breakers;
  known_breaker_tokens_ = tokens;
  return tokens;
}

void OwnedEvent::assign(RequestId of, const TokenEvent& event) {
  request = of;
  index = event.index;
  token = event.token;
  logprob = {event.token, event.logprob, event.rank};
  alternatives.assign(event.alternatives.begin(), event.alternatives.end());
  finish = event.finish;
  stop_token = event.stop_token;
  if (event.finish == FinishReason::kNone) return;
  auto last = std::make_unique<End>();
  if (event.stats != nullptr) last->stats = *event.stats;
  if (event.error != nullptr) last->error = *event.error;
  end = std::move(last);
}

void OwnedEvent::assign(RequestId of, int first,
                        std::span<const std::span<const TokenLogprob>> rows) {
  request = of;
  first_position = first;
  for (const auto& row : rows) prompt_logprobs.emplace_back(row.begin(), row.end());
}

void EventQueue::on_tokens(RequestId request, std::span<const TokenEvent> events) {
  const std::lock_guard lock(mutex_);
  for (const TokenEvent& event : events) events_.emplace_back().assign(request, event);
  filled_.notify_one();
}

void EventQueue::on_prompt_logprobs(RequestId request, int first,
                                    std::span<const std::span<const TokenLogprob>> rows) {
  const std::lock_guard lock(mutex_);
  events_.emplace_back().assign(request, first, rows);
}

bool EventQueue::pop(std::vector<OwnedEvent>& out, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!filled_.wait_for(lock, timeout, [&] { return !events_.empty(); })) return false;
  for (OwnedEvent& event : events_) out.push_back(std::move(event));
  events_.clear();
  return true;
}

OutputBuilder::OutputBuilder(const Tokenizer& tokenizer, const SamplingParams& params,
                             std::vector<TokenId> prompt, bool keep_markers,
                             std::shared_ptr<const StopStrings> stops)
    : params_(&params), n_open_(params.n) {
  const bool has_context = std::ranges::any_of(prompt, [&](TokenId id) {
    return !tokenizer.is_special(id) || !params_->skip_special_tokens;
  });
  result_.outputs.resize(params_->n);
  texts_.reserve(params_->n);
  if (stops == nullptr) stops = std::make_shared<const StopStrings>(params_->stop);
  const SequenceText text(tokenizer, *params_, has_context, keep_markers, std::move(stops));
  for (int i = 0; i < params_->n; ++i) {
    result_.outputs[i].index = i;
    texts_.push_back(text);
  }
  if (params_->prompt_logprobs) result_.prompt_logprobs.resize(prompt.size());
  result_.prompt_token_ids = std::move(prompt);
}

OutputBuilder::Step OutputBuilder::add(const OwnedEvent& event) {
  Step step;
  if (event.first_position >= 0) {
    std::ranges::copy(event.prompt_logprobs,
                      result_.prompt_logprobs.begin() + event.first_position);
    return step;
  }
  CompletionOutput& output = result_.outputs[event.index];
  SequenceText& text = texts_[event.index];
  const bool was_stopped = text.stopped_by() != nullptr;
  if (event.token != kNoToken && !was_stopped) {
    output.token_ids.push_back(event.token);
    if (params_->logprobs) {
      output.cumulative_logprob += event.logprob.logprob;
      std::vector<TokenLogprob>& row = output.logprobs.emplace_back(1, event.logprob);
      row.insert(row.end(), event.alternatives.begin(), event.alternatives.end());
    }
    // The stop token is not part of the text.
    if (event.finish != FinishReason::kStop || params_->include_stop_str_in_output)
      text.add(event.token);
  }
  if (text.stopped_by() != nullptr && !was_stopped) {
    output.finish_reason = FinishReason::kStop;
    output.stop_reason = *text.stopped_by();
    step.stopped_here = event.finish == FinishReason::kNone;
  }
  if (event.finish != FinishReason::kNone) {
    text.finish();
    if (text.stopped_by() == nullptr) {
      output.finish_reason = event.finish;
      if (event.stop_token != kNoToken) output.stop_reason = event.stop_token;
      output.error = event.end->error;  // after a stop string: of a token that nobody sees
    }
    output.stats = event.end->stats;
    output.stats.completion_tokens = static_cast<int>(output.token_ids.size());
    step.finished = true;
    --n_open_;
  }
  step.text = text.take();
  if (step.finished) output.text = text.text();
  return step;
}

}  // namespace penstock
