// Chat templates: the Jinja language as Hugging Face transformers sets it up (trim_blocks,
// lstrip_blocks, loop controls, an immutable sandbox, tojson without HTML escapes, raise_exception,
// strftime_now, {% generation %}). What it renders is byte-for-byte what jinja2 renders; what
// jinja2 refuses is an Error that names the line. A template is hostile input: work, memory, output
// and nesting are bounded.
#pragma once
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/result.h"

namespace penstock {

namespace jinja {
struct TemplateTree;
}

struct RenderOptions {
  // the time that strftime_now formats; nullopt: the local time
  std::optional<std::tm> now;
  // bound on work; jinja::Runtime::step() defines the steps
  int64_t max_steps = 20'000'000;
  // maximum bytes of any one text, the rendering included
  size_t max_output = size_t{8} << 20;
  int64_t max_memory = int64_t{32} << 20;  // maximum bytes of live values
};

// Returns the limits for a context: the defaults plus an amount in proportion to the context's size
// in bytes.
RenderOptions render_options_for(const nlohmann::ordered_json& context);

class ChatTemplate {
 public:
  // source: UTF-8, at most kMaxSource bytes. Errors: kInvalidArgument (names the line and the
  // problem), kUnsupported.
  static Result<ChatTemplate> parse(std::string source);
  static constexpr size_t kMaxSource = size_t{4} << 20;

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // context: an object with messages, tools, add_generation_prompt, bos_token, …; its texts are
  // moved from, not copied. Thread-safe. Errors: kInvalidArgument (also with raise_exception's
  // message, or the limit that was reached), kResourceExhausted (memory).
  Result<std::string> render(nlohmann::ordered_json context,
                             const RenderOptions& options = {}) const;

 private:
  explicit ChatTemplate(std::unique_ptr<jinja::TemplateTree> tree);
  std::unique_ptr<jinja::TemplateTree> tree_;
};

}  // namespace penstock
