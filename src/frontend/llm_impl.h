// The blocking facade over a session. Text completion: llm.cc; chat: llm_chat.cc.
#pragma once
#include <memory>
#include <mutex>
#include <string>

#include "frontend/session.h"
#include "penstock/llm.h"

namespace penstock {

class ChatPrompter;

class LLMImpl final : public LLM {
 public:
  explicit LLMImpl(std::unique_ptr<Session> session) : session_(std::move(session)) {}

  using LLM::generate;
  Result<std::vector<RequestOutput>> generate(std::span<const Prompt> prompts, const SamplingParams& params,
                                              const GenerateOptions& options) override;
  Result<RequestOutput> chat(std::span<const ChatMessage> messages, const SamplingParams& params,
                             const GenerateOptions& options, const ChatOptions& chat) override;
  Result<std::string> render_chat(std::span<const ChatMessage> messages, const ChatOptions& chat) override;
  SamplingParams default_sampling_params() const override;
  std::vector<TokenId> encode(std::string_view text, bool add_bos, bool parse_special) const override;
  std::string decode(std::span<const TokenId> tokens, bool skip_special) const override;
  Engine& engine() override { return session_->engine(); }
  bool has_chat_template() const override { return !session_->tokenizer().chat_template().empty(); }

 private:
  class Call;
  // Of the model's template, or of `source`; kept for the next call with the same one.
  Result<std::shared_ptr<const ChatPrompter>> prompter(const std::string& source);

  std::unique_ptr<Session> session_;
  std::mutex prompter_mutex_;
  std::shared_ptr<const ChatPrompter> last_prompter_;
  std::string last_source_;
};

}  // namespace penstock
