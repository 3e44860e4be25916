// EXPECT_FREEFORMER_ERROR(code, "words", statement): the statement throws an Error with this code,
// and its message is one line that holds the words.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"

#define EXPECT_FREEFORMER_ERROR(expected_code, words, statement)                            \
  do {                                                                                      \
    try {                                                                                   \
      statement;                                                                            \
      ADD_FAILURE() << #statement " threw nothing";                                         \
    } catch (const ::freeformer::Error& ff_error) {                                         \
      EXPECT_EQ(ff_error.code(), expected_code) << ff_error.what();                         \
      EXPECT_THAT(ff_error.what(), ::testing::HasSubstr(words));                            \
      EXPECT_EQ(std::string(ff_error.what()).find('\n'), std::string::npos) << "two lines"; \
    }                                                                                       \
  } while (false)
