// Which types a model's matrices run in.
//
// On CPUs the type is worth more than any kernel: some of a file's types multiply several times slower than BF16 with
// many tokens (prefill), while with one token (decode) the narrow types win because fewer bytes are read. So the first
// layers' matrices are converted to each candidate and timed. Candidates are the file's own types and types that keep
// what the file had to within their rounding: BF16 (by ggml, or packed for oneDNN), and Q8_0 where the file is
// quantized. Where one type wins prefill and another decode, and memory allows, both copies are kept: answers that must
// be the same every time take the one for decode, however many tokens a step has, others the one that was faster for so
// many, prompts the one for prefill. Measurements are recorded where options name a folder for them (weight_record.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "model/compute_threads.h"
#include "model/model.h"
#include "model/weights/weights.h"

namespace shale {

class RunningWeights {
 public:
  // `content`: the model file's, under which the choice is recorded.
  static Result<RunningWeights> create(const FileTensors& file, const Hash128& content, const ModelOptions& options,
                                       ComputeThreads& threads);

  const MatrixSet& prefill() const { return *prefill_; }
  const MatrixSet& decode() const { return *decode_; }
  // Rows of `prefill` and `decode` come out alike in units of so many (row_unit.h); 0 where they do not.
  std::uint32_t row_unit() const { return row_unit_; }
  std::uint32_t decode_row_unit() const { return decode_row_unit_; }
  bool answers_apart() const { return decode_ != prefill_ && decode_row_unit_ > 0; }
  // Whether so many tokens are computed faster by `decode`, in rows of their own.
  bool faster_in_decode(std::uint32_t tokens) const { return tokens < std::max(prefill_from_, row_unit_); }
  bool has_quick() const { return decode_ != prefill_ || row_unit_ > 1; }

  std::uint64_t bytes() const;
  const std::string& prefill_name() const { return prefill_name_; }
  const std::string& decode_name() const { return decode_name_; }
  bool as_agreed() const { return as_agreed_; }
  // Names the types: models of one file that compute prompts and reproducible answers alike agree on it. The number of
  // tokens up to which `decode` runs is not in it. It decides nothing of these, and two measurements disagree about it.
  const std::string& arithmetic() const { return arithmetic_; }

 private:
  RunningWeights() = default;
  static Result<RunningWeights> choose(const FileTensors& file, const Hash128& content, const ModelOptions& options,
                                       ComputeThreads& threads);

  std::shared_ptr<const MatrixSet> prefill_, decode_;  // may be the same
  std::uint32_t row_unit_ = 1, decode_row_unit_ = 1;
  std::uint32_t prefill_from_ = 0;  // steps of this many tokens and more run `prefill_`
  bool as_agreed_ = true;
  std::string prefill_name_, decode_name_, arithmetic_;
};

}  // namespace shale
