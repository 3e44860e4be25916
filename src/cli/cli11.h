// CLI11, which takes seconds to compile: the precompiled header of this folder.
#pragma once

#include <CLI/CLI.hpp>

#include "core/json.h"
