// Patterns are copied from their sources byte for byte: from the model's tokenizer.json if it is
// known, else from llama.cpp (src/llama-vocab.cpp). tests/text/golden/presets.golden.json has the
// reference's results for each.
#include "text/steps/split_rules.h"

#include <algorithm>
#include <array>

namespace penstock {
namespace {

using Kind = SplitStep::Kind;

constexpr SplitStep split(std::string_view pattern) { return {Kind::kPattern, pattern}; }
constexpr SplitStep kGpt2{Kind::kGpt2}, kBytes{Kind::kBytes}, kEachDigit{Kind::kEachDigit};

// clang-format off: escapes of characters beyond ASCII must not be split.

constexpr SplitStep kGpt2Only[] = {kGpt2};
constexpr SplitStep kDigitsGpt2[] = {kEachDigit, kGpt2};
constexpr SplitStep kFalcon[] = {{Kind::kPunctuationRuns}, kGpt2, {Kind::kDigitRuns}, split("[0-9][0-9][0-9]")};
// Rules of files that name none.
constexpr SplitStep kDefault[] = {
    split(R"([\p{P}\$\+<=>\^~\|]+)"),
    split(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))"),
    split(R"(\p{N}+)"), split("[0-9][0-9][0-9]"), kBytes};

// GPT-4's rules and their successors: contractions, words, digits, punctuation, white space.
constexpr SplitStep kLlama3[] = {
    split(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
    kBytes};
constexpr SplitStep kQwen2[] = {
    split(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
    kBytes};
constexpr SplitStep kQwen35[] = {
    split(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
    kBytes};
constexpr SplitStep kMiniCpm5[] = {
    split(R"(\p{N}{1,3})"),
    split(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
    kBytes};
constexpr SplitStep kJais2[] = {
    split(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})"),
    kBytes};
constexpr SplitStep kBailing[] = {
    split(R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"),
    kBytes};
constexpr SplitStep kSeedCoder[] = {
    split("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"),
    kBytes};
// No contractions: in Turkish, suffixes after an apostrophe belong to the word.
constexpr SplitStep kUfakZeka[] = {
    split(R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
    kBytes};
constexpr SplitStep kLaguna[] = {
    split(R"([^\n]+|[\n]+)"),
    split(R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
    kBytes};
constexpr SplitStep kExaoneMoe[] = {
    split(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"),
    kBytes};

// GPT-4o's rules and their successors: words end before capitals.
constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr SplitStep kO200k[] = {split(kO200kPattern), kBytes};
constexpr SplitStep kTinyAya[] = {split(R"(\d{1,3}(?=(?:\d{3})*\b))"), split(kO200kPattern), kBytes};
constexpr SplitStep kTekken[] = {
    split(R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
    kBytes};
constexpr SplitStep kKimi[] = {
    split(R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
    kBytes};
constexpr SplitStep kYoutu[] = {
    split(
        "[\uAC00-\uD7A3\u3131-\u318E]+|[\uFF01\u2026\u201C\u201D\u2018\u2019\u2014\uFF1A\uFF1B\uFF0C\u3001-"
        "\u303F\uFE30-\uFE4F]+|[\u3105-\u312F]+|[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+"),
    split(R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
    kBytes};

// DeepSeek's rules. DeepSeek LLM enumerates the cased letters.
constexpr SplitStep kNewlines = split("[\r\n]"), kCjk = split("[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+");
constexpr SplitStep kDeepseekLlm[] = {
    kNewlines,
    split(
        "\\s?[A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF"
        "\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5"
        "\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-"
        "\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D"
        "\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-"
        "\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113"
        "\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149"
        "\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B"
        "\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-"
        "\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0"
        "-\U00010CF2\U000118A0-\U000118DF\U0001E900-\U0001E943]+"),
    split("\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+"),
    split("\\s+$"), kCjk, kEachDigit, kBytes};
constexpr SplitStep kDeepseekCoder[] = {kNewlines, split("\\s?\\p{L}+"), split("\\s?\\p{P}+"), kCjk, kEachDigit, kBytes};
constexpr SplitStep kThreeDigits = split("\\p{N}{1,3}"), kHanKana = split("[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+");
constexpr SplitStep kDeepseekV3[] = {
    kThreeDigits, kHanKana,
    split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"),
    kBytes};
constexpr SplitStep kSpark[] = {
    kThreeDigits, kHanKana,
    split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+|[\r\n]|\\s+(?!\\S)|\\s+"),
    kEachDigit, kBytes};
// Digits grouped in threes from the right.
constexpr SplitStep kAfmoe[] = {
    split(R"(\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))|\G\p{Nd}{510})"),
    split(R"(\A\p{Nd}{1,2}(?=\p{Nd}{3}+\z))"),
    split(R"(\p{Nd}{3})"),
    split("(?:[\u4E00-\u9FFF\u3040-\u309F\u30A0-\u30FF\u3400-\u4DBF\uF900-\uFAFF\uFF65-\uFF9F\u2F00-\u2FDF]+|[\u0E00-\u0E7F]+|"
          "[\u0E80-\u0EFF]+|[\u1780-\u17FF]+|[\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF]+|[\uAC00-\uD7AF\u1100-\u11FF]+)"),
    split(R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
    kBytes};

// Punctuation of several scripts.
constexpr SplitStep kBloomWords = split(" ?[^(\\s|[.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C])]+");
constexpr SplitStep kBloom[] = {kBloomWords, kBytes};
constexpr SplitStep kViking[] = {kBloomWords, kEachDigit, kBytes};

// Tokens may cross word boundaries.
constexpr SplitStep kSuperBpe[] = {split(R"(\p{N}+)"), split(R"((?=(\d{3})+(?!\d)))"), kBytes};
constexpr SplitStep kChameleon[] = {
    split("<sentinel:[0-9]+>"), split("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"), split(R"(([\t\n]|    |  ))"),
    kEachDigit, {Kind::kPunctuation}, kGpt2};
constexpr SplitStep kLines[] = {split(R"([^\n]+|[\n]+)")};

// clang-format on

constexpr SplitFamily kFamilies[] = {
    {.names = "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de a.x-4.0 mellum gigachat exaone4 "
              "jais trillion granite-docling jina-v1-en jina-v2-code roberta-bpe",
     .steps = kGpt2Only},
    {.names = "mpt olmo gpt-neox modern-bert", .steps = kGpt2Only, .nfc = true},
    {.names = "starcoder refact codeshell smollm exaone minerva-7b mellum2", .steps = kDigitsGpt2},
    {.names = "command-r", .steps = kDigitsGpt2, .nfc = true, .add_bos = true},
    {.names = "falcon", .steps = kFalcon},
    {.names = "default", .steps = kDefault},
    {.names = "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     .steps = kLlama3,
     .ignore_merges = true,
     .add_bos = true},
    {.names = "dbrx smaug-bpe chatglm-bpe", .steps = kLlama3},
    {.names = "glm4 glm5 cl100k", .steps = kLlama3, .ignore_merges = true},
    {.names = "minicpm5", .steps = kMiniCpm5, .ignore_merges = true},
    {.names = "jais-2", .steps = kJais2},
    {.names = "qwen2 deepseek-r1-qwen f2llmv2", .steps = kQwen2, .nfc = true},
    {.names = "qwen", .steps = kQwen2, .nfc = true, .ignore_merges = true},
    {.names = "stablelm2 megrez hunyuan kormo solar-open grok-2", .steps = kQwen2},
    {.names = "qwen35", .steps = kQwen35, .nfc = true},
    {.names = "bailingmoe bailingmoe2 llada-moe", .steps = kBailing},
    {.names = "seed-coder", .steps = kSeedCoder},
    {.names = "ufakzeka", .steps = kUfakZeka},
    {.names = "laguna", .steps = kLaguna},
    {.names = "exaone-moe", .steps = kExaoneMoe},
    {.names = "gpt-4o llama4 kanana2 talkie minimax-m2", .steps = kO200k},
    {.names = "o200k granite-embed-multi-97m", .steps = kO200k, .ignore_merges = true},
    {.names = "tiny_aya cohere2moe", .steps = kTinyAya, .nfc = true},
    {.names = "tekken", .steps = kTekken, .ignore_merges = true, .add_bos = true},
    {.names = "kimi-k2", .steps = kKimi, .ignore_merges = true, .ranks = true},
    {.names = "youtu", .steps = kYoutu, .ignore_merges = true},
    {.names = "deepseek-llm", .steps = kDeepseekLlm},
    {.names = "deepseek-coder", .steps = kDeepseekCoder},
    {.names = "deepseek-v3 deepseek-r1 hunyuan-dense joyai-llm hy_v4", .steps = kDeepseekV3},
    {.names = "spark2_5", .steps = kSpark},
    {.names = "afmoe", .steps = kAfmoe},
    {.names = "bloom poro-chat gpt3-finnish", .steps = kBloom},
    {.names = "viking", .steps = kViking},
    {.names = "superbpe", .steps = kSuperBpe},
    {.names = "chameleon", .steps = kChameleon, .add_bos = true},
    {.names = "gemma4 granite-embed-multi-311m",
     .steps = kLines,
     .add_bos = true,
     .characters = true},
    {.names = "sarvam-moe", .steps = kLines, .characters = true},
};

bool lists(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    if (names.substr(0, end) == name) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

}  // namespace

std::span<const SplitFamily> split_families() { return kFamilies; }

const SplitFamily* find_split_family(std::string_view name) {
  const auto found = std::ranges::find_if(
      kFamilies, [&](const SplitFamily& family) { return lists(family.names, name); });
  return found == std::end(kFamilies) ? nullptr : found;
}

}  // namespace penstock
