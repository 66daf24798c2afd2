#include "cli/quality/calibration_text.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "base/json_text.h"
#include "cli/console/input.h"
#include "formats/weight_source.h"
#include "model/arch/read_config.h"
#include "text/tokenizer.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

Result<std::vector<std::string>> documents_of(const std::string& file, const std::string& text) {
  if (!file.ends_with(".jsonl")) return std::vector<std::string>{text};
  std::vector<std::string> documents;
  int number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Json value = bounded_json<Json>(line);
    const Json field =
        value.is_object() ? value.value("text", value.value("prompt", Json())) : value;
    if (!field.is_string()) {
      return errorf(ErrorCode::kCorruptFile,
                    "{}: line {}: expected a string or an object with \"text\"", file, number);
    }
    documents.push_back(field.get<std::string>());
  }
  return documents;
}

}  // namespace

void CalibrationText::add_flags(CLI::App& app) {
  app.add_option("--calibration", file_,
                 "text or .jsonl file to calibrate on; - is standard input");
  app.add_option("--calibration-samples", count_, "sequences to run")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--calibration-length", length_, "tokens in each")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  app.add_option("--calibration-seed", seed_, "which sequences are chosen")->capture_default_str();
}

Result<std::vector<std::vector<TokenId>>> CalibrationText::samples(
    const std::filesystem::path& model) const {
  ASSIGN_OR_RETURN(const std::string text, read_text(file_));
  ASSIGN_OR_RETURN(std::vector<std::string> documents, documents_of(file_, text));
  ASSIGN_OR_RETURN(const auto source, open_weights(model));
  ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::load(*source));
  ASSIGN_OR_RETURN(const ModelConfig config, read_config(*source));
  std::mt19937_64 random(seed_);
  const auto shuffle = [&](auto& items) {  // std::shuffle differs between standard libraries
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random() % i]);
  };
  shuffle(documents);
  std::vector<TokenId> ids;
  for (const std::string& document : documents) {
    const std::vector<TokenId> more =
        tokenizer->encode(document, {.add_special = documents.size() > 1});
    ids.insert(ids.end(), more.begin(), more.end());
  }
  const bool bos = documents.size() == 1 && tokenizer->add_bos() && tokenizer->bos() != kNoToken;
  const auto length = static_cast<size_t>(std::min(length_, config.max_seq_len));
  const size_t payload = length - (bos ? 1 : 0);
  if (ids.size() < 2 || payload < 1)
    return errorf(ErrorCode::kInvalidArgument, "{}: expected a text of at least two tokens", file_);
  std::vector<size_t> starts;
  for (size_t at = 0; at + payload <= ids.size(); at += payload) starts.push_back(at);
  if (starts.empty()) starts.push_back(0);
  shuffle(starts);
  if (starts.size() > static_cast<size_t>(count_)) starts.resize(static_cast<size_t>(count_));
  std::vector<std::vector<TokenId>> samples;
  for (const size_t at : starts) {
    std::vector<TokenId>& sample = samples.emplace_back();
    if (bos) sample.push_back(tokenizer->bos());
    sample.insert(sample.end(), ids.begin() + static_cast<ptrdiff_t>(at),
                  ids.begin() + static_cast<ptrdiff_t>(std::min(at + payload, ids.size())));
  }
  return samples;
}

}  // namespace penstock
