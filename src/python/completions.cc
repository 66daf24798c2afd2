// Requests and their results, as tuples from which the Python side makes objects.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <atomic>

#include "python/logits_processor.h"
#include "python/model_session.h"

namespace penstock {
namespace {

// Why a sequence ended.
struct SequenceEnd {
  FinishReason reason = FinishReason::kNone;
  StopReason stop;
  std::optional<Error> error;
};

// A CompletionUpdate that owns its data.
struct OwnedUpdate {
  RequestId request{};
  int index = 0;
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<std::vector<TokenLogprob>> logprobs;
  std::optional<SequenceEnd> end;  // with its sequence's last news
  std::optional<RequestOutput> done;
};

nb::object rows_or_none(const std::vector<std::vector<TokenLogprob>>& rows, bool wanted) {
  if (!wanted) return nb::none();
  nb::list list;
  for (const auto& row : rows) list.append(list_of(row));
  return list;
}

nb::object stop_reason_of(const StopReason& reason) {
  if (const auto* id = std::get_if<TokenId>(&reason)) return nb::int_(*id);
  if (const auto* text = std::get_if<std::string>(&reason)) return nb::cast(*text);
  return nb::none();
}

nb::object error_of(const std::optional<Error>& error) {
  return error ? nb::object(nb::cast(error->message)) : nb::object(nb::none());
}

// Returns (finish reason, stop reason, error), or None.
nb::object tuple_or_none(const std::optional<SequenceEnd>& end) {
  if (!end) return nb::none();
  return nb::make_tuple(finish_reason_name(end->reason), stop_reason_of(end->stop),
                        error_of(end->error));
}

nb::tuple stats_of(const RequestStats& stats) {
  return nb::make_tuple(stats.cached_tokens, stats.completion_tokens, stats.preemptions,
                        stats.drafts, stats.draft_tokens, stats.accepted_tokens, stats.beam_score,
                        stats.queued_seconds, stats.prefill_seconds, stats.decode_seconds);
}

nb::tuple tuple_of(const CompletionOutput& output, bool with_logprobs) {
  return nb::make_tuple(
      output.index, output.text, list_of(output.token_ids), output.cumulative_logprob,
      rows_or_none(output.logprobs, with_logprobs), finish_reason_name(output.finish_reason),
      stop_reason_of(output.stop_reason), stats_of(output.stats), error_of(output.error));
}

struct RequestOptions {
  int priority = 1;
  std::string cache_salt;
  bool stream = false;
  std::optional<double> timeout;
  bool add_special = true, parse_special = true;
  std::shared_ptr<const Adapter> adapter;
  const EncodedPictures* pictures = nullptr;
};

class PyCompletions {
 public:
  explicit PyCompletions(const ModelSession& model)
      : model_(model), session_(model.session()), completions_(*session_) {}
  ~PyCompletions() {
    const WithoutGil without_gil(std::nothrow);
    completions_.cancel_all();
  }

  uint64_t submit(nb::handle prompt, const PreparedParams& params, const nb::list& processors,
                  const RequestOptions& options);
  nb::list poll(double seconds);
  void cancel(uint64_t id) {
    const WithoutGil without_gil;
    completions_.cancel(RequestId(id));
  }
  size_t n_open() const { return completions_.n_open(); }

 private:
  struct Followed {
    bool stream = false, logprobs = false, prompt_logprobs = false;
    std::shared_ptr<PythonLogitsProcessor> processor;
    bool raised = false;  // an exception was reported; nothing else is
  };
  static void keep(const CompletionUpdate& update, std::vector<OwnedUpdate>& updates);
  // Ends requests whose logits processors have raised an exception, and reports it.
  void add_exceptions(nb::list& news);

  const ModelSession& model_;
  std::shared_ptr<Session> session_;
  Completions completions_;
  std::atomic<int> n_streams_ = 0;  // open requests that stream
  // Guarded by the GIL.
  std::unordered_map<uint64_t, Followed> followed_;
  // of requests whose submit() has not returned yet
  std::vector<OwnedUpdate> early_;
};

uint64_t PyCompletions::submit(nb::handle prompt, const PreparedParams& params,
                               const nb::list& processors, const RequestOptions& options) {
  const std::shared_ptr<Session> session = model_.session();
  Prompt given = prompt_of(prompt);
  Followed followed{options.stream, params.sampling->logprobs.has_value(),
                    params.sampling->prompt_logprobs.has_value(), nullptr};
  if (processors.size() > 0)
    followed.processor = std::make_shared<PythonLogitsProcessor>(processors);
  struct Counted {
    std::atomic<int>* n;
    ~Counted() {
      if (n != nullptr) --*n;
    }
  } counted{options.stream ? &n_streams_ : nullptr};
  if (options.stream) ++n_streams_;
  auto submitted = [&]() -> Result<RequestId> {
    const WithoutGil without_gil;
    std::vector<TokenId> ids;
    std::string text;
    if (const auto* typed = std::get_if<std::string>(&given)) {
      RETURN_IF_ERROR(session->check_length(*typed));
      ids = session->encode(*typed, {options.add_special, options.parse_special});
    } else {
      ids = std::get<std::vector<TokenId>>(std::move(given));
    }
    if (params.thinking_tokens) text = session->tokenizer().decode(ids, false);
    std::shared_ptr<const SamplingParams> sampling = params.sampling;
    if (params.to_the_end) {
      auto longest = std::make_shared<SamplingParams>(*sampling);
      longest->max_tokens =
          std::max(1, session->engine().info().max_model_len - static_cast<int>(ids.size()));
      sampling = std::move(longest);
    }
    ASSIGN_OR_RETURN(const StringTokens strings, session->string_tokens(*sampling));
    Request request = session->make_request(std::move(ids), *sampling, strings);
    request.matcher = params.matcher;
    request.logits_processor = followed.processor;
    request.priority = Priority(std::clamp(options.priority, 0, 2));
    request.cache_salt = options.cache_salt;
    request.adapter = options.adapter;
    if (options.pictures != nullptr) session->give(request, options.pictures->embeddings);
    request.read_prefix_cache = params.read_prefix_cache;
    if (options.timeout) {
      request.deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                            std::chrono::duration<double>(*options.timeout));
    }
    if (params.thinking_tokens) {
      const nb::gil_scoped_acquire acquire;
      request.thinking = model_.thinking_budget(*params.thinking_tokens, text);
    }
    return completions_.submit(std::move(request), sampling);
  }();
  const auto id = static_cast<uint64_t>(value_of(std::move(submitted)));
  counted.n = nullptr;
  followed_.emplace(id, std::move(followed));
  return id;
}

void PyCompletions::keep(const CompletionUpdate& update, std::vector<OwnedUpdate>& updates) {
  OwnedUpdate& owned = updates.emplace_back();
  owned.request = update.request;
  owned.index = update.output->index;
  if (update.finished)
    owned.end = {update.output->finish_reason, update.output->stop_reason, update.output->error};
  owned.text = update.text;
  owned.tokens.assign(update.new_tokens().begin(), update.new_tokens().end());
  const auto& rows = update.output->logprobs;
  if (rows.size() > update.first_new)
    owned.logprobs.assign(rows.begin() + static_cast<ptrdiff_t>(update.first_new), rows.end());
  if (update.done != nullptr) owned.done = std::move(*update.done);
}

// Returns [(id, index, text, token ids, logprobs, end, done)]. `end`: (finish reason, stop reason,
// error) with the last update of a sequence, else None. `done`: (prompt ids, prompt logprobs,
// [output]) with the last update of a request, else None; requests that do not stream have only
// this one. `done` is an exception if a logits processor raised it; the request then has no further
// updates.
nb::list PyCompletions::poll(double seconds) {
  std::vector<OwnedUpdate> updates;
  {
    const WithoutGil without_gil;
    using std::chrono::milliseconds;
    const auto end =
        Clock::now() + milliseconds(static_cast<int64_t>(std::clamp(seconds, 0.0, 3600.0) * 1e3));
    // Without streams, only ends are worth returning to Python.
    do {
      const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
      completions_.poll(std::max(left, milliseconds(0)), [&](const CompletionUpdate& update) {
        if (update.done != nullptr || n_streams_ > 0) keep(update, updates);
      });
    } while (updates.empty() && n_streams_ == 0 && Clock::now() < end);
  }
  nb::list list;
  add_exceptions(list);
  updates.insert(updates.begin(), std::make_move_iterator(early_.begin()),
                 std::make_move_iterator(early_.end()));
  early_.clear();
  for (OwnedUpdate& update : updates) {
    const auto found = followed_.find(static_cast<uint64_t>(update.request));
    if (found == followed_.end()) {
      early_.push_back(std::move(update));
      continue;
    }
    const Followed followed = found->second;
    if (update.done && followed.stream) --n_streams_;
    if (followed.raised) {
      if (update.done) followed_.erase(found);
      continue;
    }
    nb::object done = nb::none();
    if (update.done) {
      nb::list outputs;
      for (const CompletionOutput& output : update.done->outputs)
        outputs.append(tuple_of(output, followed.logprobs));
      done = nb::make_tuple(list_of(update.done->prompt_token_ids),
                            rows_or_none(update.done->prompt_logprobs, followed.prompt_logprobs),
                            outputs);
      followed_.erase(found);
    } else if (!followed.stream) {
      continue;
    }
    list.append(nb::make_tuple(
        static_cast<uint64_t>(update.request), update.index, update.text, list_of(update.tokens),
        rows_or_none(update.logprobs, followed.logprobs), tuple_or_none(update.end), done));
  }
  return list;
}

void PyCompletions::add_exceptions(nb::list& news) {
  for (auto& [id, followed] : followed_) {
    if (followed.processor == nullptr || followed.raised) continue;
    const nb::object exception = followed.processor->take_exception();
    if (!exception.is_valid()) continue;
    followed.raised = true;
    completions_.cancel(RequestId(id));
    news.append(nb::make_tuple(id, 0, "", nb::list(), nb::none(), nb::none(), exception));
  }
}

}  // namespace

void define_completions(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<PyCompletions>(module, "Completions")
      .def(nb::init<const ModelSession&>(), "model"_a, nb::keep_alive<1, 2>())
      .def(
          "submit",
          [](PyCompletions& self, nb::handle prompt, const PreparedParams& params,
             const nb::list& processors, int priority, const std::string& cache_salt, bool stream,
             std::optional<double> timeout, bool add_special, bool parse_special,
             const OpenedAdapter* adapter, const EncodedPictures* pictures) {
            return self.submit(prompt, params, processors,
                               {priority, cache_salt, stream, timeout, add_special, parse_special,
                                adapter != nullptr ? adapter->adapter : nullptr, pictures});
          },
          "prompt"_a, "params"_a, "processors"_a = nb::list(), "priority"_a = 1,
          "cache_salt"_a = "", "stream"_a = false, "timeout"_a = nb::none(), "add_special"_a = true,
          "parse_special"_a = true, "adapter"_a = nb::none(), "pictures"_a = nb::none())
      .def("poll", &PyCompletions::poll, "seconds"_a)
      .def("cancel", &PyCompletions::cancel, "id"_a)
      .def_prop_ro("n_open", &PyCompletions::n_open);
}

}  // namespace penstock
