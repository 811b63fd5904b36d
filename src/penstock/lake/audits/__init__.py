"""Audits: what is asked of tables before others see them, by functions and by queries."""
