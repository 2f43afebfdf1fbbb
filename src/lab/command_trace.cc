#include "lab/command_trace.h"

namespace shale {

void add_trace(Command parent, Action& chosen) {
  Command group = parent.add_group("trace", "Look at request traces, and make them");
  group.footer(
      "Examples:\n"
      "  shale trace info access.jsonl.gz\n"
      "  shale trace info sessions.jsonl.gz --session-rate 0.02 --share-prefixes same-size --json\n"
      "  shale trace make chats --requests 100000 --rate 20 --arrivals diurnal --out chats.trace.gz\n"
      "  shale trace make questions documents.jsonl --model smollm2-135m --out questions.jsonl --form jsonl");
  add_trace_info(group, chosen);
  add_trace_make(group, chosen);
}

}  // namespace shale
