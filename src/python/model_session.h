// An open model, shared by Python threads.
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

// Converted sampling parameters, reusable for many requests of one engine.
struct PreparedParams {
  std::shared_ptr<const SamplingParams> sampling;
  std::shared_ptr<const TokenMatcher> matcher;
  // max_tokens is set to the room left in the context
  bool to_the_end = false;
  bool read_prefix_cache = true;
  std::optional<int> thinking_tokens;
};

// A LoRA adapter, released when Python deletes the object.
struct OpenedAdapter {
  std::shared_ptr<const Adapter> adapter;
};

// Pictures of a prompt, not encoded yet.
struct PlacedPictures {
  std::shared_ptr<Session> session;
  PromptPictures pictures;
};

// Rows of a prompt's pictures.
struct EncodedPictures {
  std::vector<PromptEmbeddings> embeddings;
};

// Methods are called with the GIL and let go of it where they take time.
class ModelSession {
 public:
  // Finds the model by name (which may download it) and starts its engine.
  explicit ModelSession(const nb::dict& config);
  ~ModelSession();

  // Cancels requests and frees the memory after the last request was reported. Later calls raise
  // EngineError.
  void close();
  bool closed() const { return session_ == nullptr; }
  // Raises EngineError when closed, and in forked processes, which lack the engine's threads.
  std::shared_ptr<Session> session() const;

  // Raises the error that stops the engine, if any.
  void check_health() const;
  nb::dict config() const;
  nb::dict info() const;
  nb::object default_params() const;
  PreparedParams prepare(const nb::dict& params) const;

  PyTokenizer tokenizer() const;

  // Returns (text, ids, pictures or None) of a conversation. options: chat_template,
  // add_generation_prompt, continue_final_message, tools, variables, picture_settings. A picture is
  // a data URL or, in a part of type "image", the bytes of a file.
  nb::tuple read_chat(nb::handle messages, const nb::dict& options) const;
  // Returns (text, ids). ValueError: there are pictures.
  nb::tuple render_chat(nb::handle messages, const nb::dict& options) const;
  // Returns (ids, pictures) of a text or ids with placeholders for images, a list of files' bytes.
  nb::tuple place_images(nb::handle prompt, const nb::list& images, nb::handle settings,
                         bool add_special) const;
  // Returns the budget for a request with the prompt `text`. ValueError: the model has no known
  // reasoning format.
  ThinkingBudget thinking_budget(int n_tokens, const std::string& text) const;

  // Raises the errors of Engine::open_adapter().
  OpenedAdapter open_adapter(const std::string& path) const;

  // Returns [(name, kind, help, value)]. value: a number; for histograms ([bounds], [counts], sum,
  // count); for vectors [numbers].
  nb::list metrics() const;
  // As Engine's functions. EngineError: the engine is shutting down.
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
