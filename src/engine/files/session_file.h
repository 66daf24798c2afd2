// A session on disk: the tokens of a conversation and the cached blocks of its leading tokens, so
// that it continues later without their prefill.
//
// Layout, little-endian: magic, fingerprint, root hash (2 words), number of tokens, number of
// blocks, checksum of the head and the tokens, tokens; then for each block its group, its place in
// the text (32 bits each) and its image as a store has it, the first tokens' first.
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

// Saves `tokens` with the cached blocks of the salt, among `salts`, under which most of them are
// cached. Returns the number of leading tokens that were saved with their K and V. Errors: kIo,
// kResourceExhausted (the disk is full). REQUIRES: no step is in flight.
Result<int> save_session_file(const std::filesystem::path& path, uint64_t fingerprint,
                              std::span<const TokenId> tokens, std::span<const std::string> salts,
                              Scheduler& scheduler, const StepModel& model);

// Loads a session into the prefix cache; the whole file is verified first. Errors: kNotFound,
// kCorruptFile, kInvalidArgument (another model or configuration). REQUIRES: no step is in flight.
Result<SessionTokens> load_session_file(const std::filesystem::path& path, uint64_t fingerprint,
                                        int vocab_size, Scheduler& scheduler, StepModel& model);

}  // namespace penstock
