#include <charconv>

#include "text/load/presets.h"
#include "text/steps/json_fields.h"
#include "text/tokenizer_parts.h"
#include "text/vocab/bpe.h"
#include "text/vocab/byte_alphabet.h"

namespace penstock {
namespace {

struct Special {
  TokenId id;
  std::string name;
};

// Properties that a rank file lacks, known from its number of ranks.
struct TiktokenFamily {
  int n_ranks;
  std::string_view preset;
  std::vector<Special> specials;
  TokenId bos = kNoToken, eos = kNoToken;
  // names of special tokens that end a turn, besides eos
  std::vector<std::string_view> turn_ends = {};
};

std::vector<Special> llama3_specials(TokenId first) {
  std::vector<Special> list;
  const auto add = [&](std::string name) {
    list.push_back({static_cast<TokenId>(first + list.size()), std::move(name)});
  };
  const auto reserved = [&](int n) { add(fmt::format("<|reserved_special_token_{}|>", n)); };
  add("<|begin_of_text|>");
  add("<|end_of_text|>");
  reserved(0);
  reserved(1);
  add("<|finetune_right_pad_id|>");
  reserved(2);
  for (const char* name :
       {"<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"})
    add(name);
  for (int n = 3; list.size() < 256; ++n) reserved(n);
  return list;
}

std::vector<Special> qwen_specials(TokenId first) {
  std::vector<Special> list = {
      {first, "<|endoftext|>"}, {first + 1, "<|im_start|>"}, {first + 2, "<|im_end|>"}};
  for (int n = 0; n < 205; ++n) list.push_back({first + 3 + n, fmt::format("<|extra_{}|>", n)});
  return list;
}

Result<TiktokenFamily> family_of(int n_ranks) {
  switch (n_ranks) {
    case 128000:
      return TiktokenFamily{n_ranks, "llama3",    llama3_specials(n_ranks),
                            n_ranks, n_ranks + 1, {"<|eot_id|>", "<|eom_id|>"}};
    case 151643:
      return TiktokenFamily{n_ranks,  "qwen",  qwen_specials(n_ranks),
                            kNoToken, n_ranks, {"<|im_end|>"}};
    case 100256:
      return TiktokenFamily{n_ranks,
                            "cl100k",
                            {{100257, "<|endoftext|>"},
                             {100258, "<|fim_prefix|>"},
                             {100259, "<|fim_middle|>"},
                             {100260, "<|fim_suffix|>"},
                             {100276, "<|endofprompt|>"}},
                            kNoToken,
                            100257};
    case 199998:
      return TiktokenFamily{n_ranks,
                            "o200k",
                            {{199999, "<|endoftext|>"}, {200018, "<|endofprompt|>"}},
                            kNoToken,
                            199999};
    case 50256: return TiktokenFamily{n_ranks, "gpt-2", {{50256, "<|endoftext|>"}}, 50256, 50256};
    default: break;
  }
  return errorf(ErrorCode::kUnsupported,
                "tiktoken file of {} ranks: its pattern is not known (known: 50256, 100256, "
                "128000, 151643, 199998 ranks); a tokenizer.json carries its own",
                n_ranks);
}

Result<TokenBytes> parse_line(std::string_view line, int number) {
  const size_t space = line.find(' ');
  TokenBytes parsed{"", -1};
  if (space != std::string_view::npos) {
    const std::string_view digits = line.substr(space + 1);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), parsed.id);
    if (error != std::errc() || end != digits.data() + digits.size()) parsed.id = -1;
  }
  if (parsed.id < 0)
    return errorf(ErrorCode::kCorruptFile, "tiktoken file: line {}: expected base64 and a rank",
                  number);
  ASSIGN_OR_RETURN(parsed.bytes, base64_decode(line.substr(0, space)));
  return parsed;
}

}  // namespace

bool is_tiktoken(std::string_view bytes) {
  std::string_view line = bytes.substr(0, bytes.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return parse_line(line, 1).has_value();
}

Status set_ranked_tokens(std::span<const TokenBytes> tokens, TokenizerParts& parts) {
  BpeRules rules;
  std::vector<RankedToken> ranked;
  ranked.reserve(tokens.size());
  for (const TokenBytes& token : tokens) {
    RETURN_IF_ERROR(parts.vocabulary.add(token.id, to_byte_alphabet(token.bytes)));
    if (rules.words.find(token.bytes) >= 0) {
      return errorf(ErrorCode::kCorruptFile, "tokenizer: tokens {} and {} have equal bytes",
                    rules.words.find(token.bytes), token.id);
    }
    rules.words.insert(token.bytes, token.id);
    ranked.push_back({token.bytes, token.id, static_cast<uint32_t>(token.id)});
  }
  rules.bytes = true;
  rules.ignore_merges = true;
  rules.vocab_size = parts.vocabulary.size();
  add_merges_from_ranks(ranked, rules);
  parts.model = std::make_unique<Bpe>(std::move(rules));
  return {};
}

Result<TokenizerParts> load_tiktoken(std::string_view bytes) {
  TokenizerParts parts;
  std::vector<TokenBytes> lines;
  for (int number = 1; !bytes.empty(); ++number) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    std::string_view line = bytes.substr(0, end);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    ASSIGN_OR_RETURN(TokenBytes parsed, parse_line(line, number));
    lines.push_back(std::move(parsed));
  }
  ASSIGN_OR_RETURN(const TiktokenFamily family, family_of(static_cast<int>(lines.size())));
  ASSIGN_OR_RETURN(Preset preset, preset_of(family.preset));
  RETURN_IF_ERROR(set_ranked_tokens(lines, parts));
  for (const Special& special : family.specials) {
    RETURN_IF_ERROR(parts.vocabulary.add(special.id, special.name));
    parts.added.push_back({.id = special.id, .content = special.name, .special = true});
  }
  parts.pre_tokenizer = std::move(preset.pre_tokenizer);
  parts.normalizer = std::move(preset.normalizer);
  parts.bos = family.bos;
  parts.eos = family.eos;
  for (const std::string_view end : family.turn_ends)
    parts.end_of_generation.push_back(parts.vocabulary.find(end));
  set_add_bos(preset.add_bos, parts);
  return parts;
}

}  // namespace penstock
