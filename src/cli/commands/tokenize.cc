// penstock tokenize: converts text to token ids and back, without loading the weights.
#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "base/json_text.h"
#include "cli/commands/commands.h"
#include "cli/console/exit_codes.h"
#include "cli/console/input.h"
#include "cli/options/models.h"
#include "text/tokenizer.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

struct TokenizeCommand {
  explicit TokenizeCommand(CLI::App& app) {
    app.add_option(
        "-m,--model", model,
        "GGUF file, Hugging Face directory, tokenizer.json, tokenizer.model or tiktoken file");
    auto* input = app.add_option_group("input")->require_option(0, 1);
    prompt = input->add_option("-p,--prompt", text, "text to encode (with --decode: token ids)");
    input->add_option(
        "-f,--file", file,
        "file with it, its bytes taken as they are; - is standard input (the default)");
    app.add_flag("--no-bos", no_bos, "no begin or end tokens around the text");
    app.add_flag("--parse-special", parse_special,
                 "special tokens written in the text count as such");
    app.add_flag(
        "--decode", decode,
        "the other way: ids separated by white space, or the object --json prints, to text");
    app.add_flag("--json", json, "print one JSON object {tokens, pieces}; with --decode {text}");
  }
  int run() const;
  Result<std::string> input() const;
  int print_tokens(const Tokenizer& tokenizer, std::string_view content) const;
  int print_text(const Tokenizer& tokenizer, const std::string& content) const;

  std::string model, text, file;
  CLI::Option* prompt = nullptr;
  bool no_bos = false, parse_special = false, decode = false, json = false;
};

std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<std::vector<TokenId>> parse_ids(const std::string& content, int vocab_size) {
  std::vector<TokenId> ids;
  const auto add = [&](int64_t id) -> Status {
    if (id < 0 || id >= vocab_size) {
      return errorf(ErrorCode::kInvalidArgument, "token id {}: expected 0 to {}", id,
                    vocab_size - 1);
    }
    ids.push_back(static_cast<TokenId>(id));
    return {};
  };
  Json parsed = bounded_json<Json>(content);
  if (parsed.is_object()) parsed = parsed.value("tokens", Json());
  if (parsed.is_array()) {
    for (const Json& id : parsed) {
      if (!id.is_number_integer()) {
        return errorf(ErrorCode::kInvalidArgument, "expected token ids, got {}", dump(id));
      }
      RETURN_IF_ERROR(add(id.get<int64_t>()));
    }
    return ids;
  }
  const char* at = content.data();
  const char* const end = at + content.size();
  while (true) {
    while (at != end && (is_ascii_space(*at) || *at == ',')) ++at;
    if (at == end) return ids;
    int64_t id = 0;
    const auto [stop, error] = std::from_chars(at, end, id);
    if (error != std::errc()) {
      return errorf(ErrorCode::kInvalidArgument, "byte {}: expected a token id, got {}",
                    at - content.data(), dump(std::string(at, std::min<size_t>(12, end - at))));
    }
    RETURN_IF_ERROR(add(id));
    at = stop;
  }
}

Result<std::string> TokenizeCommand::input() const {
  if (prompt->count() > 0) return text;
  return read_text(file.empty() ? "-" : file);
}

int TokenizeCommand::print_tokens(const Tokenizer& tokenizer, std::string_view content) const {
  const std::vector<TokenId> ids =
      tokenizer.encode(content, {.add_special = !no_bos, .parse_special = parse_special});
  if (json) {
    Json object = {{"tokens", ids}, {"pieces", Json::array()}};
    for (const TokenId id : ids) object["pieces"].push_back(tokenizer.piece(id));
    fmt::print("{}\n", dump(object));
    return kExitOk;
  }
  for (const TokenId id : ids) fmt::print("{:7} {}\n", id, dump(tokenizer.piece(id)));
  return kExitOk;
}

int TokenizeCommand::print_text(const Tokenizer& tokenizer, const std::string& content) const {
  auto ids = parse_ids(content, tokenizer.vocab_size());
  if (!ids) return fail(ids.error());
  std::span<const TokenId> inner = *ids;
  // Remove the BOS and EOS tokens that encoding adds.
  if (!no_bos && tokenizer.add_bos() && !inner.empty() && inner.front() == tokenizer.bos())
    inner = inner.subspan(1);
  if (!no_bos && tokenizer.add_eos() && !inner.empty() && inner.back() == tokenizer.eos()) {
    inner = inner.first(inner.size() - 1);
  }
  if (json) {
    fmt::print("{}\n", dump(Json{{"text", tokenizer.decode(inner, false)}}));
    return kExitOk;
  }
  const std::string bytes = tokenizer.decode_bytes(inner, false);
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
  return kExitOk;
}

int TokenizeCommand::run() const {
  auto tokenizer = open_tokenizer(model);
  if (!tokenizer) return fail(tokenizer.error());
  auto content = input();
  if (!content) return fail(content.error());
  return decode ? print_text(**tokenizer, *content) : print_tokens(**tokenizer, *content);
}

}  // namespace

Action add_tokenize(CLI::App& app) {
  auto command = std::make_shared<TokenizeCommand>(app);
  return [command] { return command->run(); };
}

}  // namespace penstock
