"""Typed op records: what layers emit and backends run."""
