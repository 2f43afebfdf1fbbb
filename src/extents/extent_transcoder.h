// Another form of an extent, made of its exact bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "codec/extent.h"
#include "codec/ranking.h"
#include "extents/extent_io.h"

namespace shale {

// What is referred to must outlive the transcoder.
struct TranscodeOptions {
  const ScorerOptions& scorers;
  const ModelTraits& model;
  const CachegenTables* tables = nullptr;
  BufferPool* buffers = nullptr;  // that parts come from
};

// Decodes an exact extent, ranks its tokens where the method asks for that and no ranking was stored with it, and
// encodes it, in bounded pieces. One caller at a time.
class ExtentTranscoder {
 public:
  // The blobs are those of the manifest, whole. Errors as of ExtentDecoder::start.
  static Result<ExtentTranscoder> start(ExtentManifest manifest, std::shared_ptr<const ExtentBlobs> blobs,
                                        const Method& method, const TranscodeOptions& options);

  // Does the next piece, about a millisecond a thread. False when all is done. kCorrupt where a chunk is damaged, else
  // as starting RunRanker and ExtentEncoder fails; it is over then.
  Result<bool> step(Executor& executor);
  // Bit by chunk: those that could not be decoded.
  std::uint32_t failed_chunks() const { return failed_chunks_; }
  // Whether the ranking that should be stored with it is damaged or missing, so that its tokens are ranked anew.
  bool ranking_damaged() const { return ranking_damaged_; }
  // Once, after step() returned false.
  ExtentEncoder::Encoded finish() { return encoder_->finish(); }

 private:
  ExtentTranscoder(ExtentManifest manifest, std::shared_ptr<const ExtentBlobs> blobs, const Method& method,
                   const TranscodeOptions& options);

  KvView decoded() const;
  Result<bool> decode(Executor& executor);
  Status rank();
  std::optional<Ranking> stored_ranking() const;
  Status encode(std::vector<Ranking> rankings);

  ExtentManifest manifest_;
  std::shared_ptr<const ExtentBlobs> blobs_;
  Method method_;
  TranscodeOptions options_;
  AlignedBuffer bytes_;
  std::optional<ExtentDecoder> decoder_;
  std::uint32_t range_ = 0;
  std::optional<RunRanker> ranker_;
  std::optional<ExtentEncoder> encoder_;
  std::uint32_t failed_chunks_ = 0;
  bool ranking_damaged_ = false;
};

}  // namespace shale
