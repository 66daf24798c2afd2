#include "cli/commands.h"

int main(int argc, char** argv) { return penstock::run_program(argc, argv); }
