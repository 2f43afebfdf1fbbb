// Between the store's C interface and its types: handles, errors, views, hints.
#pragma once

#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shale/store.h"
#include "store/store.h"

struct shale_store {
  shale::RealClock clock;  // outlives the store and its tiers
  std::unique_ptr<shale::Store> store;
  shale::KvGeometry geometry;
};

struct shale_load {
  std::unique_ptr<shale::StoreLoad> load;
  std::vector<std::string> methods;  // of the runs, once asked for
};

struct shale_save {
  std::unique_ptr<shale::StoreSave> save;
};

namespace shale {

shale_code code_of(ErrorCode code);
// Leaves the message for shale_error_message().
shale_code failed(const Error& error);
shale_code failed_without_memory();
const char* last_message();

// What may throw, behind the border: only memory that is not there, and bugs.
template <class Call>
shale_code guarded(const Call& call) noexcept {
  try {
    const Status status = call();
    return status ? SHALE_OK : failed(status.error());
  } catch (const std::bad_alloc&) {
    return failed_without_memory();
  } catch (const std::exception& error) {
    return failed({ErrorCode::kInternal, error.what()});
  }
}

// kInvalidArgument where it is NULL.
Status check_given(const void* pointer, std::string_view name);
// An array of `count` elements; NULL only where it is empty.
template <class Element>
Result<std::span<const Element>> span_of(const Element* elements, std::size_t count, std::string_view name) {
  if (count > 0) SHALE_TRY(check_given(elements, name));
  return std::span<const Element>(elements, elements ? count : 0);
}
Result<std::span<const BlockKey>> keys_of(const shale_key* keys, std::size_t count);
const shale_key* keys_to(const std::vector<BlockKey>& keys);

std::string_view text_of(const char* text);  // NULL: empty
KvGeometry geometry_of(const shale_geometry& geometry);
// The caller's view, in the store's geometry.
Result<KvView> view_of(const shale_store& store, const shale_view* view);
Result<MutableKvView> mutable_view_of(const shale_store& store, const shale_view* view);
StoreNeeds needs_of(const shale_needs* needs);
// `tokens`: of the view. Its tokens point to the caller's.
Result<StoreHints> hints_of(const shale_store& store, const shale_save_hints& given, std::uint32_t tokens);
Result<StoreOptions> options_of(const shale_store_options& given);

}  // namespace shale
