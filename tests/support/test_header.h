// What every test includes, compiled once. Not JSON: it instantiates templates wherever it is seen,
// a second for each test that has no use for it. Tests that do use it share core's header instead.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
