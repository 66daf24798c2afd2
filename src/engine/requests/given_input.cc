#include "engine/requests/given_input.h"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

// Positions go on behind a grid where its longer side ends.
void add_axes(const Request& request, PromptInput& input) {
  const int n_prompt = static_cast<int>(request.prompt.size());
  int next = 0;
  const auto add_text = [&](int end) {
    for (int t = static_cast<int>(input.axes.size()); t < end; ++t, ++next)
      input.axes.push_back({next, next, next});
  };
  for (const PromptEmbeddings& given : request.embeddings) {
    if (given.grid_cols == 0) continue;
    add_text(given.first);
    const int cols = given.grid_cols, rows = given.count / cols / given.grid_frames;
    const auto time_of = [&](int frame) {
      return static_cast<int>(static_cast<float>(frame) * given.frame_step);
    };
    for (int i = 0; i < given.count; ++i)
      input.axes.push_back(
          {next + time_of(i / (rows * cols)), next + i / cols % rows, next + i % cols});
    next += std::max({time_of(given.grid_frames - 1) + 1, rows, cols});
  }
  if (input.axes.empty()) return;
  add_text(n_prompt);
  input.axis_delta = next - n_prompt;
}

}  // namespace

Status check_embeddings(const Request& request, const EngineInfo& info, int most_of_step) {
  int end = 0;
  for (size_t i = 0; i < request.embeddings.size(); ++i) {
    const PromptEmbeddings& given = request.embeddings[i];
    const auto fail = [&](const std::string& what) {
      return errorf(ErrorCode::kInvalidArgument, "embeddings[{}]: {}", i, what);
    };
    if (given.first < end || given.count < 1 ||
        static_cast<size_t>(given.first) + static_cast<size_t>(given.count) >
            request.prompt.size()) {
      return fail(
          fmt::format("expected a range of the prompt's {} tokens behind {}, got {} tokens "
                      "from {} on",
                      request.prompt.size(), end, given.count, given.first));
    }
    if (info.pictures_see_themselves && given.count > most_of_step) {
      return fail(
          fmt::format("expected at most {} tokens (max_num_batched_tokens less max_num_seqs): "
                      "a picture is computed in one step, got {}",
                      most_of_step, given.count));
    }
    end = given.first + given.count;
    if (given.rows == nullptr || given.rows->levels != info.embedding_levels) {
      return fail(fmt::format("expected rows of {} levels, got {}", info.embedding_levels,
                              given.rows == nullptr ? 0 : given.rows->levels));
    }
    const EmbeddingRows& rows = *given.rows;
    const int64_t wanted = int64_t{rows.levels} * rows.n_rows * info.model_dim;
    if (rows.n_rows < 0 || static_cast<int64_t>(rows.values.size()) != wanted) {
      return fail(fmt::format("expected {} x {} x {} values, got {}", rows.levels, rows.n_rows,
                              info.model_dim, rows.values.size()));
    }
    if (given.first_row < 0 || int64_t{given.first_row} + given.count > rows.n_rows) {
      return fail(fmt::format("expected at most {} rows, got {} from {} on", rows.n_rows,
                              given.count, given.first_row));
    }
    const auto finite = [](float value) { return std::isfinite(value); };
    const bool seen = i > 0 && request.embeddings[i - 1].rows == given.rows;
    if (!seen && !rows.finite && !std::ranges::all_of(rows.values, finite))
      return fail("expected finite numbers, got an infinity or NaN");
    if (!(given.frame_step >= 0 && given.frame_step <= (1 << 16) &&
          given.frame_step * static_cast<float>(given.grid_frames) < (1 << 30)))
      return fail(fmt::format("frame_step: expected 0 to 65536, and positions below 2^30, got {}",
                              given.frame_step));
    const int frame = given.grid_frames * given.grid_cols;
    if (given.grid_cols < 0 || given.grid_frames < 1 ||
        (given.grid_cols > 0 && (frame > given.count || given.count % frame != 0))) {
      return fail(
          fmt::format("expected frames of whole rows, got {} tokens in {} frames with rows "
                      "of {}",
                      given.count, given.grid_frames, given.grid_cols));
    }
  }
  return {};
}

Status check_encoder_rows(const Request& request, const EngineInfo& info) {
  const EmbeddingRows* rows = request.encoder_rows.get();
  if (info.encoder_rows == 0) {
    if (request.watch != nullptr)
      return errorf(ErrorCode::kInvalidArgument, "watch: {} has no encoder", info.architecture);
    if (rows == nullptr) return {};
    return errorf(ErrorCode::kInvalidArgument, "encoder_rows: {} has no encoder",
                  info.architecture);
  }
  if (rows == nullptr) {
    return errorf(ErrorCode::kInvalidArgument,
                  "{} writes what it hears: it takes sounds, not text alone", info.architecture);
  }
  if (rows->levels != 1 || rows->n_rows != info.encoder_rows ||
      static_cast<int64_t>(rows->values.size()) != int64_t{rows->n_rows} * info.model_dim) {
    return errorf(ErrorCode::kInvalidArgument,
                  "encoder_rows: expected {} x {} values of one level, got {} in {} rows and {} "
                  "levels",
                  info.encoder_rows, info.model_dim, rows->values.size(), rows->n_rows,
                  rows->levels);
  }
  if (!rows->finite &&
      !std::ranges::all_of(rows->values, [](float value) { return std::isfinite(value); })) {
    return errorf(ErrorCode::kInvalidArgument,
                  "encoder_rows: expected finite numbers, got an infinity or NaN");
  }
  const bool alone = request.sampling.n == 1 && !request.sampling.use_beam_search &&
                     request.matcher == nullptr && request.adapter == nullptr;
  if (alone) return {};
  return errorf(ErrorCode::kUnsupported,
                "{}: expected one sequence (n 1, no beams) without a grammar and an adapter",
                info.architecture);
}

std::shared_ptr<const PromptInput> prompt_input_of(const Request& request, const EngineInfo& info) {
  if (request.embeddings.empty() && request.encoder_rows == nullptr) return nullptr;
  auto input = std::make_shared<PromptInput>();
  if (request.encoder_rows != nullptr) input->encoded = request.encoder_rows->values;
  input->watch = request.watch.get();
  input->levels = info.embedding_levels, input->dim = info.model_dim;
  input->parts_see = info.pictures_see_themselves;
  input->given_token = info.given_token;
  for (const PromptEmbeddings& given : request.embeddings) {
    const EmbeddingRows& rows = *given.rows;
    input->rows.push_back({given.first, given.count,
                           rows.values.data() + int64_t{given.first_row} * info.model_dim,
                           int64_t{rows.n_rows} * info.model_dim});
    input->identities.push_back({{rows.identity[0], rows.identity[1]}, given.first_row});
  }
  if (info.positions_have_axes) add_axes(request, *input);
  return input;
}

}  // namespace penstock
