// A session on disk: the tokens of a conversation and the cached blocks of as many of them as there are, so
// that it goes on later without computing them again.
//
// Layout, little-endian: magic, fingerprint, root hash (2 words), number of tokens, number of blocks,
// checksum of the head and the tokens, tokens; then the blocks as in block_file.h, the first tokens' first.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/compute/step_model.h"
#include "engine/schedule/scheduler.h"
#include "penstock/engine.h"

namespace penstock {

// Returns how many leading tokens were saved with their K and V: of the salt under which most are known. Errors: kIo, kResourceExhausted
// (the disk is full). REQUIRES: between steps.
Result<int> save_session_file(const std::filesystem::path& path, uint64_t fingerprint,
                              std::span<const TokenId> tokens, std::span<const std::string> salts,
                              Scheduler& scheduler, const StepModel& model);

// The whole file is verified before anything of it is used. Errors: kNotFound, kCorruptFile, kInvalidArgument
// (another model or configuration). REQUIRES: between steps.
Result<SessionTokens> load_session_file(const std::filesystem::path& path, uint64_t fingerprint,
                                        int vocab_size, Scheduler& scheduler, StepModel& model);

}  // namespace penstock
