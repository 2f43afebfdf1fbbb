// One layer of an entry as scorers read it: its pages, and what is known beside them.
#pragma once

#include <vector>

#include "codec/entry_pages.h"
#include "scoring/observations.h"
#include "scoring/scorer.h"

namespace shale {

// What it is made from must outlive it.
class EntryLayer {
 public:
  // The entry's first token stands at first_position.
  EntryLayer(const EntryPages& pages, std::uint32_t layer, std::uint32_t first_position, const ModelTraits& model,
             const Observations& observations) {
    const PageShape& shape = pages.shape();
    for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
      heads_.push_back(pages.head(layer, head));
      for (const PageView& page : heads_.back().pages) all_.push_back({page.keys, page.values});
    }
    kv_.tokens = pages.tokens();
    kv_.kv_heads = shape.kv_heads;
    kv_.head_dim = shape.head_dim;
    kv_.page_tokens = shape.page_tokens;
    kv_.layer = layer;
    kv_.pages = all_;
    kv_.first_position = first_position;
    if (!model.windows.empty()) kv_.sliding_window = model.windows[layer];
    if (!model.ropes.empty()) kv_.rope = model.ropes[layer];
    kv_.calibration = model.calibration;
    observations.hand_over(layer, kv_);
  }
  EntryLayer(const EntryLayer&) = delete;
  EntryLayer& operator=(const EntryLayer&) = delete;

  const LayerKv<Half>& kv() const { return kv_; }

 private:
  std::vector<HeadPages> heads_;
  std::vector<LayerKv<Half>::Page> all_;
  LayerKv<Half> kv_;
};

}  // namespace shale
