"""Measurements that stand in the documents; `make bench` makes them again."""
