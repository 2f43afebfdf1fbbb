// CLI11's names, for headers that only mention them: whoever includes the library compiles for seconds.
#pragma once

namespace CLI {
class App;
class Option;
}  // namespace CLI
