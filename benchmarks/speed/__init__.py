"""The native solvers beside their peers: time, memory, growth."""
