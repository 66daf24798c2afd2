#include "server/api/llamacpp.h"

#include <algorithm>
#include <cmath>

#include "base/base64.h"
#include "frontend/params_json.h"
#include "server/api/api_request.h"
#include "server/api/renamed_params.h"
#include "server/api/schema_parts.h"
#include "server/api/structured.h"

namespace penstock {
namespace {

constexpr RenamedParam kLlamaParams[] = {{"temperature", "temperature"},
                                         {"top_k", "top_k"},
                                         {"top_p", "top_p"},
                                         {"min_p", "min_p"},
                                         {"typical_p", "typical_p"},
                                         {"repeat_penalty", "repetition_penalty"},
                                         {"repeat_last_n", "penalty_last_n"},
                                         {"presence_penalty", "presence_penalty"},
                                         {"frequency_penalty", "frequency_penalty"},
                                         {"dry_multiplier", "dry_multiplier"},
                                         {"dry_base", "dry_base"},
                                         {"dry_allowed_length", "dry_allowed_length"},
                                         {"dry_penalty_last_n", "dry_penalty_last_n"},
                                         {"xtc_probability", "xtc_probability"},
                                         {"xtc_threshold", "xtc_threshold"},
                                         {"mirostat", "mirostat"},
                                         {"mirostat_tau", "mirostat_tau"},
                                         {"mirostat_eta", "mirostat_eta"}};
// Parameters that are not numbers and are copied unchanged.
constexpr RenamedParam kLlamaOthers[] = {{"dry_sequence_breakers", "dry_sequence_breakers"},
                                         {"stop", "stop"},
                                         {"ignore_eos", "ignore_eos"},
                                         {"grammar", "grammar"},
                                         {"json_schema", "json_schema"},
                                         {"n", "n"},
                                         {"n_cmpl", "n"}};

// llama.cpp's name of a sampling step, and the neutral value of its field.
struct SamplerName {
  const char* name;
  const char* field;
  double off;
};
constexpr SamplerName kSamplerNames[] = {{"dry", "dry_multiplier", 0},
                                         {"top_k", "top_k", 0},
                                         {"typ_p", "typical_p", 1},
                                         {"top_p", "top_p", 1},
                                         {"min_p", "min_p", 0},
                                         {"xtc", "xtc_probability", 0},
                                         {"temperature", "temperature", 1},
                                         {"penalties", "repetition_penalty", 1},
                                         {"penalties", "presence_penalty", 0},
                                         {"penalties", "frequency_penalty", 0}};

constexpr int64_t kRandomSeed = 0xffffffff;  // any seed, as are negative values

// Collects biases by token. The number of entries is limited, since every sampled token checks all
// of them.
class BiasReader {
 public:
  explicit BiasReader(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // key: a token id, an id as text, or a text whose tokens are meant. bias: a number, or false.
  Status add(const json& key, const json& bias) {
    std::vector<TokenId> ids;
    if (key.is_string()) {
      const std::string& text = key.get_ref<const std::string&>();
      const bool is_id = !text.empty() && text.size() < 10 &&
                         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
      if (text.size() > kMost) return too_many();
      if (is_id) ids.push_back(static_cast<TokenId>(std::stol(text)));
      if (!is_id) ids = tokenizer_.encode(text, {.add_special = false, .parse_special = true});
    } else {
      ids.push_back(key.get<TokenId>());
    }
    for (const TokenId id : ids) biases_.emplace_back(id, bias);
    return biases_.size() > kMost ? too_many() : Status();
  }
  void put(json& params) const {
    for (const auto& [id, bias] : biases_) {
      if (bias.is_number()) params["logit_bias"][std::to_string(id)] = bias;
      if (!bias.is_number()) params["banned_token_ids"].push_back(id);
    }
  }

 private:
  static constexpr size_t kMost = 1024;
  static Status too_many() {
    return errorf(ErrorCode::kInvalidArgument, "logit_bias: expected at most {} tokens", kMost);
  }
  const Tokenizer& tokenizer_;
  std::vector<std::pair<TokenId, json>> biases_;
};

// Tokenizes a text, or a list of ids and texts in order.
Result<std::vector<TokenId>> tokens_of_prompt(const json& prompt, const ServedModel& model) {
  if (prompt.is_object()) return tokens_of_prompt(prompt["prompt_string"], model);
  const Session& session = model.session();
  if (prompt.is_string()) {
    RETURN_IF_ERROR(session.check_length(prompt.get_ref<const std::string&>()));
    return session.encode(prompt.get_ref<const std::string&>(), {});
  }
  const auto most = static_cast<size_t>(model.max_model_len());
  if (prompt.size() > most) {
    return errorf(ErrorCode::kContextOverflow,
                  "prompt: expected at most {} tokens and strings, got {}", model.max_model_len(),
                  prompt.size());
  }
  std::vector<TokenId> ids;
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i].is_string()) {
      const std::string& text = prompt[i].get_ref<const std::string&>();
      RETURN_IF_ERROR(session.check_length(text));
      const std::vector<TokenId> part =
          session.encode(text, {.add_bos = i == 0, .parse_special = true});
      ids.insert(ids.end(), part.begin(), part.end());
      if (ids.size() > most)
        return errorf(ErrorCode::kContextOverflow, "prompt: expected at most {} tokens, got more",
                      most);
      continue;
    }
    const auto id = prompt[i].get<int64_t>();
    if (id >= model.tokenizer().vocab_size()) {
      return errorf(ErrorCode::kInvalidArgument, "prompt: expected token ids from 0 to {}, got {}",
                    model.tokenizer().vocab_size() - 1, id);
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

// A prompt with a picture, or a sound, for each of its marks.
Result<PicturedPrompt> placed_media(const json& prompt, const ServedModel& model) {
  constexpr std::string_view kMark = "<__media__>";
  const Session& session = model.session();
  const json& data = prompt["multimodal_data"];
  const Eyes* const eyes = session.eyes();
  const size_t most = eyes != nullptr ? eyes->limits().pictures : 1;
  if (data.size() > most)
    return errorf(ErrorCode::kInvalidArgument,
                  "prompt.multimodal_data: expected at most {} pictures or sounds, got {}", most,
                  data.size());
  std::vector<Picture> pictures;
  for (size_t i = 0; i < data.size(); ++i) {
    auto file = decode_base64(data[i].get_ref<const std::string&>(), Base64::kLoose);
    if (!file)
      return errorf(ErrorCode::kInvalidArgument, "prompt.multimodal_data[{}]: expected base64", i);
    // What is no picture is a sound, where the model hears.
    const bool hears = eyes != nullptr && eyes->hears();
    const bool is_sound =
        hears && !(eyes->sees() && read_image_info(std::as_bytes(std::span(*file))));
    pictures.push_back({fmt::format("prompt.multimodal_data[{}]", i),
                        std::make_shared<const std::string>(*std::move(file)), is_sound});
    RETURN_IF_ERROR(session.check_sense(pictures.back()));
  }
  std::string_view rest = prompt["prompt_string"].get_ref<const std::string&>();
  RETURN_IF_ERROR(session.check_length(rest));
  std::string text;
  size_t n_marks = 0;
  for (size_t at = rest.find(kMark); at != std::string_view::npos; at = rest.find(kMark)) {
    const bool is_sound = n_marks < pictures.size() && pictures[n_marks].is_sound;
    text.append(rest.substr(0, at)).append(eyes->prompt().placeholder(is_sound));
    rest.remove_prefix(at + kMark.size());
    ++n_marks;
  }
  if (n_marks != pictures.size())
    return errorf(ErrorCode::kInvalidArgument,
                  "prompt.prompt_string: expected {} {} times, once for each of multimodal_data, "
                  "got {}",
                  kMark, pictures.size(), n_marks);
  text.append(rest);
  return session.place(Prompt(std::move(text)), std::move(pictures), {}, nullptr);
}

nlohmann::json sampler_names_field() {
  using namespace schema;  // NOLINT: a schema
  return list({{"enum",
                {"penalties", "dry", "top_k", "typ_p", "typical_p", "top_p", "min_p", "xtc",
                 "temperature", "infill"}}},
              "the steps that choose a token, in this server's own order; infill has no effect");
}

nlohmann::json bias_field() {
  using namespace schema;  // NOLINT: a schema
  const Json bias = {{"anyOf", {plain("number"), {{"enum", {false}}}}},
                     {"title", "a number or false"}};
  Json by_token = plain("object");
  by_token["additionalProperties"] = bias;
  const Json pairs = {{"type", "array"},
                      {"items", plain("array")},
                      {"maxItems", 1024},
                      {"title", "a list of [token, bias]"}};
  return any_of({by_token, pairs}, "token ids or texts and their biases; false bans them");
}

}  // namespace

void read_samplers(const json& body, json& params) {
  const json& names = get_field(body, "samplers");
  if (!names.is_array()) return;
  for (const SamplerName& one : kSamplerNames) {
    const auto named = [&](const json& name) {
      return name == one.name || (name == "typical_p" && std::string_view(one.name) == "typ_p");
    };
    if (std::ranges::none_of(names, named)) params[one.field] = one.off;
  }
}

Status read_bias(const json& body, const Tokenizer& tokenizer, json& params) {
  const json& given = get_field(body, "logit_bias");
  BiasReader biases(tokenizer);
  if (given.is_object()) {
    for (auto one = given.begin(); one != given.end(); ++one)
      RETURN_IF_ERROR(biases.add(one.key(), *one));
  }
  for (size_t i = 0; given.is_array() && i < given.size(); ++i) {
    const json& pair = given[i];
    const auto names_token = [](const json& key) {
      return key.is_string() || (key.is_number_integer() && key >= 0 && key <= INT32_MAX);
    };
    const bool fits =
        pair.size() == 2 && names_token(pair[0]) && (pair[1].is_number() || pair[1] == json(false));
    if (!fits) {
      return errorf(ErrorCode::kInvalidArgument,
                    "logit_bias[{}]: expected [token id or text, bias or false], got {:.80}", i,
                    dump(pair));
    }
    RETURN_IF_ERROR(biases.add(pair[0], pair[1]));
  }
  biases.put(params);
  return {};
}

int64_t most_llamacpp_tokens(const json& body) {
  return get_int(body, "n_predict", get_int(body, "max_tokens", -1));
}

Result<json> params_of_llamacpp(const json& body, const ServedModel& model) {
  const int64_t most = most_llamacpp_tokens(body);
  if (get_int(body, "max_tokens", most) != most)
    return make_error(ErrorCode::kInvalidArgument, "max_tokens: cannot stand beside n_predict");
  json params = json::object();
  take_renamed(body, kLlamaParams, params);
  take_renamed(body, kLlamaOthers, params);
  read_samplers(body, params);
  if (const json& seed = get_field(body, "seed");
      seed.is_number() && seed >= 0 && seed != kRandomSeed)
    params["seed"] = seed;
  if (most >= 0) params["max_tokens"] = std::max<int64_t>(most, 1);
  if (const int64_t n = get_int(body, "n_probs", 0); n > 0) params["logprobs"] = n;
  // A prompt that must not be read from the cache must not be stored for others either.
  if (!get_bool(body, "cache_prompt", true)) params["cache_salt"] = random_id("once-");
  RETURN_IF_ERROR(read_bias(body, model.tokenizer(), params));
  return params;
}

Result<std::vector<std::vector<TokenId>>> prompts_of_llamacpp(
    const json& prompt, const ServedModel& model, bool& several,
    std::vector<PromptPictures>& pictures) {
  const auto is_id = [](const json& item) { return item.is_number(); };
  const auto is_list = [](const json& item) { return item.is_array() || item.is_object(); };
  several = prompt.is_array() &&
            (std::ranges::none_of(prompt, is_id) || std::ranges::any_of(prompt, is_list));
  std::vector<std::vector<TokenId>> prompts;
  for (size_t i = 0; i < (several ? prompt.size() : 1); ++i) {
    const json& one = several ? prompt[i] : prompt;
    if (one.is_number())
      return errorf(ErrorCode::kInvalidArgument,
                    "prompt[{}]: a token id cannot stand between prompts", i);
    if (one.is_object() && !get_field(one, "multimodal_data").empty()) {
      ASSIGN_OR_RETURN(PicturedPrompt placed, placed_media(one, model));
      pictures.resize(prompts.size());
      pictures.push_back(std::move(placed.pictures));
      prompts.push_back(std::move(placed.tokens));
      continue;
    }
    ASSIGN_OR_RETURN(std::vector<TokenId> ids, tokens_of_prompt(one, model));
    prompts.push_back(std::move(ids));
  }
  return prompts;
}

json llamacpp_settings(const SamplingParams& params, int64_t n_predict, bool stream) {
  json settings = {{"n_predict", n_predict}, {"max_tokens", n_predict}};
  const json own = params_to_json(params);
  for (const RenamedParam& one : kLlamaParams) settings[one.name] = own[one.field];
  settings["seed"] = params.seed ? json(*params.seed) : json(kRandomSeed);
  settings["dry_sequence_breakers"] = params.dry_sequence_breakers;
  settings["stop"] = params.stop;
  settings["ignore_eos"] = params.ignore_eos;
  settings["n_probs"] = params.logprobs.value_or(0);
  const bool constrained = params.structured_outputs.has_value();
  settings["grammar"] = constrained ? params.structured_outputs->grammar : "";
  settings["logit_bias"] = json::array();
  for (const auto& [token, bias] : params.logit_bias)
    settings["logit_bias"].push_back({{"token", token}, {"bias", bias}});
  settings["stream"] = stream;
  settings["repeat_last_n"] = params.penalty_last_n;
  for (const char* name : {"dynatemp_range", "n_keep", "n_discard", "min_keep"}) settings[name] = 0;
  settings["dynatemp_exponent"] = 1.0;
  settings["samplers"] = {"penalties", "dry",   "temperature", "min_p",
                          "top_k",     "top_p", "typ_p",       "xtc"};
  settings["post_sampling_probs"] = params.processed_logprobs;
  settings["lora"] = json::array();
  return settings;
}

void name_as_probabilities(json& entry) {
  const auto rename = [](json& one) {
    one["prob"] = std::exp(take_field(one, "logprob").get<double>());
    one.erase("logprob");
  };
  rename(entry);
  for (json& one : entry["top_logprobs"]) rename(one);
  entry["top_probs"] = take_field(entry, "top_logprobs");
  entry.erase("top_logprobs");
}

json llamacpp_timings(const RequestStats& stats, int64_t n_prompt, int64_t n_tokens) {
  const auto rates = [](const std::string& name, int64_t n, double seconds, json& into) {
    const double ms = seconds * 1000;
    into[name + "_n"] = n;
    into[name + "_ms"] = ms;
    into[name + "_per_token_ms"] = n > 0 ? ms / static_cast<double>(n) : 0.0;
    into[name + "_per_second"] = seconds > 0 ? static_cast<double>(n) / seconds : 0.0;
  };
  json result = {{"cache_n", stats.cached_tokens}};
  rates("prompt", n_prompt - stats.cached_tokens, stats.prefill_seconds, result);
  rates("predicted", n_tokens, stats.decode_seconds, result);
  if (stats.draft_tokens > 0) {
    result["draft_n"] = stats.draft_tokens;
    result["draft_n_accepted"] = stats.accepted_tokens;
  }
  return result;
}

json picked_fields(const json& reply, const std::vector<std::string>& paths) {
  json picked = json::object();
  for (const std::string& path : paths) {
    const json* at = &reply;
    size_t begin = 0;
    while (at != nullptr && begin <= path.size()) {
      const size_t end = std::min(path.find('/', begin), path.size());
      const auto found = at->find(path.substr(begin, end - begin));
      at = at->is_object() && found != at->end() ? &*found : nullptr;
      begin = end + 1;
    }
    if (at != nullptr) picked[path] = *at;
  }
  return picked;
}

nlohmann::json llamacpp_prompt_field() {
  using namespace schema;  // NOLINT: a schema
  const Json part = {{"anyOf", {plain("string"), token_id()}}, {"title", "a string or a token id"}};
  const Json parts = {{"type", "array"},
                      {"minItems", 1},
                      {"items", part},
                      {"title", "a list of token ids and strings"}};
  const Json object = closed(
      {{"prompt_string", plain("string")},
       {"multimodal_data", list(plain("string"),
                                "pictures in base64, or sounds for a model that hears: one for "
                                "each <__media__> of prompt_string")}},
      {"prompt_string"});
  const Json item = {{"anyOf", {plain("string"), token_id(), parts, object}},
                     {"title", "a string, a token id, a list of them or {prompt_string}"}};
  const Json all = {{"type", "array"}, {"minItems", 1}, {"items", item}, {"title", "a list"}};
  return {{"anyOf", {plain("string"), all, object}},
          {"title", "a string, a list of token ids and strings, or a list of prompts"},
          {"description", "one prompt or several"}};
}

nlohmann::json llamacpp_fields() {
  using namespace schema;  // NOLINT: a schema
  Json fields = schemas_of_renamed(kLlamaParams);
  const Json some = {{"type", "string"}, {"minLength", 1}};
  const Json limits = structured_fields();
  fields["grammar"] = limits["grammar"];
  fields["json_schema"] = limits["json_schema"];
  fields["stop"] = list(some, "strings that end the text");
  fields["stop"]["maxItems"] = 1024;
  fields["dry_sequence_breakers"] = list(some, "strings that end a repeated sequence");
  fields["logit_bias"] = bias_field();
  fields["samplers"] = sampler_names_field();
  merge(
      fields,
      {{"model", text("the served model's name")},
       {"stream", boolean("reply with server-sent events")},
       {"n_predict",
        integer(-2, INT32_MAX, "most tokens to generate; below 0: what fits the context; 0: none")},
       {"max_tokens", integer(-2, INT32_MAX, "another name of n_predict")},
       {"n", integer(1, 1024, "completions of each prompt")},
       {"n_cmpl", integer(1, 1024, "the same")},
       {"n_probs", integer(0, INT32_MAX, "log-probabilities of this many alternatives per token")},
       {"seed", field({"integer"}, "random seed; below 0: any")},
       {"ignore_eos", boolean("go on after the end-of-sequence token")},
       {"repeat_last_n",
        integer(-1, 4096, "the penalties look at so many last tokens; -1: at all; 0: at none")},
       {"n_indent", integer(0, 1024, "the text ends before a line that is indented by less")},
       {"t_max_predict_ms",
        integer(0, INT32_MAX, "the text ends after this time and a line break; 0: it does not")},
       {"cache_prompt", boolean("false: compute the whole prompt")},
       {"return_tokens", boolean("add the ids of the tokens")},
       {"timings_per_token", boolean("of a stream: tell the timings in every event")},
       {"response_fields",
        list(plain("string"), "only these fields of the reply, as timings/prompt_n")},
       {"id_slot", field({"integer"}, "no effect: sequences have no places of their own")},
       {"n_keep", field({"integer"}, "no effect: a text ends where the context does")},
       {"n_discard", field({"integer"}, "no effect: a text ends where the context does")},
       {"n_cache_reuse", field({"integer"}, "no effect: only equal beginnings are reused")},
       {"t_max_prompt_ms", field({"integer"}, "no effect, as there")},
       {"dynatemp_exponent", field({"number"}, "no effect without dynatemp_range")},
       {"dynatemp_range", only(0, "not supported by this server")},
       {"min_keep", only(0, "not supported by this server")},
       {"top_n_sigma", only(-1, "not supported by this server")},
       {"post_sampling_probs",
        boolean("probabilities after all steps of the sampler, as prob and top_probs")},
       {"return_progress", boolean("of a stream: tell how far the prompt is computed")},
       {"lora", list(refused("not supported: adapters are chosen by the model field"), "none")}});
  fields["response_fields"]["maxItems"] = 64;
  return fields;
}

}  // namespace penstock
