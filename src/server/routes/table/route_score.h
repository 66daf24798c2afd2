// The probability that a question needs the large model: logistic regression on its embedding.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

struct RouteExample {
  std::string question;
  bool needs_large = false;
};

// Reads examples from JSON lines, each with `prompt` (a text) or `messages` (of a chat; the last
// user message counts), and one of
//   label: 1 or true, "large": the large model is needed; 0, false, "small": the small one does
//   small, large: scores of the answers of both: the large one is needed where it is better by more
//   than `margin`
// Errors: kNotFound, kInvalidArgument (names the line).
Result<std::vector<RouteExample>> read_route_examples(const std::string& file, double margin);

class RouteScore {
 public:
  // strength: weight of the L2 (ridge) penalty. REQUIRES: all vectors have the same length. Errors:
  // kInvalidArgument, when there are fewer than two examples or all have the same label.
  static Result<RouteScore> train(std::span<const std::vector<float>> vectors,
                                  const std::vector<bool>& needs_large, double strength);
  // load() and save() use a JSON file. Errors: kNotFound, kIo, kCorruptFile, kUnsupported.
  static Result<RouteScore> load(const std::string& file);
  Status save(const std::string& file) const;
  // Checks that save() loses nothing but an earlier score; to be called before the training. Error:
  // kInvalidArgument (another file is there).
  static Status check_place(const std::string& file);

  size_t dimensions() const { return weights_.size(); }
  // Returns the probability, 0 to 1. REQUIRES: vector.size() == dimensions().
  double operator()(std::span<const float> vector) const;
  // minimum score of questions for the large model
  double threshold = 0.5;
  std::string embedder;  // name of the embedding model; informational

 private:
  std::vector<double> weights_;
  double bias_ = 0;
};

// The effect of a threshold on scored examples.
struct RouteOutcome {
  // to_large: share of the examples that go to the large model
  double threshold = 0, to_large = 0;
  // share of the examples that need the large model and go to it
  double found = 0;
};
// Returns the outcomes for evenly spaced shares of examples that go to the large model, from all to
// none.
std::vector<RouteOutcome> route_outcomes(std::vector<std::pair<double, bool>> scored, int n_steps);
// Returns the area under the ROC curve: the probability that an example that needs the large model
// has a higher score than one that does not.
double route_auc(std::vector<std::pair<double, bool>> scored);

}  // namespace penstock
