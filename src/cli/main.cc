#include "cli/command.h"

int main(int argc, char** argv) { return freeformer::cli::run_program({argv + 1, argv + argc}); }
