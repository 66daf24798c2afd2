// A synthetic drafter of a given acceptance rate, to measure costs and gains of speculation without
// a trained drafter: it runs another drafter, for its time, and replaces the tokens of the drafts.
#pragma once
#include "draft/drafters.h"

namespace penstock {

// Requests must allow a single token (SamplingParams::allowed_token_ids), so that the drafter knows
// which one is right: each draft token is that one with probability `acceptance`, else another one.
// The random numbers have a fixed seed.
std::unique_ptr<Drafter> make_synthetic_drafter(std::unique_ptr<Drafter> inner, double acceptance);

}  // namespace penstock
