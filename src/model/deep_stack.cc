#include "model/deep_stack.h"

#include <pthread.h>

#include <exception>

namespace shale {
namespace {

struct Run {
  const std::function<void()>& work;
  std::exception_ptr failure = {};
};

void* run(void* of) {
  Run& self = *static_cast<Run*>(of);
  try {
    self.work();
  } catch (...) {
    self.failure = std::current_exception();
  }
  return nullptr;
}

}  // namespace

bool run_on_stack(std::size_t bytes, const std::function<void()>& work) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  Run self{work};
  pthread_t thread;
  int code = pthread_attr_setstacksize(&attributes, bytes);
  if (code == 0) code = pthread_create(&thread, &attributes, run, &self);
  pthread_attr_destroy(&attributes);
  if (code != 0) return false;
  pthread_join(thread, nullptr);
  if (self.failure) std::rethrow_exception(self.failure);
  return true;
}

}  // namespace shale
