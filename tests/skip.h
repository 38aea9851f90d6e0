#pragma once
// KEYSEAT_SKIP("reason"): leaves a doctest case that cannot run on this machine. tools/test counts
// it as skipped, not as passed, and prints the reason.

#include <doctest/doctest.h>

#include <cstdio>
#include <string>

#define KEYSEAT_SKIP(reason)                                                                 \
  do {                                                                                       \
    std::printf("KEYSEAT-SKIP: %s: %s\n", doctest::getContextOptions()->currentTest->m_name, \
                std::string(reason).c_str());                                                \
    return;                                                                                  \
  } while (false)
