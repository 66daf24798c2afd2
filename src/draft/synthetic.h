// A drafter of a given acceptance, to measure what speculation costs and brings where no trained pair is at
// hand: it asks another drafter, for the time that takes, and puts its own tokens in place of the guesses.
#pragma once
#include "draft/drafters.h"

namespace penstock {

// Requests must allow a single token (SamplingParams::allowed_token_ids), so that the drafter knows which one
// is right: each guess is that one with the chance `acceptance`, else another one. The guesses come from a
// fixed seed.
std::unique_ptr<Drafter> make_synthetic_drafter(std::unique_ptr<Drafter> inner, double acceptance);

}  // namespace penstock
