#include "frontend/speculation_inputs.h"

#include <algorithm>

#include "base/mapped_file.h"

namespace penstock {
namespace {

constexpr size_t kLargestCorpus = size_t{256} << 20;  // bytes

// A draft's token ids mean something to the target only when both read them alike.
Status check_same_vocabulary(const Tokenizer& target, const Tokenizer& draft,
                             const std::string& name) {
  const int n_target = target.vocab_size(), n_draft = draft.vocab_size();
  if (std::abs(n_draft - n_target) > n_target / 64) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "draft_model {}: expected the target's vocabulary of {} tokens, got {}; a draft must have "
        "the target's tokenizer",
        name, n_target, n_draft);
  }
  for (TokenId id = 0; id < std::min(n_target, n_draft); ++id) {
    if (target.piece(id) == draft.piece(id)) continue;
    return errorf(
        ErrorCode::kInvalidArgument,
        "draft_model {}: token {} is \"{}\", expected the target's \"{}\"; a draft must have the "
        "target's tokenizer",
        name, id, draft.piece(id), target.piece(id));
  }
  return {};
}

}  // namespace

Result<SpeculationInputs> read_speculation_inputs(const EngineConfig& config,
                                                  const Tokenizer& target) {
  SpeculationInputs inputs;
  if (!config.draft_model.empty() && (config.spec.empty() || config.spec == "draft")) {
    ASSIGN_OR_RETURN(inputs.draft_source, open_weights(config.draft_model));
    ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::load(*inputs.draft_source));
    RETURN_IF_ERROR(check_same_vocabulary(target, *tokenizer, config.draft_model));
  }
  if (!config.spec_corpus.empty() && config.spec == "ngram") {
    ASSIGN_OR_RETURN(const auto file, MappedFile::open(config.spec_corpus));
    const auto bytes = file.bytes();
    if (bytes.size() > kLargestCorpus) {
      return errorf(ErrorCode::kInvalidArgument,
                    "spec_corpus {}: expected at most {} bytes, got {}", config.spec_corpus,
                    kLargestCorpus, bytes.size());
    }
    inputs.corpus = target.encode({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                  {.add_special = false, .parse_special = false});
  }
  return inputs;
}

}  // namespace penstock
