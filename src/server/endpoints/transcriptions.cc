// POST /v1/audio/transcriptions and /v1/audio/translations (OpenAI's), for Whisper.
#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <cmath>
#include <set>

#include "base/memory.h"
#include "frontend/transcripts/formats.h"
#include "frontend/transcripts/transcriber.h"
#include "server/api/api_request.h"
#include "server/handlers/answer.h"
#include "server/http/multipart.h"
#include "server/keys/ledger/spending.h"
#include "server/routing/errors.h"
#include "server/services/client_warnings.h"
#include "server/services/config.h"
#include "server/services/request_record.h"
#include "server/services/services.h"

namespace penstock {
namespace {

constexpr size_t kLongestField = 1 << 16;  // bytes
enum class Format : uint8_t { kJson, kText, kSrt, kVerboseJson, kVtt };
constexpr std::string_view kFormats[] = {"json", "text", "srt", "verbose_json", "vtt"};

// Fields of the form.
struct AudioForm {
  std::string_view file;
  bool has_file = false;
  std::string model, language, prompt;
  Format format = Format::kJson;
  std::optional<float> temperature;
  std::optional<uint64_t> seed;
  bool stream = false;
  bool wants_segments = false, wants_words = false;
};

Status read_temperature(std::string_view text, AudioForm& form) {
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value <= 1))
    return errorf(ErrorCode::kInvalidArgument, "temperature: expected 0 to 1, got {}",
                  text.substr(0, 100));
  form.temperature = value;
  return {};
}

// As of text requests, which may be below 0 too.
Status read_seed(std::string_view text, AudioForm& form) {
  const char* const end = text.data() + text.size();
  const auto read = [&](auto value) {
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end) form.seed = static_cast<uint64_t>(value);
    return form.seed.has_value();
  };
  if (read(uint64_t{0}) || read(int64_t{0})) return {};
  return errorf(ErrorCode::kInvalidArgument, "seed: expected an integer, got {}",
                text.substr(0, 100));
}

// Returns whether there is such a field.
Result<bool> read_field(const FormPart& part, AudioForm& form) {
  const std::string_view value = part.content;
  const auto wrong = [&](std::string_view expected) {
    return errorf(ErrorCode::kInvalidArgument, "{}: expected {}, got {}", part.name, expected,
                  value.substr(0, 100));
  };
  if (part.name == "model") {
    form.model = value;
  } else if (part.name == "language") {
    form.language = value;
  } else if (part.name == "prompt") {
    form.prompt = value;
  } else if (part.name == "temperature") {
    RETURN_IF_ERROR(read_temperature(value, form));
  } else if (part.name == "seed") {
    RETURN_IF_ERROR(read_seed(value, form));
  } else if (part.name == "response_format") {
    const auto* const found = std::ranges::find(kFormats, value);
    if (found == std::end(kFormats)) return wrong(fmt::format("{}", fmt::join(kFormats, ", ")));
    form.format = static_cast<Format>(found - std::begin(kFormats));
  } else if (part.name == "stream") {
    if (value != "true" && value != "false") return wrong("true or false");
    form.stream = value == "true";
  } else if (part.name == "timestamp_granularities[]" || part.name == "timestamp_granularities") {
    if (value != "segment" && value != "word") return wrong("word or segment");
    (value == "word" ? form.wants_words : form.wants_segments) = true;
  } else {
    return false;
  }
  return true;
}

Result<AudioForm> read_audio_form(const Services& services, const HttpRequest& request) {
  ASSIGN_OR_RETURN(const auto parts, read_form(request.header("content-type"), request.body));
  AudioForm form;
  std::set<std::string_view> seen;
  for (const FormPart& part : parts) {
    if (!seen.insert(part.name).second && !part.name.starts_with("timestamp_granularities"))
      return errorf(ErrorCode::kInvalidArgument, "{}: given twice", part.name.substr(0, 100));
    if (part.name == "file") {
      form.has_file = true;
      form.file = part.content;
      continue;
    }
    if (part.content.size() > kLongestField) {
      return errorf(ErrorCode::kInvalidArgument, "{}: expected at most {} bytes, got {}",
                    part.name.substr(0, 100), kLongestField, part.content.size());
    }
    ASSIGN_OR_RETURN(const bool known, read_field(part, form));
    if (!known && services.config.strict_fields)
      return errorf(ErrorCode::kInvalidArgument,
                    "{}: unknown field, expected file, model, language, prompt, response_format, "
                    "temperature, seed, timestamp_granularities[] or stream",
                    part.name.substr(0, 100));
    if (!known)
      warn_client(request,
                  part.name.substr(0, 100) + ": this server knows no such field, it is left out");
  }
  if (!form.has_file) return errorf(ErrorCode::kInvalidArgument, "file: required, a sound");
  const bool plain = form.format == Format::kJson || form.format == Format::kText;
  if (form.wants_segments && plain)
    return errorf(ErrorCode::kInvalidArgument,
                  "timestamp_granularities: expected response_format verbose_json, srt or vtt");
  if (form.wants_words && form.format != Format::kVerboseJson)
    return errorf(ErrorCode::kInvalidArgument,
                  "timestamp_granularities: word: expected response_format verbose_json");
  if (form.stream && !plain)
    return errorf(ErrorCode::kInvalidArgument, "stream: expected response_format json or text");
  return form;
}

// One call: what was asked, and the sound.
struct AudioCall {
  ModelLease model;
  AudioForm form;
  bool translate = false;
  std::optional<Clock::time_point> deadline;  // of all windows together
  BodyBudget room;                            // of the sound, decoded and as a spectrum
  Ear::Spectrum spectrum;

  const WhisperTokens& tokens() const { return *model->session().whisper(); }
  const Ear& ear() const { return model->session().eyes()->ear(); }
  size_t window_bytes() const {
    const auto n_frames = static_cast<size_t>(std::max<int64_t>(spectrum.n_frames, 1));
    return spectrum.values.size() / n_frames * static_cast<size_t>(ear().window_frames()) *
           sizeof(float);
  }
  // Of weights of attention, while a window is written.
  size_t watch_bytes() const {
    if (!form.wants_words) return 0;
    const WhisperTokens& known = tokens();
    return known.alignment_heads.size() * static_cast<size_t>(known.max_tokens) *
           static_cast<size_t>(ear().window_frames() / 2) * sizeof(float);
  }
  bool late() const { return deadline && Clock::now() >= *deadline; }
  bool times() const { return form.format != Format::kJson && form.format != Format::kText; }
};

Status check_model(const AudioCall& call) {
  const ServedModel& model = *call.model;
  if (model.pools() || model.session().whisper() == nullptr) {
    const std::string why = model.pools() ? "" : model.session().blind_reason();
    return errorf(ErrorCode::kInvalidArgument,
                  "model: {} writes no transcripts: expected a Whisper{}{}", model.name(),
                  why.empty() ? "" : ": ", why);
  }
  if (call.tokens().multilingual()) return {};
  if (call.translate)
    return errorf(ErrorCode::kInvalidArgument,
                  "model: {} knows English only: it translates nothing", model.name());
  return {};
}

Status check_language(const AudioCall& call) {
  if (call.form.language.empty()) return {};
  const WhisperTokens& tokens = call.tokens();
  const std::string code = language_code(call.form.language);
  if (tokens.multilingual() ? tokens.languages.contains(code) : code == "en") return {};
  return errorf(ErrorCode::kInvalidArgument,
                "language: expected a code such as en that {} knows, got {}", call.model->name(),
                call.form.language.substr(0, 100));
}

Status check_words(const AudioCall& call) {
  if (!call.form.wants_words || !call.tokens().alignment_heads.empty()) return {};
  return errorf(ErrorCode::kUnsupported,
                "timestamp_granularities: word: {} does not say which heads follow the sound "
                "(alignment_heads of generation_config.json)",
                call.model->name());
}

// Returns what the transcriber is asked for. REQUIRES: check_language().
TranscriptAsked asked_of(const AudioCall& call) {
  TranscriptAsked asked;
  if (call.tokens().multilingual() && !call.form.language.empty())
    asked.language = language_code(call.form.language);
  asked.translate = call.translate;
  asked.timestamps = call.times() || call.spectrum.n_frames > call.ear().window_frames();
  asked.words = call.form.wants_words;
  asked.follows_text = true;
  asked.least_logprob = -1.0, asked.most_compression = 2.4, asked.most_silence = 0.6;
  const float first = call.form.temperature.value_or(0.0f);
  asked.temperatures = {first};
  if (first == 0.0f) asked.temperatures = {0.0f, 0.2f, 0.4f, 0.6f, 0.8f, 1.0f};
  std::string_view prompt = call.form.prompt;
  while (prompt.starts_with(' ')) prompt.remove_prefix(1);
  if (!prompt.empty())
    asked.prompt = call.model->tokenizer().encode(" " + std::string(prompt),
                                                  {.add_special = false, .parse_special = false});
  return asked;
}

struct Written {
  std::vector<TranscriptSegment> segments;
  std::vector<SpokenText> texts;  // of them
  std::vector<SpokenWord> words;  // of all of them; none unless asked for
};

std::string text_of(const Tokenizer& tokenizer, const WhisperTokens& tokens,
                    std::span<const TokenId> ids) {
  std::vector<TokenId> text;
  std::ranges::copy_if(ids, std::back_inserter(text), [&](TokenId id) { return id < tokens.end; });
  return tokenizer.decode(text);
}

// Adds the words of a segment.
void add_words(const AudioCall& call, const TranscriptSegment& segment, std::string_view language,
               std::vector<SpokenWord>& words) {
  std::vector<TokenId> tokens;
  std::vector<TokenTime> times;
  for (size_t i = 0; i < std::min(segment.tokens.size(), segment.times.size()); ++i) {
    if (segment.tokens[i] >= call.tokens().end) continue;
    tokens.push_back(segment.tokens[i]), times.push_back(segment.times[i]);
  }
  for (SpokenWord& word : words_of(call.model->tokenizer(), tokens, times, language))
    words.push_back(std::move(word));
}

json usage_of(const AudioCall& call) {
  return {{"type", "duration"},
          {"seconds", static_cast<int64_t>(std::ceil(call.spectrum.seconds))}};
}

double rounded(double value, double unit) { return std::round(value / unit) * unit; }

json verbose_reply(const AudioCall& call, const Written& written, const std::string& language) {
  json reply = {{"task", call.translate ? "translate" : "transcribe"},
                {"language", language_name(language.empty() ? "en" : language)},
                {"duration", rounded(call.spectrum.seconds, 0.01)},
                {"text", plain_transcript(written.texts)},
                {"usage", usage_of(call)}};
  if (call.form.wants_words) {
    json& words = reply["words"] = json::array();
    for (const SpokenWord& word : written.words) {
      const SpokenText text{word.start, word.end, word.text};
      words.push_back({{"word", plain_transcript({&text, 1})},
                       {"start", rounded(word.start, 0.01)},
                       {"end", rounded(word.end, 0.01)}});
    }
    if (!call.form.wants_segments) return reply;
  }
  reply["segments"] = json::array();
  for (size_t i = 0; i < written.segments.size(); ++i) {
    const TranscriptSegment& one = written.segments[i];
    reply["segments"].push_back({{"id", i},
                                 {"seek", one.seek},
                                 {"start", rounded(one.start, 0.01)},
                                 {"end", rounded(one.end, 0.01)},
                                 {"text", written.texts[i].text},
                                 {"tokens", one.tokens},
                                 {"temperature", rounded(one.temperature, 0.01)},
                                 {"avg_logprob", one.average_logprob},
                                 {"compression_ratio", one.compression_ratio},
                                 {"no_speech_prob", one.no_speech}});
  }
  return reply;
}

HttpReply whole_reply(const AudioCall& call, const Written& written, const std::string& language) {
  HttpReply reply;
  reply.content_type = "text/plain; charset=utf-8";
  switch (call.form.format) {
    case Format::kText: reply.body = plain_transcript(written.texts) + "\n"; return reply;
    case Format::kSrt: reply.body = srt_of(written.texts); return reply;
    case Format::kVtt: reply.body = webvtt_of(written.texts); return reply;
    case Format::kVerboseJson: return json_reply(verbose_reply(call, written, language));
    case Format::kJson: break;
  }
  return json_reply({{"text", plain_transcript(written.texts)}, {"usage", usage_of(call)}});
}

GenerationCall generation_of(const AudioCall& call, const Transcriber& transcriber,
                             Transcriber::Wanted wanted) {
  GenerationCall generation;
  generation.model = call.model;
  generation.params.temperature = wanted.temperature;
  generation.params.max_tokens = wanted.max_tokens;
  generation.params.seed = call.form.seed;
  generation.prompts = {std::move(wanted.prompt)};
  generation.logits_processor = std::move(wanted.rules);
  generation.watch = std::move(wanted.watch);
  if (call.deadline) {
    using std::chrono::milliseconds;
    const auto left = std::chrono::duration_cast<milliseconds>(*call.deadline - Clock::now());
    generation.timeout = std::max(left, milliseconds(1));
  }
  PromptPictures& heard = generation.pictures.emplace_back();
  heard.pictures.push_back(call.model->session().eyes()->plan_window(
      call.ear().window(call.spectrum, transcriber.seek()), "file"));
  return generation;
}

// Reserves what a window may cost.
Status reserve(Exchange& exchange, const GenerationCall& generation) {
  RequestRecord& record = record_of(exchange);
  if (record.spending == nullptr) return {};
  SpendingClaim claim{.price = generation.model->settings().price,
                      .prompt_tokens = static_cast<int64_t>(generation.prompts[0].size()) +
                                       generation.n_encoder_rows(),
                      .n_replies = 1,
                      .max_tokens = generation.params.max_tokens,
                      .may_be_shorter = false};
  const auto refused = record.spending->claim(claim);
  if (!refused) return {};
  record.over_budget = refused->for_good;
  return make_error(ErrorCode::kResourceExhausted, refused->reply.message);
}

// Generates for one window; returns its tokens. An empty result without an error: the client has
// left. comments: sent while nothing else is; "": none.
net::awaitable<Result<std::vector<TokenId>>> generate(Services& services, Exchange& exchange,
                                                      GenerationCall& call,
                                                      std::string_view comments) {
  if (const Status reserved = reserve(exchange, call); !reserved)
    co_return tl::unexpected(reserved.error());
  auto started = co_await Generation::start(services, exchange, call);
  if (!started) {
    if (const auto& spending = record_of(exchange).spending) spending->settle();
    co_return tl::unexpected(started.error());
  }
  Generation& generation = **started;
  const Generation::Take gather = [](const std::vector<ChoiceDelta>&) { return true; };
  while (co_await generation.pass(gather, services.config.keep_alive_interval)) {
    if (!comments.empty()) co_await exchange.write(comments);
  }
  if (const auto& spending = record_of(exchange).spending) spending->settle();
  if (generation.client_gone()) co_return std::vector<TokenId>();
  if (generation.error()) co_return tl::unexpected(*generation.error());
  co_return generation.outputs()[0].outputs[0].token_ids;
}

// About the bytes of a reply.
size_t bytes_of(const Written& written) {
  size_t bytes = 0;
  for (const SpokenText& text : written.texts) bytes += text.text.size() + 256;
  for (const SpokenWord& word : written.words) bytes += word.text.size() + 64;
  for (const TranscriptSegment& segment : written.segments) bytes += 16 * segment.tokens.size();
  return bytes;
}

json event_of(const char* type, const char* field, const std::string& text) {
  return {{"type", type}, {field, text}};
}

// Where pieces of text go.
struct Listener {
  // Gets each piece of text; false ends the work. Empty: nothing is told before the end.
  std::function<net::awaitable<bool>(const std::string&)> tell = {};
  std::string_view comments = {};  // as of generate()
};

// Waits for a place in the queue, some seconds at most, and not beyond the call's deadline. Returns
// whether to try again.
net::awaitable<bool> wait_for_place(Exchange& exchange, const AudioCall& call, int n_tries) {
  constexpr int kMostTries = 20;
  const std::chrono::milliseconds pause(std::min(100 * n_tries, 1000));
  if (n_tries > kMostTries || (call.deadline && Clock::now() + pause >= *call.deadline))
    co_return false;
  net::steady_timer timer(exchange.executor(), pause);
  co_await timer.async_wait(net::as_tuple(net::use_awaitable));
  co_return !exchange.gone();
}

Error late_error() { return {ErrorCode::kDeadlineExceeded, "the request's deadline has passed"}; }

// Writes all windows. What was written is not lost where the queue is full, or a quota of a minute
// is used up, in the middle of a sound: the next window waits.
net::awaitable<Result<std::string>> write_windows(Services& services, Exchange& exchange,
                                                  const AudioCall& call, TranscriptAsked asked,
                                                  Written& written, const Listener& listener) {
  // Silence that fills the last window up is not written.
  const auto own =
      static_cast<int64_t>(std::ceil(call.spectrum.seconds / call.ear().seconds_per_frame()));
  Transcriber transcriber(call.tokens(), std::move(asked),
                          {std::clamp<int64_t>(own, 1, call.spectrum.n_frames),
                           call.ear().window_frames(), call.ear().seconds_per_frame()});
  int n_tries = 0;
  while (!transcriber.done() && !exchange.gone()) {
    if (call.late()) co_return tl::unexpected(late_error());
    GenerationCall generation;
    // The window is copied and hashed.
    co_await services.run_apart(exchange, call.window_bytes(), [&] {
      generation = generation_of(call, transcriber, transcriber.next());
    });
    generation.cache_scope = cache_scope_of(services, exchange.request());
    const auto tokens = co_await generate(services, exchange, generation, listener.comments);
    const bool goes_on = transcriber.seek() > 0 && !record_of(exchange).over_budget;
    if (!tokens && tokens.error().code == ErrorCode::kResourceExhausted && goes_on &&
        co_await wait_for_place(exchange, call, ++n_tries))
      continue;
    if (!tokens) co_return tl::unexpected(tokens.error());
    if (tokens->empty()) break;
    n_tries = 0;
    std::vector<TranscriptSegment> segments;
    std::vector<SpokenWord> words;
    co_await services.run_apart(exchange, call.watch_bytes(), [&] {
      segments = transcriber.add(*tokens);
      if (!call.form.wants_words) return;
      for (const TranscriptSegment& segment : segments)
        add_words(call, segment, call.translate ? "en" : transcriber.language(), words);
    });
    written.words.insert(written.words.end(), words.begin(), words.end());
    for (TranscriptSegment& segment : segments) {
      std::string text = text_of(call.model->tokenizer(), call.tokens(), segment.tokens);
      bool open = true;
      if (listener.tell) open = co_await listener.tell(text);
      written.texts.push_back({segment.start, segment.end, std::move(text)});
      written.segments.push_back(std::move(segment));
      if (!open) co_return transcriber.language();
    }
  }
  co_return transcriber.language();
}

net::awaitable<void> answer_whole(Services& services, Exchange& exchange, const AudioCall& call,
                                  TranscriptAsked asked) {
  Written written;
  const Listener nobody;
  const auto language =
      co_await write_windows(services, exchange, call, std::move(asked), written, nobody);
  if (exchange.gone()) co_return;
  if (!language) {
    HttpReply refused = error_reply(language.error());
    if (refused.status == 429) set_retry_after(refused, call.model->seconds_of_queue());
    co_return co_await exchange.reply(std::move(refused));
  }
  HttpReply reply;
  co_await services.run_apart(exchange, bytes_of(written),
                              [&] { reply = whole_reply(call, written, *language); });
  co_await exchange.reply(std::move(reply));
}

net::awaitable<void> answer_events(Services& services, Exchange& exchange, const AudioCall& call,
                                   TranscriptAsked asked) {
  bool open = co_await exchange.begin_stream(stream_head("text/event-stream; charset=utf-8"));
  if (!open) co_return;
  Written written;
  bool first = true;
  Listener client{.comments = kKeepAlive};
  client.tell = [&](const std::string& text) -> net::awaitable<bool> {
    std::string piece = text;
    while (first && piece.starts_with(' ')) piece.erase(0, 1);
    if (piece.empty()) co_return true;
    first = false;
    open = co_await exchange.write(sse(event_of("transcript.text.delta", "delta", piece)));
    co_return open;
  };
  const auto language =
      co_await write_windows(services, exchange, call, std::move(asked), written, client);
  if (!open || exchange.gone()) co_return;
  std::string tail;
  if (language) {
    json done = event_of("transcript.text.done", "text", plain_transcript(written.texts));
    done["usage"] = usage_of(call);
    tail = sse(done);
  } else {
    tail = "data: " + error_reply(language.error()).body + "\n\n";
  }
  if (co_await exchange.write(tail + "data: [DONE]\n\n")) co_await exchange.end_stream();
}

// Reads the sound as a spectrum; the file is not needed any more then.
net::awaitable<Status> hear(Services& services, Exchange& exchange, AudioCall& call) {
  const auto file = std::as_bytes(std::span(call.form.file));
  call.room.attach(services.under_way.sound_bytes, total_memory() / 8);
  call.room.share(services.under_way.sound_shares, exchange.request().asker());
  Status heard;
  int64_t bytes = 0;
  co_await services.run_apart(exchange, file.size(), [&] {
    const auto needed = call.ear().spectrum_bytes(file);
    if (!needed) {
      heard = tl::unexpected(needed.error());
    } else if (bytes = *needed + static_cast<int64_t>(call.watch_bytes()); !call.room.take(bytes)) {
      heard = errorf(ErrorCode::kResourceExhausted,
                     "sounds of running requests take {} MiB at most, those of one client three "
                     "quarters of them, this one would take {} more: try again later",
                     (total_memory() / 8) >> 20, bytes >> 20);
    }
  });
  if (!heard) co_return heard;
  if (call.late()) co_return tl::unexpected(late_error());
  co_await services.run_apart(exchange, static_cast<size_t>(bytes), [&] {
    auto spectrum = call.ear().spectrum(file);
    if (spectrum) {
      call.spectrum = *std::move(spectrum);
    } else {
      heard = tl::unexpected(spectrum.error());
    }
  });
  call.form.file = {};
  exchange.drop_body();
  call.room.keep(
      static_cast<int64_t>(call.spectrum.values.capacity() * sizeof(float) + call.watch_bytes()));
  co_return heard;
}

net::awaitable<void> answer_audio(Services& services, Exchange& exchange, bool translate) {
  Result<AudioForm> form;
  co_await services.run_apart(exchange,
                              [&] { form = read_audio_form(services, exchange.request()); });
  if (!form) co_return co_await exchange.reply(error_reply(form.error(), "file"));
  AudioCall call;
  call.form = *form, call.translate = translate;
  std::optional<std::chrono::milliseconds> timeout;
  if (services.config.request_timeout.count() > 0) timeout = services.config.request_timeout;
  if (const Status read = read_timeout(exchange.request(), timeout); !read)
    co_return co_await exchange.reply(error_reply(read.error()));
  if (timeout) call.deadline = Clock::now() + *timeout;
  const auto model = co_await model_of_name(services, exchange.request(), call.form.model);
  if (!model) co_return co_await exchange.reply(error_reply(model.error(), "model"));
  call.model = *model;
  if (const Status fits = check_model(call); !fits)
    co_return co_await exchange.reply(error_reply(fits.error(), "model"));
  if (const Status known = check_language(call); !known)
    co_return co_await exchange.reply(error_reply(known.error(), "language"));
  if (const Status known = check_words(call); !known)
    co_return co_await exchange.reply(error_reply(known.error(), "timestamp_granularities"));
  if (const Status heard = co_await hear(services, exchange, call); !heard) {
    const bool late = heard.error().code == ErrorCode::kDeadlineExceeded;
    HttpReply refused = late ? error_reply(heard.error()) : error_reply(heard.error(), "file");
    if (refused.status == 429) set_retry_after(refused, call.model->seconds_of_queue());
    co_return co_await exchange.reply(std::move(refused));
  }
  TranscriptAsked asked;
  co_await services.run_apart(exchange, call.form.prompt.size(), [&] { asked = asked_of(call); });
  if (call.form.stream)
    co_return co_await answer_events(services, exchange, call, std::move(asked));
  co_await answer_whole(services, exchange, call, std::move(asked));
}

}  // namespace

net::awaitable<void> post_transcriptions(Services& services, Exchange& exchange) {
  co_await answer_audio(services, exchange, false);
}

net::awaitable<void> post_translations(Services& services, Exchange& exchange) {
  co_await answer_audio(services, exchange, true);
}

}  // namespace penstock
