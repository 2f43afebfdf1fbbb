#include "cli/command.h"
#include "cli/program.h"

int main(int argc, char** argv) { return shale::run_program(argc, argv, shale::add_commands); }
