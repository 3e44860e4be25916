// What most tests include and nobody edits, compiled once: the precompiled header of the tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json.h"
