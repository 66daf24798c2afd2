// An open model as Python's threads share it.
#pragma once
#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "frontend/chat/chat_setup.h"
#include "frontend/completions.h"
#include "python/convert.h"
#include "python/tokenizer.h"

namespace penstock {

// Sampling parameters as one engine takes them: read once, used for many requests.
struct PreparedParams {
  std::shared_ptr<const SamplingParams> sampling;
  std::shared_ptr<const TokenMatcher> matcher;
  bool to_the_end = false;  // max_tokens is what the context has room for
  bool read_prefix_cache = true;
  std::optional<int> thinking_tokens;
};

// A LoRA adapter of a model; given back to the engine when Python forgets it.
struct OpenedAdapter {
  std::shared_ptr<const Adapter> adapter;
};

// Methods are called with the GIL and let go of it where they take time.
class ModelSession {
 public:
  // Finds the model by its name, which may download it, and starts its engine.
  explicit ModelSession(const nb::dict& config);
  ~ModelSession();

  // Ends what runs and frees the memory, when the last request has been told. Calls after it raise
  // EngineError.
  void close();
  bool closed() const { return session_ == nullptr; }
  // EngineError also in a process that was forked off: threads stay behind there.
  std::shared_ptr<Session> session() const;

  // Raises what keeps the engine from going on, if there is something.
  void check_health() const;
  nb::dict config() const;
  nb::dict info() const;
  nb::object default_params() const;
  PreparedParams prepare(const nb::dict& params) const;

  PyTokenizer tokenizer() const;

  // (text, ids) of a conversation; `options`: chat_template, add_generation_prompt,
  // continue_final_message, tools, variables.
  nb::tuple render_chat(nb::handle messages, const nb::dict& options) const;
  // Of a request whose prompt is `text`. ValueError where no reasoning is known.
  ThinkingBudget thinking_budget(int n_tokens, const std::string& text) const;

  // Errors as Engine::open_adapter() has them.
  OpenedAdapter open_adapter(const std::string& path) const;

  // [(name, kind, help, value)]: a number; of histograms ([bounds], [counts], sum, count); of
  // vectors [numbers].
  nb::list metrics() const;
  // As Engine has it. EngineError when it is shutting down.
  void set_paused(bool paused) const;
  void reset_prefix_cache() const;

 private:
  std::shared_ptr<const ChatSetup> chat_setup(const std::string& chat_template) const;

  pid_t owner_ = ::getpid();
  std::shared_ptr<Session> session_;
  mutable std::mutex setup_mutex_;
  mutable std::shared_ptr<const ChatSetup> last_setup_;
  mutable std::string last_template_;
};

void define_model_session(nb::module_& module);
void define_completions(nb::module_& module);
void define_embedding_model(nb::module_& module);

}  // namespace penstock
