// How fast a model runs over pages: random tokens, no sampling, no cache, as llama.cpp's benchmark programs measure.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "bench/peers/llama_peer.h"
#include "model/model.h"

namespace shale {

class EngineSpeed {
 public:
  // Makes a pool of `element` that holds the largest of `tests`. kInvalidArgument when one is longer than the model's
  // context.
  static Result<EngineSpeed> create(Model& model, PageElement element, std::span<const SpeedTest> tests);

  // Tokens per second, over all sequences together. What lies below `depth` is computed once and not timed.
  Result<double> measure(const SpeedTest& test);

 private:
  EngineSpeed(Model& model, std::unique_ptr<PagePool> pool);
  Status extend(Sequence& sequence, std::uint32_t tokens);
  Result<std::vector<Sequence>> forks(const SpeedTest& test);
  Status decode(std::vector<Sequence>& sequences, const SpeedTest& test);

  Model* model_;
  std::unique_ptr<PagePool> pool_;
  std::vector<Token> tokens_;   // random, one chunk's worth and more
  std::vector<Sequence> deep_;  // [0] as deep as a single sequence was asked for, the rest for batches
};

}  // namespace shale
