"""The embedded engine: llama.cpp in a child process, its model files and their conversion."""
