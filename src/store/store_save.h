// A save in flight: extents are encoded one after the other and written while the next is.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "store/store_core.h"

namespace shale {

// What a caller and the work share.
struct StoreSave::State {
  explicit State(StoreCore& owner) : core(owner) {}

  void set_released();
  void set_done(Status status);
  template <class Reached>
  Status wait_until(const Reached& reached);

  StoreCore& core;
  std::uint32_t shared_blocks = 0;
  std::atomic<bool> cancelled = false;
  std::mutex view_mutex;     // held while the view is read
  mutable std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool released = false, done = false;
  Status status;
};

class SaveJob final : public StoreJob {
 public:
  struct Plan {
    std::vector<BlockKey> keys;  // of the chain
    std::vector<std::int32_t> tokens;
    KvView view;
    std::uint32_t view_block = 0;  // of the chain, the view's first
    StoreHints hints;
    Hash128 realm;
    std::uint16_t realm_number = 0;
    struct Piece {
      std::uint32_t first_block = 0, blocks = 0;  // of the chain
    };
    std::vector<Piece> pieces;  // extents to be

    // The tag of a chunk that is being saved by the method.
    std::uint64_t tag(std::uint32_t block) const;
  };

  SaveJob(StoreCore& core, Plan plan, std::shared_ptr<StoreSave::State> handle);
  ~SaveJob() override;

  Progress step(Executor& executor) override;

 private:
  // An extent that is encoded and on its way to a tier, then perhaps to another.
  struct Writing {
    std::shared_ptr<const ExtentBlobs> blobs;
    ExtentFacts facts;
    Plan::Piece piece;
    Staging::Share share;
    std::uint32_t tier = 0;
    double since_s = 0;  // when it began to wait for room
    unsigned refusals = 0;
    std::unique_ptr<ExtentWriter> writer;
    std::optional<ExtentId> id;  // used until it is over
    bool placed = false;
    bool stored = false;                                       // on the first tier
    std::uint64_t removals = 0;                                // by callers until then
    std::shared_ptr<const std::optional<bool>> becoming = {};  // of what is made of it, to lie there instead
    bool begun = false;                                        // logged, as the so-many-th record of the tier
    std::uint64_t logged = 0;
    std::uint64_t promised = 0;  // of its tenant's bytes
    bool over = false;
  };

  bool encode(Executor& executor);
  Status encode_piece(Executor& executor);
  Status start_next();
  Status start_ranker();
  void finish_encoder();
  bool advance(Writing& writing);
  bool may_become() const { return plan_.hints.method.is_full() && !plan_.hints.pin; }
  bool begin(Writing& writing);
  bool place(Writing& writing, std::unique_lock<std::mutex>& lock);
  bool refuse(Writing& writing, std::unique_lock<std::mutex>& lock, Status why);
  Status no_room(const Writing& writing, std::string_view which) const;
  bool became(Writing& writing);
  bool start_writing(Writing& writing);
  void stored(Writing& writing, std::unique_lock<std::mutex> lock);
  void tell(const Writing& writing);
  void note_stored(Writing& writing);
  bool admit(Writing& writing);
  void count_placed(std::size_t pieces);
  void begin_replica(Writing& writing);
  void failed(Writing& writing, Status status);
  void give_up(Status status);

  StoreCore& core_;
  Plan plan_;
  const std::shared_ptr<StoreSave::State> handle_;
  std::size_t next_ = 0;              // piece to encode
  std::size_t placed_ = 0;            // pieces that can be found, or failed
  std::vector<std::string> to_rank_;  // the next one last
  std::optional<RunRanker> ranker_;
  std::vector<Ranking> rankings_;  // of the whole view
  std::optional<ExtentEncoder> encoder_;
  Staging::Share encoder_share_;
  std::vector<Writing> writings_;
  Status status_;  // the first error
};

// Cuts what is not there yet into extents, with the core's mutex held, and notes that it is being saved.
void plan_pieces(StoreCore& core, SaveJob::Plan& plan);
// Likewise: it is not being saved any more.
void forget_saving(StoreCore& core, const SaveJob::Plan& plan, const SaveJob::Plan::Piece& piece);

}  // namespace shale
