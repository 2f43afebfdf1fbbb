// One layer as scorers read it: pages of halves, head by head, and what is known beside them.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "codec/views/view_pages.h"
#include "scoring/attention_statistics.h"
#include "scoring/scorer.h"

namespace shale {

// The scorer of that name, once it is sure that it can rank `tokens` tokens of `shape`: kInvalidArgument for a name
// that is not known, needs that are not met, and attention statistics of something else.
Result<std::unique_ptr<Scorer>> ready_scorer(std::string_view name, const ScorerOptions& options,
                                             const PageShape& shape, std::uint32_t tokens,
                                             const AttentionStatistics& statistics, const ModelTraits& model);

// Everything it is made from, pages that are no copies included, must outlive it.
class ViewLayer {
 public:
  // `heads` has each KV head's pages of `shape`, of halves. The first token stands at first_position.
  ViewLayer(std::vector<HeadPages> heads, const PageShape& shape, std::uint32_t tokens, std::uint32_t layer,
            std::uint32_t first_position, const ModelTraits& model, const AttentionStatistics& statistics);
  ViewLayer(const ViewLayer&) = delete;
  ViewLayer& operator=(const ViewLayer&) = delete;

  const LayerKv<Half>& kv() const { return kv_; }

 private:
  std::vector<HeadPages> heads_;
  std::vector<LayerKv<Half>::Page> all_;
  LayerKv<Half> kv_;
};

}  // namespace shale
