// The prefix cache on disk: the published blocks of an engine, so that a restart does not compute
// them again.
//
// Layout, little-endian: magic, fingerprint, number of entries; then per entry: group, hash,
// tokens, content, checksum. All sizes come from the open engine, never from the file. Blocks are
// in the order of their last use, oldest first.
#pragma once
#include <filesystem>

#include "base/result.h"
#include "engine/compute/step_model.h"
#include "engine/schedule/scheduler.h"

namespace penstock {

// Saves all published blocks. Writes a temporary file and renames it, so that a failure leaves an
// older file as it was. Errors: kIo, kResourceExhausted (the disk is full).
Status save_prefix_cache(const std::filesystem::path& path, uint64_t fingerprint,
                         const Scheduler& scheduler, const StepModel& model);

// Returns the number of blocks that were restored: of the most recently used, as many as fit.
// Errors: kNotFound, kInvalidArgument (another model or configuration), kCorruptFile; blocks read
// before a damaged one are kept. REQUIRES: no sequence runs.
Result<int> restore_prefix_cache(const std::filesystem::path& path, uint64_t fingerprint,
                                 Scheduler& scheduler, StepModel& model);

}  // namespace penstock
