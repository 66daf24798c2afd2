// Validation of requests before they are queued.
#pragma once
#include "base/result.h"
#include "engine/schedule/scheduler.h"
#include "penstock/engine.h"

namespace penstock {

class StepModel;

// Checks the lists in a request's parameters alone, before anybody goes through them. Error:
// kInvalidArgument.
Status check_lists(const SamplingParams& params, const EngineInfo& info);
// Implements Engine::check(). Any thread. Errors: kInvalidArgument, kUnsupported, with the
// parameter's name.
Status check_request(const Request& request, const EngineInfo& info, const EngineConfig& config,
                     const Scheduler& scheduler, const StepModel& model);

}  // namespace penstock
