// Runs a batch without a listening server: reads lines from a file and writes results to another.
//
// Lines whose results are already in the output are not computed again, so that the same call
// resumes an interrupted run.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/regular_file.h"
#include "base/text_hash.h"
#include "server/batches/batch_lines.h"
#include "server/batches/store/batches.h"

namespace penstock {

struct Services;

class BatchFile {
 public:
  struct Progress {
    int64_t total = 0, completed = 0, failed = 0;  // lines
    int64_t n_tokens = 0;                          // generated in this run
  };

  // Reads both files; the input may be larger than memory. Errors: kNotFound, kIo; kInvalidArgument
  // (invalid lines, each with its number); kCorruptFile (the output has other content).
  static Result<std::unique_ptr<BatchFile>> open(const std::string& input,
                                                 const std::string& output);

  // Computes the lines without a result. go_on is called with the progress several times a second;
  // it returns false to stop early. Errors: kIo.
  Status run(Services& services, const std::function<bool(const Progress&)>& go_on);
  Progress progress() const;

 private:
  struct Place {
    int64_t begin;
    int64_t bytes;
  };
  struct Run;
  BatchFile() = default;
  Status read_input();
  Status take_line(std::string_view text, int64_t begin, int64_t number);
  Status check_results() const;
  Result<BatchLine> line_at(const Place& place) const;
  net::awaitable<void> run_lines(Run& run);
  net::awaitable<void> run_line(Run& run, Place place);

  std::string input_;
  FileDescriptor file_;        // the input file
  std::vector<Place> places_;  // lines of the input
  TextSet ids_;
  std::vector<BatchMistake> mistakes_;
  std::unique_ptr<BatchResults> results_;
  int64_t n_tokens_ = 0;
};

}  // namespace penstock
