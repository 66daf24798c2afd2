// The program's log: lines on stderr, never on stdout, which belongs to results.
#pragma once
#include <spdlog/fwd.h>

namespace penstock {

// Level: PENSTOCK_LOG (trace, debug, info, warn, error, off), warn without it. Thread-safe. Not for use
// inside a step.
spdlog::logger& log();

}  // namespace penstock
