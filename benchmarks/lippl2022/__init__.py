"""The replication of Lippl, Abbott and Chung (2022)."""
