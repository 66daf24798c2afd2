// The blocking facade over a session. Text completion: llm.cc; chat: llm_chat.cc.
#pragma once
#include <array>
#include <memory>
#include <mutex>
#include <string>

#include "frontend/session.h"
#include "penstock/llm.h"

namespace penstock {

class ChatSetup;
struct Conversation;

class LLMImpl final : public LLM {
 public:
  explicit LLMImpl(std::unique_ptr<Session> session) : session_(std::move(session)) {}

  using LLM::generate;
  Result<std::vector<RequestOutput>> generate(std::span<const Prompt> prompts,
                                              const SamplingParams& params,
                                              const GenerateOptions& options) override;
  Result<RequestOutput> chat(std::span<const ChatMessage> messages, const SamplingParams& params,
                             const GenerateOptions& options, const ChatOptions& chat) override;
  Result<std::string> render_chat(std::span<const ChatMessage> messages,
                                  const ChatOptions& chat) override;
  SamplingParams default_sampling_params() const override;
  std::vector<TokenId> encode(std::string_view text, bool add_bos,
                              bool parse_special) const override;
  std::string decode(std::span<const TokenId> tokens, bool skip_special) const override;
  Engine& engine() override { return session_->engine(); }
  bool has_chat_template() const override { return !session_->tokenizer().chat_template().empty(); }

 private:
  class Call;
  // The options of chat calls: keep_markers keeps the special tokens that mark parts in the text;
  // on_piece is called for every piece of text and ends the piece's sequence by returning false.
  struct CallHooks {
    bool keep_markers = false;
    std::function<bool(const TextDelta&)> on_piece;
  };
  // embeddings: those of the first prompt.
  Result<std::vector<RequestOutput>> generate(std::span<const Prompt> prompts,
                                              const SamplingParams& params,
                                              const GenerateOptions& options,
                                              const CallHooks& hooks,
                                              std::vector<PromptEmbeddings> embeddings);
  // Returns the setup for the options' template and parsers; cached for the next call with the same
  // options.
  Result<std::shared_ptr<const ChatSetup>> chat_setup(const ChatOptions& chat);

  std::unique_ptr<Session> session_;
  std::mutex setup_mutex_;
  std::shared_ptr<const ChatSetup> last_setup_;
  std::array<std::string, 3> last_names_;  // names of last_setup_'s template and parsers
};

}  // namespace penstock
