#pragma once

// Marks a class whose type information must be one and the same in the core and in every plugin:
// the interfaces of the kinds and the exception types that cross the boundary. libkeyseat.so
// exports everything else by itself; plugins are compiled with hidden visibility.
#define KEYSEAT_API __attribute__((visibility("default")))
