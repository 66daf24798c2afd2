#include "text/tokenizer.h"

#include <nlohmann/json.hpp>

namespace penstock {

struct Tokenizer::Impl {
  std::map<std::string, std::string> templates;
  std::string chat_template;
};

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const WeightSource&) {
  return errorf(ErrorCode::kUnsupported, "tokenizer: no vocabulary kind is built in yet");
}
Result<std::unique_ptr<Tokenizer>> Tokenizer::from_files(const TokenizerFiles&) {
  return errorf(ErrorCode::kUnsupported, "tokenizer: no vocabulary kind is built in yet");
}
Result<std::unique_ptr<Tokenizer>> Tokenizer::from_gguf(const nlohmann::json&) {
  return errorf(ErrorCode::kUnsupported, "tokenizer: no vocabulary kind is built in yet");
}
std::vector<TokenId> Tokenizer::encode(std::string_view, const EncodeOptions&) const { return {}; }
std::string Tokenizer::decode(std::span<const TokenId>, bool) const { return {}; }
std::string Tokenizer::decode_bytes(std::span<const TokenId>, bool) const { return {}; }
std::string_view Tokenizer::token_bytes(TokenId, bool) const { return {}; }
std::string_view Tokenizer::piece(TokenId) const { return {}; }
std::optional<TokenId> Tokenizer::find(std::string_view) const { return std::nullopt; }
int Tokenizer::vocab_size() const { return 0; }
TokenId Tokenizer::bos() const { return kNoToken; }
TokenId Tokenizer::eos() const { return kNoToken; }
TokenId Tokenizer::unk() const { return kNoToken; }
TokenId Tokenizer::pad() const { return kNoToken; }
bool Tokenizer::is_special(TokenId) const { return false; }
bool Tokenizer::is_end_of_generation(TokenId) const { return false; }
std::span<const TokenId> Tokenizer::end_of_generation_ids() const { return {}; }
bool Tokenizer::add_bos() const { return false; }
bool Tokenizer::add_eos() const { return false; }
const std::string& Tokenizer::chat_template() const { return impl_->chat_template; }
const std::map<std::string, std::string>& Tokenizer::chat_templates() const { return impl_->templates; }

}  // namespace penstock
