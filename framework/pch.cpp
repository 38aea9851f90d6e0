// Carries the shared precompiled header (pch.h); there is nothing else to compile here.
